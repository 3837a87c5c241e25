//! The filter and the pipeline of each write to a lock. A pipeline sets only named fields, so that
//! fields of a newer version survive. Writes that change holders or waiters also [`grant`].

use mongodb::bson::{Bson, DateTime, Document, doc};

use super::super::display::{CommandResult, EXIT_CODE, LEFTOVERS_STOPPED, SIGNAL};
use super::super::document::{HISTORY_MAX, uuid, uuids};
use super::document::{
    MIN_HOLD, OVER, OVER_AT, all, any, create, everybody, free_slots, has_slots, has_token,
    held_alone, holders, is_claim, is_empty, joining, milliseconds, not, ours, queue, some_entry,
};
use super::granting::grant;
use leasehold_core::election::{Claim, Declared, Identity, Revision, Session, Token};
use leasehold_core::lock::{
    Ending, EntryMode, HOLDERS_MAX, LockOperation, NewEntry, QUEUE_MAX, SUCCESSES_MAX, WorkKey,
    Writer,
};

pub(super) type Write = (Document, Vec<Document>);

pub(super) fn write(
    name: &str,
    operation: &LockOperation,
    identity: &Identity,
    now: DateTime,
    result: Option<CommandResult>,
) -> Option<Write> {
    let result = result.map(CommandResult::fields).unwrap_or_default();
    let (condition, stages) = match operation {
        LockOperation::Read { .. } | LockOperation::Create { .. } => return None,
        LockOperation::Join {
            entry,
            seen,
            token_min,
            non_blocking,
        } => {
            let me = Writer {
                claim: entry.claim,
                revision: entry.revision,
            };
            let append = append(entry, *seen, identity, now);
            let granting = grant(Some(me), entry.slots > 0, now);
            (
                can_join(entry, *token_min, *non_blocking),
                [vec![append], granting].concat(),
            )
        }
        LockOperation::Renew {
            claim,
            revision,
            mine,
            seen,
            min_hold,
        } => {
            let is_mine = is_mine(*claim, mine);
            let mut renewed = stamped(*revision, now);
            if let Some(min_hold) = min_hold {
                renewed.insert(MIN_HOLD, milliseconds(*min_hold));
            }
            let renewal = renewal(is_mine.clone(), renewed, *seen);
            (some_entry(everybody(), is_mine), vec![renewal])
        }
        LockOperation::Keep {
            claim,
            revision,
            mine,
            min_hold,
            success,
        } => {
            let is_mine = is_mine(*claim, mine);
            let mut fields = stamped(*revision, now);
            fields.insert(MIN_HOLD, milliseconds(*min_hold));
            fields.insert(OVER, true);
            // Uses the server's clock, because readers compare the time with this clock.
            fields.insert(OVER_AT, "$$NOW");
            fields.extend(result);
            let keep = doc! { "$set": { "holders": changed(holders(), is_mine.clone(), fields) } };
            let recording = recording(*claim, success.as_ref());
            (
                some_entry(holders(), is_mine),
                [recording, vec![keep]].concat(),
            )
        }
        LockOperation::Leave {
            claim,
            mine,
            seen,
            success,
            slots,
        } => {
            let recording = recording(*claim, success.as_ref());
            let removal = removal(&is_claim(*claim), Ending::Released, *seen, result);
            let granting = grant(None, *slots > 0, now);
            let stages = [recording, vec![removal], granting].concat();
            (some_entry(everybody(), is_mine(*claim, mine)), stages)
        }
        LockOperation::Evict {
            entries,
            me,
            ending,
            seen,
        } => {
            let pairs = entries.iter().map(|entry| {
                let (claim, revision) = (entry.claim.bytes(), entry.revision.bytes());
                doc! { "claim": uuid(claim), "revision": uuid(revision) }
            });
            let pairs: Vec<_> = pairs.collect();
            let entry = doc! { "claim": "$$entry.claim", "revision": "$$entry.revision" };
            let goes = doc! { "$in": [entry, { "$literal": pairs }] }.into();
            let removal = removal(&goes, *ending, *seen, doc! {});
            let condition = match entries.is_empty() {
                // Without entries to evict, this write only grants.
                true => some_entry(queue(), me.map_or(true.into(), |me| is_claim(me.claim))),
                false => some_entry(everybody(), goes),
            };
            (condition, [vec![removal], grant(*me, true, now)].concat())
        }
        LockOperation::Break { claims, seen } => {
            let claims: Vec<_> = claims.iter().map(|claim| uuid(claim.bytes())).collect();
            let goes = doc! { "$in": ["$$entry.claim", claims] }.into();
            let removal = removal(&goes, Ending::Broken, *seen, doc! {});
            let stages = [vec![removal], grant(None, true, now)].concat();
            (some_entry(everybody(), goes), stages)
        }
    };
    Some((ours(name, condition), stages))
}

