//! The checks, their results, and how they are printed.

use std::io::{self, IsTerminal, Write as _};
use std::time::Duration;

use serde_json::{Map, Value, json};

use leasehold_cli::answer;
use leasehold_host::CommandError;
use leasehold_host::duration::rounded_millis;
pub(super) use leasehold_host::duration::shown;
use leasehold_host::exit;

/// Version of the JSON output, which changes only if the meaning of a field changes.
const SCHEMA: u32 = 1;

/// Defines a closed list of names, with the group of each.
macro_rules! checks {
    ($($group:ident = $heading:literal { $($name:ident = $text:literal,)+ })+) => {
        /// A part of an installation.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub(super) enum Group {
            $($group,)+
        }

        /// A kind of check.
        #[cfg_attr(not(feature = "kubernetes"), allow(dead_code, reason = "names for checks of a pod"))]
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub(super) enum Name {
            $($($name,)+)+
        }

        impl Group {
            /// Returns the name in the output.
            pub(super) const fn as_str(self) -> &'static str {
                match self {
                    $(Self::$group => $heading,)+
                }
            }
        }

        impl Name {
            /// Returns the name in the output.
            pub(super) const fn as_str(self) -> &'static str {
                match self {
                    $($(Self::$name => $text,)+)+
                }
            }

            const fn group(self) -> Group {
                match self {
                    $($(Self::$name => Group::$group,)+)+
                }
            }
        }
    };
}

checks! {
    Host = "host" {
        Configuration = "configuration",
        ConnectionString = "connection-string",
        StatusDirectory = "status-directory",
        HttpPort = "http-port",
        Guard = "guard",
        BootId = "boot-id",
        ClockSource = "clock-source",
    }
    Servers = "mongodb" {
        Resolution = "name-resolution",
        Server = "server",
        Tls = "tls",
        ClientCertificate = "client-certificate",
        Credentials = "credentials",
        Deployment = "deployment",
        OneDeployment = "one-deployment",
        DeploymentRecord = "deployment-record",
    }
    Permissions = "permissions" {
        Find = "find",
        Insert = "insert",
        Update = "update",
        ChangeStream = "change-stream",
        Hints = "hints",
    }
    ReadsAndWrites = "reads-and-writes" {
        Collection = "collection",
        LeaseDocument = "lease-document",
        MajorityRead = "majority-read",
        LinearizableRead = "linearizable-read",
        Journal = "journal",
        RoundTrip = "round-trip",
        MajorityWrite = "majority-write",
        ChangeStreamDelay = "change-stream-delay",
    }
    Timings = "timings" {
        ElectionTimeout = "election-timeout",
        CatchUp = "catch-up",
        ClockRate = "clock-rate",
    }
    Kubernetes = "kubernetes" {
        Pod = "pod",
        Token = "token",
        Access = "access",
        Label = "label",
        AdmissionPolicy = "admission-policy",
        ApiServer = "api-server",
    }
}

/// The result of a check, in ascending order of severity.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum CheckResult {
    Skipped,
    Ok,
    Warning,
    Failed,
}

impl CheckResult {
    const fn as_str(self) -> &'static str {
        match self {
            Self::Skipped => "skipped",
            Self::Ok => "ok",
            Self::Warning => "warning",
            Self::Failed => "failed",
        }
    }

    /// Returns the escape sequence of its color.
    const fn color(self) -> &'static str {
        match self {
            Self::Skipped => "\x1b[2m",
            Self::Ok => "\x1b[32m",
            Self::Warning => "\x1b[33m",
            Self::Failed => "\x1b[31m",
        }
    }
}

/// One line of the output.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Check {
    name: Name,
    /// The server, host or right that is checked, if there are several.
    subject: Option<String>,
    outcome: CheckResult,
    detail: String,
    remedy: Option<String>,
    numbers: Vec<(&'static str, Value)>,
}

impl Check {
    fn new(name: Name, outcome: CheckResult, detail: impl Into<String>) -> Self {
        Self {
            name,
            subject: None,
            outcome,
            detail: detail.into(),
            remedy: None,
            numbers: Vec::new(),
        }
    }

    pub(super) fn ok(name: Name, detail: impl Into<String>) -> Self {
        Self::new(name, CheckResult::Ok, detail)
    }

