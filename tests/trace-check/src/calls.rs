//! The store calls of one machine: asked for, handed to the driver, answered.

use std::collections::BTreeMap;

use leasehold_core::election::CallId;
use leasehold_core::trace::{Answered, Sent};
use serde_json::Value;

use crate::replay::parse;

const UNKNOWN: &str = "unknown";

/// How far a call has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    Asked,
    Sent,
    /// Reported as unknown; the driver may still answer.
    Unknown,
    Answered,
}

/// The calls of a machine.
#[derive(Debug, Default)]
pub(crate) struct Calls(BTreeMap<CallId, Stage>);

impl Calls {
    /// A turn asked for these calls.
    pub(crate) fn asked(&mut self, calls: &[CallId]) -> Result<(), String> {
        for call in calls {
            if self.0.insert(*call, Stage::Asked).is_some() {
                return Err(format!("call {call} is asked for a second time"));
            }
        }
        Ok(())
    }

    /// A call is handed to the driver.
    pub(crate) fn sent(&mut self, sent: &Value) -> Result<(), String> {
        let Sent { call, .. } = parse(sent)?;
        match self.0.insert(call, Stage::Sent) {
            Some(Stage::Asked) => Ok(()),
            None => Err(format!("call {call} is sent, but no turn asked for it")),
            Some(Stage::Sent | Stage::Unknown | Stage::Answered) => {
                Err(format!("call {call} is sent a second time"))
            }
        }
    }

    /// A call is answered.
    pub(crate) fn answered(&mut self, answered: &Value) -> Result<(), String> {
        let Answered {
            call,
            outcome,
            late,
            ..
        } = parse(answered)?;
        let before = self.0.get(&call).copied();
        let after = match (before, late) {
            (Some(Stage::Sent), false) if outcome == UNKNOWN => Stage::Unknown,
            (Some(Stage::Sent), false) | (Some(Stage::Unknown), true) => Stage::Answered,
            (None | Some(Stage::Asked), _) => {
                return Err(format!("call {call} is answered, but was not sent"));
            }
            (Some(Stage::Unknown | Stage::Answered), false) => {
                return Err(format!("call {call} is answered a second time"));
            }
            (Some(Stage::Sent | Stage::Answered), true) => {
                return Err(format!("call {call} has a late answer, but no timeout"));
            }
        };
        self.0.insert(call, after);
        Ok(())
    }
}
