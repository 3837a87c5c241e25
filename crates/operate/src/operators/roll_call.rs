//! Roll calls: asks the candidates of a lease to report. A call writes to the document, but changes
//! neither its revision nor its holder.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::{Value, json};

use super::observed::{Followed, Observed};
use super::{OperatorError, Session};
use leasehold_clock as clock;
use leasehold_core::election::ResourceName;
use leasehold_mongodb::randomness::KernelRandomness;
use leasehold_mongodb::store::Failure;
use leasehold_mongodb::store::mongo::operators::{Acted, ActionId, Present};

/// Time for candidates to answer. Candidates with a change stream take milliseconds; the others
/// poll, by default each second.
pub(super) const ANSWER_MAX: Duration = Duration::from_secs(3);

/// The answers of the candidates of a lease.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Roll {
    /// The candidates that answered.
    Answered(Vec<Present>),
    /// The candidates were not asked, for this reason.
    NotCalled(String),
}

/// The answers by name of the lease.
pub(crate) type Rolls = BTreeMap<String, Roll>;

impl Roll {
    pub(super) fn words(&self) -> String {
        match self {
            Self::NotCalled(why) => format!("candidates not asked: {why}"),
            Self::Answered(present) => match present.as_slice() {
                [] => "no candidate answers".to_owned(),
                [_] => format!("1 candidate answers: {}", names(present)),
                several => format!("{} candidates answer: {}", several.len(), names(present)),
            },
        }
    }

    /// Adds the answers to the JSON of a lease.
    pub(super) fn add_to(&self, object: &mut Value) {
        let candidate = |it: &Present| {
            let identity = it.identity.as_str();
            json!({ "identity": identity, "version": it.version, "healthy": it.healthy })
        };
        match self {
            Self::Answered(present) => {
                object["candidates"] = present.iter().map(candidate).collect();
            }
            Self::NotCalled(why) => object["candidates_not_asked"] = why.as_str().into(),
        }
    }
}

pub(super) fn names(present: &[Present]) -> String {
    let names = present.iter().map(|candidate| match candidate.healthy {
        Some(false) => format!("{} (unhealthy)", candidate.identity),
        Some(true) | None => candidate.identity.to_string(),
    });
    match present {
        [] => "none".to_owned(),
        _ => names.collect::<Vec<_>>().join(", "),
    }
}

/// A roll call that is under way.
pub(super) struct OpenRollCall {
    id: ActionId,
    name: ResourceName,
    /// True once this roll call was seen in the document. Another operator's roll call may replace
    /// this one, and answers to a later one count too.
    seen: bool,
    pub(super) present: Vec<Present>,
}

impl OpenRollCall {
    pub(super) async fn begin(session: &Session, name: &ResourceName) -> Result<Self, Failure> {
        let id = ActionId::random(&mut KernelRandomness);
        let called = session.collection.call_roll(name, id).await;
        if called.outcome != Acted::Applied(()) {
            let changed = || Failure::new("the document is no longer a lease", "");
            return Err(called.failure.unwrap_or_else(changed));
        }
        Ok(Self {
            id,
            name: name.clone(),
            seen: false,
            present: Vec::new(),
        })
    }

    pub(super) fn name(&self) -> &str {
        self.name.as_str()
    }

    /// Takes the answers from the document.
    pub(super) fn collect(&mut self, observed: &Observed) {
        let lease = observed.lease_of(self.name.as_str());
        let Some(roll_call) = lease.and_then(|lease| lease.roll_call.as_ref()) else {
            return;
        };
        self.seen |= roll_call.id == self.id.bytes();
        if self.seen {
            let is_new = |candidate: &&Present| !self.present.contains(candidate);
            let new: Vec<_> = roll_call.present.iter().filter(is_new).cloned().collect();
            self.present.extend(new);
        }
    }

    /// Removes the call from the document. A call that is not removed is harmless, because the next
    /// one replaces it.
    pub(super) async fn end(mut self, session: &Session) -> Vec<Present> {
        let _ = session.collection.end_roll_call(&self.name, self.id).await;
        self.present.sort_by(|a, b| a.identity.cmp(&b.identity));
        self.present
    }
}

/// Calls the roll. Returns the candidates that have answered when `complete` is true of them, or
/// after [`ANSWER_MAX`].
pub(super) async fn candidates(
    session: &Session,
    followed: &mut Followed,
    name: &ResourceName,
    complete: impl Fn(&[Present]) -> bool,
) -> Result<Vec<Present>, OperatorError> {
    let call = OpenRollCall::begin(session, name).await;
    let mut call = call.map_err(|failure| OperatorError::Store {
        doing: "call the roll of candidates",
        failure,
    })?;
    let until = (clock::boot_now() + ANSWER_MAX).min(session.deadline);
    while !complete(&call.present) && followed.advance(until).await {
        call.collect(&followed.observed);
    }
    Ok(call.end(session).await)
}
