//! Step-by-step tests of the state machine against an in-memory store.
//!
//! Time passes only when a test advances it, and ids come from a counter. Each file covers a part
//! of the protocol. A name such as `i3_…` begins with the invariant that the test checks.

mod announced;
mod authority;
mod broken_invariants;
mod contending;
mod drawn;
mod harness;
mod health;
mod hints;
mod late_answers;
mod late_streams;
mod losing;
mod open_claims;
mod operators;
mod overtaken;
mod own_claims;
mod polling;
mod priority;
mod published;
mod roles;
mod standby;
mod store_faults;
mod stored;
mod streams;
mod supervised;
mod table;
mod witness;
mod words;