    /// Creates a check that was not carried out, with the reason.
    pub(super) fn skipped(name: Name, why: impl Into<String>) -> Self {
        Self::new(name, CheckResult::Skipped, why)
    }

    /// Creates a check with a remedy. An empty one is omitted, because the detail contains it.
    pub(super) fn warning(
        name: Name,
        detail: impl Into<String>,
        remedy: impl Into<String>,
    ) -> Self {
        Self::new(name, CheckResult::Warning, detail).remedied(remedy.into())
    }

    /// Same as [`Check::warning`], for an installation that does not work.
    pub(super) fn failed(name: Name, detail: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self::new(name, CheckResult::Failed, detail).remedied(remedy.into())
    }

    /// Returns the check of something that a daemon could not use.
    pub(super) fn refused(name: Name, error: CommandError) -> Self {
        Self::failed(name, error.problem(), error.remedy.unwrap_or_default())
    }

    fn remedied(mut self, remedy: String) -> Self {
        self.remedy = (!remedy.is_empty()).then_some(remedy);
        self
    }

    /// Sets the subject.
    pub(super) fn of(mut self, subject: impl Into<String>) -> Self {
        self.subject = Some(subject.into());
        self
    }

    /// Adds a number to the JSON output.
    pub(super) fn number(mut self, name: &'static str, value: impl Into<Value>) -> Self {
        self.numbers.push((name, value.into()));
        self
    }

    /// Adds a duration in milliseconds to the JSON output.
    pub(super) fn millis(self, name: &'static str, duration: Duration) -> Self {
        self.number(name, rounded_millis(duration))
    }

    #[cfg(test)]
    pub(super) const fn outcome(&self) -> CheckResult {
        self.outcome
    }

    fn line(&self, color: bool) -> String {
        let (begin, end) = match color {
            true => (self.outcome.color(), "\x1b[0m"),
            false => ("", ""),
        };
        let (outcome, name) = (self.outcome.as_str(), self.name.as_str());
        let subject = self.subject.iter().map(|subject| format!(" {subject}"));
        let subject: String = subject.collect();
        let detail = printable(&format!("{name}{subject}: {}", self.detail));
        let mut line = format!("  {begin}{outcome:<7}{end}  {detail}\n");
        if let Some(remedy) = &self.remedy {
            line += &format!("           remedy: {}\n", printable(remedy));
        }
        line
    }

    fn json(&self) -> Value {
        let mut object = Map::new();
        let mut put = |key: &str, value: Value| object.insert(key.to_owned(), value);
        put("name", self.name.as_str().into());
        put("group", self.name.group().as_str().into());
        put("subject", self.subject.as_deref().map(printable).into());
        put("result", self.outcome.as_str().into());
        put("detail", printable(&self.detail).into());
        put("remedy", self.remedy.as_deref().map(printable).into());
        for (key, value) in &self.numbers {
            put(key, value.clone());
        }
        object.into()
    }
}

/// Returns a text without characters that move a cursor, whatever server it is from.
fn printable(text: &str) -> String {
    text.replace(char::is_control, "?")
}

/// Collects the checks, and prints each group as soon as it is complete.
pub(super) struct Report {
    json: bool,
    color: bool,
    checks: Vec<Check>,
}

impl Report {
    pub(super) fn new(json: bool) -> Self {
        let plain = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
        Self {
            json,
            color: io::stdout().is_terminal() && !plain,
            checks: Vec::new(),
        }
    }

    /// Adds checks of one group, and prints them unless the output is JSON.
    pub(super) fn add(&mut self, checks: Vec<Check>) -> Result<(), CommandError> {
        let printed = self.text(&checks);
        self.checks.extend(checks);
        match self.json {
            true => Ok(()),
            false => Ok(answer(printed.as_bytes())?),
        }
    }

    fn text(&self, checks: &[Check]) -> String {
        let Some(first) = checks.first() else {
            return String::new();
        };
        let group = first.name.group();
        debug_assert!(checks.iter().all(|check| check.name.group() == group));
        // Removes the line of [`Report::waiting`].
        let begin = if self.color { "\x1b[K" } else { "" };
        let continued = self.checks.last().map(|check| check.name.group()) == Some(group);
        let heading = match continued {
            true => String::new(),
            false => format!("{}\n", group.as_str()),
        };
        let lines: String = checks.iter().map(|check| check.line(self.color)).collect();
        format!("{begin}{heading}{lines}")
    }

