//! Checks traces (`LEASEHOLD_TRACE`) against the state machines, which are the specification.
//!
//! - **Replay**: each machine is created with the recorded options, time and random bits, and
//!   receives the recorded inputs. The machine must return the recorded effects.
//! - **Calls**: each store call was passed to the driver once, after the turn that requested it,
//!   and was answered at most twice. A second answer must be late and follow "unknown".
//! - **Transitions** (T2), if the documents' changes were recorded: exactly one call explains each
//!   change, and every applied call has its change.
//! - **Invariants** of the replayed machines' authority, for machines that share a clock: no two
//!   claims have authority at the same time (I1; for locks, only if their modes exclude each
//!   other), and the token grows with every acquisition (I3).
//! - **Guards**: their policies are replayed too. A guard receives only deadlines of its daemon's
//!   authority, and commands that exclude each other do not run at the same time (I5).
//!
//! A machine's records may end anywhere, even within a record, because processes are killed, but
//! must have no gaps. Any other content is a violation. Reading a file never panics, and keeps at
//! most one line in memory.

mod authority;
mod calls;
pub mod changes;
mod guards;
mod invariants;
mod replay;
mod state;
mod transitions;

use std::collections::BTreeMap;
use std::fmt::Display;
use std::io::{self, BufRead, Read};

use leasehold_core::election::Election;
use leasehold_core::lock::LockContender;
use leasehold_core::trace::{Kind, SCHEMA};
use serde::de::IgnoredAny;
use serde_json::Value;

use authority::{Authorities, Role};
use calls::Calls;
use changes::Recording;
use guards::Guard;
use replay::Replay;
use transitions::Made;
pub use transitions::Transitions;

/// Maximum length of a line. The longest record, a lock with 256 holders and 512 waiters, is
/// shorter than 1 MB.
pub const LINE_BYTES_MAX: usize = 4 * 1024 * 1024;
/// First bytes of each record. A string within a record cannot contain them, because JSON escapes
/// quotation marks.
const RECORD_BEGINS: &[u8] = br#"{"machine":"#;
/// Maximum number of violations to keep. The first violation usually causes the others.
pub const VIOLATIONS_MAX: usize = 1000;

/// A violation, and the number of the line that shows it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {what}")]
pub struct Violation {
    /// Line number, starting at 1, counted across all files in the order of reading.
    pub line: usize,
    /// The description.
    pub what: String,
}

/// Counts of the records that were checked.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Checked {
    /// Number of machines that were replayed.
    pub machines: usize,
    /// Number of turns that were replayed.
    pub turns: usize,
    /// Number of store calls.
    pub calls: usize,
    /// Guards of commands and hooks that were replayed.
    pub guards: usize,
    /// Number of acquisitions.
    pub acquisitions: usize,
    /// Document changes.
    pub transitions: Transitions,
    /// Documents and collections whose changes were not checked, with the reason.
    pub skipped: Vec<String>,
}

/// A period of authority with one token.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tenure {
    /// The document: `<database>.<collection>/<name>`.
    pub document: String,
    /// The token.
    pub token: i64,
    /// Start of the period, in nanoseconds on the clock of its machine.
    pub from: u64,
    /// End of the period; see `from`.
    pub until: u64,
    /// The deadline of the last extension. A supervised command may run until this deadline, even
    /// after the daemon has stopped leading.
    pub deadline: u64,
}

struct Machine {
    replay: Box<dyn Replay>,
    role: Role,
    calls: Calls,
}

/// Reads a trace line by line, and collects violations.
#[derive(Default)]
pub struct Checker {
    machines: BTreeMap<String, Machine>,
    guards: BTreeMap<String, Guard>,
    /// The expected number of the next record, for each machine and guard.
    next: BTreeMap<String, u64>,
    authorities: Authorities,
    recordings: Vec<Recording>,
    some_untraced: bool,
    checked: Checked,
    line: usize,
    violations: Vec<Violation>,
}

