//! The filter and the pipeline of each write of a lock.
//!
//! A pipeline sets named fields only, so that fields of a newer version survive. Each write that
//! changes the holders or waiters also grants, in the same update: see [`grant`].

use mongodb::bson::{Bson, DateTime, Document, doc};

use super::super::document::{uuid, uuids};
use super::document::{all, everybody, holders, joining, ours, queue, some_entry};
use leasehold_core::election::{Claim, Identity, Revision, Token};
use leasehold_core::lock::{Ending, HOLDERS_MAX, Joining, Mode, QUEUE_MAX, Seen, Writer};

/// Entries kept in the history.
const HISTORY_MAX: i32 = 20;
/// Longer than any queue.
const REST: i32 = i32::MAX;

/// A filter, and the stages of its update.
pub(super) type Write = (Document, Vec<Document>);

/// Appends an entry and grants. With `non_blocking`, matches only if the entry can hold immediately.
pub(super) fn join(
    name: &str,
    entry: &Joining,
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
            Mode::Exclusive => is_empty(holders()),
            Mode::Shared => all([not(held_alone()), below(holders(), count(HOLDERS_MAX))]),
            Mode::Slot => below(holders(), slots),
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
        "queue": { "$concatArrays": [queue(), [appended]] },
    } };
    let me = Writer {
        claim: entry.claim,
        revision: entry.revision,
    };
    (
        ours(name, all(conditions)),
        [vec![append], grant(Some(me), now)].concat(),
    )
}

/// Renews an entry whose revision is one of `mine`. Gives the entry a token if it was granted
/// without one, or by one that its owner cannot use.
pub(super) fn renew(
    name: &str,
    (claim, revision): (Claim, Revision),
    mine: &[Revision],
    seen: Token,
    now: DateTime,
) -> Write {
    let is_mine = all([
        is_claim(claim),
        doc! { "$in": ["$$entry.revision", uuids(mine)] }.into(),
    ]);
    let used = all([
        doc! { "$eq": ["$$entry.granted_revision", "$$entry.revision"] }.into(),
        doc! { "$lte": ["$$entry.token", seen.get()] }.into(),
    ]);
    let without_token = any([not(has_token("$$entry")), used]);
    let unconfirmed = all([is_mine.clone(), without_token.clone()]);
    let renewed = doc! {
        "revision": uuid(revision.bytes()),
        "revision_text": revision.to_string(),
        "renewed_at": now,
    };
    let mut confirmed = renewed.clone();
    let token = doc! { "$cond": [without_token, next_token(highest(seen)), "$$entry.token"] };
    confirmed.insert("token", token);
    // A grant of an older version has no slot.
    let own_slot = doc! { "$or": [{ "$isNumber": "$$entry.slot" }, { "$not": has_slots() }] };
    let free = doc! { "$min": free_slots("$holders.slot".into()) };
    confirmed.insert("slot", doc! { "$cond": [own_slot, "$$entry.slot", free] });
    let change = |list: Bson, fields: Document| {
        let changed = doc! { "$mergeObjects": ["$$entry", fields] };
        let entry = doc! { "$cond": [is_mine.clone(), changed, "$$entry"] };
        doc! { "$map": { "input": list, "as": "entry", "in": entry } }
    };
    let raised = doc! { "$ifNull": [next_token(highest(seen)), highest(seen)] };
    let update = doc! { "$set": {
        "token": { "$cond": [some_entry(holders(), unconfirmed), raised, "$token"] },
        "holders": change(holders(), confirmed),
        "queue": change(queue(), renewed),
    } };
    (ours(name, some_entry(everybody(), is_mine)), vec![update])
}

/// Removes a claim, and grants.
pub(super) fn leave(name: &str, claim: Claim, seen: Token, now: DateTime) -> Write {
    let goes = is_claim(claim);
    take_out(name, goes, (Ending::Released, None), seen, now)
}

