//! Planted bugs outside the state machines: a flawed host passes wrong options, inputs or times to
//! a state machine. Prefer this file for a planted bug, because the code of the shipped rules then
//! stays unchanged.

pub(crate) mod lock;
