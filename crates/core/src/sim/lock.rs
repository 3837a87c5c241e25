//! The simulation of contenders for one lock. `LockContender` is the shipped type.

mod broken;
mod coverage;
mod entries;
mod faults;
mod fixture;
mod grants;
mod invariants;
mod ledger;
mod network;
mod observer;
mod older;
mod process;
mod report;
mod run;
mod seats;
mod world;
