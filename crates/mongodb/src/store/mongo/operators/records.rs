use std::collections::BTreeMap;
use std::time::Duration;

use mongodb::bson::{Bson, Document, doc};

use super::super::display::{PastHolder, history, list, named, shown, text};
use super::super::document::{self, KIND, LOCK_KIND, date};
use super::super::lock::{kept_until, read as read_lock};
use super::super::roll_call::{self, RollCall};
use super::actions::{ActionKind, RETIRE};
use super::name_of;
use leasehold_core::election::{
    Claim, Found, Holder, Identity, Lease, Request, Revision, Token, WallMillis,
};
use leasehold_core::lock::{FoundLock, LockDocument};

/// Includes only the fields that are displayed, because other programs' documents may be large.
pub(super) fn projection() -> Document {
    doc! {
        "schema": 1, "kind": 1, "token": 1, "revision": 1, "holder": 1, "paused": 1,
        "request": 1, "reserved_for": 1, "standby": 1, "history": 1, "actions": 1, "roll_call": 1,
        "slots": 1, "holders": 1, "queue": 1, "successes": 1,
    }
}

/// A document of the collection.
#[derive(Debug, Clone, PartialEq)]
pub struct CollectionEntry {
    /// The name, escaped for a terminal.
    pub name: String,
    /// The content.
    pub content: Content,
    /// The kind that the document states, `lease` or `lock`; `None` for any other kind. A foreign
    /// document of one of these kinds is damaged, or has a newer schema.
    pub kind: Option<&'static str>,
}

impl CollectionEntry {
    /// Reads a document; `None` if its `_id` is not a string.
    pub fn of(document: &Document) -> Option<Self> {
        let name = name_of(document)?;
        let stated = document.get_str("kind").ok();
        let kind = [KIND, LOCK_KIND]
            .into_iter()
            .find(|kind| stated == Some(kind));
        let content = if kind == Some(LOCK_KIND) {
            match read_lock(document) {
                FoundLock::Lock(lock) => Content::Lock(Box::new(LockRecord {
                    kept_until: kept_until(document),
                    lock,
                    history: history(document),
                })),
                FoundLock::Foreign(why) => Content::Foreign(shown(&why.to_string())),
                FoundLock::Missing => return None,
            }
        } else {
            match document::read(document) {
                Found::Lease(lease) => Content::Lease(Box::new(lease_record(lease, document))),
                Found::Foreign(why) => Content::Foreign(shown(&why.to_string())),
                Found::Missing => return None,
            }
        };
        Some(Self {
            name,
            content,
            kind,
        })
    }

    /// True for a retired lease or a pruned lock. Lists omit both until the next acquisition.
    pub fn is_hidden(&self) -> bool {
        match &self.content {
            Content::Lease(lease) => lease.is_retired(),
            Content::Lock(lock) => lock.is_pruned(),
            Content::Foreign(_) => false,
        }
    }
}

/// The content of a document.
#[derive(Debug, Clone, PartialEq)]
pub enum Content {
    /// A lease.
    Lease(Box<LeaseRecord>),
    /// A lock.
    Lock(Box<LockRecord>),
    /// Neither a lease nor a lock, for this reason. Leasehold does not write to it.
    Foreign(String),
}

/// A lease.
#[derive(Debug, Clone, PartialEq)]
pub struct LeaseRecord {
    /// The fields that candidates read.
    pub lease: Lease,
    /// Further fields of the holder; `None` if the lease is free.
    pub holder: Option<HolderRecord>,
    /// The registered standby, if any.
    pub standby: Option<Identity>,
    /// The standing request, valid or not.
    pub request: Option<RequestRecord>,
    /// Former leaders, oldest first.
    pub history: Vec<PastHolder>,
    /// Actions of operators, oldest first.
    pub actions: Vec<ActionRecord>,
    /// The current roll call, if any.
    pub roll_call: Option<RollCall>,
    /// The request as stored, for the filter of a cancellation.
    pub(super) stored_request: Option<Bson>,
}

/// Fields of a lease's holder that candidates do not read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HolderRecord {
    /// The identity, escaped for a terminal.
    pub identity: Identity,
    /// Time of the last renewal, by the holder's wall clock.
    pub renewed_at: WallMillis,
    /// Address of the holder.
    pub address: Option<String>,
}

/// A request to the leader.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RequestRecord {
    /// The request, or the reason why it is invalid.
    pub request: Result<Request, &'static str>,
    /// The candidate of a transfer.
    pub to: Option<String>,
    /// Name of the requester.
    pub by: Option<String>,
    /// The requester's reason.
    pub reason: Option<String>,
    /// Time of the request, by the requester's wall clock.
    pub at: WallMillis,
}

/// An operator's action, as recorded in the lease. Unreadable fields are `None`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ActionRecord {
    /// The action's random id.
    pub id: Option<[u8; 16]>,
    /// The name of an [`ActionKind`](super::ActionKind).
    pub action: String,
    /// The revision of the lease when it was retired.
    pub revision: Option<Revision>,
    /// The token of the leader that the operator saw.
    pub token: Option<Token>,
    /// The candidate of a transfer.
    pub to: Option<String>,
    /// Name of the operator.
    pub by: Option<String>,
    /// The operator's reason.
    pub reason: Option<String>,
    /// Time of the action, by the operator's wall clock.
    pub at: WallMillis,
}

