//! The operators' tools for leases and locks: commands and a web page.
//!
//! A tool never contends for a lease or a lock, and does not run a command. It sees the daemon only
//! through status files, HTTP and the documents in MongoDB.

#![forbid(unsafe_code)]

pub mod check;
pub mod locks;
pub mod operators;
pub mod replicas;
pub mod status;
mod table;
