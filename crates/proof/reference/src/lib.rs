//! Executable specification of the writes: which documents each write matches, and how the write
//! changes them. The specification uses the types of `crates/core`, makes no decisions, and has no
//! state.
//!
//! Only tests use the specification. The simulators, the models and the unit tests of the rules use
//! it to apply writes. Other tests send random writes to random documents and verify that the
//! specification, the shipped filters and updates, and a real MongoDB server agree. The trace
//! checker also applies the specification to traces of real daemons.
//!
//! The unit tests of `crates/core` and `leasehold-proof` need a specification with their own types,
//! not the types of the crate `leasehold_core`. Therefore, `crates/core/src/lib.rs` includes this
//! file in both packages.

pub mod election;
pub mod lock;
