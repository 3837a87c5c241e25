//! Converts the lease document between BSON and the election's [`Lease`]. Reading never panics,
//! whatever the BSON. A document with another schema is foreign and never written to (I11).

use std::time::Duration;

use mongodb::bson::spec::BinarySubtype;
use mongodb::bson::{Bson, DateTime, Document, Uuid, doc};

use leasehold_core::election::{
    Acquisition, Claim, Declared, ForeignDocument, Found, HistoryEntry, Holder, Identity, Lease,
    Operation, RESERVATION_DEFAULT, RESERVATION_MAX, Request, RequestKind, Reservation, Revision,
    Session, Standby, Token, WallMillis,
};

pub(super) const SCHEMA: i32 = 1;
pub(super) const KIND: &str = "lease";
pub(super) const LOCK_KIND: &str = "lock";
pub(super) const HISTORY_MAX: i32 = 20;

/// The projection of all reads. Includes the history's type, but not its entries.
pub(super) fn projection() -> Document {
    doc! {
        "schema": 1, "kind": 1, "token": 1, "revision": 1, "holder": 1, "paused": 1,
        "request": 1, "reserved_for": 1, "standby": 1, "history": { "$slice": 0 },
    }
}

pub(super) fn is_read(field: &str) -> bool {
    projection().contains_key(field)
}

pub(super) fn read(document: &Document) -> Found {
    match lease(document) {
        Ok(lease) => Found::Lease(lease),
        Err(why) => Found::Foreign(why),
    }
}

fn lease(document: &Document) -> Result<Lease, ForeignDocument> {
    belongs(document, KIND)?;
    // A history that is not a list would make every takeover and release fail.
    match document.get("history") {
        Some(Bson::Array(_)) | None => {}
        Some(_) => return Err("its history is not a list".into()),
    }
    let inner = |key| document.get_document(key).ok();
    Ok(Lease {
        token: token(document)?,
        revision: Revision::from_bytes(id(document, "revision")?),
        holder: holder(document)?,
        paused: match document.get("paused") {
            Some(Bson::Boolean(paused)) => *paused,
            Some(Bson::Null) | None => false,
            Some(_) => return Err("its field paused is not a boolean".into()),
        },
        // A script may write an invalid request, which must not end leadership.
        request: request(document).unwrap_or(None),
        reserved_for: inner("reserved_for").and_then(reservation),
        standby: inner("standby").and_then(standby),
    })
}

pub(super) fn belongs(document: &Document, wanted: &str) -> Result<(), ForeignDocument> {
    match document.get("schema").map(integer) {
        Some(Some(schema)) if schema == i64::from(SCHEMA) => {}
        Some(Some(schema)) if schema > i64::from(SCHEMA) => {
            return Err(format!("its schema {schema} is newer than {SCHEMA}").into());
        }
        Some(_) => return Err(format!("its schema is not {SCHEMA}").into()),
        None => return Err("it has no schema".into()),
    }
    let name = || document.get_str("_id").unwrap_or("it").to_owned();
    match document.get_str("kind") {
        Ok(kind) if kind == wanted => Ok(()),
        Ok(KIND) => Err(ForeignDocument::Lease(name())),
        Ok(LOCK_KIND) => Err(ForeignDocument::Lock(name())),
        Ok(_) | Err(_) => Err(format!("its kind is not {wanted:?}").into()),
    }
}

fn holder(document: &Document) -> Result<Option<Holder>, String> {
    let holder = match document.get("holder") {
        Some(Bson::Document(holder)) => holder,
        Some(Bson::Null) | None => return Ok(None),
        Some(_) => return Err("its holder is not a document".to_owned()),
    };
    Ok(Some(Holder {
        identity: identity(holder, "identity").ok_or("its holder has no identity")?,
        session: Session::from_bytes(id(holder, "session")?),
        claim: Claim::from_bytes(id(holder, "claim")?),
        acquired_at: date(holder.get("acquired_at")),
        lease_duration: declared(holder),
        renew_interval: renews_every(holder),
        token: token(holder).ok(),
    }))
}

pub(super) fn request(document: &Document) -> Result<Option<Request>, &'static str> {
    let document = match document.get("request") {
        Some(Bson::Document(request)) => request,
        Some(Bson::Null) | None => return Ok(None),
        Some(_) => return Err("it is not a document"),
    };
    let token = token(document)?;
    let kind = match document.get_str("kind") {
        Ok("step_down") => RequestKind::StepDown,
        Ok("transfer") => RequestKind::Transfer(Reservation {
            identity: identity(document, "to").ok_or("its field `to` is not an identity")?,
            duration: reserved(document, "reserve_ms"),
        }),
        Ok(_) | Err(_) => return Err("its kind is neither step_down nor transfer"),
    };
    Ok(Some(Request { kind, token }))
}

fn reservation(document: &Document) -> Option<Reservation> {
    Some(Reservation {
        identity: identity(document, "identity")?,
        duration: reserved(document, "for_ms"),
    })
}

