//! Follows each store call of one machine: the request, the handover to the driver, and the answer.

use std::collections::BTreeMap;

use leasehold_core::election::{BootTime, CallId};
use leasehold_core::trace::{Answered, Sent};
use serde_json::Value;

use crate::replay::parse;
use crate::state::{Operation, State};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Outcome {
    Applied,
    /// The primary alone acknowledged the write, so it may be rolled back.
    PrimaryOnly,
    Rejected,
    /// The call was provably never sent.
    Failed,
    Unknown,
}

impl Outcome {
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Applied => "applied",
            Self::PrimaryOnly => "primary_only",
            Self::Rejected => "rejected",
            Self::Failed => "failed",
            Self::Unknown => "unknown",
        }
    }

    fn named(name: &str) -> Result<Self, String> {
        let all = [
            Self::Applied,
            Self::PrimaryOnly,
            Self::Rejected,
            Self::Failed,
            Self::Unknown,
        ];
        let found = all.into_iter().find(|outcome| outcome.as_str() == name);
        found.ok_or_else(|| format!("outcome {name:?} does not exist"))
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    Asked,
    Sent,
    /// The outcome was reported as unknown, but the driver may still answer.
    Unknown,
    Answered(Outcome),
}

#[derive(Debug)]
pub(crate) struct Call {
    stage: Stage,
    /// Line number of the turn that requested the call.
    pub(crate) line: usize,
    pub(crate) operation: Operation,
    /// Time just before the call was passed to the driver.
    pub(crate) sent: Option<BootTime>,
    answered: Option<BootTime>,
    pub(crate) found: Option<State>,
}

impl Call {
    /// Returns the known outcome. A call that was never passed to the driver has failed.
    pub(crate) const fn outcome(&self) -> Outcome {
        match self.stage {
            Stage::Asked => Outcome::Failed,
            Stage::Sent | Stage::Unknown => Outcome::Unknown,
            Stage::Answered(outcome) => outcome,
        }
    }

    /// Returns the time when the outcome became known, or `None` if it is unknown.
    pub(crate) fn answered(&self) -> Option<BootTime> {
        let is_known = self.outcome() != Outcome::Unknown;
        self.answered.filter(|_| is_known)
    }
}

pub(crate) struct Reply {
    pub(crate) call: CallId,
    pub(crate) outcome: Outcome,
    pub(crate) found: Option<State>,
}

#[derive(Debug, Default)]
pub(crate) struct Calls(BTreeMap<CallId, Call>);

impl Calls {
    pub(crate) fn asked(
        &mut self,
        line: usize,
        calls: Vec<(CallId, Operation)>,
    ) -> Result<(), String> {
        for (call, operation) in calls {
            let asked = Call {
                stage: Stage::Asked,
                line,
                operation,
                sent: None,
                answered: None,
                found: None,
            };
            if self.0.insert(call, asked).is_some() {
                return Err(format!("call {call} is requested a second time"));
            }
        }
        Ok(())
    }

    pub(crate) fn sent(&mut self, sent: &Value) -> Result<(), String> {
        let Sent { call, at } = parse(sent)?;
        match self.0.get_mut(&call) {
            Some(known) if known.stage == Stage::Asked => {
                known.stage = Stage::Sent;
                known.sent = Some(at);
                Ok(())
            }
            None => Err(format!("call {call} is sent, but no turn requested it")),
            Some(_) => Err(format!("call {call} is sent a second time")),
        }
    }

    pub(crate) fn answered(&mut self, answered: &Value) -> Result<(), String> {
        let Answered {
            call,
            at,
            outcome,
            late,
        } = parse(answered)?;
        let outcome = Outcome::named(&outcome)?;
        let not_sent = || format!("call {call} is answered, but was not sent");
        let known = self.0.get_mut(&call).ok_or_else(not_sent)?;
        known.stage = match (known.stage, late) {
            (Stage::Sent, false) if outcome == Outcome::Unknown => Stage::Unknown,
            (Stage::Sent, false) | (Stage::Unknown, true) => Stage::Answered(outcome),
            (Stage::Asked, _) => return Err(not_sent()),
            (Stage::Unknown | Stage::Answered(_), false) => {
                return Err(format!("call {call} is answered a second time"));
            }
            (Stage::Sent | Stage::Answered(_), true) => {
                return Err(format!("call {call} has a late answer, but no timeout"));
            }
        };
        known.answered = Some(at);
        Ok(())
    }

    /// Compares a reply that the machine received with the answer to its call.
    pub(crate) fn replied(&mut self, reply: Reply) -> Result<(), String> {
        let Reply {
            call,
            outcome,
            found,
        } = reply;
        let known = self.0.get_mut(&call);
        let known = known.ok_or_else(|| format!("a reply to call {call}, which was never sent"))?;
        // If the driver panicked, the call has no answer, and the machine received an unknown
        // outcome.
        if known.outcome() != outcome && outcome != Outcome::Unknown {
            return Err(format!(
                "call {call} was answered {:?}, but the machine received {:?}",
                known.outcome().as_str(),
                outcome.as_str(),
            ));
        }
        known.found = found;
        Ok(())
    }

    pub(crate) fn all(&self) -> impl Iterator<Item = (CallId, &Call)> {
        self.0.iter().map(|(id, call)| (*id, call))
    }
}
