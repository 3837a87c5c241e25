//! Converts the lock document between BSON and [`LockDocument`], and builds aggregation expressions
//! over the stored document. Reading never panics, whatever the BSON. A document with another
//! schema is foreign and never written to (I11), because [`ours`] matches exactly what [`read`]
//! accepts as a lock.

use std::collections::BTreeMap;
use std::time::Duration;

use mongodb::bson::{Bson, DateTime, Document, doc};

use super::super::display::named;
use super::super::document::{
    LOCK_KIND, SCHEMA, belongs, date, declared, id, is, is_uuid, number, token, uuid,
};
use leasehold_core::election::{
    Claim, ForeignDocument, Identity, Revision, Session, Token, WallMillis,
};
use leasehold_core::lock::{
    Entry, EntryMode, EntryOwner, FoundLock, LockDocument, MIN_HOLD_MAX, NewEntry, SLOTS_MAX,
    SUCCESSES_MAX, Success, WorkKey,
};

/// Field of an entry: the minimum hold in milliseconds, counted from the owner's last write.
pub(super) const MIN_HOLD: &str = "at_least_ms";
/// Field of an entry: true if the work ended before the minimum hold.
pub(super) const OVER: &str = "over";
/// Field of an entry: when the work ended, by the server's clock.
pub(super) const OVER_AT: &str = "over_at";
/// Field of a reply: the time by the server's clock. Not stored.
const SERVER_NOW: &str = "server_now";
const MODES: [EntryMode; 3] = [EntryMode::Exclusive, EntryMode::Shared, EntryMode::Slot];

pub(in super::super) fn projection() -> Document {
    doc! {
        "schema": 1, "kind": 1, "token": 1, "slots": 1, "holders": 1, "queue": 1,
        "history": { "$slice": 0 }, "slots_before": 1, "slot_owners": 1,
        "successes": 1, SERVER_NOW: "$$NOW",
    }
}

pub(in super::super) fn with_server_now(mut projection: Document) -> Document {
    projection.insert(SERVER_NOW, "$$NOW");
    projection
}

/// Returns the end of each holder's minimum hold: by the server's clock if the work has ended,
/// otherwise by the owner's clock.
pub(in super::super) fn kept_until(document: &Document) -> BTreeMap<Claim, WallMillis> {
    let holders = document.get_array("holders").into_iter().flatten();
    let kept = holders.filter_map(|holder| {
        let fields = holder.as_document()?;
        let millis: i64 = number(fields, MIN_HOLD).filter(|millis| *millis > 0)?;
        let most = i64::try_from(MIN_HOLD_MAX.as_millis()).unwrap_or(i64::MAX);
        let from = match fields.get(OVER_AT).filter(|_| work_done(fields)) {
            Some(over_at) => date(Some(over_at)),
            None => date(fields.get("renewed_at")),
        };
        let until = from.0.saturating_add(millis.min(most));
        Some((
            Claim::from_bytes(id(fields, "claim").ok()?),
            WallMillis(until),
        ))
    });
    kept.collect()
}

pub(in super::super) fn read(document: &Document) -> FoundLock {
    match lock(document) {
        Ok(lock) => FoundLock::Lock(lock),
        Err(why) => FoundLock::Foreign(why),
    }
}

fn lock(document: &Document) -> Result<LockDocument, ForeignDocument> {
    belongs(document, LOCK_KIND)?;
    // The type matters, because removals append to the history. History entries are not read.
    list(document, "history")?;
    let now = document.get_datetime(SERVER_NOW).ok().copied();
    Ok(LockDocument {
        token: token(document)?,
        slots: slots(document)?,
        slot_owners: slot_owners(document),
        holders: entries(document, "holders", now)?,
        queue: entries(document, "queue", now)?,
        successes: successes(document)?,
        store_now: WallMillis(now.map_or(0, DateTime::timestamp_millis)),
    })
}

/// Returns the recorded successes. Ignores elements with another shape.
fn successes(document: &Document) -> Result<Vec<Success>, String> {
    let list = list(document, "successes")?.unwrap_or_default();
    let newest = list.iter().rev().filter_map(|value| {
        let fields = value.as_document()?;
        Some(Success {
            key: WorkKey::new(fields.get_str("key").ok()?).ok()?,
            at: WallMillis(fields.get_datetime("at").ok()?.timestamp_millis()),
        })
    });
    let mut newest: Vec<_> = newest.take(SUCCESSES_MAX).collect();
    newest.reverse();
    Ok(newest)
}

