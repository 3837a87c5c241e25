//! Log lines as text: time, level, message and cause, then the other fields as `name=value`.

use std::fmt::{self, Debug};
use std::time::Duration;

use tracing::field::{Field, Visit};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::registry::LookupSpan;

use crate::duration::shown;
use crate::terminal::folded;
use leasehold_clock as clock;

pub(super) struct TextFormat {
    /// True on a terminal. The lines then contain the time of day (UTC) without the date.
    pub(super) terminal: bool,
    /// Begins each line, in place of time and level. Names the command and the lock, so the lines
    /// omit the field `lock`.
    pub(super) prefix: Option<String>,
}

impl<S, N> FormatEvent<S, N> for TextFormat
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(
        &self,
        _: &FmtContext<'_, S, N>,
        mut line: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        let mut parts = Parts::default();
        event.record(&mut parts);
        if let Some(prefix) = &self.prefix {
            return writeln!(line, "{}", self.plain(prefix, parts));
        }
        let now = humantime::format_rfc3339_millis(clock::wall_now()).to_string();
        let time = match now.split_once('T') {
            Some((_, time)) if self.terminal => time,
            _ => &now,
        };
        let color = line.has_ansi_escapes();
        let paint = |code: u8, text: &str| match color {
            true => format!("\u{1b}[{code}m{text}\u{1b}[0m"),
            false => text.to_owned(),
        };
        let (name, code) = match *event.metadata().level() {
            Level::ERROR => ("ERROR", RED),
            Level::WARN => ("WARN ", YELLOW),
            Level::INFO => ("INFO ", GREEN),
            Level::DEBUG => ("DEBUG", DIM),
            Level::TRACE => ("TRACE", DIM),
        };
        let rest = parts.rest();
        let Parts { message, why, .. } = parts;
        let (time, level, rest) = (paint(DIM, time), paint(code, name), paint(DIM, &rest));
        writeln!(line, "{time} {level} {message}{why}{rest}")
    }
}

impl TextFormat {
    fn plain(&self, prefix: &str, mut parts: Parts) -> String {
        parts.fields.retain(|(name, _)| name != "lock");
        let shown = parts.shown();
        let fields = shown.map(|(name, value)| format!("{} {value}", name.replace('_', " ")));
        let fields = fields.collect::<Vec<_>>().join(", ");
        let rest = match fields.is_empty() {
            true => fields,
            false => format!(" ({fields})"),
        };
        let (message, why) = (&parts.message, &parts.why);
        let text = format!("{prefix}: {message}{why}{rest}");
        match self.terminal {
            true => folded(&text),
            false => text,
        }
    }
}

/// Fields that text omits if the message contains their value. JSON keeps them for programs.
const REPEATED: [&str; 8] = [
    "operation",
    "outcome",
    "failures",
    "waited",
    "token",
    "reason",
    "variable",
    "meant",
];

const DIM: u8 = 2;
const RED: u8 = 31;
const GREEN: u8 = 32;
const YELLOW: u8 = 33;

/// The parts of a line, with control characters escaped. A name or a server's reply could otherwise
/// forge a line or control the terminal.
#[derive(Default)]
struct Parts {
    message: String,
    why: String,
    fields: Vec<(String, String)>,
}

impl Parts {
    fn add(&mut self, name: &str, value: &str) {
        let value = escaped(value);
        match name {
            "message" => self.message.push_str(&value),
            "why" => self.why = format!(": {value}"),
            _ => self.fields.push((name.to_owned(), value)),
        }
    }

    fn rest(&self) -> String {
        let fields = self.shown();
        fields
            .map(|(name, value)| format!(" {name}={value}"))
            .collect()
    }

    fn shown(&self) -> impl Iterator<Item = (&str, String)> {
        let fields = self.fields.iter();
        let shown = fields.filter(|(name, value)| !self.is_repeated(name, value));
        shown.map(|(name, value)| {
            let quoted = value.is_empty() || value.contains([' ', '"', '=']);
            let value = if quoted {
                format!("{value:?}")
            } else {
                value.clone()
            };
            (name.as_str(), value)
        })
    }

    fn is_repeated(&self, name: &str, value: &str) -> bool {
        // The cause says more than `unknown` or `rejected`.
        if name == "outcome" && !self.why.is_empty() {
            return true;
        }
        let mut words = self.message.split([' ', '(', ')', ',', ':']);
        REPEATED.contains(&name) && words.any(|word| word == value)
    }
}