/// Evicts the entries that are unchanged since they were seen, and grants.
pub(super) fn sweep(
    name: &str,
    entries: &[Seen],
    (ending, me): (Ending, Option<Writer>),
    seen: Token,
    now: DateTime,
) -> Write {
    let pair = |seen: &Seen| {
        let Seen { claim, revision } = seen;
        Bson::from(doc! { "claim": uuid(claim.bytes()), "revision": uuid(revision.bytes()) })
    };
    let pairs: Vec<_> = entries.iter().map(pair).collect();
    let entry = doc! { "claim": "$$entry.claim", "revision": "$$entry.revision" };
    let goes = doc! { "$in": [entry, { "$literal": pairs }] };
    take_out(name, goes.into(), (ending, me), seen, now)
}

/// Removes claims regardless of their revision, and grants.
pub(super) fn break_up(name: &str, claims: &[Claim], seen: Token, now: DateTime) -> Write {
    let claims: Vec<_> = claims.iter().map(|claim| uuid(claim.bytes())).collect();
    let goes = doc! { "$in": ["$$entry.claim", claims] };
    take_out(name, goes.into(), (Ending::Broken, None), seen, now)
}

/// Removes the optional fields of an empty lock but keeps its token.
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
    ];
    let update = doc! { "$unset": fields.to_vec() };
    (ours(name, is_empty(everybody())), vec![update])
}

fn take_out(
    name: &str,
    goes: Bson,
    (ending, me): (Ending, Option<Writer>),
    seen: Token,
    now: DateTime,
) -> Write {
    let without = |list: Bson| {
        doc! { "$filter": { "input": list, "as": "entry", "cond": not(goes.clone()) } }
    };
    let held = all([goes.clone(), has_token("$$entry")]);
    let held = doc! { "$filter": { "input": holders(), "as": "entry", "cond": held } };
    let end = doc! {
        "token": "$$entry.token",
        "identity": "$$entry.identity",
        "slot": "$$entry.slot",
        "acquired_at": "$$entry.acquired_at",
        "ended_at": now,
        "reason": ending.as_str(),
    };
    let ended = doc! { "$map": { "input": held, "as": "entry", "in": end } };
    let history = doc! { "$concatArrays": [{ "$ifNull": ["$history", []] }, ended] };
    let update = doc! { "$set": {
        "token": highest(seen),
        "holders": without(holders()),
        "queue": without(queue()),
        "history": { "$slice": [history, -HISTORY_MAX] },
    } };
    (
        ours(name, some_entry(everybody(), goes)),
        [vec![update], grant(me, now)].concat(),
    )
}

/// Moves the entries that may hold from the head of the queue to the holders, in order, each with
/// the next token, and with a slot of its own if the lock has slots. `me` gets its revision, because its own write confirms the grant. The grants of
/// the others become the text `granted`, by which their change streams wake them. The previous stage
/// has set `token` to the highest known.
fn grant(me: Option<Writer>, now: DateTime) -> Vec<Document> {
    let (to_go, to_stay) = (
        doc! { "$slice": [queue(), "$$grantable"] },
        doc! { "$slice": [queue(), "$$grantable", REST] },
    );
    // Stores both parts in one stage, so that the grantable entries are counted once. The next
    // stages change and separate the parts.
    let split = doc! { "$set": { "queue": { "$let": {
        "vars": { "grantable": grantable() },
        "in": [to_go, to_stay],
    } } } };
    let (going, staying) = (part(0), part(1));
    let count = doc! { "$size": going.clone() };
    // The tokens that are left at the end of the range.
    let left = doc! { "$subtract": [Token::MAX.get(), "$token"] };
    let token = doc! { "$add": ["$token", { "$add": ["$$place", 1_i64] }] };
    let token = doc! { "$cond": [{ "$lt": ["$$place", left.clone()] }, token, null] };
    let granted = doc! { "token": token.clone(), "granted_revision": "$$entry.revision" };
    let granted = doc! { "$mergeObjects": ["$$entry", granted] };
    let granted = match me {
        None => granted,
        Some(me) => {
            let confirmed = doc! { "$mergeObjects": ["$$entry", {
                "token": token,
                "granted_revision": null,
                "revision": uuid(me.revision.bytes()),
                "revision_text": me.revision.to_string(),
                "renewed_at": now,
            }] };
            doc! { "$cond": [is_claim(me.claim), confirmed, granted] }
        }
    };
    let granted = doc! { "$let": {
        "vars": { "entry": { "$arrayElemAt": [going, "$$place"] } },
        "in": granted,
    } };
    let granted = doc! { "$map": {
        "input": { "$range": [0, count.clone()] }, "as": "place", "in": granted,
    } };
    let give_tokens = doc! { "$set": {
        "token": { "$add": ["$token", { "$min": [count, left] }] },
        "queue": [numbered(granted), staying.clone()],
    } };
    let granted = |field| {
        doc! { "$let": {
            "vars": { "numbered": part(0) }, "in": format!("$$numbered.{field}"),
        } }
    };
    let others = match me {
        None => granted("entries"),
        Some(me) => doc! { "$filter": {
            "input": granted("entries"), "as": "entry", "cond": not(is_claim(me.claim)),
        } },
    };
    let texts = doc! { "$cond": [
        is_empty(others.clone().into()), "$granted", { "$reduce": {
            "input": others,
            "initialValue": "",
            "in": { "$concat": [
                "$$value", { "$cond": [{ "$eq": ["$$value", ""] }, "", " "] }, grant_text(),
            ] },
        } },
    ] };
    let head = doc! { "$arrayElemAt": [staying.clone(), 0] };
    let next = doc! { "$let": { "vars": { "head": head }, "in": text("$$head.wake") } };
    let move_on = doc! { "$set": {
        "holders": { "$concatArrays": [holders(), granted("entries")] },
        "slot_owners": granted("owners"),
        "queue": staying,
        "granted": texts,
        "next": next,
    } };
    vec![split, give_tokens, move_on]
}

