//! The candidates of a lease, by a roll call that each of them answers.

use std::time::Duration;

use super::observed::shown;
use super::{OperatorError, Session};
use leasehold_clock as clock;
use leasehold_core::election::ResourceName;
use leasehold_mongodb::randomness::KernelRandomness;
use leasehold_mongodb::store::Failure;
use leasehold_mongodb::store::mongo::operators::{Acted, ActionId, LiveView, Present};

/// Time for candidates to answer. Candidates with a change stream take milliseconds; the others
/// poll, by default each second.
pub(super) const ANSWER_MAX: Duration = Duration::from_secs(3);

/// Calls the roll and returns the candidates that have answered, once `complete` is true of them or
/// the time is over.
pub(super) async fn candidates(
    session: &Session,
    view: &mut LiveView,
    name: &ResourceName,
    complete: impl Fn(&[Present]) -> bool,
) -> Result<Vec<Present>, OperatorError> {
    let call = ActionId::random(&mut KernelRandomness);
    let called = session.collection.call_roll(name, call).await;
    if called.outcome != Acted::Applied(()) {
        let changed = || Failure::new("the document is no longer a lease", "");
        return Err(OperatorError::Store {
            doing: "call the roll of candidates",
            failure: called.failure.unwrap_or_else(changed),
        });
    }
    let until = (clock::boot_now() + ANSWER_MAX).min(session.deadline);
    let mut present: Vec<Present> = Vec::new();
    let mut called_now = false;
    while !complete(&present) {
        let Some(event) = session.next(view, until).await else {
            break;
        };
        let lease = shown(&event).flatten();
        let Some(roll_call) = lease.and_then(|lease| lease.roll_call.as_ref()) else {
            continue;
        };
        // Another operator's roll call may replace this one. Its answers are as good, unless they
        // are older than this one.
        called_now |= roll_call.id == call.bytes();
        if called_now {
            let is_new = |candidate: &&Present| !present.contains(candidate);
            let new: Vec<_> = roll_call.present.iter().filter(is_new).cloned().collect();
            present.extend(new);
        }
    }
    // A roll call that is not removed is replaced by the next; candidates answer each call once.
    let _ = session.collection.end_roll_call(name, call).await;
    present.sort_by(|a, b| a.identity.cmp(&b.identity));
    Ok(present)
}

pub(super) fn names(present: &[Present]) -> String {
    let names = present.iter().map(|candidate| match candidate.healthy {
        Some(false) => format!("{} (unhealthy)", candidate.identity),
        Some(true) | None => candidate.identity.to_string(),
    });
    match present {
        [] => "none".to_owned(),
        _ => names.collect::<Vec<_>>().join(", "),
    }
}
