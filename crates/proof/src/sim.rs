//! Deterministic simulations of the shipped state machines.
//!
//! No thread, no clock, no socket: one seed decides everything, and the same seed gives the same
//! run. [`election`] runs candidates for a lease, [`lock`] contenders for a lock. Both use the same
//! [`world`] (true time, the events to come, planned faults), [`network`], [`replica_set`] and
//! [`rng`], are [`run`] over many seeds by the same loop, and are described by the same [`report`].
//! The runner, the driver and the replica set are modelled. `docs/verification.md` describes the
//! coverage, and how to add a piece.

mod clock;
mod coverage;
mod driver;
pub(crate) mod election;
mod faults;
mod ids;
mod invariants;
pub(crate) mod lock;
mod minimal;
mod network;
pub(crate) mod planted;
mod replica_set;
mod report;
pub(crate) mod rng;
mod run;
mod world;

/// A millisecond in true nanoseconds.
const MS: u64 = 1_000_000;
/// A second.
const SECOND: u64 = 1_000 * MS;

/// Returns a changed copy of a value.
fn with<T>(mut value: T, change: impl FnOnce(&mut T)) -> T {
    change(&mut value);
    value
}
