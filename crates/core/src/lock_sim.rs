//! Deterministic simulation of contenders for one lock.
//!
//! There are no threads, clocks or sockets. One seed decides everything, and the same seed gives
//! the same run. The runner, the driver and the replica set are modelled; `LockContender` is the
//! shipped type. `docs/verification.md` describes what is covered.

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

/// A millisecond, in nanoseconds of true time.
const MS: u64 = 1_000_000;
/// A second, in nanoseconds of true time.
const SECOND: u64 = 1_000 * MS;
/// Length of the part of a run with faults.
const RUN: u64 = 240 * SECOND;
