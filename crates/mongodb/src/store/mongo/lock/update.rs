//! The filter and the pipeline of each write of a lock.
//!
//! A pipeline sets named fields only, so that fields of a newer version survive. Each write that
//! changes the holders or waiters also grants, in the same update: see [`grant`].

use std::time::Duration;

use mongodb::bson::{Bson, DateTime, Document, doc};

use super::super::document::{HISTORY_MAX, uuid, uuids};
use super::document::{
    MIN_HOLD, OVER, OVER_AT, all, everybody, holders, joining, milliseconds, ours, queue,
    some_entry,
};
use super::expressions::{
    any, below, count, free_slots, has_slots, has_token, held_alone, highest, is_claim, is_empty,
    next_token, not,
};
use super::granting::grant;
use leasehold_core::election::{Claim, Identity, Revision, Token};
use leasehold_core::lock::{
    Ending, EntryMode, EntryVersion, HOLDERS_MAX, NewEntry, QUEUE_MAX, SUCCESSES_MAX, WorkKey,
    Writer,
};

/// A filter, and the stages of its update.
pub(super) type Write = (Document, Vec<Document>);

/// Appends an entry and grants. With `non_blocking`, matches only if the entry can hold immediately.
pub(super) fn join(
    name: &str,
    entry: &NewEntry,
    seen: Token,
    non_blocking: bool,
    identity: &Identity,
    now: DateTime,
) -> Write {
    let slots = i64::from(entry.slots);
    let mine = is_claim(entry.claim);
    let mut conditions = vec![
        not(some_entry(everybody(), mine)),
        below(queue(), count(QUEUE_MAX)),
        any([
            doc! { "$eq": [{ "$ifNull": ["$slots", 0] }, slots] }.into(),
            is_empty(everybody()),
        ]),
    ];
    if non_blocking {
        conditions.push(is_empty(queue()));
        conditions.push(match entry.mode {
            EntryMode::Exclusive => is_empty(holders()),
            EntryMode::Shared => all([not(held_alone()), below(holders(), count(HOLDERS_MAX))]),
            EntryMode::Slot => below(holders(), slots),
        });
    }
    // Literal, because an identity may begin with a dollar sign.
    let appended = doc! { "$literal": joining(entry, identity, now) };
    // A lock that was never used, or was pruned, has no previous slots.
    let as_before = doc! { "$eq": [{ "$ifNull": ["$slots", slots] }, slots] };
    let append = doc! { "$set": {
        "slots": slots,
        "slots_before": { "$cond": [as_before, null, "$slots"] },
        "token": highest(seen),
        "holders": holders(),
        "queue": { "$concatArrays": [queue(), [appended]] },
    } };
    let me = Writer {
        claim: entry.claim,
        revision: entry.revision,
    };
    (
        ours(name, all(conditions)),
        [vec![append], grant(Some(me), slots > 0, now)].concat(),
    )
}

/// Renews an entry whose revision is one of `mine`. Gives the entry a token if it was granted
/// without a token, or with a token that its owner cannot use.
pub(super) fn renew(
    name: &str,
    (claim, revision): (Claim, Revision),
    mine: &[Revision],
    (seen, min_hold): (Token, Option<Duration>),
    now: DateTime,
) -> Write {
    let is_mine = is_mine(claim, mine);
    let used = all([
        doc! { "$eq": ["$$entry.granted_revision", "$$entry.revision"] }.into(),
        doc! { "$lte": ["$$entry.token", seen.get()] }.into(),
    ]);
    let without_token = any([not(has_token("$$entry")), used]);
    let unconfirmed = all([is_mine.clone(), without_token.clone()]);
    let mut renewed = stamped(revision, now);
    if let Some(min_hold) = min_hold {
        renewed.insert(MIN_HOLD, milliseconds(min_hold));
    }
    let mut confirmed = renewed.clone();
    let token = doc! { "$cond": [without_token, next_token(highest(seen)), "$$entry.token"] };
    confirmed.insert("token", token);
    // A grant of an older version has no slot.
    let own_slot = doc! { "$or": [{ "$isNumber": "$$entry.slot" }, { "$not": has_slots() }] };
    let free = doc! { "$min": free_slots("$holders.slot".into()) };
    confirmed.insert("slot", doc! { "$cond": [own_slot, "$$entry.slot", free] });
    let change = |list, fields| changed(list, is_mine.clone(), fields);
    let raised = doc! { "$ifNull": [next_token(highest(seen)), highest(seen)] };
    let update = doc! { "$set": {
        "token": { "$cond": [some_entry(holders(), unconfirmed), raised, "$token"] },
        "holders": change(holders(), confirmed),
        "queue": change(queue(), renewed),
    } };
    (ours(name, some_entry(everybody(), is_mine)), vec![update])
}

