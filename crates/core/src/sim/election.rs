//! The simulation of candidates for a lease. `Election` is the shipped type.

mod audit;
mod check;
mod child;
mod children;
mod cluster;
mod coverage;
mod document;
mod faults;
mod files;
mod guard_troubles;
mod guards;
mod healing;
mod hearing;
mod inject;
mod invariants;
mod ledger;
mod neighbours;
mod network;
mod observer;
mod process;
mod report;
mod run;
mod starting;
mod streams;
mod tolerated;
mod turn;