/// A lock.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LockRecord {
    /// The fields that contenders read.
    pub lock: LockDocument,
    /// End of each holder's minimum hold, if any: by the server's clock if the work has ended,
    /// otherwise by the holder's wall clock. Informational.
    pub kept_until: BTreeMap<Claim, WallMillis>,
    /// Former holders, oldest first.
    pub history: Vec<PastHolder>,
}

impl LockRecord {
    /// True if the document contains only its token, as after pruning. An unpruned lock that has
    /// had a holder has a history. A new document has no token yet, and does not count as pruned.
    pub fn is_pruned(&self) -> bool {
        let lock = &self.lock;
        let is_unused =
            lock.token != Token::ZERO && lock.holders.is_empty() && lock.queue.is_empty();
        is_unused && lock.successes.is_empty() && self.history.is_empty()
    }
}

/// The effect of the standing request on the current leader.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RequestEffect {
    /// The leader applies the request.
    Effective,
    /// The request names a token other than the leader's.
    OtherToken {
        /// The token in the request.
        named: Token,
        /// The leader's token.
        leader: Token,
    },
    /// The lease is free. The next acquisition removes the request.
    Free,
    /// The request is invalid, for this reason.
    Invalid(&'static str),
}

impl LeaseRecord {
    /// Returns the holder's token. Operators may have raised the document's token above it.
    pub fn holder_token(&self) -> Option<Token> {
        let holder = self.held_by()?;
        Some(holder.token.unwrap_or(self.lease.token))
    }

    /// True if an operator has retired the lease and no candidate has written to it since. Each
    /// write by a candidate changes the revision, so revisions are compared instead of clocks.
    pub fn is_retired(&self) -> bool {
        let newest = self.actions.last();
        newest.is_some_and(|newest| {
            newest.action == RETIRE && newest.revision == Some(self.lease.revision)
        })
    }

    /// Returns the action that has paused the lease. A pause by a manual edit has no action.
    pub fn pause(&self) -> Option<&ActionRecord> {
        let (pause, resume) = (ActionKind::Pause.as_str(), ActionKind::Resume.as_str());
        let mut newest = self.actions.iter().rev();
        let newest = newest.find(|action| [pause, resume].contains(&action.action.as_str()));
        newest.filter(|action| action.action == pause && self.lease.paused)
    }

    /// Returns the current holder.
    pub fn held_by(&self) -> Option<&Holder> {
        self.lease.holder.as_ref()
    }

    /// Returns the lease duration that the holder declared.
    pub fn lease_duration(&self) -> Option<Duration> {
        Some(self.held_by()?.lease_duration.duration())
    }

    /// Returns the effect of the standing request on the current leader; `None` without a request.
    pub fn effect(&self) -> Option<RequestEffect> {
        let request = match &self.request.as_ref()?.request {
            Ok(request) => request,
            Err(why) => return Some(RequestEffect::Invalid(why)),
        };
        Some(match self.holder_token() {
            None => RequestEffect::Free,
            Some(leader) if leader == request.token => RequestEffect::Effective,
            Some(leader) => RequestEffect::OtherToken {
                named: request.token,
                leader,
            },
        })
    }
}

fn lease_record(lease: Lease, document: &Document) -> LeaseRecord {
    let holder = document.get_document("holder").ok();
    LeaseRecord {
        holder: holder.map(|holder| HolderRecord {
            identity: named(holder.get_str("identity").unwrap_or_default()),
            renewed_at: date(holder.get("renewed_at")),
            address: text(holder, "address"),
        }),
        standby: (lease.standby.as_ref()).map(|standby| named(standby.identity.as_str())),
        request: request(document),
        history: history(document),
        actions: actions(document),
        roll_call: roll_call::read(document),
        stored_request: document.get("request").cloned(),
        lease,
    }
}

fn request(document: &Document) -> Option<RequestRecord> {
    let request = document::request(document).transpose()?;
    let fields = document.get_document("request").ok();
    let field = |key| text(fields?, key);
    Some(RequestRecord {
        request,
        to: field("to"),
        by: field("by"),
        reason: field("reason"),
        at: date(fields.and_then(|fields| fields.get("at"))),
    })
}

fn actions(document: &Document) -> Vec<ActionRecord> {
    let actions = list(document, "actions")
        .iter()
        .filter_map(Bson::as_document);
    let record = |action: &Document| ActionRecord {
        id: document::id(action, "id").ok(),
        action: text(action, "action").unwrap_or_default(),
        revision: document::id(action, "revision")
            .ok()
            .map(Revision::from_bytes),
        token: document::token(action).ok(),
        to: text(action, "to"),
        by: text(action, "by"),
        reason: text(action, "reason"),
        at: date(action.get("at")),
    };
    actions.map(record).collect()
}
