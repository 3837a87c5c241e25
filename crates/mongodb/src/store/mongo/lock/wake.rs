//! The change stream of one claim. Its events are only hints, except majority-acknowledged grants.
//!
//! The stream matches the texts `granted` and `next`, so that renewals by other owners do not wake
//! waiters. The lists cannot be matched, because each shift of the queue changes `queue.0.claim`,
//! `queue.1.claim`, ….

use std::sync::Arc;

use mongodb::bson::{Bson, Document, Timestamp, Uuid, doc};
use mongodb::change_stream::event::{ChangeStreamEvent, OperationType};
use tokio::sync::mpsc;

use super::super::connection::Deployment;
use super::super::follow::{self, StreamEvent, StreamHandler};
use super::super::lock;
use super::{ClaimHint, MongoLockStore};
use crate::store::StoreEvent;
use leasehold_core::election::{Claim, Revision, Token};
use leasehold_core::lock::{Grant, Hint};

#[derive(Clone)]
pub(super) struct ClaimFollower {
    pub(super) store: MongoLockStore,
    pub(super) claim: Claim,
}

impl StreamHandler for ClaimFollower {
    type Hint = ClaimHint;

    fn deployment(&self) -> &Arc<Deployment> {
        &self.store.shared.deployment
    }

    fn pipeline(&self) -> Vec<Document> {
        pipeline(self.store.name(), self.claim)
    }

    fn since(&self) -> Option<Timestamp> {
        let mut joined = lock(&self.store.shared.joined);
        // Only the first stream starts at the join, because a later stream that started there would
        // repeat old events.
        let (_, since) = joined.take_if(|(claim, _)| *claim == self.claim)?;
        Some(since)
    }

    fn interpret(&self, event: StreamEvent) -> ClaimHint {
        let claim = self.claim;
        let hint = match event {
            StreamEvent::Opened | StreamEvent::HintsOpened => Hint::Opened { since_join: false },
            StreamEvent::OpenedSince => Hint::Opened { since_join: true },
            StreamEvent::Change(event) => match hint(&event, claim) {
                Hint::Granted(_) if self.deployment().other_product().is_some() => {
                    Hint::Granted(None)
                }
                hint => hint,
            },
            StreamEvent::Hint(_) => Hint::Changed,
            StreamEvent::Alive => Hint::Alive,
            StreamEvent::Lost => Hint::Lost,
        };
        ClaimHint { claim, hint }
    }

    fn events(&self) -> &mpsc::Sender<StoreEvent<ClaimHint>> {
        &self.store.shared.news
    }
}

/// Selects events that concern `claim` or end the stream, without the lists, which may be long.
fn pipeline(name: &str, claim: Claim) -> Vec<Document> {
    let claim = claim.to_string();
    let mine = doc! { "documentKey._id": name, "$or": [
        { "operationType": { "$ne": "update" } },
        { "updateDescription.updatedFields.granted": { "$regex": &claim } },
        { "updateDescription.updatedFields.next": &claim },
    ] };
    vec![
        doc! { "$match": { "$or": [mine, follow::ends()] } },
        doc! { "$project": {
            "operationType": 1,
            "updateDescription.removedFields": 1,
            "updateDescription.updatedFields.granted": 1,
            "updateDescription.updatedFields.next": 1,
        } },
    ]
}

fn hint(event: &ChangeStreamEvent<Document>, claim: Claim) -> Hint {
    let claim = claim.to_string();
    let fields = match (&event.operation_type, &event.update_description) {
        (OperationType::Update, Some(change)) => &change.updated_fields,
        _ => return Hint::Changed,
    };
    let text = |key| fields.get(key).and_then(Bson::as_str).unwrap_or_default();
    let granted = text("granted").split(' ').find_map(|granted| {
        let (granted, grant) = granted.split_once('=').unwrap_or((granted, ""));
        (granted == claim).then(|| self::grant(grant))
    });
    if let Some(grant) = granted {
        Hint::Granted(grant)
    } else if text("next") == claim {
        Hint::Next
    } else {
        Hint::Changed
    }
}

/// Parses `TOKEN@REVISION` or `TOKEN@REVISION#SLOT`. Older versions may omit a part.
fn grant(text: &str) -> Option<Grant> {
    let (token, rest) = text.split_once('@')?;
    let (revision, slot) = match rest.split_once('#') {
        Some((revision, slot)) => (revision, Some(slot.parse().ok()?)),
        None => (rest, None),
    };
    let token = Token::new(token.parse().ok()?)?;
    let revision = Uuid::parse_str(revision).ok()?;
    Some(Grant {
        token,
        revision: Revision::from_bytes(revision.bytes()),
        slot,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(kind: &str, updated: Document) -> ChangeStreamEvent<Document> {
        mongodb::bson::deserialize_from_document(doc! {
            "_id": { "_data": "1" },
            "operationType": kind,
            "updateDescription": { "updatedFields": updated, "removedFields": [] },
        })
        .expect("an event")
    }

    #[test]
    fn an_event_is_understood_by_its_texts() {
        let [me, other] = [1, 2].map(|id| Claim::from_bytes([id; 16]));
        let grant = Grant {
            token: Token::new(8).expect("legal"),
            revision: Revision::from_bytes([3; 16]),
            slot: None,
        };
        let third = Grant {
            slot: Some(3),
            ..grant
        };
        let text = |claim: Claim| format!("{claim}={}@{}", grant.token, grant.revision);
        let confirmed_first = Hint::Granted(None);
        for (fields, hint) in [
            (doc! { "granted": text(me) }, Hint::Granted(Some(grant))),
            (
                doc! { "granted": format!("{} {}", text(other), text(me)), "next": "" },
                Hint::Granted(Some(grant)),
            ),
            (
                doc! { "granted": format!("{}#3", text(me)) },
                Hint::Granted(Some(third)),
            ),
            (
                doc! { "granted": format!("{}#x", text(me)) },
                confirmed_first,
            ),
            // Older versions write only the claim.
            (doc! { "granted": me.to_string() }, confirmed_first),
            (doc! { "granted": format!("{other} {me}") }, confirmed_first),
            // The revision or the token is missing or invalid.
            (doc! { "granted": format!("{me}=8@") }, confirmed_first),
            (
                doc! { "granted": format!("{me}=@{}", grant.revision) },
                confirmed_first,
            ),
            (doc! { "granted": format!("{me}=-8@x") }, confirmed_first),
            (doc! { "granted": text(other) }, Hint::Changed),
            (doc! { "next": me.to_string() }, Hint::Next),
            (
                doc! { "granted": other.to_string(), "next": me.to_string() },
                Hint::Next,
            ),
            (doc! { "granted": other.to_string() }, Hint::Changed),
            (
                doc! { "granted": 1, "next": [me.to_string()] },
                Hint::Changed,
            ),
        ] {
            assert_eq!(super::hint(&event("update", fields), me), hint);
        }
        let fields = doc! { "granted": me.to_string() };
        assert_eq!(super::hint(&event("replace", fields), me), Hint::Changed);
    }
}
