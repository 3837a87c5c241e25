//! Goal: no input from another process makes a daemon or a reader report a wrong state, exhausts
//! the daemon's memory or descriptors, or delays its renewals. Method: sends the inputs in
//! tests/corpus, random mutations of these inputs, slow requests, endless bodies and many
//! connections.

// Test code may read the clock directly.
#![allow(clippy::disallowed_methods)]
#![allow(clippy::unwrap_used, reason = "a failing fixture should fail the test")]

mod event_readers;
mod load;
mod requests;
mod target;
mod traces;
