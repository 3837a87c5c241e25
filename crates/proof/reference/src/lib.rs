//! Executable specification of the writes: the documents that each matches, and the changes that it
//! makes, in the types of the rules. It makes no decisions and has no state.
//!
//! Tests only. The simulators, the models and the unit tests of the rules apply writes by it, so it
//! must equal what MongoDB does with the filters and updates that ship: tests compare both on random
//! documents and writes, with and without a real server. Traces of real daemons are replayed with
//! it, too.
//!
//! `crates/core/src/lib.rs` includes this file in its own tests and in those of `crates/proof`,
//! where the types of the rules are not those of the crate `leasehold_core`.

pub mod election;
pub mod lock;