    /// Prints the summary, or everything as JSON, and returns the exit code.
    pub(super) fn finish(self) -> Result<u8, CommandError> {
        let worst = self.checks.iter().map(|check| check.outcome).max();
        let (result, code) = match worst {
            Some(CheckResult::Failed) => (CheckResult::Failed, exit::CHECK_FAILED),
            Some(CheckResult::Warning) => (CheckResult::Warning, exit::CHECK_WARNING),
            Some(CheckResult::Ok | CheckResult::Skipped) | None => (CheckResult::Ok, exit::DONE),
        };
        let text = match self.json {
            true => {
                let checks: Vec<_> = self.checks.iter().map(Check::json).collect();
                let result = result.as_str();
                let all = json!({ "schema": SCHEMA, "result": result, "checks": checks });
                format!("{all:#}\n")
            }
            false => self.summary(),
        };
        answer(text.as_bytes())?;
        Ok(code)
    }

    fn summary(&self) -> String {
        let count = |outcome| {
            let checks = self.checks.iter();
            checks.filter(|check| check.outcome == outcome).count()
        };
        format!(
            "{} ok, {} warning, {} failed, {} skipped\n",
            count(CheckResult::Ok),
            count(CheckResult::Warning),
            count(CheckResult::Failed),
            count(CheckResult::Skipped)
        )
    }

    /// Shows at a terminal what the command waits for.
    pub(super) fn waiting(&self, what: &str) {
        if self.color && !self.json {
            // Replaced by the next line. If it cannot be written, the next line cannot either.
            let _ = write!(io::stdout(), "  … {what}\r");
            let _ = io::stdout().flush();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(json: bool) -> Report {
        Report {
            json,
            color: false,
            checks: Vec::new(),
        }
    }

    #[test]
    fn the_worst_result_decides_the_exit_code_and_what_was_skipped_does_not() {
        let warning = || Check::warning(Name::Tls, "soon", "renew");
        for (checks, code) in [
            (vec![Check::skipped(Name::Pod, "no cluster")], 0),
            (vec![Check::ok(Name::Tls, ""), warning()], 1),
            (vec![Check::failed(Name::Tls, "", ""), warning()], 2),
        ] {
            let mut report = report(true);
            report.add(checks).unwrap();
            assert_eq!(report.finish().unwrap(), code);
        }
    }

    #[test]
    fn a_line_has_the_result_the_subject_and_the_remedy_below() {
        let check = Check::warning(Name::Tls, "expires\x1b in 3 days", "renew it").of("a:1");
        let expected = "  warning  tls a:1: expires? in 3 days\n           remedy: renew it\n";
        assert_eq!(check.line(false), expected);
        assert!(check.line(true).contains("\x1b[33mwarning\x1b[0m"));
    }

    #[test]
    fn json_has_the_same_keys_for_every_check_and_the_numbers() {
        let check =
            Check::ok(Name::RoundTrip, "fast").millis("p50_ms", Duration::from_micros(1234));
        let expected = json!({
            "name": "round-trip", "group": "reads-and-writes", "subject": null, "result": "ok",
            "detail": "fast", "remedy": null, "p50_ms": 1.234,
        });
        assert_eq!(check.json(), expected);
    }

    #[test]
    fn durations_have_a_unit_that_fits() {
        let shown = |micros| shown(Duration::from_micros(micros));
        assert_eq!(shown(420), "0.42 ms");
        assert_eq!(shown(18_400), "18 ms");
        assert_eq!(shown(12_100_000), "12.1 s");
        assert_eq!(shown(24_000_000), "24 s");
    }

    #[test]
    fn a_heading_is_printed_once_for_a_group() {
        let mut report = report(false);
        let boot = vec![Check::ok(Name::BootId, "known")];
        assert!(report.text(&boot).starts_with("host\n"));
        report.checks.extend(boot.clone());
        assert!(!report.text(&boot).contains("host\n"));
    }
}
