//! Recognizes changes that no machine makes: requests of operators and their scripts, roll calls,
//! and commands for locks. These processes write no trace, so the check has a rule for each kind of
//! change.

use bson::{Bson, Document};
use leasehold_core::election::{Identity, Lease, RequestKind, Token, WallMillis};
use leasehold_core::lock::{
    Ending, Entry, EntryVersion, FoundLock, LockDocument, LockOperation, LockOutcome,
};
use leasehold_reference::{election as lease_reference, lock as reference};

use super::explained::entries;
use super::locks::date_grants;
use crate::state::{State, Stored, appended, changed};

/// The fields that pruning removes.
const PRUNED: [&str; 9] = [
    "slots",
    "slots_before",
    "slot_owners",
    "holders",
    "queue",
    "granted",
    "next",
    "history",
    "successes",
];

pub(super) fn explain(before: &Stored, after: &Stored) -> bool {
    match (&before.state, &after.state) {
        (State::Missing, State::Lease(lease)) => is_created(lease, after),
        (State::Lease(old), State::Lease(new)) => {
            is_roll_call(before, after) || is_request((old, before), (new, after))
        }
        (State::Lock(old), State::Lock(new)) => {
            is_broken((old, before), (new, after)) || is_pruned(old, new, before, after)
        }
        _ => false,
    }
}

/// True for `leasehold create`, which writes a free lease and records the action.
fn is_created(lease: &Lease, after: &Stored) -> bool {
    let [Bson::Document(action)] = after.list("actions") else {
        return false;
    };
    *lease == lease_reference::free(lease.revision, lease.token)
        && action.get_str("action").ok() == Some("create")
        && action.get_i64("token").ok() == Some(lease.token.get())
}

fn is_roll_call(before: &Stored, after: &Stored) -> bool {
    changed(before, after) == ["roll_call"]
}

/// True for a request, a pause or a raised token, each of which changes one of three fields. The
/// revision and the holder stay unchanged. Commands record their action; scripts need not do so.
fn is_request((old, before): (&Lease, &Stored), (new, after): (&Lease, &Stored)) -> bool {
    let mut fields = changed(before, after);
    fields.retain(|field| *field != "actions");
    let action = match appended(before, after, "actions") {
        Some([]) => None,
        Some([Bson::Document(action)]) => action.get_str("action").ok(),
        _ => return false,
    };
    match (fields.as_slice(), action) {
        (["paused"], None) => true,
        (["paused"], Some(action)) => action == if new.paused { "pause" } else { "resume" },
        (["request"], None) => true,
        (["request"], Some(action)) => match &new.request {
            None => action == "cancel",
            Some(request) => {
                let kind = match request.kind {
                    RequestKind::StepDown => "step_down",
                    RequestKind::Transfer(_) => "transfer",
                };
                action == kind && old.holder.is_some()
            }
        },
        (["token"], Some("raise_token")) => new.token > old.token,
        // The token was already high enough, so the request changed no field.
        ([], Some("raise_token")) => true,
        _ => false,
    }
}

/// True for `leasehold locks break`, which records its reason, and for the removal of entries whose
/// work is done. Removing only waiters leaves no record, so the test must declare this removal.
fn is_broken(
    (old, before): (&LockDocument, &Stored),
    (new, after): (&LockDocument, &Stored),
) -> bool {
    let is_left = |claim| entries(new).any(|entry| entry.claim == claim);
    let gone: Vec<_> = entries(old).filter(|entry| !is_left(entry.claim)).collect();
    let reason = |end: &Document| end.get_str("reason").map(str::to_owned);
    let added = appended(before, after, "history").unwrap_or_default();
    let reasons: Vec<_> = added
        .iter()
        .filter_map(|end| reason(end.as_document()?).ok())
        .collect();
    let recorded = |ending: Ending| {
        !reasons.is_empty() && reasons.iter().all(|reason| reason == ending.as_str())
    };
    let over = !gone.is_empty() && gone.iter().all(|entry| entry.work_done);
    let ending = match (recorded(Ending::Broken), recorded(Ending::Released) && over) {
        (true, _) => Ending::Broken,
        (false, true) => Ending::Expired,
        // The holders were removed by hand earlier, so this change only grants the lock.
        (false, false) if old.holders.is_empty() && gone.is_empty() => Ending::Broken,
        (false, false) => return false,
    };
    let seen = |entry: &&Entry| EntryVersion {
        claim: entry.claim,
        revision: entry.revision,
    };
    let removal = LockOperation::Evict {
        entries: gone.iter().map(seen).collect(),
        me: None,
        ending,
        seen: Token::ZERO,
    };
    let by = reference::By {
        identity: &Identity::new("operator").expect("a legal name"),
        at: WallMillis::default(),
        store_now: WallMillis::default(),
    };
    let mut expected = FoundLock::Lock(old.clone());
    let performed = reference::apply(&mut expected, by, &removal);
    if let FoundLock::Lock(expected) = &mut expected {
        date_grants(expected, old, new);
    }
    matches!(performed.outcome, LockOutcome::Applied(_)) && expected == FoundLock::Lock(new.clone())
}

/// True for `leasehold locks prune`, which removes optional fields of an unused lock.
fn is_pruned(old: &LockDocument, new: &LockDocument, before: &Stored, after: &Stored) -> bool {
    let is_empty = |lock: &LockDocument| entries(lock).next().is_none();
    let removed = |field: &&str| PRUNED.contains(field) && !after.fields.contains_key(*field);
    is_empty(old)
        && is_empty(new)
        && old.token == new.token
        && changed(before, after).iter().all(removed)
}
