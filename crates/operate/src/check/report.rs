//! Collects and prints the findings of the checks.

use std::io::{self, IsTerminal};
use std::time::Duration;

use serde::Serialize;
use serde_json::{Map, Value, json};

use crate::operators::render::json_millis;
use crate::table::{Style, color, size};
use leasehold_cli::answer;
use leasehold_host::CommandError;
pub(super) use leasehold_host::duration::shown;
use leasehold_host::exit;
use leasehold_host::terminal::folded_to;
use leasehold_mongodb::store::Failure;

/// Version of the JSON output, increased only if the meaning of a field changes.
const SCHEMA: u32 = 1;

/// The variants are in ascending order of severity.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum CheckResult {
    Skipped,
    Ok,
    Warning,
    Failed,
}

impl CheckResult {
    const fn shown(self) -> (&'static str, Style) {
        match self {
            Self::Skipped => ("skipped", Style::Dim),
            Self::Ok => ("ok", Style::Good),
            Self::Warning => ("warning", Style::Warning),
            Self::Failed => ("failed", Style::Bad),
        }
    }
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct Finding {
    pub(super) result: CheckResult,
    pub(super) detail: String,
    remedy: Option<String>,
    #[serde(flatten)]
    numbers: Map<String, Value>,
}

/// `Err` is a finding that ends the check early.
pub(super) type Checked = Result<Finding, Finding>;

pub(super) type Skip = &'static str;

impl Finding {
    /// Creates a finding. Omits the remedy if it is empty, or if the check is skipped or ok.
    pub(super) fn new(
        result: CheckResult,
        detail: impl Into<String>,
        remedy: impl Into<String>,
    ) -> Self {
        let remedy = Some(printable(remedy.into()));
        Self {
            result,
            detail: printable(detail.into()),
            remedy: remedy.filter(|text| result > CheckResult::Ok && !text.is_empty()),
            numbers: Map::new(),
        }
    }

    pub(super) fn ok(detail: impl Into<String>) -> Self {
        Self::new(CheckResult::Ok, detail, "")
    }

    pub(super) fn skipped(why: impl Into<String>) -> Self {
        Self::new(CheckResult::Skipped, why, "")
    }

    pub(super) fn warning(detail: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self::new(CheckResult::Warning, detail, remedy)
    }

    pub(super) fn warning_if(
        is_wrong: bool,
        detail: impl Into<String>,
        remedy: impl Into<String>,
    ) -> Self {
        let result = match is_wrong {
            true => CheckResult::Warning,
            false => CheckResult::Ok,
        };
        Self::new(result, detail, remedy)
    }

    pub(super) fn failed(detail: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self::new(CheckResult::Failed, detail, remedy)
    }

    pub(super) fn number(mut self, name: &str, value: impl Into<Value>) -> Self {
        self.numbers.insert(name.to_owned(), value.into());
        self
    }

    pub(super) fn millis(self, name: &str, duration: Duration) -> Self {
        self.number(name, json_millis(duration))
    }
}

impl From<Skip> for Finding {
    fn from(why: Skip) -> Self {
        Self::skipped(why)
    }
}

impl From<CommandError> for Finding {
    fn from(error: CommandError) -> Self {
        Self::failed(error.problem(), error.remedy.unwrap_or_default())
    }
}

impl From<Failure> for Finding {
    fn from(mut failure: Failure) -> Self {
        let remedy = std::mem::take(&mut failure.detail);
        Self::failed(failure.to_string(), remedy)
    }
}

impl From<Checked> for Finding {
    fn from(checked: Checked) -> Self {
        checked.unwrap_or_else(|ended| ended)
    }
}

/// Replaces control characters, because a server could send escape sequences to the terminal.
fn printable(text: String) -> String {
    text.replace(char::is_control, "?")
}

const INDENT: &str = "\n           ";

#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct Check {
    group: &'static str,
    name: &'static str,
    /// The server, host or permission, if the check examines several of them.
    subject: Option<String>,
    #[serde(flatten)]
    finding: Finding,
}

impl Check {
    pub(super) fn new(name: &'static str, finding: impl Into<Finding>) -> Self {
        Self {
            group: "",
            name,
            subject: None,
            finding: finding.into(),
        }
    }