impl Checker {
    /// Reads the lines of a file. Ignores incomplete records at the end of the file and before a
    /// record of another writer, because their writers may have been killed, or the disk may have
    /// been full.
    ///
    /// # Errors
    /// If the file cannot be read.
    pub fn read(&mut self, mut lines: impl BufRead) -> io::Result<()> {
        let mut line = Vec::new();
        loop {
            line.clear();
            let mut limited = lines.by_ref().take(LINE_BYTES_MAX as u64 + 1);
            limited.read_until(b'\n', &mut line)?;
            if line.pop_if(|last| *last == b'\n').is_some() {
                self.line += 1;
                for record in records(&line) {
                    let text = str::from_utf8(record).map_err(not_a_record);
                    if let Err(what) = text.and_then(|text| self.record(text)) {
                        self.violates(what);
                    }
                }
            } else if line.len() > LINE_BYTES_MAX {
                self.refuse(format!(
                    "not a record of a trace: longer than {LINE_BYTES_MAX} bytes"
                ));
                lines.skip_until(b'\n')?;
            } else {
                return Ok(());
            }
        }
    }

    /// Reads a recording of changes. The traces, which may be read before or after the recording,
    /// must include all machines that wrote to the collection.
    ///
    /// # Errors
    /// If the file cannot be read.
    pub fn changes(&mut self, mut lines: impl BufRead) -> io::Result<()> {
        let mut line = String::new();
        let mut recording = None;
        while lines.read_line(&mut line)? > 0 {
            self.line += 1;
            // Ignore an incomplete last line. The writer was killed, and a recording without an end
            // counts as incomplete.
            if let Some(text) = line.strip_suffix('\n') {
                let read = match &mut recording {
                    None => Recording::begin(text).map(|begun| recording = Some(begun)),
                    Some(recording) => recording.line(self.line, text),
                };
                if let Err(what) = read {
                    self.violates(what);
                }
            }
            line.clear();
        }
        match recording {
            Some(recording) => self.recordings.push(recording),
            None => self.violates("a recording of changes has no beginning".to_owned()),
        }
        Ok(())
    }

    /// Reads a line of a trace.
    pub fn line(&mut self, text: &str) {
        self.line += 1;
        if let Err(what) = self.record(text) {
            self.violates(what);
        }
    }

    /// Declares that a version that writes no traces took part. A claim whose successor has no
    /// trace is not compared with later claims, because the successor may have proof that the claim
    /// ended early.
    pub fn some_untraced(&mut self) {
        self.some_untraced = true;
    }

    /// Returns the periods of authority in the lines so far.
    pub fn tenures(&self) -> Vec<Tenure> {
        let claims = self.authorities.clone().claims().into_iter();
        let tenure = |claim: authority::Claim| Tenure {
            document: claim.role.document,
            token: claim.token.get(),
            from: claim.from.as_nanos(),
            until: claim.until.as_nanos(),
            deadline: claim.deadline.as_nanos(),
        };
        claims.map(tenure).collect()
    }

    /// Counts a line that is not text or is too long, and reports the violation.
    fn refuse(&mut self, what: String) {
        self.line += 1;
        self.violates(what);
    }

    /// Checks all machines together, and returns the counts.
    ///
    /// # Errors
    /// The violations, in the order of the lines. Violations that a single record shows are limited
    /// to the first [`VIOLATIONS_MAX`].
    pub fn finish(mut self) -> Result<Checked, Vec<Violation>> {
        let guards = guards::check(&self.guards, &self.authorities, self.some_untraced);
        self.violations.extend(guards);
        let claims = self.authorities.claims();
        self.violations
            .extend(invariants::check(&claims, self.some_untraced));
        let recordings = std::mem::take(&mut self.recordings);
        let report = transitions::check(recordings, made(&self.machines));
        self.violations.extend(report.violations);
        self.checked.transitions = report.counts;
        self.checked.skipped = report.skipped;
        self.violations.sort_by_key(|violation| violation.line);
        self.checked.acquisitions = claims.len();
        match self.violations.is_empty() {
            true => Ok(self.checked),
            false => Err(self.violations),
        }
    }

    fn violates(&mut self, what: String) {
        if self.violations.len() < VIOLATIONS_MAX {
            let line = self.line;
            self.violations.push(Violation { line, what });
        }
    }