impl Visit for Parts {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        self.add(field.name(), &format!("{value:?}"));
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.add(field.name(), value);
    }

    /// JSON keeps milliseconds, for programs; text uses the most readable unit.
    fn record_u64(&mut self, field: &Field, value: u64) {
        match field.name().strip_suffix("_ms") {
            Some(name) => self.add(name, &shown(Duration::from_millis(value))),
            None => self.add(field.name(), &value.to_string()),
        }
    }
}

fn escaped(text: &str) -> String {
    let escape = |c: char| match c.is_control() {
        true => c.escape_default().to_string(),
        false => c.to_string(),
    };
    text.chars().map(escape).collect()
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::sync::{Arc, Mutex};

    use tracing::subscriber::with_default;
    use tracing_subscriber::Registry;
    use tracing_subscriber::fmt::layer;
    use tracing_subscriber::layer::SubscriberExt;

    use super::*;

    #[derive(Clone, Default)]
    struct Written(Arc<Mutex<Vec<u8>>>);

    impl io::Write for Written {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().expect("unpoisoned").extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn written(format: TextFormat, color: bool, log: impl FnOnce()) -> String {
        let written = Written::default();
        let writer = written.clone();
        let text = layer()
            .with_writer(move || writer.clone())
            .with_ansi(color)
            .event_format(format);
        with_default(Registry::default().with(text), log);
        let bytes = written.0.lock().expect("unpoisoned").clone();
        String::from_utf8(bytes).expect("UTF-8")
    }

    /// Returns the time and the rest of the line that `log` writes.
    fn line(terminal: bool, color: bool, log: impl FnOnce()) -> (String, String) {
        let prefix = None;
        let line = written(TextFormat { terminal, prefix }, color, log);
        let (time, rest) = line.split_once(' ').expect("a time");
        (time.to_owned(), rest.to_owned())
    }

    #[test]
    fn a_log_line_has_a_message_and_then_fields() {
        let (time, rest) = line(false, false, || {
            tracing::warn!(lease = %"orders", failing_for_ms = 1_234_u64, why = "no primary", "renewal failed");
        });
        assert_eq!(
            rest,
            "WARN  renewal failed: no primary lease=orders failing_for=1.2s\n"
        );
        assert!(
            time.ends_with('Z') && time.len() == "2026-01-15T08:01:30.000Z".len(),
            "{time}"
        );
        let (time, rest) = line(true, false, || {
            tracing::error!(path = "a b", token = 7, "lost")
        });
        assert_eq!(rest, "ERROR lost path=\"a b\" token=7\n");
        assert_eq!(time.len(), "08:01:30.000Z".len(), "{time}");
    }

    #[test]
    fn text_does_not_repeat_a_value_of_the_message() {
        let (_, rest) = line(false, false, || {
            tracing::warn!(
                lease = %"read", operation = "read", outcome = "unknown", failures = 1_u64, token = 12,
                "MongoDB read failed (attempt 1), retrying in 12s"
            );
        });
        assert_eq!(
            rest,
            "WARN  MongoDB read failed (attempt 1), retrying in 12s lease=read outcome=unknown token=12\n"
        );
        let (_, rest) = line(false, false, || {
            tracing::warn!(variable = "A", meant = "B", "A has no effect: write B");
        });
        assert_eq!(rest, "WARN  A has no effect: write B\n");
    }

    #[test]
    fn a_plain_line_names_its_lock_once() {
        let format = |terminal| TextFormat {
            terminal,
            prefix: Some("leasehold: lock backup".to_owned()),
        };
        let log = || {
            tracing::warn!(lock = %"backup", reason = "deadline", why = "no primary is known to this process", "lost the lock");
        };
        let line = "leasehold: lock backup: lost the lock: no primary is known to this process";
        let plain = written(format(false), false, log);
        assert_eq!(plain, format!("{line} (reason deadline)\n"));
        let folded = written(format(true), false, log);
        assert_eq!(folded, format!("{line}\n  (reason deadline)\n"));
    }

    #[test]
    fn a_name_cannot_forge_a_line_or_control_the_terminal() {
        let evil = "a\nERROR \u{1b}[2J";
        let (_, rest) = line(true, false, || tracing::info!(by = evil, "{evil}"));
        assert_eq!(rest.matches('\n').count(), 1, "{rest}");
        assert!(!rest.contains('\u{1b}'), "{rest}");
    }

    #[test]
    fn colors_are_written_only_if_enabled() {
        let (_, rest) = line(true, true, || tracing::warn!("lost"));
        assert!(
            rest.starts_with("\u{1b}[33mWARN \u{1b}[0m lost"),
            "{rest:?}"
        );
    }
}