fn reserved(document: &Document, key: &str) -> Duration {
    let duration = number(document, key).map_or(RESERVATION_DEFAULT, Duration::from_millis);
    duration.min(RESERVATION_MAX)
}

/// Reads a standby. An invalid standby counts as absent, because nothing depends on it.
fn standby(document: &Document) -> Option<Standby> {
    Some(Standby {
        session: Session::from_bytes(id(document, "session").ok()?),
        identity: identity(document, "identity")?,
        // Earlier versions register without a priority.
        priority: number(document, "priority").unwrap_or(0),
    })
}

fn identity(document: &Document, key: &str) -> Option<Identity> {
    Identity::new(document.get_str(key).ok()?).ok()
}

/// Returns an int64, or an int32, which some shells write. A double makes a document foreign.
pub(super) fn integer(value: &Bson) -> Option<i64> {
    value.as_i64().or_else(|| value.as_i32().map(i64::from))
}

/// Returns an integer field; `None` if the field is missing, has another type, or is out of range.
pub(super) fn number<T: TryFrom<i64>>(document: &Document, key: &str) -> Option<T> {
    T::try_from(document.get(key).and_then(integer)?).ok()
}

/// Returns the declared duration; a missing duration counts as out of range.
pub(super) fn declared(entry: &Document) -> Declared {
    Declared {
        millis: number(entry, "lease_duration_ms").unwrap_or(-1),
    }
}

/// Returns the renewal interval that a holder declares; `None` if the holder writes no hints.
pub(super) fn renews_every(holder: &Document) -> Option<Duration> {
    number(holder, "renew_interval_ms").map(Duration::from_millis)
}

pub(crate) fn token(document: &Document) -> Result<Token, &'static str> {
    let token = number(document, "token").and_then(Token::new);
    token.ok_or("its token is not a non-negative integer")
}

pub(super) fn date(value: Option<&Bson>) -> WallMillis {
    let date = value.and_then(Bson::as_datetime);
    WallMillis(date.map_or(0, |date| date.timestamp_millis()))
}

pub(super) fn id(document: &Document, key: &str) -> Result<[u8; 16], String> {
    match document.get(key) {
        Some(Bson::Binary(id)) if id.subtype == BinarySubtype::Uuid => {
            let bytes = id.bytes.as_slice().try_into();
            bytes.map_err(|_| format!("its {key} is not 16 bytes"))
        }
        Some(_) | None => Err(format!("its {key} is not a UUID")),
    }
}

pub(super) fn uuid(bytes: [u8; 16]) -> Bson {
    Uuid::from_bytes(bytes).into()
}

pub(super) fn uuids(revisions: &[Revision]) -> Vec<Bson> {
    let bytes = revisions.iter().map(|revision| revision.bytes());
    bytes.map(uuid).collect()
}

/// Returns a filter that matches only documents that [`read`] accepts as a lease of this name. The
/// filter does not check the holder's identity, because only a manual edit can make it invalid.
pub(super) fn ours(name: &str) -> Document {
    ours_with(name, Bson::Boolean(true))
}

fn ours_with(name: &str, condition: Bson) -> Document {
    let free = is("$holder", &["missing", "null"]);
    let held = doc! { "$and": [
        is("$holder", &["object"]),
        is("$holder.identity", &["string"]),
        { "$ne": ["$holder.identity", ""] },
        is_uuid("$holder.session"),
        is_uuid("$holder.claim"),
    ] };
    let shape = doc! { "$and": [
        is("$schema", &["int", "long"]),
        is("$kind", &["string"]),
        is("$token", &["int", "long"]),
        { "$gte": ["$token", 0] },
        is_uuid("$revision"),
        { "$or": [free, held] },
        is("$paused", &["missing", "null", "bool"]),
        is("$history", &["missing", "array"]),
        condition,
    ] };
    doc! { "_id": name, "schema": SCHEMA, "kind": KIND, "$expr": shape }
}

/// Checks a type, because an equality also matches a double, or an array that contains the value.
pub(super) fn is(path: &str, types: &[&str]) -> Bson {
    doc! { "$in": [{ "$type": path }, Bson::from(types)] }.into()
}

/// Checks for a UUID. The server orders binary values by length and subtype before it compares
/// bytes.
pub(super) fn is_uuid(path: &str) -> Bson {
    let (least, most) = (uuid([0; 16]), uuid([0xff; 16]));
    doc! { "$and": [{ "$gte": [path, least] }, { "$lte": [path, most] }] }.into()
}

/// Returns the initial document of a lease that was never created, or was deleted.
pub(super) fn create(name: &str, revision: Revision, token: Token) -> Document {
    doc! {
        "_id": name, "schema": SCHEMA, "kind": KIND,
        "token": token.get(), "revision": uuid(revision.bytes()),
        "holder": null, "paused": false, "request": null, "reserved_for": null,
        "standby": null, "history": [],
    }
}

