//! Renders tables for terminals: aligned columns with a header.

use std::io::{self, IsTerminal, Write};

use rustix::termios::tcgetwinsize;
use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

use leasehold_host::terminal;

const GAP: usize = 2;
const FIELD: usize = 11;
/// Columns and rows that are assumed if a terminal does not report its size.
const SIZE: (usize, usize) = (80, 24);

pub(crate) fn size() -> (usize, usize) {
    let Ok(size) = tcgetwinsize(io::stdout()) else {
        return SIZE;
    };
    let or = |reported: u16, default| match reported {
        0 => default,
        reported => usize::from(reported),
    };
    (or(size.ws_col, SIZE.0), or(size.ws_row, SIZE.1))
}

pub(crate) fn color() -> bool {
    terminal::color(&io::stdout())
}

/// A temporary line on the terminal, erased on drop.
pub(crate) struct PassingLine {
    is_shown: bool,
}

impl PassingLine {
    pub(crate) fn new(text: &str) -> Self {
        let is_shown = terminal::color(&io::stderr());
        if is_shown {
            let line = cut(text, size().0) + "\r";
            let _ = io::stderr().write_all(line.as_bytes());
        }
        Self { is_shown }
    }

    pub(crate) const fn is_shown(&self) -> bool {
        self.is_shown
    }
}

