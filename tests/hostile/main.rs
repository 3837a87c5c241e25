//! Goal: no input that another process can send makes a daemon or a reader wrong, or takes its
//! memory, its descriptors or its renewals.
//! Method: the inputs of tests/corpus, random changes of them, and clients that send slowly, in
//! great number or without an end.

// The tests observe from outside and use their own clocks.
#![allow(clippy::disallowed_methods)]
#![allow(
    clippy::unwrap_used,
    reason = "a fixture that fails should end its test"
)]

mod event_readers;
mod load;
mod requests;
mod target;
mod traces;
