//! Computes statistics of durations, and formats them as tables. This module reads no clock and
//! prints nothing.

use std::fmt::Write as _;
use std::time::Duration;

/// The summary of a series of measurements.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Summary {
    /// Number of measurements.
    pub count: usize,
    /// The shortest measurement.
    pub min: Duration,
    /// The median; the mean of the middle two if the count is even.
    pub median: Duration,
    /// The nearest-rank 99th percentile; with fewer than 100 measurements, the longest.
    pub p99: Duration,
    /// The longest measurement.
    pub max: Duration,
}

impl Summary {
    /// Summarizes a series in any order; `None` if it is empty.
    pub fn of(series: &[Duration]) -> Option<Self> {
        let mut sorted = series.to_vec();
        sorted.sort_unstable();
        let count = sorted.len();
        let (min, max) = (*sorted.first()?, *sorted.last()?);
        let upper = sorted[count / 2];
        let median = if count.is_multiple_of(2) {
            (sorted[count / 2 - 1] + upper) / 2
        } else {
            upper
        };
        let rank = (count * 99).div_ceil(100);
        Some(Self {
            count,
            min,
            median,
            p99: sorted[rank - 1],
            max,
        })
    }

    /// Returns the cells of a table row: median, p99, min, max, N.
    pub fn cells(&self) -> [String; 5] {
        let Self {
            count,
            min,
            median,
            p99,
            max,
        } = *self;
        [
            readable(median),
            readable(p99),
            readable(min),
            readable(max),
            count.to_string(),
        ]
    }
}

/// The headings of [`Summary::cells`].
pub const SUMMARY_HEADINGS: [&str; 5] = ["median", "p99", "min", "max", "N"];

/// Formats a duration in the unit that gives three or four significant digits: `870 µs`, `2.31 ms`,
/// `3.24 s`, `24.0 s`.
pub fn readable(duration: Duration) -> String {
    let seconds = duration.as_secs_f64();
    let (value, unit) = if seconds >= 1.0 {
        (seconds, "s")
    } else if seconds >= 0.001 {
        (seconds * 1e3, "ms")
    } else {
        (seconds * 1e6, "µs")
    };
    let digits = match value {
        value if value < 9.995 => 2,
        value if value < 99.95 => 1,
        _ => 0,
    };
    format!("{value:.digits$} {unit}")
}

/// A table with columns of fixed width. The first column is aligned left, the others right.
#[derive(Debug, Clone)]
pub struct Table {
    rows: Vec<Vec<String>>,
}

impl Table {
    /// Creates a table with these headings.
    pub fn new<H: Into<String>>(headings: impl IntoIterator<Item = H>) -> Self {
        Self {
            rows: vec![headings.into_iter().map(Into::into).collect()],
        }
    }

    /// Creates a table with the heading `first` and the headings of a [`Summary`].
    pub fn of_summaries(first: &str) -> Self {
        Self::new(std::iter::once(first).chain(SUMMARY_HEADINGS))
    }

    /// Appends a row.
    pub fn row<C: Into<String>>(&mut self, cells: impl IntoIterator<Item = C>) {
        self.rows.push(cells.into_iter().map(Into::into).collect());
    }

    /// Appends a row with the summary of a series, or dashes if it is empty.
    pub fn series(&mut self, name: &str, series: &[Duration]) {
        let cells = Summary::of(series).map_or_else(
            || ["-", "-", "-", "-", "0"].map(str::to_owned),
            |summary| summary.cells(),
        );
        self.row(std::iter::once(name.to_owned()).chain(cells));
    }

    /// Renders the table as text, with two spaces between columns, a rule under the headings, no
    /// trailing spaces, and a line feed after each row.
    pub fn render(&self) -> String {
        let columns = self.rows.iter().map(Vec::len).max().unwrap_or(0);
        let width = |column: usize| {
            let cells = self.rows.iter().filter_map(move |row| row.get(column));
            cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
        };
        let widths: Vec<usize> = (0..columns).map(width).collect();
        let mut text = String::new();
        for (index, row) in self.rows.iter().enumerate() {
            let mut line = String::new();
            for (column, (cell, width)) in row.iter().zip(&widths).enumerate() {
                // Writing to a string cannot fail.
                let _ = match column {
                    0 => write!(line, "{cell:<width$}"),
                    _ => write!(line, "  {cell:>width$}"),
                };
            }
            text += line.trim_end();
            text.push('\n');
            if index == 0 {
                let rules: Vec<_> = widths.iter().map(|width| "-".repeat(*width)).collect();
                text += &rules.join("  ");
                text.push('\n');
            }
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(values: &[u64]) -> Vec<Duration> {
        values
            .iter()
            .map(|value| Duration::from_millis(*value))
            .collect()
    }

    #[test]
    fn a_summary_does_not_depend_on_order() {
        let summary = Summary::of(&ms(&[30, 10, 20])).unwrap();
        assert_eq!(summary, Summary::of(&ms(&[10, 20, 30])).unwrap());
        assert_eq!(summary.median, Duration::from_millis(20));
        assert_eq!(summary.p99, Duration::from_millis(30));
    }

    #[test]
    fn an_even_series_has_its_median_between_two() {
        let summary = Summary::of(&ms(&[10, 20, 30, 40])).unwrap();
        assert_eq!(summary.median, Duration::from_millis(25));
    }

    #[test]
    fn p99_of_two_hundred_values_excludes_two() {
        let series: Vec<_> = (1..=200).map(Duration::from_millis).collect();
        assert_eq!(
            Summary::of(&series).unwrap().p99,
            Duration::from_millis(198)
        );
    }

    #[test]
    fn an_empty_series_has_no_summary() {
        assert_eq!(Summary::of(&[]), None);
    }

    #[test]
    fn durations_are_written_with_three_digits_or_more() {
        let cases = [
            (Duration::from_micros(870), "870 µs"),
            (Duration::from_micros(2_314), "2.31 ms"),
            (Duration::from_millis(722), "722 ms"),
            (Duration::from_millis(16_120), "16.1 s"),
            (Duration::from_nanos(999_999), "1000 µs"),
            (Duration::ZERO, "0.00 µs"),
        ];
        for (duration, text) in cases {
            assert_eq!(readable(duration), text);
        }
    }

    #[test]
    fn a_table_lines_up() {
        let mut table = Table::of_summaries("figure");
        table.series("graceful hand-off", &ms(&[4, 6, 5]));
        table.series("none", &[]);
        let expected = "\
figure              median      p99      min      max  N
-----------------  -------  -------  -------  -------  -
graceful hand-off  5.00 ms  6.00 ms  4.00 ms  6.00 ms  3
none                     -        -        -        -  0
";
        assert_eq!(table.render(), expected);
    }
}
