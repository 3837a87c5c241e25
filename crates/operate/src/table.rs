//! Tables for terminals: aligned columns, with a header.

use std::fmt::Write;
use std::io::{self, IsTerminal};

use rustix::termios::tcgetwinsize;
use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

use leasehold_host::terminal;

const GAP: usize = 2;
/// Columns and rows of a terminal that does not report its size.
const SIZE: (usize, usize) = (80, 24);
/// Minimum width of a column that is shortened to fit the terminal.
const COLUMN_MIN: usize = 8;

/// Returns the columns and rows of the terminal.
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

/// Returns true if standard output shows colors.
pub(crate) fn color() -> bool {
    terminal::color(&io::stdout())
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

/// Renders rows as aligned lines. With a `width`, the widest columns are shortened until the lines
/// fit; without, nothing is cut.
pub(crate) fn lines(rows: &[Row], width: Option<usize>, color: bool) -> Vec<String> {
    let columns = rows.iter().map(|row| row.cells.len()).max().unwrap_or(0);
    let mut widths: Vec<usize> = (0..columns)
        .map(|column| {
            let cells = rows.iter().filter_map(|row| row.cells.get(column));
            cells.map(|cell| cell.width()).max().unwrap_or(0)
        })
        .collect();
    if let Some(width) = width {
        fit(&mut widths, width);
    }
    let line = |row: &Row| {
        let mut line = String::new();
        for (cell, width) in row.cells.iter().zip(&widths) {
            let cell = shortened(cell, *width);
            let padding = width.saturating_sub(cell.width()) + GAP;
            let _ = write!(line, "{cell}{:padding$}", "");
        }
        row.style.paint(&cut(line.trim_end(), width), color)
    };
    rows.iter().map(line).collect()
}

/// Reduces the widest columns until all fit.
fn fit(widths: &mut [usize], max: usize) {
    let gaps = GAP * widths.len().saturating_sub(1);
    let mut excess = (widths.iter().sum::<usize>() + gaps).saturating_sub(max);
    while excess > 0 {
        let Some(widest) = widths.iter_mut().max().filter(|it| **it > COLUMN_MIN) else {
            return;
        };
        *widest -= 1;
        excess -= 1;
    }
}

/// Shortens a cell in the middle.
fn shortened(cell: &str, max: usize) -> String {
    if cell.width() <= max {
        return cell.to_owned();
    }
    let rest = max.saturating_sub(1);
    let tail: String = fitting(cell.chars().rev(), rest / 2)
        .chars()
        .rev()
        .collect();
    format!("{}…{tail}", fitting(cell.chars(), rest - rest / 2))
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

/// Renders rows for standard output: as wide as the terminal, or whole in a pipe.
pub(crate) fn text(rows: &[Row], color: bool) -> String {
    let mut text = match io::stdout().is_terminal() {
        true => folded(rows, size().0, color).join("\n"),
        false => lines(rows, None, color).join("\n"),
    };
    text.push('\n');
    text
}

/// Renders rows as lines of at most `width`. The last column is prose, so a cell that does not fit
/// there is continued below its row, whole.
fn folded(rows: &[Row], width: usize, color: bool) -> Vec<String> {
    let whole = lines(rows, None, false);
    if whole.iter().all(|line| line.width() <= width) {
        return lines(rows, None, color);
    }
    let (mut heads, mut tails) = (rows.to_vec(), Vec::new());
    for head in &mut heads {
        head.style = Style::Plain;
        tails.push(head.cells.pop().unwrap_or_default());
    }
    let heads = lines(&heads, Some(width), false);
    let column = GAP + heads.iter().map(|head| head.width()).max().unwrap_or(0);
    let rows = rows.iter().zip(heads.iter().zip(&tails));
    let lines = rows.flat_map(|(row, (head, tail))| {
        let mut lines = vec![head.clone()];
        if column + tail.width() <= width {
            let padding = column - head.width();
            lines = vec![format!("{head}{:padding$}{tail}", "").trim_end().to_owned()];
        } else {
            lines.extend(continued(tail, width));
        }
        lines.into_iter().map(|line| row.style.paint(&line, color))
    });
    lines.collect()
}

/// Breaks prose into indented lines.
fn continued(prose: &str, width: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in prose.split_whitespace() {
        match lines.last_mut() {
            Some(line) if line.width() + 1 + word.width() <= width => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(format!("{:GAP$}{word}", "")),
        }
    }
    lines
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
            ["A    …", "日本…", "ü    …"].map(|l| cut(l, Some(5))),
            "columns are not narrower than COLUMN_MIN"
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
                "expires for others in 19s; no candidate answers",
            ]),
            Row::new(["stock", "held", "late"]),
        ];
        assert_eq!(
            folded(&rows, 30, false),
            [
                "LEASE   STATE   NOTES",
                "orders  silent",
                "  expires for others in 19s;",
                "  no candidate answers",
                "stock   held    late",
            ]
        );
        assert_eq!(folded(&rows, 80, false), lines(&rows, None, false));
        let painted = [Row::new(["a", "b c"]).styled(Style::Bad)];
        assert_eq!(
            folded(&painted, 3, true),
            [
                "\u{1b}[31ma\u{1b}[0m",
                "\u{1b}[31m  b\u{1b}[0m",
                "\u{1b}[31m  c\u{1b}[0m"
            ]
        );
    }

    #[test]
    fn the_widest_cells_are_shortened_in_the_middle_to_fit_a_terminal() {
        let long = format!("first-{}-last", "x".repeat(242));
        let wide = "日".repeat(40);
        let rows = [
            Row::new(["NAME", "STATE", "NOTES"]),
            Row::new(["orders", "held", &long]),
            Row::new([wide.as_str(), "silent", "paused"]),
        ];
        for width in [80, 60, 30] {
            let lines = lines(&rows, Some(width), false);
            assert!(lines.iter().all(|line| line.width() <= width), "{lines:?}");
            assert!(
                lines[1].starts_with("orders ") && lines[1].ends_with("last"),
                "{lines:?}"
            );
            assert!(
                lines[2].contains('…') && lines[2].contains("silent"),
                "{lines:?}"
            );
        }
        let whole = lines(&rows, None, false);
        assert!(whole[1].ends_with(&long) && whole[2].starts_with(&wide));
        let short = [Row::new(["orders", "held"])];
        assert_eq!(lines(&short, Some(80), false), ["orders  held"]);
    }
}
