//! Tests of the rules in `crates/core`: simulations, exhaustive models and planted bugs.
//!
//! `crates/core/src/lib.rs` includes this module only if it is compiled for the package
//! `leasehold-proof`. Nothing that ships depends on it.

mod flawed;
mod model;
pub(crate) mod sim;
