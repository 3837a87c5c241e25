//! A deterministic simulation of contenders for one lock.
//!
//! No thread, no clock, no socket: one seed decides everything, and the same
//! seed gives the same run. What a runner, the driver and the replica set do is
//! modelled; `LockContender` is the type that ships. `docs/verification.md`
//! says what is covered.

mod broken;
mod faults;
mod grants;
mod invariants;
mod ledger;
mod network;
mod onlooker;
mod planted_bugs;
mod process;
mod report;
mod run;
mod seats;
mod store;
mod world;

/// A millisecond in true nanoseconds.
const MS: u64 = 1_000_000;
/// A second.
const SECOND: u64 = 1_000 * MS;
/// The part of a run in which there are faults.
const RUN: u64 = 240 * SECOND;