    pub(super) fn skipped<const N: usize>(names: [&'static str; N], why: &str) -> Vec<Self> {
        let skipped = names.map(|name| Self::new(name, Finding::skipped(why)));
        skipped.into()
    }

    pub(super) fn of(mut self, subject: impl Into<String>) -> Self {
        self.subject = Some(printable(subject.into()));
        self
    }

    fn line(&self, color: bool, width: Option<usize>) -> String {
        let (result, style) = self.finding.result.shown();
        let result = style.paint(&format!("{result:<7}"), color);
        let subject = self.subject.iter().map(|subject| format!(" {subject}"));
        let subject: String = subject.collect();
        let (name, detail) = (self.name, &self.finding.detail);
        let remedy = self.finding.remedy.iter();
        let remedy = remedy.map(|remedy| format!("           to fix: {remedy}"));
        let first = format!("  {result}  {name}{subject}: {detail}");
        let lines = std::iter::once(first).chain(remedy);
        let lines = lines.map(|line| match width {
            Some(width) => folded_to(&line, width, INDENT),
            None => line,
        });
        lines.map(|line| line + "\n").collect()
    }
}

pub(super) struct Report {
    json: bool,
    color: bool,
    checks: Vec<Check>,
}

impl Report {
    pub(super) fn new(json: bool) -> Self {
        Self {
            json,
            color: color(),
            checks: Vec::new(),
        }
    }

    /// Adds the checks of a group, and prints them unless the output is JSON.
    pub(super) fn add(
        &mut self,
        group: &'static str,
        checks: Vec<Check>,
    ) -> Result<(), CommandError> {
        if !self.json {
            let width = io::stdout().is_terminal().then(|| size().0);
            let lines = checks.iter().map(|check| check.line(self.color, width));
            let lines: String = lines.collect();
            answer(format!("{group}\n{lines}").as_bytes())?;
        }
        let grouped = checks.into_iter().map(|check| Check { group, ..check });
        self.checks.extend(grouped);
        Ok(())
    }

    pub(super) fn finish(self) -> Result<u8, CommandError> {
        let results = self.checks.iter().map(|check| check.finding.result);
        let worst = results.fold(CheckResult::Ok, CheckResult::max);
        let text = match self.json {
            true => {
                let all = json!({ "schema": SCHEMA, "result": worst, "checks": self.checks });
                format!("{all:#}\n")
            }
            false => self.summary(),
        };
        answer(text.as_bytes())?;
        Ok(match worst {
            CheckResult::Failed => exit::CHECK_FAILED,
            CheckResult::Warning => exit::CHECK_WARNING,
            CheckResult::Ok | CheckResult::Skipped => exit::DONE,
        })
    }

    fn summary(&self) -> String {
        use CheckResult::{Failed, Ok, Skipped, Warning};
        let counts = [Ok, Warning, Failed, Skipped].map(|result| {
            let results = self.checks.iter().map(|check| check.finding.result);
            let count = results.filter(|found| *found == result).count();
            format!("{count} {}", result.shown().0)
        });
        counts.join(", ") + "\n"
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_worst_result_decides_the_exit_code_and_what_was_skipped_does_not() {
        let warning = || Finding::warning("soon", "renew");
        for (findings, code) in [
            (vec![Finding::skipped("no cluster")], 0),
            (vec![Finding::ok(""), warning()], 1),
            (vec![Finding::failed("", ""), warning()], 2),
        ] {
            let mut report = Report::new(true);
            let checks = findings.into_iter().map(|found| Check::new("tls", found));
            report.add("mongodb", checks.collect()).unwrap();
            assert_eq!(report.finish().unwrap(), code);
        }
    }

    #[test]
    fn a_line_has_the_result_the_subject_and_the_remedy_below() {
        let finding = Finding::warning("expires\x1b in 3 days", "renew it");
        let check = Check::new("tls", finding).of("a:1");
        let expected = "  warning  tls a:1: expires? in 3 days\n           to fix: renew it\n";
        assert_eq!(check.line(false, None), expected);
        assert!(check.line(true, None).contains("\x1b[33mwarning\x1b[0m"));
        let narrow = "  warning  tls a:1:\n           expires? in 3\n           days\n           to fix: renew\n           it\n";
        assert_eq!(check.line(false, Some(24)), narrow);
    }

    #[test]
    fn json_has_the_same_keys_for_every_check_and_the_numbers() {
        let finding = Finding::ok("fast").millis("p50_ms", Duration::from_micros(1234));
        let check = Check {
            group: "reads-and-writes",
            ..Check::new("round-trip", finding)
        };
        let expected = json!({
            "name": "round-trip", "group": "reads-and-writes", "subject": null, "result": "ok",
            "detail": "fast", "remedy": null, "p50_ms": 1.234,
        });
        assert_eq!(json!(check), expected);
    }
}