/// Marks the entry of a holder whose work has ended, and whose place stays taken for `min_hold`.
pub(super) fn keep(
    name: &str,
    (claim, revision): (Claim, Revision),
    mine: &[Revision],
    (min_hold, success): (Duration, Option<&WorkKey>),
    now: DateTime,
) -> Write {
    let is_mine = is_mine(claim, mine);
    let mut fields = stamped(revision, now);
    fields.insert(MIN_HOLD, milliseconds(min_hold));
    fields.insert(OVER, true);
    // By the clock of the server, since later readers compare it with that clock.
    fields.insert(OVER_AT, "$$NOW");
    let update = doc! { "$set": { "holders": changed(holders(), is_mine.clone(), fields) } };
    let filter = ours(name, some_entry(holders(), is_mine));
    (filter, [recording(claim, success), vec![update]].concat())
}

/// Removes a claim whose revision is one of `mine`, and grants.
pub(super) fn leave(
    name: &str,
    (claim, mine): (Claim, &[Revision]),
    (success, slots): (Option<&WorkKey>, u32),
    seen: Token,
    now: DateTime,
) -> Write {
    let (_, removal) = take_out(name, is_claim(claim), Ending::Released, seen);
    let filter = ours(name, some_entry(everybody(), is_mine(claim, mine)));
    let granting = grant(None, slots > 0, now);
    (
        filter,
        [recording(claim, success), vec![removal], granting].concat(),
    )
}

/// The stage that records the success of a claim, if any, while its entry is still there.
fn recording(claim: Claim, success: Option<&WorkKey>) -> Vec<Document> {
    let Some(key) = success else {
        return Vec::new();
    };
    // Literal, because a key may begin with a dollar sign.
    let key = doc! { "$literal": key.as_str() };
    let other = doc! { "$ne": ["$$success.key", key.clone()] };
    let others = doc! { "$filter": {
        "input": { "$ifNull": ["$successes", []] }, "as": "success", "cond": other,
    } };
    let own = doc! { "$filter": {
        "input": holders(), "as": "entry", "cond": is_claim(claim),
    } };
    let recorded = doc! { "$let": {
        "vars": { "own": { "$arrayElemAt": [own, 0] } },
        "in": { "key": key, "at": "$$NOW", "token": "$$own.token", "identity": "$$own.identity" },
    } };
    let all = doc! { "$concatArrays": [others, [recorded]] };
    let most = i32::try_from(SUCCESSES_MAX).expect("small");
    vec![doc! { "$set": { "successes": { "$slice": [all, -most] } } }]
}

