//! Compares a command's properties under all tools.

use std::fmt::Write as _;

use crate::deviations::Deviation;
use crate::tool::Tool;

const PAGE: &str = include_str!("../../docs/supervision.md");

#[derive(Debug)]
pub(crate) struct Row {
    pub(crate) situation: String,
    pub(crate) property: String,
    /// The tools and their values, starting with the plain command.
    pub(crate) values: Vec<(Tool, String)>,
}

impl Row {
    fn plain(&self) -> &str {
        let (tool, value) = &self.values[0];
        assert_eq!(*tool, Tool::Plain);
        value
    }

    fn differs(&self, tool: Tool) -> bool {
        let value = self.values.iter().find(|(of, _)| *of == tool);
        value.is_some_and(|(_, value)| value != self.plain())
    }
}

/// Prints the table. Asserts that leasehold differs from the plain command exactly in the listed
/// deviations, and that docs/supervision.md explains each of them.
pub(crate) fn judge(rows: &[Row], deviations: &[Deviation]) {
    print(rows);
    let mut wrong = Vec::new();
    let mut seen = vec![false; deviations.len()];
    for row in rows {
        for (tool, value) in row.values.iter().filter(|(tool, _)| tool.is_ours()) {
            if !row.differs(*tool) {
                continue;
            }
            let explains = |deviation: &Deviation| deviation.explains(row, *tool, value);
            match deviations.iter().position(explains) {
                Some(index) => seen[index] = true,
                None => wrong.push(format!(
                    "{}, {}: {} has {value:?}, and the plain command {:?}",
                    row.situation,
                    row.property,
                    tool.name(),
                    row.plain(),
                )),
            }
        }
    }
    for (deviation, seen) in deviations.iter().zip(seen) {
        if !seen {
            wrong.push(format!("listed, but not observed: {deviation:?}"));
        }
        if !PAGE.contains(&format!("\n| {} | ", deviation.row)) {
            wrong.push(format!("not in docs/supervision.md: {deviation:?}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[allow(clippy::print_stdout, reason = "the table is for humans")]
fn print(rows: &[Row]) {
    let mut text = String::new();
    for row in rows {
        let _ = write!(text, "| {} | {} |", row.situation, row.property);
        for (tool, value) in &row.values {
            let shown = match *tool != Tool::Plain && !row.differs(*tool) {
                true => "=",
                false => value,
            };
            let _ = write!(text, " {}: {shown} |", tool.name());
        }
        text.push('\n');
    }
    println!("{text}{} rows", rows.len());
}