fn slots(document: &Document) -> Result<u32, String> {
    let slots = match document.get("slots") {
        Some(Bson::Null) | None => Some(0),
        Some(_) => number(document, "slots"),
    };
    let legal = slots.filter(|slots| *slots <= SLOTS_MAX);
    legal.ok_or_else(|| format!("its number of slots is not an integer from 0 to {SLOTS_MAX}"))
}

/// Returns the last owner of each slot. A returning owner gets the same slot if no other contender
/// holds it.
fn slot_owners(document: &Document) -> Vec<Option<Identity>> {
    let owners = document.get_array("slot_owners");
    let owner = |value: &Bson| value.as_str().map(named);
    owners.map_or_else(|_| Vec::new(), |owners| owners.iter().map(owner).collect())
}

pub(super) fn slots_before(document: &Document) -> Option<u32> {
    number(document, "slots_before")
}

fn entries(document: &Document, key: &str, now: Option<DateTime>) -> Result<Vec<Entry>, String> {
    let list = list(document, key)?.unwrap_or_default();
    let read = list.iter().map(|value| match value {
        Bson::Document(fields) => entry(fields, now).map_err(|why| format!("in its {key}: {why}")),
        _ => Err(format!("its {key} list has a non-document element")),
    });
    read.collect()
}

fn list<'a>(document: &'a Document, key: &str) -> Result<Option<&'a [Bson]>, String> {
    match document.get(key) {
        Some(Bson::Array(values)) => Ok(Some(values)),
        Some(Bson::Null) | None => Ok(None),
        Some(_) => Err(format!("its {key} is not a list")),
    }
}

fn entry(fields: &Document, now: Option<DateTime>) -> Result<Entry, String> {
    let identity = fields.get_str("identity");
    let has_mode = |mode: &EntryMode| fields.get_str("mode").is_ok_and(|it| it == mode.as_str());
    let mode = MODES.into_iter().find(has_mode);
    let token = match fields.get("token") {
        Some(Bson::Null) | None => None,
        Some(_) => Some(token(fields)?),
    };
    Ok(Entry {
        claim: Claim::from_bytes(id(fields, "claim")?),
        owner: EntryOwner {
            identity: named(identity.map_err(|_| "its identity is not a string")?),
            session: Session::from_bytes(id(fields, "session")?),
            acquired_at: date(fields.get("acquired_at")),
            renewed_at: date(fields.get("renewed_at")),
        },
        mode: mode.ok_or("its mode is not known")?,
        revision: Revision::from_bytes(id(fields, "revision")?),
        lease_duration: declared(fields),
        token,
        // Without this field, the grant counts as confirmed, so other contenders wait longer than
        // for an unconfirmed grant.
        granted_revision: id(fields, "granted_revision")
            .ok()
            .map(Revision::from_bytes),
        // If a holder's entry has no slot, the holder's next renewal assigns a free slot.
        slot: number(fields, "slot").filter(|slot| *slot < SLOTS_MAX),
        min_hold: min_hold(fields, now),
        work_done: work_done(fields),
    })
}

/// Returns the rest of the minimum hold. After the work has ended, the server's clock (`now`)
/// decides, because a job in a new container has not observed earlier writes. Exclusion does not
/// depend on this clock, because an entry whose work is over does not grant authority.
fn min_hold(fields: &Document, now: Option<DateTime>) -> Duration {
    let millis: i64 = number(fields, MIN_HOLD).unwrap_or(0);
    let over_at = fields.get_datetime(OVER_AT).ok();
    let over_at = over_at.filter(|_| work_done(fields));
    let passed = now.zip(over_at).map_or(0, |(now, over)| {
        let (now, over) = (now.timestamp_millis(), over.timestamp_millis());
        now.saturating_sub(over).max(0)
    });
    let rest = millis.saturating_sub(passed);
    Duration::from_millis(u64::try_from(rest).unwrap_or(0)).min(MIN_HOLD_MAX)
}

fn work_done(fields: &Document) -> bool {
    matches!(fields.get_bool(OVER), Ok(true))
}

/// Returns a duration in milliseconds, rounded up.
pub(super) fn milliseconds(duration: Duration) -> i64 {
    let millis = duration.as_nanos().div_ceil(1_000_000);
    i64::try_from(millis).unwrap_or(i64::MAX)
}

