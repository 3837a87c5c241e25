//! Human-readable reports of a run.

use std::fmt::Write as _;

use super::MS;
use super::run::{Ran, Setup};
use super::store::Committed;
use crate::election::{CallId, Claim};
use crate::lock::{Entry, Found, Input, Operation, Outcome};
use crate::sim::invariants::Violation;

fn short(claim: Claim) -> String {
    claim.to_string().chars().take(4).collect()
}

fn entry(entry: &Entry) -> String {
    let token = entry.token.map(|t| format!("#{t}")).unwrap_or_default();
    let revision: String = entry.revision.to_string().chars().take(4).collect();
    format!(
        "{}:{}{token}@{revision}",
        entry.identity,
        short(entry.claim)
    )
}

fn found(found: &Found) -> String {
    match found {
        Found::Missing => "nothing".to_owned(),
        Found::Foreign(why) => why.clone(),
        Found::Lock(lock) => {
            let list = |entries: &[Entry]| entries.iter().map(entry).collect::<Vec<_>>().join(" ");
            let (holders, queue) = (list(&lock.holders), list(&lock.queue));
            format!("{} [{holders}] ({queue})", lock.token)
        }
    }
}

pub(super) fn input(process: usize, input: &Input) -> String {
    match input {
        Input::Reply { call, outcome } => {
            let outcome = match outcome {
                Outcome::Applied(shown) => found(shown),
                Outcome::Rejected => "rejected".to_owned(),
                Outcome::Failed => "failed".to_owned(),
                Outcome::Unknown => "unknown".to_owned(),
            };
            format!("p{process} <- #{} {outcome}", call.0)
        }
        other => format!("p{process} <- {other:?}"),
    }
}

pub(super) fn call(process: usize, call: CallId, operation: &Operation) -> String {
    let detail = match operation {
        Operation::Join { entry, .. } => short(entry.claim),
        Operation::Renew { claim, .. } | Operation::Leave { claim, .. } => short(*claim),
        Operation::Evict { entries, .. } => {
            let claims: Vec<_> = entries.iter().map(|pair| short(pair.claim)).collect();
            claims.join(" ")
        }
        Operation::Create { .. } | Operation::Break { .. } | Operation::Read { .. } => {
            String::new()
        }
    };
    format!("p{process} -> #{} {} {detail}", call.0, operation.as_str())
}

pub(super) fn committed(committed: &Committed) -> String {
    let (by, word) = (committed.by, committed.operation.as_str());
    format!("majority has {word} of p{by}: {}", found(&committed.after))
}

/// Formats a failing seed: the broken invariant, the command to repeat the run, and its last lines.
pub(super) fn failed(setup: &Setup, violation: &Violation, ran: &Ran, lines: usize) -> String {
    let mut text = format!(
        "seed {}: {} broken: {}\nagain, line by line: make replay-locks SEED={}\nfaults: {:?}\n",
        setup.seed,
        violation.invariant,
        violation.evidence,
        setup.seed,
        ran.faults.list(),
    );
    let from = ran.trace.len().saturating_sub(lines);
    for (at, line) in &ran.trace[from..] {
        let _ = writeln!(text, "{:>9.3} {line}", (*at / MS) as f64 / 1000.0);
    }
    text
}