/// True if an entry may join; with `non_blocking`, only if it would hold the lock immediately.
fn can_join(entry: &NewEntry, token_min: Token, non_blocking: bool) -> Bson {
    let slots = i64::from(entry.slots);
    let mut conditions = vec![
        not(some_entry(everybody(), is_claim(entry.claim))),
        below(queue(), count(QUEUE_MAX)),
        doc! { "$gte": ["$token", token_min.get()] }.into(),
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
    all(conditions)
}

fn append(entry: &NewEntry, seen: Token, identity: &Identity, now: DateTime) -> Document {
    let slots = i64::from(entry.slots);
    // Literal, because an identity may begin with a dollar sign.
    let appended = doc! { "$literal": joining(entry, identity, now) };
    // A lock that was never used, or was pruned, has no previous number of slots.
    let as_before = doc! { "$eq": [{ "$ifNull": ["$slots", slots] }, slots] };
    doc! { "$set": {
        "slots": slots,
        "slots_before": { "$cond": [as_before, null, "$slots"] },
        "token": highest(seen),
        "holders": holders(),
        "queue": { "$concatArrays": [queue(), [appended]] },
    } }
}

/// Renews an entry. The entry gets a new token if the token of its grant is missing or unusable.
fn renewal(is_mine: Bson, renewed: Document, seen: Token) -> Document {
    let used = all([
        doc! { "$eq": ["$$entry.granted_revision", "$$entry.revision"] }.into(),
        doc! { "$lte": ["$$entry.token", seen.get()] }.into(),
    ]);
    let without_token = any([not(has_token("$$entry")), used]);
    let unconfirmed = all([is_mine.clone(), without_token.clone()]);
    let mut confirmed = renewed.clone();
    let token = doc! { "$cond": [without_token, next_token(highest(seen)), "$$entry.token"] };
    confirmed.insert("token", token);
    // A grant by an older version has no slot.
    let own_slot = doc! { "$or": [{ "$isNumber": "$$entry.slot" }, { "$not": has_slots() }] };
    let free = doc! { "$min": free_slots("$holders.slot".into()) };
    confirmed.insert("slot", doc! { "$cond": [own_slot, "$$entry.slot", free] });
    let raised = doc! { "$ifNull": [next_token(highest(seen)), highest(seen)] };
    doc! { "$set": {
        "token": { "$cond": [some_entry(holders(), unconfirmed), raised, "$token"] },
        "holders": changed(holders(), is_mine.clone(), confirmed),
        "queue": changed(queue(), is_mine, renewed),
    } }
}

/// The stage that records the success of a claim, if any. Requires the claim's entry.
fn recording(claim: Claim, success: Option<&WorkKey>) -> Vec<Document> {
    let Some(key) = success else {
        return Vec::new();
    };
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

/// The stage that removes each entry where `goes` is true, and adds the removed holders to the
/// history. The fields of `result`, if any, override the result in the entry. Later stages grant
/// the lock.
fn removal(goes: &Bson, ending: Ending, seen: Token, result: Document) -> Document {
    let without = |list: Bson| {
        doc! { "$filter": { "input": list, "as": "entry", "cond": not(goes.clone()) } }
    };
    let held = all([goes.clone(), has_token("$$entry")]);
    let held = doc! { "$filter": { "input": holders(), "as": "entry", "cond": held } };
    let reason = match ending {
        // The entry expired after its work had ended normally, so it counts as released.
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
    let mut end = doc! {
        "token": "$$entry.token",
        "identity": "$$entry.identity",
        "slot": "$$entry.slot",
        "acquired_at": "$$entry.acquired_at",
        // Like `acquired_at`, uses the server's clock.
        "ended_at": { "$cond": [has_ended, over_at, "$$NOW"] },
        "reason": reason,
        EXIT_CODE: format!("$$entry.{EXIT_CODE}"),
        SIGNAL: format!("$$entry.{SIGNAL}"),
        LEFTOVERS_STOPPED: format!("$$entry.{LEFTOVERS_STOPPED}"),
    };
    end.extend(result);
    let ended = doc! { "$map": { "input": held, "as": "entry", "in": end } };
    let history = doc! { "$concatArrays": [{ "$ifNull": ["$history", []] }, ended] };
    doc! { "$set": {
        "token": highest(seen),
        "holders": without(holders()),
        "queue": without(queue()),
        "history": { "$slice": [history, -HISTORY_MAX] },
    } }
}

pub(super) fn prune(name: &str, seen: Token) -> Write {
    let update = doc! { "$unset": [
        "slots", "slots_before", "slot_owners", "holders", "queue", "granted", "next", "history",
        "successes",
    ] };
    let unused = doc! { "$eq": ["$token", seen.get()] };
    let condition = all([is_empty(everybody()), unused.into()]);
    (ours(name, condition), vec![update])
}

/// Returns a lock and three writes for testing a collection: one contender acquires the lock,
/// another waits, and the first leaves. Before the third write, both lists have an entry.
pub(in crate::store::mongo) fn contention(
    name: &str,
    identity: &Identity,
    now: DateTime,
) -> (Document, Vec<Write>) {
    let seen = Token::ZERO;
    let join = |number| LockOperation::Join {
        entry: NewEntry {
            claim: Claim::from_bytes([number; 16]),
            session: Session::from_bytes([number; 16]),
            mode: EntryMode::Exclusive,
            revision: Revision::from_bytes([number; 16]),
            slots: 0,
            lease_duration: Declared { millis: 24_000 },
        },
        seen,
        token_min: seen,
        non_blocking: false,
    };
    let leave = LockOperation::Leave {
        claim: Claim::from_bytes([1; 16]),
        mine: vec![Revision::from_bytes([1; 16])],
        seen,
        success: None,
        slots: 0,
    };
    let operations = [join(1), join(2), leave].into_iter();
    let writes = operations.filter_map(|operation| write(name, &operation, identity, now, None));
    (create(name, seen), writes.collect())
}

fn is_mine(claim: Claim, mine: &[Revision]) -> Bson {
    let known = doc! { "$in": ["$$entry.revision", uuids(mine)] };
    all([is_claim(claim), known.into()])
}

/// The fields that every write by an owner sets in its entry.
fn stamped(revision: Revision, now: DateTime) -> Document {
    doc! {
        "revision": uuid(revision.bytes()),
        "revision_text": revision.to_string(),
        "renewed_at": now,
    }
}

/// The `list`, with these fields added to each entry where `is_mine` is true.
fn changed(list: Bson, is_mine: Bson, fields: Document) -> Document {
    let changed = doc! { "$mergeObjects": ["$$entry", fields] };
    let entry = doc! { "$cond": [is_mine, changed, "$$entry"] };
    doc! { "$map": { "input": list, "as": "entry", "in": entry } }
}

/// The highest known token, converted to an int64.
fn highest(seen: Token) -> Bson {
    doc! { "$toLong": { "$max": ["$token", seen.get()] } }.into()
}

/// The next token, or null after the last token. A grant without a token does not confer authority.
fn next_token(token: Bson) -> Bson {
    let next = doc! { "$add": [token.clone(), 1_i64] };
    doc! { "$cond": [{ "$lt": [token, Token::MAX.get()] }, next, null] }.into()
}

fn below(list: Bson, most: i64) -> Bson {
    doc! { "$lt": [{ "$size": list }, most] }.into()
}

pub(super) fn count(number: usize) -> i64 {
    i64::try_from(number).expect("small")
}
