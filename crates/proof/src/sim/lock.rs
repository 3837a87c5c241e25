//! The simulation of contenders for one lock. The contender is the shipped type, `LockContender`.

pub(crate) mod broken;
mod coverage;
mod edits;
pub(crate) mod entries;
mod faults;
mod fixture;
mod forks;
mod grants;
pub(crate) mod invariants;
mod ledger;
mod network;
mod observer;
mod older;
mod process;
mod report;
mod run;
mod seats;
mod world;