pub(super) fn write(
    name: &str,
    operation: &Operation,
    identity: &Identity,
    address: Option<&str>,
    now: DateTime,
) -> Option<(Document, Document)> {
    Some(match operation {
        Operation::Read { .. } | Operation::Create { .. } => return None,
        Operation::Acquire(acquisition) => {
            let (mut filter, update) = acquire(name, acquisition, identity, address, now);
            filter.insert("holder", Bson::Null);
            (filter, update)
        }
        Operation::TakeOver {
            acquisition,
            holder,
            ended,
        } => {
            let (mut filter, mut update) = acquire(name, acquisition, identity, address, now);
            filter.insert("holder.claim", uuid(holder.bytes()));
            update.insert("$push", history(ended, now));
            (filter, update)
        }
        Operation::Renew {
            claim,
            revision,
            chain,
        } => {
            let set = doc! { "revision": uuid(revision.bytes()), "holder.renewed_at": now };
            (mine_filter(name, *claim, chain), doc! { "$set": set })
        }
        Operation::Release {
            claim,
            revision,
            chain,
            ended,
            reserved_for,
        } => {
            let reserved_for = reserved_for.as_ref().map(|reservation| {
                let millis = milliseconds_of(reservation.duration);
                doc! { "identity": reservation.identity.as_str(), "for_ms": millis }
            });
            let revision = uuid(revision.bytes());
            let set = doc! { "holder": null, "revision": revision, "reserved_for": reserved_for };
            let update = doc! { "$set": set, "$push": history(ended, now) };
            (mine_filter(name, *claim, chain), update)
        }
        Operation::Register {
            holder,
            session,
            priority,
            replaces,
        } => {
            let mut filter = match replaces {
                Some(session) => standby_filter(name, *session),
                None => ours_with(name, is("$standby", &["missing", "null"])),
            };
            filter.insert("holder.claim", uuid(holder.bytes()));
            let standby = doc! {
                "identity": identity.as_str(), "session": uuid(session.bytes()),
                "priority": i64::from(*priority), "at": now,
            };
            (filter, doc! { "$set": { "standby": standby } })
        }
        Operation::Withdraw { session } => (
            standby_filter(name, *session),
            doc! { "$set": { "standby": null } },
        ),
    })
}

/// The caller adds the expired holder to the filter. The filter also checks that the token grows
/// (I3), because the observed state may combine a document with unrelated events.
fn acquire(
    name: &str,
    acquisition: &Acquisition,
    identity: &Identity,
    address: Option<&str>,
    now: DateTime,
) -> (Document, Document) {
    let mut filter = ours(name);
    filter.insert("revision", uuid(acquisition.expected.bytes()));
    filter.insert("paused", doc! { "$ne": true });
    filter.insert("token", doc! { "$lt": acquisition.token.get() });
    let mut holder = doc! {
        "identity": identity.as_str(),
        "session": uuid(acquisition.session.bytes()),
        "claim": uuid(acquisition.claim.bytes()),
        "token": acquisition.token.get(),
        "acquired_at": now,
        "renewed_at": now,
        "lease_duration_ms": acquisition.lease_duration.millis,
    };
    if let Some(interval) = acquisition.renew_interval {
        holder.insert("renew_interval_ms", milliseconds_of(interval));
    }
    if let Some(address) = address {
        holder.insert("address", address);
    }
    let update = doc! { "$set": {
        "token": acquisition.token.get(),
        "revision": uuid(acquisition.revision.bytes()),
        "holder": holder,
        "request": null,
        "reserved_for": null,
        "standby": null,
    } };
    (filter, update)
}

/// Matches this candidate's claim with any revision that the candidate has sent.
fn mine_filter(name: &str, claim: Claim, chain: &[Revision]) -> Document {
    let mut filter = ours(name);
    filter.insert("holder.claim", uuid(claim.bytes()));
    filter.insert("revision", doc! { "$in": uuids(chain) });
    filter
}

fn standby_filter(name: &str, session: Session) -> Document {
    let mut filter = ours_with(name, is("$standby", &["object"]));
    filter.insert("standby.session", uuid(session.bytes()));
    filter
}

/// Makes a renewal declare the renewal interval, or remove an earlier declaration.
pub(super) fn declare(renewal: &mut Document, interval: Option<Duration>) {
    let field = "holder.renew_interval_ms";
    match (interval, renewal.get_document_mut("$set")) {
        (Some(interval), Ok(set)) => set.insert(field, milliseconds_of(interval)),
        (Some(_), Err(_)) => None,
        (None, _) => renewal.insert("$unset", doc! { field: "" }),
    };
}

fn milliseconds_of(duration: Duration) -> i64 {
    i64::try_from(duration.as_millis()).unwrap_or(i64::MAX)
}

/// Returns the operand of a `$push` that records the end of a claim.
fn history(ended: &HistoryEntry, now: DateTime) -> Document {
    doc! { "history": {
        "$each": [{
            "token": ended.token.get(),
            "identity": ended.identity.as_str(),
            "acquired_at": DateTime::from_millis(ended.acquired_at.0),
            "ended_at": now,
            "reason": ended.reason.as_str(),
        }],
        "$slice": -HISTORY_MAX,
    } }
}

#[cfg(test)]
mod tests;
