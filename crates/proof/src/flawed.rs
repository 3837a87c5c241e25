//! Planted bugs outside the machines: a flawed host passes a machine other options, inputs or times
//! than a correct host would. Prefer this file for a planted bug, because the shipped rules then
//! contain no trace of it.

pub(crate) mod lock;
