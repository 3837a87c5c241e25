//! A deterministic simulation of the shipped state machine.
//!
//! No thread, no clock, no socket: one seed decides everything, and the same seed gives the same
//! run. The runner, the file thread, the driver and the replica set are modelled; `Election` is the
//! shipped type. `docs/verification.md` describes the coverage, and how to add a piece.

mod audit;
mod check;
mod child;
mod children;
mod cluster;
mod coverage;
pub(crate) mod dice;
mod disturb;
mod excuses;
#[macro_use]
mod faults;
mod files;
mod guard_troubles;
mod guards;
mod happen;
mod hearing;
pub(crate) mod invariants;
mod ledger;
mod minimal;
mod neighbours;
mod network;
mod observer;
mod planted_bugs;
pub(crate) mod planted_table;
mod process;
mod replica_set;
mod report;
pub(crate) mod run;
mod starting;
mod turn;

/// A millisecond in true nanoseconds.
const MS: u64 = 1_000_000;
/// A second.
const SECOND: u64 = 1_000 * MS;
/// The part of a run in which faults are injected.
const RUN: u64 = 600 * SECOND;
