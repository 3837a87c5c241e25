//! Leader election and locks over one document, as state machines without IO.
//!
//! [`Election`](election::Election) is a candidate for a lease, [`lock`] has a contender for a
//! lock, and [`deadline_policy`] decides when the guard of a supervised command ends the command.
//! Each receives the time and an input, and returns effects. They use no clock, network or thread,
//! and need no dependency without the feature `serde`. `docs/protocol.md` has the rules and the
//! reasons why they are safe; `crates/proof` checks them.
//!
//! The enums of the rules are exhaustive, because a host must decide about each new case; a new
//! case is a breaking release. Lists whose values a host passes on by their names
//! ([`Reason`](election::Reason), [`Loss`](lock::Loss)) can grow in any release.
//!
//! ```
//! use leasehold_core::election::{BootTime, Candidate, Effect, Election, Identity, Input};
//! use leasehold_core::election::{Operation, Randomness};
//!
//! struct Counter(u128);
//! impl Randomness for Counter {
//!     fn bits(&mut self) -> u128 {
//!         self.0 += 1;
//!         self.0
//!     }
//! }
//!
//! let candidate = Candidate::new(Identity::new("a").unwrap());
//! let (now, mut random) = (BootTime::default(), Counter(0));
//! let mut election = Election::new(candidate, now, &mut random);
//! election.handle(now, Input::Tick, &mut random);
//! // Before anything else it reads the document.
//! let Some(Effect::Call { operation, .. }) = election.next_effect() else {
//!     panic!("nothing to do");
//! };
//! assert_eq!(operation, Operation::Read { confirm: false });
//! ```

#![forbid(unsafe_code)]
#![warn(missing_debug_implementations)]

/// Expands to `false` or to the rule, because only `crates/proof` breaks rules on purpose.
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
pub mod lock;
mod named;
#[cfg(feature = "serde")]
mod serialization;
#[cfg(feature = "serde")]
pub mod trace;

// `crates/proof` compiles this file with `cfg(proof)`. It is not a Cargo feature, because Cargo
// unifies features over a build of the workspace, and no planted bug may ship.
#[cfg(proof)]
#[path = "../../proof/src/proof.rs"]
mod proof;
#[cfg(test)]
extern crate self as leasehold_core;
#[cfg(test)]
#[path = "../../proof/reference/src/lib.rs"]
pub mod reference;
