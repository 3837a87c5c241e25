//! Records of a trace, one line of JSON each. A state machine that receives the options, times,
//! random bits and inputs of a trace reproduces the trace's effects (`tests/trace-check`).

use serde::{Deserialize, Serialize};

use crate::deadline_policy::PolicyOptions;
use crate::election::{BootTime, CallId};

/// Version of the format.
pub const SCHEMA: u32 = 1;

/// One line of a trace: an event of a state machine with options `O`, inputs `I` and effects `E`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Record<O, I, E> {
    /// Id of the state machine; unique among the state machines of a boot.
    pub machine: String,
    /// Number of the record, from 0 for each state machine. A gap shows a lost record.
    pub number: u64,
    /// The event.
    #[serde(flatten)]
    pub event: Event<O, I, E>,
}

/// An event of a state machine.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Event<O, I, E> {
    /// The state machine was created.
    Started(Started<O>),
    /// The state machine handled an input. Written before any of the effects is carried out.
    Turn(TurnRecord<I, E>),
    /// A store call is about to be handed to the driver.
    Sent(Sent),
    /// The outcome of a store call is known.
    Answered(Answered),
}

/// The kind of a state machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// An [`Election`](crate::election::Election).
    Election,
    /// A [`LockContender`](crate::lock::LockContender).
    Lock,
    /// A [`DeadlinePolicy`](crate::deadline_policy::DeadlinePolicy) with [`GuardOptions`].
    Guard,
}

/// The options of a guard's policy, and the guarded command.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct GuardOptions {
    /// The options of the policy.
    #[serde(flatten)]
    pub policy: PolicyOptions,
    /// Process id of the guard's daemon.
    pub daemon: u32,
    /// The command.
    pub guarded: Guarded,
}

/// A command that a guard supervises.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Guarded {
    /// The command of a daemon, which runs under the daemon's claim.
    Command,
    /// The hook on_lead. It ends at its timeout, or when the claim's authority ends.
    OnLead,
    /// The hook on_step_down. It ends at its timeout.
    OnStepDown,
    /// A command of `leasehold lock`, or a short command with a timeout.
    Other,
}

/// The creation of a state machine.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Started<O> {
    /// Version of the format: [`SCHEMA`].
    pub schema: u32,
    /// The kind of the state machine.
    pub kind: Kind,
    /// The document: `<database>.<collection>/<name>`; empty for a guard.
    pub document: String,
    /// Id of the clock. Instants of different clocks are not comparable.
    pub clock: Option<String>,
    /// Time of the creation.
    pub now: BootTime,
    /// Random bits that the creation drew.
    pub random: Vec<Bits>,
    /// Options of the state machine.
    pub options: O,
}

/// One call of the state machine's `handle`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TurnRecord<I, E> {
    /// Time of the turn.
    pub now: BootTime,
    /// Random bits that the turn drew.
    pub random: Vec<Bits>,
    /// The input.
    pub input: I,
    /// The effects, in order.
    pub effects: Vec<E>,
}

/// A store call that is handed to the driver.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sent {
    /// Id of the call.
    pub call: CallId,
    /// Time just before the call is handed over.
    pub at: BootTime,
}

/// An answer to a store call, or its timeout.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Answered {
    /// Id of the call.
    pub call: CallId,
    /// Time at which the event loop received the answer.
    pub at: BootTime,
    /// Name of the outcome.
    pub outcome: String,
    /// True if the call was already reported as unknown.
    pub late: bool,
}

/// 128 random bits, written as text, because few JSON readers support numbers of that size.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Bits(pub u128);
