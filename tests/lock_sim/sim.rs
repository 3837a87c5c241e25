//! A deterministic simulation of contenders for one lock.
//!
//! No thread, no clock, no socket: one seed decides everything, and the same
//! seed gives the same run.

use crate::{election, lock};

pub(crate) mod reference;
mod reference_grants;
