//! T2, the store: exactly one recorded call explains each change of a document. The call's
//! reference filter matches the document before the change, and its reference update produces the
//! document after the change.
//!
//! An applied call has one change, a rejected or failed (never sent) call has none, and a call with
//! an unknown outcome has at most one. Every write of a machine changes the document (it sets a new
//! revision, or adds or removes an entry or the standby), so every applied write has a change.
//!
//! Requests, roll calls and forced removals of lock holders come from operators, not from machines,
//! so these changes have their own rules ([`operators`]). The test must declare all other changes.

mod explained;
mod lease;
mod locks;
mod operators;
mod times;

use std::collections::BTreeMap;

use leasehold_core::election::{CallId, Identity};

use crate::Violation;
use crate::calls::{Call, Outcome};
use crate::changes::Recording;
use crate::state::{State, Stored};
use explained::{Explanation, Index};
use times::Times;

#[derive(Debug, Clone, Copy)]
pub(crate) struct Made<'a> {
    pub(crate) machine: &'a str,
    /// Name that the machine uses in its writes.
    pub(crate) by: &'a Identity,
    pub(crate) clock: Option<&'a str>,
    pub(crate) id: CallId,
    pub(crate) call: &'a Call,
}

impl Made<'_> {
    fn describe(&self) -> String {
        let operation = self.call.operation.as_str();
        format!("call {} of {} ({operation})", self.id, self.machine)
    }
}

struct Transition {
    line: usize,
    operation: String,
    before: Stored,
    after: Stored,
    /// Number of edits of the document that were declared before the change.
    declared: usize,
}

/// Counts of changes, by kind of explanation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Transitions {
    /// All changes.
    pub all: usize,
    /// Changes that machines' calls made.
    pub calls: usize,
    /// Changes that calls with an unknown outcome made. `calls` includes these changes.
    pub unknown: usize,
    /// Operators' requests, roll calls, and forced removals of lock holders.
    pub operators: usize,
    /// Declared edits.
    pub edits: usize,
    /// Declared edits without a change. A test cannot withdraw an edit whose outcome is unknown.
    pub unused: usize,
}

#[derive(Default)]
pub(crate) struct Report {
    pub(crate) counts: Transitions,
    pub(crate) violations: Vec<Violation>,
    pub(crate) skipped: Vec<String>,
}

pub(crate) fn check(
    recordings: Vec<Recording>,
    mut calls: BTreeMap<String, Vec<Made<'_>>>,
) -> Report {
    let mut report = Report::default();
    if recordings.is_empty() {
        return report;
    }
    for recording in recordings {
        let prefix = format!("{}/", recording.collection);
        let beyond = calls.split_off(&prefix);
        let (here, others): (BTreeMap<_, _>, BTreeMap<_, _>) = beyond
            .into_iter()
            .partition(|(document, _)| document.starts_with(&prefix));
        calls.extend(others);
        if let Some(gap) = recording.gap() {
            report
                .skipped
                .push(format!("{}: {gap}", recording.collection));
            continue;
        }
        if let Some(counted) = recording.miscounted() {
            let read = recording.changes.len();
            let collection = &recording.collection;
            let what = format!("T2: {collection}: {read} changes instead of {counted}");
            let line = recording.changes.last().map_or(1, |change| change.line);
            report.violations.push(Violation { line, what });
        }
        collection(recording, here, &mut report);
    }
    for document in calls.into_keys() {
        let why = "the changes of its collection were not recorded";
        report.skipped.push(format!("{document}: {why}"));
    }
    report
}

fn collection(
    recording: Recording,
    mut calls: BTreeMap<String, Vec<Made<'_>>>,
    report: &mut Report,
) {
    let (declared, edits) = (recording.all_declared(), report.counts.edits);
    let mut documents: BTreeMap<String, Vec<Transition>> = BTreeMap::new();
    for change in recording.changes {
        let transition = Transition {
            line: change.line,
            operation: change.operation,
            before: Stored::of(change.before),
            after: Stored::of(change.after),
            declared: change.declared,
        };
        documents
            .entry(change.document)
            .or_default()
            .push(transition);
    }
    for document in calls.keys() {
        documents.entry(document.clone()).or_default();
    }
    for (name, transitions) in documents {
        let calls = calls.remove(&name).unwrap_or_default();
        let mut history = History {
            name: &name,
            calls: &calls,
            report: &mut *report,
        };
        history.check(&transitions);
    }
    report.counts.unused += declared - (report.counts.edits - edits);
}

/// The changes of one document, and the calls that may explain them.
struct History<'a, 'r> {
    name: &'a str,
    calls: &'a [Made<'a>],
    report: &'r mut Report,
}

