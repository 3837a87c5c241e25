//! Tables for terminals: aligned columns, with a header.

use std::fmt::Write;
use std::io::{self, IsTerminal};

use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

const GAP: usize = 2;
/// Maximum width of a cell, except in the last column, so that one long name does not widen all
/// rows. The name of a pod has at most 63 characters.
const CELL_MAX: usize = 64;

/// Returns true on a terminal, unless NO_COLOR is set.
pub(crate) fn color() -> bool {
    let unwanted = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
    io::stdout().is_terminal() && !unwanted
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Style {
    Plain,
    Header,
    Good,
    /// Needs attention.
    Warning,
    Bad,
    /// Less important.
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

/// Renders rows as aligned lines. Shortens cells to [`CELL_MAX`], except in the last column, and
/// lines to `width`.
pub(crate) fn lines(rows: &[Row], width: Option<usize>, color: bool) -> Vec<String> {
    let columns = rows.iter().map(|row| row.cells.len()).max().unwrap_or(0);
    let mut rows = rows.to_vec();
    for row in &mut rows {
        let cells = row.cells.iter_mut().take(columns.saturating_sub(1));
        cells.for_each(shorten);
    }
    let widths: Vec<usize> = (0..columns)
        .map(|column| {
            let cells = rows.iter().filter_map(|row| row.cells.get(column));
            cells.map(|cell| cell.width()).max().unwrap_or(0)
        })
        .collect();
    let line = |row: &Row| {
        let mut line = String::new();
        for (cell, width) in row.cells.iter().zip(&widths) {
            let padding = width - cell.width() + GAP;
            let _ = write!(line, "{cell}{:padding$}", "");
        }
        row.style.paint(&cut(line.trim_end(), width), color)
    };
    rows.iter().map(line).collect()
}

/// Shortens a cell in the middle.
fn shorten(cell: &mut String) {
    if cell.width() > CELL_MAX {
        let half = (CELL_MAX - 1) / 2;
        let tail: String = fitting(cell.chars().rev(), half).chars().rev().collect();
        *cell = format!("{}…{tail}", fitting(cell.chars(), half));
    }
}

/// Returns the first characters, up to a display width.
fn fitting(text: impl Iterator<Item = char>, max: usize) -> String {
    let mut left = max;
    let fits = |c: &char| {
        let width = c.width().unwrap_or(0);
        let fits = width <= left;
        left = left.saturating_sub(width);
        fits
    };
    text.take_while(fits).collect()
}

pub(crate) fn text(rows: &[Row], color: bool) -> String {
    let mut text = lines(rows, None, color).join("\n");
    text.push('\n');
    text
}

/// Cuts a line at a display width.
fn cut(line: &str, width: Option<usize>) -> String {
    match width.filter(|max| line.width() > *max) {
        Some(max) => fitting(line.chars(), max.saturating_sub(1)) + "…",
        None => line.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
        assert_eq!(
            lines(&rows, Some(5), false),
            ["A    …", "日本…", "ü    …"].map(|l| cut(l, Some(5)))
        );
        let styled = [Row::new(["x"]).styled(Style::Bad)];
        assert_eq!(text(&styled, true), "\u{1b}[31mx\u{1b}[0m\n");
        assert_eq!(text(&styled, false), "x\n");
    }
    #[test]
    fn a_long_cell_widens_no_other_row() {
        let long = format!("first-{}-last", "x".repeat(242));
        let wide = "日".repeat(40);
        let rows = [
            Row::new(["A", "B"]),
            Row::new([long.as_str(), "y"]),
            Row::new([&wide, &long]),
        ];
        let lines = lines(&rows, None, false);
        let (head, tail) = ("x".repeat(25), "x".repeat(26));
        assert_eq!(lines[1], format!("first-{head}…{tail}-last  y"));
        let half = "日".repeat(15);
        assert_eq!(lines[2], format!("{half}…{half}    {long}"));
        assert!(lines[0].width() <= CELL_MAX + GAP + 1);
        let pod = "p".repeat(63);
        assert!(text(&[Row::new([pod.as_str(), "x"])], false).contains(&pod));
    }
}
