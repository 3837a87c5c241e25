//! Writes by operators. Each write matches only the state that the operator saw, because a request
//! to one leader must not reach the next leader. No write changes `revision` or `holder`.

use std::time::Duration;

use mongodb::bson::{Bson, DateTime, Document, doc};

use super::super::document::{self, ours, uuid};
use super::LeaseRecord;
use leasehold_core::election::{Identity, Outcome, Randomness, Revision, Token};

const ACTIONS_MAX: i32 = 20;
pub(super) const RETIRE: &str = "retire";

/// The random id of an action. If the outcome is unknown, the operator searches the lease for this
/// id.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ActionId([u8; 16]);

impl ActionId {
    /// Returns a new id.
    pub fn random(source: &mut dyn Randomness) -> Self {
        Self(source.bits().to_be_bytes())
    }

    /// Returns the bytes of the UUID.
    pub const fn bytes(self) -> [u8; 16] {
        self.0
    }
}

/// An action of an operator on a lease.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OperatorAction {
    /// The random id.
    pub id: ActionId,
    /// The action.
    pub kind: ActionKind,
    /// Name of the operator.
    pub by: String,
    /// The operator's reason.
    pub reason: Option<String>,
}

/// The kinds of [`OperatorAction`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ActionKind {
    /// Asks the leader to step down.
    StepDown,
    /// Asks the leader to step down in favor of a candidate.
    Transfer {
        /// The candidate.
        to: Identity,
        /// Duration of the candidate's reservation of the free lease.
        reserve: Duration,
    },
    /// Ends leadership, and prevents it until [`ActionKind::Resume`].
    Pause,
    /// Permits leadership again.
    Resume,
    /// Removes the standing request.
    Cancel,
    /// Raises the token after the restore of a backup.
    RaiseToken {
        /// Minimum token of the lease after the action.
        at_least: Token,
    },
    /// Hides a lease from lists until a candidate writes to it again. The document keeps its token.
    /// Requires that the operator has seen no renewal.
    Retire,
    /// Creates a free lease with this token.
    Create {
        /// The token of the lease.
        token: Token,
    },
}

impl ActionKind {
    /// Returns the name in the document.
    pub const fn as_str(&self) -> &'static str {
        match self {
            Self::StepDown => "step_down",
            Self::Transfer { .. } => "transfer",
            Self::Pause => "pause",
            Self::Resume => "resume",
            Self::Cancel => "cancel",
            Self::RaiseToken { .. } => "raise_token",
            Self::Retire => RETIRE,
            Self::Create { .. } => "create",
        }
    }
}

/// The outcome of an action. Rejected if the lease changed after the operator saw it.
pub type Acted = Outcome<()>;

pub(super) fn write(
    name: &str,
    seen: &LeaseRecord,
    action: &OperatorAction,
    now: DateTime,
) -> Option<(Document, Document)> {
    let mut filter = ours(name);
    filter.insert("token", seen.lease.token.get());
    let is_list = document::is("$actions", &["missing", "array"]);
    let shape = filter.remove("$expr").unwrap_or(Bson::Null);
    filter.insert("$expr", doc! { "$and": [shape, is_list] });
    let mut record = record(action, now);
    let mut update = Document::new();
    match &action.kind {
        ActionKind::StepDown | ActionKind::Transfer { .. } => {
            let holder = seen.held_by()?;
            filter.insert("holder.claim", uuid(holder.claim.bytes()));
            record.insert("token", seen.holder_token()?.get());
            let mut request = record.clone();
            request.remove("action");
            request.insert("kind", action.kind.as_str());
            if let ActionKind::Transfer { to, reserve } = &action.kind {
                record.insert("to", to.as_str());
                request.insert("to", to.as_str());
                let reserve = i64::try_from(reserve.as_millis()).unwrap_or(i64::MAX);
                request.insert("reserve_ms", reserve);
            }
            update.insert("$set", doc! { "request": request });
        }
        ActionKind::Pause => {
            filter.insert("paused", doc! { "$ne": true });
            update.insert("$set", doc! { "paused": true });
        }
        ActionKind::Resume => {
            filter.insert("paused", true);
            update.insert("$set", doc! { "paused": false });
        }
        ActionKind::Cancel => {
            filter.insert("request", doc! { "$eq": seen.stored_request.clone()? });
            update.insert("$set", doc! { "request": null });
        }
        ActionKind::RaiseToken { at_least } => {
            filter.insert("revision", uuid(seen.lease.revision.bytes()));
            record.insert("token", at_least.get());
            update.insert("$max", doc! { "token": at_least.get() });
        }
        ActionKind::Retire => {
            // The next write by a candidate changes the revision, which ends the retirement.
            let revision = uuid(seen.lease.revision.bytes());
            filter.insert("revision", revision.clone());
            filter.insert("request", Bson::Null);
            filter.insert("paused", doc! { "$ne": true });
            record.insert("revision", revision);
            record.insert("token", seen.lease.token.get());
        }
        // This action inserts a document instead.
        ActionKind::Create { .. } => return None,
    }
    let mut push = doc! { "actions": { "$each": [record], "$slice": -ACTIONS_MAX } };
    if action.kind == ActionKind::Retire {
        push.insert("history", doc! { "$each": [], "$slice": -1 });
    }
    update.insert("$push", push);
    Some((filter, update))
}

pub(super) fn create(
    name: &str,
    revision: Revision,
    token: Token,
    action: &OperatorAction,
    now: DateTime,
) -> Document {
    let mut document = document::create(name, revision, token);
    let mut record = record(action, now);
    record.insert("token", token.get());
    document.insert("actions", vec![record]);
    document
}

fn record(action: &OperatorAction, now: DateTime) -> Document {
    let mut record = doc! {
        "id": uuid(action.id.bytes()), "action": action.kind.as_str(),
        "by": &action.by, "at": now,
    };
    if let Some(reason) = &action.reason {
        record.insert("reason", reason);
    }
    record
}