impl History<'_, '_> {
    fn check(&mut self, transitions: &[Transition]) {
        self.continuous(transitions);
        let index = Index::new(self.calls);
        for (first, second) in index.repeated() {
            let (first, second) = (&self.calls[first], &self.calls[second]);
            let what = format!(
                "{} and {} write the same revision",
                first.describe(),
                second.describe()
            );
            self.violates(second.call.line, what);
        }
        let mut shown: BTreeMap<usize, &Transition> = BTreeMap::new();
        // For each change, the call that made it, if only one call can have made it.
        let mut makers = Vec::new();
        let mut edits = 0;
        for transition in transitions {
            self.report.counts.all += 1;
            let explained = index.explain(transition, &|call| shown.contains_key(&call));
            let maker = explained.as_ref().ok().filter(|found| found.is_only);
            makers.push(maker.map(|found| &self.calls[found.call]));
            match explained {
                Ok(Explanation { call, .. }) => {
                    self.report.counts.calls += 1;
                    let outcome = self.calls[call].call.outcome();
                    self.report.counts.unknown += usize::from(outcome == Outcome::Unknown);
                    shown.insert(call, transition);
                }
                Err(_) if operators::explain(&transition.before, &transition.after) => {
                    self.report.counts.operators += 1;
                }
                Err(_) if edits < transition.declared => {
                    edits += 1;
                    self.report.counts.edits += 1;
                }
                Err(why) => {
                    let operation = &transition.operation;
                    self.violates(transition.line, format!("{operation}: {why}"));
                }
            }
        }
        self.answers(&shown);
        self.times(transitions, &makers);
    }

    /// Checks that each change starts from the document that the previous change produced.
    fn continuous(&mut self, transitions: &[Transition]) {
        for pair in transitions.windows(2) {
            let [last, next] = pair else { continue };
            if last.after.fields != next.before.fields {
                let what = format!(
                    "the document before this change is not the document after line {}: a change \
                     is missing",
                    last.line
                );
                self.violates(next.line, what);
            }
        }
    }

    /// Checks that each applied write has a change, and that the write's answer shows the document
    /// after the change.
    fn answers(&mut self, shown: &BTreeMap<usize, &Transition>) {
        for (index, made) in self.calls.iter().enumerate() {
            let call = made.call;
            if call.outcome() != Outcome::Applied || call.operation.is_read() {
                continue;
            }
            let what = match shown.get(&index) {
                None => "was applied, but no change shows it".to_owned(),
                Some(transition) => match explained::other_answer(made, &transition.after) {
                    None => continue,
                    Some(difference) => format!(
                        "was answered with a document that differs from line {}: {difference}",
                        transition.line
                    ),
                },
            };
            self.violates(call.line, format!("{} {what}", made.describe()));
        }
    }

    /// Checks times. Changes must be in the order of their calls. A write may be rejected only if,
    /// at some time during the call, its filter did not match the document. A read must show a
    /// document that existed during the read.
    fn times(&mut self, transitions: &[Transition], makers: &[Option<&Made<'_>>]) {
        let Some(first) = transitions.first() else {
            return;
        };
        let states: Vec<_> = std::iter::once(&first.before)
            .chain(transitions.iter().map(|transition| &transition.after))
            .map(|stored| &stored.state)
            .collect();
        let mut of_clock = BTreeMap::new();
        for made in self.calls {
            let kind = made.call.operation.kind();
            of_clock
                .entry((made.clock, kind))
                .or_insert_with(|| Times::new(made.clock, makers));
        }
        for ((_, _), times) in &of_clock {
            if let Some(change) = times.contradiction() {
                let what =
                    "the calls of this change and of other changes were made in a different order";
                self.violates(transitions[change].line, what.to_owned());
            }
        }
        let mut seen = BTreeMap::new();
        for made in self.calls {
            let kind = made.call.operation.kind();
            let seen: &Vec<State> = seen.entry(kind).or_insert_with(|| {
                let seen = states.iter().map(|state| (*state).clone().seen_by(kind));
                seen.collect()
            });
            let times = &of_clock[&(made.clock, kind)];
            if let Some(why) = untimely(made, times, &states, seen) {
                self.violates(made.call.line, format!("{} {why}", made.describe()));
            }
        }
    }

    fn violates(&mut self, line: usize, what: String) {
        let what = format!("T2: {}: {what}", self.name);
        self.report.violations.push(Violation { line, what });
    }
}

/// Returns a violation unless a state of the document during the call explains the answer.
fn untimely(made: &Made<'_>, times: &Times, states: &[&State], seen: &[State]) -> Option<String> {
    let call = made.call;
    let (sent, answered) = (call.sent, call.answered());
    match (call.outcome(), call.operation.is_read()) {
        (Outcome::Applied, true) => {
            let found = call.found.as_ref()?;
            // A deposed primary may answer a majority read with an old document.
            let sent = sent.filter(|_| call.operation.is_confirming());
            let mut then = (0..seen.len()).filter(|state| times.may_show(*state, sent, answered));
            if then.any(|state| seen[state] == *found) {
                return None;
            }
            let when = match seen.contains(found) {
                true => "of another time",
                false => "that no change shows",
            };
            Some(format!("shows a document {when}: {found:?}"))
        }
        // A document that exists only on a deposed primary can reject creations and releases.
        (Outcome::Rejected, false)
            if !call.operation.is_creation() && !call.operation.is_release() =>
        {
            let mut then = (0..states.len()).filter(|state| times.may_show(*state, sent, answered));
            let rejected = then.any(|state| !explained::matches(made, states[state]));
            let what = "was rejected, but its filter matches each document of that time";
            (!rejected).then(|| what.to_owned())
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests;