impl Drop for PassingLine {
    fn drop(&mut self) {
        if self.is_shown {
            let _ = write!(io::stderr(), "\u{1b}[K");
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Style {
    Plain,
    Header,
    Good,
    Warning,
    Bad,
    Dim,
}

impl Style {
    pub(crate) fn paint(self, text: &str, color: bool) -> String {
        let code = match self {
            _ if !color => return text.to_owned(),
            Self::Plain => return text.to_owned(),
            Self::Header => 1,
            Self::Good => 32,
            Self::Warning => 33,
            Self::Bad => 31,
            Self::Dim => 2,
        };
        format!("\u{1b}[{code}m{text}\u{1b}[0m")
    }
}

#[derive(Debug, Clone)]
pub(crate) struct Row {
    pub(crate) cells: Vec<String>,
    pub(crate) style: Style,
}

impl Row {
    pub(crate) fn new(cells: impl IntoIterator<Item = impl Into<String>>) -> Self {
        Self {
            cells: cells.into_iter().map(Into::into).collect(),
            style: Style::Plain,
        }
    }

    pub(crate) fn styled(mut self, style: Style) -> Self {
        self.style = style;
        self
    }
}

/// Renders rows as aligned lines. With a `width`, columns that do not fit continue below their row,
/// so that no name is truncated. The last column is prose, and the first row is the header.
pub(crate) fn lines(rows: &[Row], width: Option<usize>, color: bool) -> Vec<String> {
    let columns = rows.iter().map(|row| row.cells.len()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..columns)
        .map(|column| {
            let cells = rows.iter().filter_map(|row| row.cells.get(column));
            cells.map(|cell| cell.width()).max().unwrap_or(0)
        })
        .collect();
    let max = width.unwrap_or(usize::MAX);
    let fits = |columns: usize| {
        let gaps = GAP * columns.saturating_sub(1);
        widths[..columns].iter().sum::<usize>() + gaps <= max
    };
    let aligned = (1..=columns).rev().find(|columns| fits(*columns));
    let aligned = aligned.unwrap_or(1);
    let header = rows.first().map_or(&[][..], |header| &header.cells);
    let line = |(index, row): (usize, &Row)| {
        let mut line = String::new();
        for (cell, width) in row.cells.iter().zip(&widths).take(aligned) {
            let padding = width - cell.width() + GAP;
            line += &format!("{cell}{:padding$}", "");
        }
        let column = line.width();
        let mut lines = vec![line.trim_end().to_owned()];
        match row.cells.get(aligned..).unwrap_or_default() {
            [prose] if column + prose.width() <= max => {
                lines = vec![(line + prose).trim_end().to_owned()];
            }
            // The header omits these columns, because continued cells contain their column names.
            _ if index == 0 => {}
            rest => {
                let prose = named(header.get(aligned..).unwrap_or_default(), rest);
                let below = continued(&prose, max.saturating_sub(GAP));
                lines.extend(below.iter().map(|line| format!("{:GAP$}{line}", "")));
            }
        }
        lines
            .into_iter()
            .map(|line| row.style.paint(&line, color))
            .collect::<Vec<_>>()
    };
    rows.iter().enumerate().flat_map(line).collect()
}

/// Renders rows for standard output. On a terminal, lines are limited to its width.
pub(crate) fn text(rows: &[Row], color: bool) -> String {
    let width = io::stdout().is_terminal().then(|| size().0);
    lines(rows, width, color).join("\n") + "\n"
}

/// Renders fields, then tables with headings. A field that is wider than the terminal continues on
/// the next line.
pub(crate) fn description(fields: &[(&str, String)], tables: &[(&str, Vec<Row>)]) -> String {
    let max = match io::stdout().is_terminal() {
        true => size().0.saturating_sub(FIELD),
        false => usize::MAX,
    };
    let mut described = String::new();
    for (name, value) in fields {
        let value = match value.width() <= max {
            true => value.clone(),
            false => continued(value, max).join(&format!("\n{:FIELD$}", "")),
        };
        let name = format!("{name}:");
        described += &format!("{name:<FIELD$}{value}\n");
    }
    for (heading, rows) in tables {
        described += &match rows.as_slice() {
            // A single cell is a remark in place of the table.
            [row] if row.cells.len() == 1 => format!("\n{heading}: {}\n", row.cells[0]),
            [_] => format!("\n{heading}: none\n"),
            _ => format!("\n{heading}:\n{}", text(rows, color())),
        };
    }
    described
}

/// Returns cells as prose, with the names of their columns. The last cell is already prose.
fn named(header: &[String], cells: &[String]) -> String {
    let Some((prose, cells)) = cells.split_last() else {
        return String::new();
    };
    let cells = header.iter().zip(cells);
    let named = cells.filter(|(_, cell)| *cell != "-");
    let named = named.map(|(name, cell)| format!("{} {cell}", name.to_lowercase()));
    let parts = named.chain(Some(prose.clone()));
    let parts: Vec<_> = parts.filter(|part| !part.is_empty()).collect();
    parts.join("; ")
}

fn continued(prose: &str, width: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in prose.split_whitespace() {
        match lines.last_mut() {
            Some(line) if line.width() + 1 + word.width() <= width => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.to_owned()),
        }
    }
    lines
}

/// Returns "1 lease" or "2 leases".
pub(crate) fn counted(count: usize, noun: &str) -> String {
    let plural = if count == 1 { "" } else { "s" };
    format!("{count} {noun}{plural}")
}

pub(crate) fn cut(line: &str, max: usize) -> String {
    if line.width() <= max {
        return line.to_owned();
    }
    let mut left = max.saturating_sub(1);
    let fits = |c: &char| {
        let width = c.width().unwrap_or(0);
        let fits = width <= left;
        left = left.saturating_sub(width);
        fits
    };
    line.chars().take_while(fits).collect::<String>() + "…"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_is_singular() {
        let counts = [0, 1, 2].map(|count| counted(count, "lease"));
        assert_eq!(counts, ["0 leases", "1 lease", "2 leases"]);
    }

    #[test]
    fn columns_are_aligned_by_what_a_terminal_shows() {
        let rows = [
            Row::new(["A", "B"]),
            Row::new(["日本", "x"]),
            Row::new(["ü", "longer"]),
        ];
        assert_eq!(
            lines(&rows, None, false),
            ["A     B", "日本  x", "ü     longer"]
        );
        let styled = [Row::new(["x"]).styled(Style::Bad)];
        assert_eq!(text(&styled, true), "\u{1b}[31mx\u{1b}[0m\n");
        assert_eq!(text(&styled, false), "x\n");
    }

    #[test]
    fn prose_that_does_not_fit_is_continued_below_its_row() {
        let rows = [
            Row::new(["LEASE", "STATE", "NOTES"]),
            Row::new([
                "orders",
                "silent",
                "expires for others within 19s; no candidate answers",
            ]),
            Row::new(["stock", "held", "late"]),
        ];
        assert_eq!(
            lines(&rows, Some(32), false),
            [
                "LEASE   STATE   NOTES",
                "orders  silent",
                "  expires for others within 19s;",
                "  no candidate answers",
                "stock   held    late",
            ]
        );
        assert_eq!(lines(&rows, Some(80), false), lines(&rows, None, false));
        let painted = [
            Row::new(["A", "B"]),
            Row::new(["a", "b c"]).styled(Style::Bad),
        ];
        assert_eq!(
            lines(&painted, Some(4), true)[1..],
            [
                "\u{1b}[31ma\u{1b}[0m",
                "\u{1b}[31m  b\u{1b}[0m",
                "\u{1b}[31m  c\u{1b}[0m"
            ]
        );
    }

    #[test]
    fn columns_that_do_not_fit_are_named_below_their_row() {
        let pod = "orders-7d9f8b6c5d-x2x9z";
        let rows = [
            Row::new(["LEASE", "HOLDER", "RENEWED", "STANDBY", "NOTES"]),
            Row::new(["orders", pod, "0.4s", pod, "late"]),
            Row::new(["stock", "-", "-", "-", ""]),
        ];
        assert_eq!(
            lines(&rows, Some(42), false),
            [
                "LEASE   HOLDER                   RENEWED",
                "orders  orders-7d9f8b6c5d-x2x9z  0.4s",
                "  standby orders-7d9f8b6c5d-x2x9z; late",
                "stock   -                        -",
            ]
        );
    }

    #[test]
    fn a_name_is_never_cut() {
        let long = format!("first-{}-last", "x".repeat(242));
        let rows = [
            Row::new(["NAME", "STATE", "NOTES"]),
            Row::new([long.as_str(), "held", ""]),
        ];
        let lines = lines(&rows, Some(80), false);
        assert_eq!(lines, ["NAME", &long, "  state held"]);
        assert_eq!(cut(&lines[1], 8), "first-x…");
        assert_eq!(cut("日本語", 5), "日本…");
    }
}