    fn record(&mut self, text: &str) -> Result<(), String> {
        let record: Value = serde_json::from_str(text).map_err(not_a_record)?;
        let Some(id) = record["machine"].as_str() else {
            return Err("not a record of a trace: it names no machine".to_owned());
        };
        if let Some(started) = record.get("started") {
            return self.started(id, started);
        }
        let number = record["number"].as_u64();
        let Some(next) = self.next.get_mut(id) else {
            return Err(format!("machine {id:?} has no beginning in this trace"));
        };
        let expected = std::mem::replace(next, number.map_or(0, |n| n.saturating_add(1)));
        if number != Some(expected) {
            return Err(format!("record {expected} of machine {id} is missing"));
        }
        if let Some(guard) = self.guards.get_mut(id) {
            let Some(turn) = record.get("turn") else {
                return Err("a guard has a record that is not a turn".to_owned());
            };
            self.checked.turns += 1;
            return guard.turn(self.line, turn);
        }
        let Some(machine) = self.machines.get_mut(id) else {
            return Ok(());
        };
        if let Some(turn) = record.get("turn") {
            let turned = machine.replay.turn(turn)?;
            self.checked.turns += 1;
            self.checked.calls += turned.calls.len();
            let replied = turned.reply.map(|reply| machine.calls.replied(reply));
            let asked = machine.calls.asked(self.line, turned.calls);
            self.authorities.tried(id, &turned.attempts);
            self.authorities.ordered(id, turned.deadlines);
            if let Some(loss_grace) = turned.loss_grace {
                self.authorities.reconfigured(id, loss_grace);
            }
            self.authorities
                .turned(id, self.line, turned.now, turned.authority);
            // Report only one violation per line, because the first usually causes the others.
            match turned.difference {
                Some(difference) => Err(difference),
                None => replied.unwrap_or(Ok(())).and(asked),
            }
        } else if let Some(sent) = record.get("sent") {
            machine.calls.sent(sent)
        } else if let Some(answered) = record.get("answered") {
            machine.calls.answered(answered)
        } else {
            Err("a record of an unknown kind".to_owned())
        }
    }

    fn started(&mut self, id: &str, started: &Value) -> Result<(), String> {
        let schema = &started["schema"];
        if *schema != SCHEMA {
            return Err(format!("schema {schema} instead of {SCHEMA}"));
        }
        let kind = serde_json::from_value(started["kind"].clone());
        let kind: Kind = kind.map_err(|error| format!("kind: {error}"))?;
        let (replay, role) = match kind {
            Kind::Election => replay::begin::<Election>(started)?,
            Kind::Lock => replay::begin::<LockContender>(started)?,
            Kind::Guard => {
                let guard = Guard::begin(self.line, started)?;
                self.guards.insert(id.to_owned(), guard);
                self.next.insert(id.to_owned(), 1);
                self.checked.guards += 1;
                return Ok(());
            }
        };
        self.authorities.began(id, role.clone());
        let calls = Calls::default();
        self.machines.insert(
            id.to_owned(),
            Machine {
                replay,
                role,
                calls,
            },
        );
        self.next.insert(id.to_owned(), 1);
        self.checked.machines += 1;
        Ok(())
    }
}

fn not_a_record(error: impl Display) -> String {
    format!("not a record of a trace: {error}")
}

/// Splits a line into its records, and drops incomplete records before another record. Linux ends a
/// write at a page boundary, perhaps before the newline, when its process is killed, and the next
/// writer appends to the same line.
fn records(line: &[u8]) -> Vec<&[u8]> {
    let places = line.windows(RECORD_BEGINS.len()).enumerate().skip(1);
    let begins = places.filter(|(_, place)| *place == RECORD_BEGINS);
    let (mut records, mut rest) = (Vec::new(), 0);
    for (begin, _) in begins {
        let record = &line[rest..begin];
        let read = serde_json::from_slice::<IgnoredAny>(record);
        if !read.is_err_and(|error| error.is_eof()) {
            records.push(record);
        }
        rest = begin;
    }
    records.push(&line[rest..]);
    records
}

fn made(machines: &BTreeMap<String, Machine>) -> BTreeMap<String, Vec<Made<'_>>> {
    let mut made: BTreeMap<_, Vec<_>> = BTreeMap::new();
    for (machine, Machine { role, calls, .. }) in machines {
        let calls = calls.all().map(|(id, call)| Made {
            machine,
            by: &role.identity,
            clock: role.clock.as_deref(),
            id,
            call,
        });
        let document = made.entry(role.document.clone()).or_default();
        document.extend(calls);
    }
    made
}
