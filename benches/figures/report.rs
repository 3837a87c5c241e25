//! The table of measured values and their targets. This module does not measure.

use std::time::Duration;

use leasehold_testbed::timeline::{SUMMARY_HEADINGS, Table, readable};

/// The unit of a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Unit {
    /// In seconds.
    Time,
    /// In bytes; shown in MB of 10⁶.
    Bytes,
    /// A number of things.
    Count,
}

/// The value of a series that a target applies to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Statistic {
    Median,
    P99,
    Min,
    Max,
}

/// One condition of a target.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Bound {
    AtMost(Statistic, f64),
    AtLeast(Statistic, f64),
}

/// One line of the table.
#[derive(Debug, Clone)]
pub(crate) struct Row {
    pub(crate) figure: &'static str,
    what: String,
    cells: [String; 5],
    target: String,
    verdict: &'static str,
}

impl Row {
    /// Creates the row of a series, which is only reported if it has no bounds.
    pub(crate) fn new(
        figure: &'static str,
        what: impl Into<String>,
        unit: Unit,
        series: &[f64],
        bounds: &[Bound],
    ) -> Self {
        let sorted = sorted(series);
        let cell = |statistic| value(&sorted, statistic).map_or("-".to_owned(), |v| unit.show(v));
        let met = |bound: &Bound| match *bound {
            Bound::AtMost(of, limit) => value(&sorted, of).is_some_and(|value| value <= limit),
            Bound::AtLeast(of, limit) => value(&sorted, of).is_some_and(|value| value >= limit),
        };
        let target: Vec<_> = bounds.iter().map(|bound| bound.show(unit)).collect();
        Self {
            figure,
            what: what.into(),
            cells: [
                cell(Statistic::Median),
                cell(Statistic::P99),
                cell(Statistic::Min),
                cell(Statistic::Max),
                sorted.len().to_string(),
            ],
            target: target.join(", "),
            verdict: match bounds {
                [] => "",
                bounds if bounds.iter().all(met) => "met",
                _ => "MISSED",
            },
        }
    }

    /// Creates the row of a figure that could not be measured.
    pub(crate) fn failed(figure: &'static str) -> Self {
        Self {
            figure,
            what: "could not be measured, see above".to_owned(),
            cells: std::array::from_fn(|_| "-".to_owned()),
            target: String::new(),
            verdict: "FAILED",
        }
    }

    /// Returns the row as one line, for the progress output.
    pub(crate) fn line(&self) -> String {
        let cells = SUMMARY_HEADINGS.iter().zip(&self.cells);
        let cells: Vec<_> = cells.map(|(name, cell)| format!("{name} {cell}")).collect();
        let (figure, what, target) = (self.figure, &self.what, &self.target);
        format!(
            "  {figure}: {what}: {}; target {target} {}",
            cells.join(", "),
            self.verdict
        )
    }
}

/// All rows.
#[derive(Debug, Default)]
pub(crate) struct Report {
    rows: Vec<Row>,
}

impl Report {
    pub(crate) fn add(&mut self, row: Row) {
        self.rows.push(row);
    }

    /// Returns the table, formatted for a Markdown code block.
    pub(crate) fn render(&self) -> String {
        let headings = ["figure", "what"].into_iter().chain(SUMMARY_HEADINGS);
        let mut table = Table::new(headings.chain(["target", "verdict"]));
        for row in &self.rows {
            let Row {
                figure,
                what,
                cells,
                target,
                verdict,
            } = row.clone();
            let first = [figure.to_owned(), what];
            let last = [target, verdict.to_owned()];
            table.row(first.into_iter().chain(cells).chain(last));
        }
        table.render()
    }
}

impl Unit {
    fn show(self, value: f64) -> String {
        match self {
            Self::Time => {
                let sign = if value < 0.0 { "-" } else { "" };
                format!("{sign}{}", readable(Duration::from_secs_f64(value.abs())))
            }
            Self::Bytes => format!("{:.2} MB", value / 1e6),
            Self::Count if value.fract() == 0.0 => format!("{value:.0}"),
            // Shares and commands are small numbers, and their targets have a decimal.
            Self::Count if value < 10.0 => format!("{value:.2}"),
            Self::Count => format!("{value:.1}"),
        }
    }
}

impl Bound {
    fn show(&self, unit: Unit) -> String {
        let (statistic, sign, limit) = match *self {
            Self::AtMost(statistic, limit) => (statistic, '≤', limit),
            Self::AtLeast(statistic, limit) => (statistic, '≥', limit),
        };
        let statistic = match statistic {
            Statistic::Median => "p50",
            Statistic::P99 => "p99",
            Statistic::Min => "min",
            Statistic::Max => "max",
        };
        format!("{statistic} {sign} {}", unit.show(limit))
    }
}

fn sorted(series: &[f64]) -> Vec<f64> {
    let mut sorted = series.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted
}

/// Returns a statistic of a sorted series. With fewer than 100 values, the 99th percentile is the
/// largest (nearest rank).
fn value(sorted: &[f64], statistic: Statistic) -> Option<f64> {
    let last = sorted.len().checked_sub(1)?;
    Some(match statistic {
        Statistic::Min => sorted[0],
        Statistic::Max => sorted[last],
        Statistic::P99 => sorted[(sorted.len() * 99).div_ceil(100) - 1],
        Statistic::Median => f64::midpoint(sorted[last / 2], sorted[sorted.len() / 2]),
    })
}
