//! Planted bugs outside the state machines: a flawed host passes wrong options, inputs or times to
//! a state machine. Prefer this file for planted bugs, because it leaves the code of the shipped
//! rules unchanged.

pub(crate) mod lock;