/// Evicts the entries that are unchanged since they were seen, and grants.
pub(super) fn sweep(
    name: &str,
    entries: &[EntryVersion],
    (ending, me): (Ending, Option<Writer>),
    seen: Token,
    now: DateTime,
) -> Write {
    let pair = |seen: &EntryVersion| {
        let EntryVersion { claim, revision } = seen;
        Bson::from(doc! { "claim": uuid(claim.bytes()), "revision": uuid(revision.bytes()) })
    };
    let pairs: Vec<_> = entries.iter().map(pair).collect();
    let entry = doc! { "claim": "$$entry.claim", "revision": "$$entry.revision" };
    let goes = doc! { "$in": [entry, { "$literal": pairs }] };
    let (mut filter, removal) = take_out(name, goes.into(), ending, seen);
    if entries.is_empty() {
        // Nothing to evict, only to grant.
        let waits = me.map_or(true.into(), |me| is_claim(me.claim));
        filter = ours(name, some_entry(queue(), waits));
    }
    (filter, [vec![removal], grant(me, true, now)].concat())
}

/// Removes claims regardless of their revision, and grants.
pub(super) fn break_up(name: &str, claims: &[Claim], seen: Token, now: DateTime) -> Write {
    let claims: Vec<_> = claims.iter().map(|claim| uuid(claim.bytes())).collect();
    let goes = doc! { "$in": ["$$entry.claim", claims] };
    let (filter, removal) = take_out(name, goes.into(), Ending::Broken, seen);
    (filter, [vec![removal], grant(None, true, now)].concat())
}

pub(super) fn prune(name: &str) -> Write {
    let fields = [
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
    let update = doc! { "$unset": fields.to_vec() };
    (ours(name, is_empty(everybody())), vec![update])
}

/// The filter and the first stage of a removal. The other stages grant.
fn take_out(name: &str, goes: Bson, ending: Ending, seen: Token) -> (Document, Document) {
    let without = |list: Bson| {
        doc! { "$filter": { "input": list, "as": "entry", "cond": not(goes.clone()) } }
    };
    let held = all([goes.clone(), has_token("$$entry")]);
    let held = doc! { "$filter": { "input": holders(), "as": "entry", "cond": held } };
    let reason = match ending {
        // The work ended in order, and the minimum hold after it has passed.
        Ending::Expired => doc! { "$cond": [
            { "$eq": [format!("$$entry.{OVER}"), true] },
            Ending::Released.as_str(),
            ending.as_str(),
        ] }
        .into(),
        Ending::Released | Ending::Broken => Bson::from(ending.as_str()),
    };
    let over_at = format!("$$entry.{OVER_AT}");
    let has_ended = doc! { "$eq": [{ "$type": &over_at }, "date"] };
    let end = doc! {
        "token": "$$entry.token",
        "identity": "$$entry.identity",
        "slot": "$$entry.slot",
        "acquired_at": "$$entry.acquired_at",
        // By the server's clock, since operators compare it with that clock.
        "ended_at": { "$cond": [has_ended, over_at, "$$NOW"] },
        "reason": reason,
    };
    let ended = doc! { "$map": { "input": held, "as": "entry", "in": end } };
    let history = doc! { "$concatArrays": [{ "$ifNull": ["$history", []] }, ended] };
    let update = doc! { "$set": {
        "token": highest(seen),
        "holders": without(holders()),
        "queue": without(queue()),
        "history": { "$slice": [history, -HISTORY_MAX] },
    } };
    (ours(name, some_entry(everybody(), goes)), update)
}

/// True for the entry of a claim with one of these revisions.
fn is_mine(claim: Claim, mine: &[Revision]) -> Bson {
    let known = doc! { "$in": ["$$entry.revision", uuids(mine)] };
    all([is_claim(claim), known.into()])
}

/// The fields that each write of an owner changes in its entry.
fn stamped(revision: Revision, now: DateTime) -> Document {
    doc! {
        "revision": uuid(revision.bytes()),
        "revision_text": revision.to_string(),
        "renewed_at": now,
    }
}

/// The `list`, with these fields in each entry where `is_mine` is true.
fn changed(list: Bson, is_mine: Bson, fields: Document) -> Document {
    let changed = doc! { "$mergeObjects": ["$$entry", fields] };
    let entry = doc! { "$cond": [is_mine, changed, "$$entry"] };
    doc! { "$map": { "input": list, "as": "entry", "in": entry } }
}
