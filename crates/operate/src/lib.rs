//! The tools of operators: they list, explain, request, repair, check and serve a page, for leases and
//! for locks.
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
