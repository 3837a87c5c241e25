use super::network::{Committed, Writer};
use super::seats::Seat;
use crate::election::{CallId, Claim};
use crate::lock::{Entry, FoundLock, LockInput, LockOperation, LockOutcome};
use crate::proof::sim::coverage::Answer;
use crate::proof::sim::report::follows;

pub(super) const LEGEND: &str = "each line: true time, process (p1 is the second process that was \
started), event; -> marks a call, <- an input";

fn short(claim: Claim) -> String {
    claim.to_string().chars().take(4).collect()
}

fn entry(entry: &Entry) -> String {
    let token = entry.token.map(|t| format!("#{t}")).unwrap_or_default();
    let revision: String = entry.revision.to_string().chars().take(4).collect();
    let (identity, claim) = (&entry.owner.identity, short(entry.claim));
    format!("{identity}:{claim}{token}@{revision}")
}

fn found(found: &FoundLock) -> String {
    match found {
        FoundLock::Missing => "nothing".to_owned(),
        FoundLock::Foreign(why) => why.to_string(),
        FoundLock::Lock(lock) => {
            let list = |entries: &[Entry]| entries.iter().map(entry).collect::<Vec<_>>().join(" ");
            let (holders, queue) = (list(&lock.holders), list(&lock.queue));
            format!("{} [{holders}] ({queue})", lock.token)
        }
    }
}

pub(super) fn input(process: usize, input: &LockInput) -> String {
    match input {
        LockInput::Reply { call, outcome } => {
            let outcome = match outcome {
                LockOutcome::Applied(shown) => found(shown),
                other => Answer::from(other).words().to_owned(),
            };
            format!("p{process} <- #{} {outcome}", call.0)
        }
        other => format!("p{process} <- {other:?}"),
    }
}

pub(super) fn call(process: usize, call: CallId, operation: &LockOperation) -> String {
    let detail = match operation {
        LockOperation::Join { entry, .. } => short(entry.claim),
        LockOperation::Renew { claim, .. }
        | LockOperation::Keep { claim, .. }
        | LockOperation::Leave { claim, .. } => short(*claim),
        LockOperation::Evict { entries, .. } => {
            let claims: Vec<_> = entries.iter().map(|pair| short(pair.claim)).collect();
            claims.join(" ")
        }
        LockOperation::Create { .. } | LockOperation::Break { .. } | LockOperation::Read { .. } => {
            String::new()
        }
    };
    format!("p{process} -> #{} {} {detail}", call.0, operation.as_str())
}

pub(super) fn committed(committed: &Committed) -> String {
    let what = match &committed.write.writer {
        Writer::Process(by, operation) => format!("{} of p{by}", operation.as_str()),
        Writer::Operator => "an edit by hand".to_owned(),
    };
    format!("majority has {what}: {}", found(&committed.after))
}

pub(super) fn seat(seat: &Seat) -> String {
    format!(
        "{}: {:?}, lease_duration {:?}, clock at {:.3}, {}",
        seat.identity,
        seat.mode,
        seat.timings.lease_duration(),
        seat.clock.rate as f64 / 1000.0,
        follows(seat.streams),
    )
}
