//! The simulation of candidates for a lease. `Election` is the shipped type.

mod audit;
mod check;
mod child;
mod children;
mod cluster;
mod coverage;
mod disturb;
mod document;
mod excuses;
mod faults;
mod files;
mod guard_troubles;
mod guards;
mod healing;
mod hearing;
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
mod turn;