/// One of the two parts into which the queue is split: the entries that go, and those that stay.
fn part(number: i32) -> Document {
    doc! { "$arrayElemAt": ["$queue", number] }
}

/// The `granted` entries, each with the lowest free slot that its owner had last, otherwise with the
/// lowest free one, and the new owners of the slots. Unchanged for a lock without slots.
fn numbered(granted: Document) -> Document {
    let known = doc! { "$cond": [{ "$isArray": "$$value.owners" }, "$$value.owners", []] };
    let owned = doc! { "$filter": {
        "input": "$$free", "as": "slot",
        "cond": { "$eq": [{ "$arrayElemAt": [known.clone(), "$$slot"] }, "$$this.identity"] },
    } };
    let slot = doc! { "$let": {
        "vars": { "free": free_slots("$$value.taken".into()) },
        "in": { "$let": {
            "vars": { "owned": owned },
            "in": { "$min": { "$cond": [is_empty("$$owned".into()), "$$free", "$$owned"] } },
        } },
    } };
    let owner = doc! { "$cond": [
        { "$eq": ["$$number", "$$slot"] },
        "$$this.identity",
        { "$arrayElemAt": [known, "$$number"] },
    ] };
    let next = doc! { "$let": { "vars": { "slot": slot }, "in": {
        "entries": { "$concatArrays": [
            "$$value.entries", [{ "$mergeObjects": ["$$this", { "slot": "$$slot" }] }],
        ] },
        "owners": { "$map": {
            "input": { "$range": [0, "$slots"] }, "as": "number", "in": owner,
        } },
        "taken": { "$concatArrays": ["$$value.taken", ["$$slot"]] },
    } } };
    let taken = doc! { "$map": { "input": holders(), "as": "entry", "in": "$$entry.slot" } };
    let initial = doc! { "entries": [], "owners": "$slot_owners", "taken": taken };
    let numbered = doc! { "$reduce": {
        "input": "$$granted", "initialValue": initial, "in": next,
    } };
    let plain = doc! { "entries": "$$granted", "owners": "$slot_owners" };
    doc! { "$let": {
        "vars": { "granted": granted },
        "in": { "$cond": [has_slots(), numbered, plain] },
    } }
}

/// True for a lock with slots.
fn has_slots() -> Document {
    doc! { "$gt": ["$slots", 0] }
}

/// The numbers of the slots that are not in the list `taken`.
fn free_slots(taken: Bson) -> Document {
    doc! { "$setDifference": [{ "$range": [0, { "$ifNull": ["$slots", 0] }] }, taken] }
}