/// Returns a filter that matches only documents that [`read`] accepts as a lock of this name, and
/// only if `condition` holds. The condition may rely on the shape of a lock.
pub(super) fn ours(name: &str, condition: impl Into<Bson>) -> Document {
    let lists = all(["holders", "queue", "history", "successes"].map(|list| {
        let path = format!("${list}");
        is(&path, &["missing", "null", "array"])
    }));
    let token = all([
        is("$token", &["int", "long"]),
        doc! { "$gte": ["$token", 0] }.into(),
    ]);
    let slots = all([
        is("$slots", &["missing", "null", "int", "long"]),
        doc! { "$gte": [{ "$ifNull": ["$slots", 0] }, 0] }.into(),
        doc! { "$lte": [{ "$ifNull": ["$slots", 0] }, i64::from(SLOTS_MAX)] }.into(),
    ]);
    let plain = all([
        is("$schema", &["int", "long"]),
        is("$kind", &["string"]),
        lists,
        token,
        slots,
    ]);
    // The server must check that the fields are lists before it evaluates expressions over entries.
    let entries = doc! { "$map": { "input": everybody(), "as": "entry", "in": is_entry() } };
    let shape = only_if(plain, doc! { "$allElementsTrue": [entries] }.into());
    let condition = only_if(shape, condition.into());
    doc! { "_id": name, "schema": SCHEMA, "kind": LOCK_KIND, "$expr": condition }
}

pub(super) fn holders() -> Bson {
    doc! { "$ifNull": ["$holders", []] }.into()
}

pub(super) fn queue() -> Bson {
    doc! { "$ifNull": ["$queue", []] }.into()
}

/// True if `condition` holds for any entry of `lists`. The entry is bound to `$$entry`.
pub(super) fn some_entry(lists: impl Into<Bson>, condition: Bson) -> Bson {
    let each = doc! { "$map": { "input": lists.into(), "as": "entry", "in": condition } };
    doc! { "$anyElementTrue": [each] }.into()
}

pub(super) fn everybody() -> Bson {
    doc! { "$concatArrays": [holders(), queue()] }.into()
}

pub(super) fn all(conditions: impl IntoIterator<Item = Bson>) -> Bson {
    doc! { "$and": conditions.into_iter().collect::<Vec<_>>() }.into()
}

fn only_if(condition: Bson, then: Bson) -> Bson {
    doc! { "$cond": [condition, then, false] }.into()
}

fn is_entry() -> Bson {
    let modes = MODES.map(EntryMode::as_str);
    all([
        is("$$entry", &["object"]),
        is_uuid("$$entry.claim"),
        is_uuid("$$entry.session"),
        is_uuid("$$entry.revision"),
        is("$$entry.identity", &["string"]),
        doc! { "$in": ["$$entry.mode", modes.to_vec()] }.into(),
        is("$$entry.token", &["missing", "null", "int", "long"]),
        doc! { "$gte": [{ "$ifNull": ["$$entry.token", 0] }, 0] }.into(),
    ])
}

pub(super) fn any(conditions: impl IntoIterator<Item = Bson>) -> Bson {
    doc! { "$or": conditions.into_iter().collect::<Vec<_>>() }.into()
}

pub(super) fn not(condition: Bson) -> Bson {
    doc! { "$not": [condition] }.into()
}

pub(super) fn is_empty(list: Bson) -> Bson {
    doc! { "$eq": [{ "$size": list }, 0] }.into()
}

pub(super) fn is_claim(claim: Claim) -> Bson {
    doc! { "$eq": ["$$entry.claim", uuid(claim.bytes())] }.into()
}

pub(super) fn has_token(entry: &str) -> Bson {
    // Null and missing values sort before all numbers.
    doc! { "$gt": [format!("{entry}.token"), null] }.into()
}

/// True if any holder is not shared.
pub(super) fn held_alone() -> Bson {
    let other = doc! { "$ne": ["$$entry.mode", EntryMode::Shared.as_str()] };
    some_entry(holders(), other.into())
}

pub(super) fn has_slots() -> Document {
    doc! { "$gt": ["$slots", 0] }
}

pub(super) fn free_slots(taken: Bson) -> Document {
    doc! { "$setDifference": [{ "$range": [0, { "$ifNull": ["$slots", 0] }] }, taken] }
}

pub(super) fn create(name: &str, seen: Token) -> Document {
    doc! { "_id": name, "schema": SCHEMA, "kind": LOCK_KIND, "token": seen.get() }
}

pub(super) fn joining(entry: &NewEntry, identity: &Identity, now: DateTime) -> Document {
    doc! {
        "claim": uuid(entry.claim.bytes()),
        "identity": identity.as_str(),
        "session": uuid(entry.session.bytes()),
        "mode": entry.mode.as_str(),
        "revision": uuid(entry.revision.bytes()),
        "lease_duration_ms": entry.lease_duration.millis,
        "token": null,
        "acquired_at": now,
        "renewed_at": now,
        "wake": entry.claim.to_string(),
        "revision_text": entry.revision.to_string(),
    }
}
