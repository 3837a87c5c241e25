//! Deterministic simulations of the shipped state machines.
//!
//! A run uses no threads, real clocks or sockets, so one seed determines everything that happens.
//! [`election`] simulates candidates for a lease, and [`lock`] simulates contenders for a lock.
//! Both share [`world`] (true time, future events, planned faults), [`network`], [`replica_set`],
//! [`rng`], the loop over many seeds ([`run`]) and the [`report`]. The event loop, the driver and
//! the replica set are modelled. `docs/verification.md` describes the coverage, and how to extend
//! the simulation.

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

const MS: u64 = 1_000_000;
const SECOND: u64 = 1_000 * MS;

fn with<T>(mut value: T, change: impl FnOnce(&mut T)) -> T {
    change(&mut value);
    value
}
