//! Executable specification of the writes, with the types of `crates/core`: which documents each
//! write matches, and how it changes them. The specification makes no decisions and has no state.
//!
//! Only tests use it. The simulators, the models and the unit tests of the rules apply writes by
//! this specification. Tests verify on random documents and writes, with and without a real server,
//! that it agrees with MongoDB and the shipped filters and updates. The trace checker also applies
//! the specification to traces of real daemons.
//!
//! The unit tests of `crates/core` and `leasehold-proof` do not use the types of the crate
//! `leasehold_core`, so `crates/core/src/lib.rs` includes this file for both.

pub mod election;
pub mod lock;