/// Number of entries at the head of the queue that may hold.
fn grantable() -> Bson {
    let (waiting, holding) = (doc! { "$size": queue() }, doc! { "$size": holders() });
    let slots = doc! { "$ifNull": ["$slots", 0] };
    let places = |most: Bson| doc! { "$max": [0, { "$subtract": [most, holding.clone()] }] };
    let head = doc! { "$arrayElemAt": [queue(), 0] };
    let is_reader = doc! { "$map": {
        "input": queue(), "as": "entry", "in": { "$eq": ["$$entry.mode", Mode::Shared.as_str()] },
    } };
    // The number of readers before the first other entry, or all entries.
    let readers = doc! { "$let": {
        "vars": { "first": { "$indexOfArray": [is_reader, false] } },
        "in": { "$cond": [{ "$eq": ["$$first", -1] }, waiting.clone(), "$$first"] },
    } };
    let free_places = doc! { "$min": [readers, places(count(HOLDERS_MAX).into())] };
    let shared = doc! { "$cond": [held_alone(), 0, free_places] };
    let alone = doc! { "$cond": [is_empty(holders()), 1, 0] };
    let head_mode = doc! { "$let": { "vars": { "head": head }, "in": "$$head.mode" } };
    doc! { "$switch": {
        "branches": [
            { "case": is_empty(queue()), "then": 0 },
            { "case": { "$gt": [slots.clone(), 0] }, "then": {
                "$min": [waiting, places(slots.into())],
            } },
            { "case": { "$eq": [head_mode, Mode::Shared.as_str()] }, "then": shared },
        ],
        "default": alone,
    } }
    .into()
}

fn is_claim(claim: Claim) -> Bson {
    doc! { "$eq": ["$$entry.claim", uuid(claim.bytes())] }.into()
}

/// True if any holder is not shared.
fn held_alone() -> Bson {
    let other = doc! { "$ne": ["$$entry.mode", Mode::Shared.as_str()] };
    some_entry(holders(), other.into())
}

fn has_token(entry: &str) -> Bson {
    // Null and missing values sort before all numbers.
    doc! { "$gt": [format!("{entry}.token"), null] }.into()
}

/// The highest known token, as an int64 whatever the stored type is.
fn highest(seen: Token) -> Bson {
    doc! { "$toLong": { "$max": ["$token", seen.get()] } }.into()
}

/// The token after this one, or null at the end of the range: such a grant has no token and
/// therefore no authority.
fn next_token(token: Bson) -> Bson {
    let next = doc! { "$add": [token.clone(), 1_i64] };
    doc! { "$cond": [{ "$lt": [token, Token::MAX.get()] }, next, null] }.into()
}

/// The text of a grant, bound to `$$this`: `CLAIM=TOKEN@REVISION`, and `#SLOT` if the lock has slots. Entries carry the texts of their
/// claim and revision because a pipeline cannot derive them from the bytes. An entry of another
/// version may lack them; its owner polls, or confirms the grant first.
fn grant_text() -> Bson {
    let token = doc! { "$ifNull": [{ "$toString": "$$this.token" }, ""] };
    let parts = vec![text("$$this.wake"), "=".into(), token.into(), "@".into()];
    let slot = doc! { "$concat": ["#", { "$toString": "$$this.slot" }] };
    let slot = doc! { "$cond": [{ "$isNumber": "$$this.slot" }, slot, ""] };
    let parts = [parts, vec![text("$$this.revision_text"), slot.into()]].concat();
    doc! { "$concat": parts }.into()
}

/// The text at this path, or an empty one.
fn text(path: &str) -> Bson {
    doc! { "$cond": [{ "$eq": [{ "$type": path }, "string"] }, path, ""] }.into()
}

fn is_empty(list: Bson) -> Bson {
    doc! { "$eq": [{ "$size": list }, 0] }.into()
}

fn below(list: Bson, most: i64) -> Bson {
    doc! { "$lt": [{ "$size": list }, most] }.into()
}

fn not(condition: Bson) -> Bson {
    doc! { "$not": [condition] }.into()
}

fn any(conditions: impl IntoIterator<Item = Bson>) -> Bson {
    doc! { "$or": conditions.into_iter().collect::<Vec<_>>() }.into()
}

fn count(number: usize) -> i64 {
    i64::try_from(number).expect("a bound of the protocol")
}
