//! The pipeline stages that grant a lock, at the end of each write to holders or waiters.

use mongodb::bson::{Bson, DateTime, Document, doc};

use super::super::document::uuid;
use super::document::{free_slots, has_slots, held_alone, is_claim, is_empty, not};
use super::update::count;
use leasehold_core::election::Token;
use leasehold_core::lock::{EntryMode, HOLDERS_MAX, Writer};

const HOLDERS: &str = "$holders";
const QUEUE: &str = "$queue";

/// Moves the entries that may hold the lock from the head of the queue to the holders. Each entry
/// gets the next token and, if the lock has slots, its own slot. The entry of `me` gets the
/// revision of this write, which confirms the grant. Other grants are listed in the text `granted`,
/// which the change streams of waiters match. The previous stage must set both lists, and set
/// `token` to the highest known token. Pass `may_have_slots` as false if the lock has no slots,
/// because a server takes longer to parse the stages for slots than to execute them.
pub(super) fn grant(me: Option<Writer>, may_have_slots: bool, now: DateTime) -> Vec<Document> {
    let (to_go, to_stay) = (
        doc! { "$slice": [QUEUE, "$$grantable"] },
        doc! { "$slice": [QUEUE, "$$grantable", i32::MAX] },
    );
    // Stores both parts of the queue as a pair, so that the entries are counted only once.
    let split = doc! { "$set": { "queue": { "$let": {
        "vars": { "grantable": grantable() },
        "in": [to_go, to_stay],
    } } } };
    let (going, staying) = (part(0), part(1));
    let count = doc! { "$size": going.clone() };
    let left = doc! { "$subtract": [Token::MAX.get(), "$token"] };
    let token = doc! { "$add": ["$token", { "$add": ["$$place", 1_i64] }] };
    let token = doc! { "$cond": [{ "$lt": ["$$place", left.clone()] }, token, null] };
    // Uses the server's clock, like `ended_at` in the history, so that operators can subtract the
    // two times. Until the grant, `acquired_at` is the time of the join.
    let granted = doc! {
        "token": token.clone(), "granted_revision": "$$entry.revision", "acquired_at": "$$NOW",
    };
    let granted = doc! { "$mergeObjects": ["$$entry", granted] };
    let granted = match me {
        None => granted,
        Some(me) => {
            let confirmed = doc! { "$mergeObjects": ["$$entry", {
                "token": token,
                "granted_revision": null,
                "acquired_at": "$$NOW",
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
        "queue": [with_slots(granted, may_have_slots), staying.clone()],
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
        "holders": { "$concatArrays": [HOLDERS, granted("entries")] },
        "slot_owners": granted("owners"),
        "queue": staying,
        "granted": texts,
        "next": next,
    } };
    vec![split, give_tokens, move_on]
}

/// One part of the split queue: the entries that move, or the entries that stay.
fn part(number: i32) -> Document {
    doc! { "$arrayElemAt": ["$queue", number] }
}

/// Returns the `granted` entries and the owners of the slots. With slots, each entry gets the
/// lowest free slot that its owner used last, or else the lowest free slot.
fn with_slots(granted: Document, may_have_slots: bool) -> Document {
    let plain = doc! { "entries": "$$granted", "owners": "$slot_owners" };
    let given = match may_have_slots {
        true => doc! { "$cond": [has_slots(), numbered(), plain] },
        false => plain,
    };
    doc! { "$let": { "vars": { "granted": granted }, "in": given } }
}

/// The result of [`with_slots`] for a lock with slots. The entries are bound to `$$granted`.
fn numbered() -> Document {
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
    let taken = doc! { "$map": { "input": HOLDERS, "as": "entry", "in": "$$entry.slot" } };
    let initial = doc! { "entries": [], "owners": "$slot_owners", "taken": taken };
    doc! { "$reduce": { "input": "$$granted", "initialValue": initial, "in": next } }
}

/// The number of entries at the head of the queue that may hold the lock.
fn grantable() -> Bson {
    let (waiting, holding) = (doc! { "$size": QUEUE }, doc! { "$size": HOLDERS });
    let slots = doc! { "$ifNull": ["$slots", 0] };
    let places = |most: Bson| doc! { "$max": [0, { "$subtract": [most, holding.clone()] }] };
    let head = doc! { "$arrayElemAt": [QUEUE, 0] };
    let is_reader = doc! { "$map": {
        "input": QUEUE, "as": "entry", "in": { "$eq": ["$$entry.mode", EntryMode::Shared.as_str()] },
    } };
    // The number of shared entries before the first exclusive entry.
    let readers = doc! { "$let": {
        "vars": { "first": { "$indexOfArray": [is_reader, false] } },
        "in": { "$cond": [{ "$eq": ["$$first", -1] }, waiting.clone(), "$$first"] },
    } };
    let free_places = doc! { "$min": [readers, places(count(HOLDERS_MAX).into())] };
    let shared = doc! { "$cond": [held_alone(), 0, free_places] };
    let alone = doc! { "$cond": [is_empty(HOLDERS.into()), 1, 0] };
    let head_mode = doc! { "$let": { "vars": { "head": head }, "in": "$$head.mode" } };
    doc! { "$switch": {
        "branches": [
            { "case": is_empty(QUEUE.into()), "then": 0 },
            { "case": { "$gt": [slots.clone(), 0] }, "then": {
                "$min": [waiting, places(slots.into())],
            } },
            { "case": { "$eq": [head_mode, EntryMode::Shared.as_str()] }, "then": shared },
        ],
        "default": alone,
    } }
    .into()
}

/// The grant text of `$$this`: `CLAIM=TOKEN@REVISION`, and `#SLOT` if the lock has slots. Entries
/// store both ids as text, because a pipeline cannot convert bytes to text. Entries of older
/// versions lack this text, so their owners poll, or confirm the grant first.
fn grant_text() -> Bson {
    let token = doc! { "$ifNull": [{ "$toString": "$$this.token" }, ""] };
    let parts = vec![text("$$this.wake"), "=".into(), token.into(), "@".into()];
    let slot = doc! { "$concat": ["#", { "$toString": "$$this.slot" }] };
    let slot = doc! { "$cond": [{ "$isNumber": "$$this.slot" }, slot, ""] };
    let parts = [parts, vec![text("$$this.revision_text"), slot.into()]].concat();
    doc! { "$concat": parts }.into()
}

fn text(path: &str) -> Bson {
    doc! { "$cond": [{ "$eq": [{ "$type": path }, "string"] }, path, ""] }.into()
}
