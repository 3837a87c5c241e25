//! Operators' tools for leases and locks: commands and a web page.
//!
//! The tools never contend for a lease or a lock, and never run a command. They observe daemons
//! only through status files, HTTP and the documents in MongoDB.

#![forbid(unsafe_code)]

pub mod check;
pub mod locks;
pub mod operators;
pub mod replicas;
pub mod status;
mod table;
