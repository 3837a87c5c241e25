//! Tests of the rules in `crates/core`: simulations, exhaustive models and planted bugs.
//!
//! `crates/core/src/lib.rs` includes this module if it is compiled for the package
//! `leasehold-proof`, and for no other. Nothing that ships depends on it.

mod flawed;
mod model;
pub(crate) mod sim;
