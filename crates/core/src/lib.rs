#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]
#![warn(missing_debug_implementations)]

/// Expands to the correct rule, or to `false` if none is given. Only `crates/proof`, which has its
/// own version of this macro, enables planted bugs.
#[cfg(not(proof))]
macro_rules! planted {
    ($name:ident) => {
        false
    };
    ($name:ident, $bug:expr, $rule:expr) => {
        if false { $bug } else { $rule }
    };
}

mod claim;
pub mod deadline_policy;
pub mod election;
mod foreign;
pub mod lock;
mod named;
#[cfg(feature = "serde")]
mod serialization;
#[cfg(feature = "serde")]
pub mod trace;

// `crates/proof` compiles this file with `cfg(proof)`. The flag `proof` is not a Cargo feature,
// because Cargo unifies features across a workspace build, and no planted bug may ship.
#[cfg(proof)]
#[path = "../../proof/src/proof.rs"]
mod proof;
#[cfg(test)]
extern crate self as leasehold_core;
#[cfg(test)]
#[path = "../../proof/reference/src/lib.rs"]
pub mod reference;
