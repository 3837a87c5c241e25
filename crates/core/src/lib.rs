//! Leader election and locks over one document, as state machines without IO.
//!
//! [`Election`](election::Election) is a candidate for a lease,
//! [`lock`] a contender for a lock, [`judge`] decides when the guard of a
//! supervised command ends it. Each is told the time and what happened, and
//! says what to do: no clock, no network, no thread, no dependency. What may be
//! written to the document, and what it changes, is an executable
//! specification ([`election::reference`]). The rules and why they are safe are
//! in `docs/protocol.md`; the simulations and the exhaustive model that hold
//! them are compiled for tests only.
//!
//! ```
//! use leasehold_core::election::{BootTime, Candidate, Effect, Election, Identity, Operation};
//! use leasehold_core::election::{Input, Randomness, Timings, Token, Tunables};
//!
//! struct Counter(u128);
//! impl Randomness for Counter {
//!     fn bits(&mut self) -> u128 {
//!         self.0 += 1;
//!         self.0
//!     }
//! }
//!
//! let candidate = Candidate {
//!     identity: Identity::new("a").unwrap(),
//!     tunables: Tunables {
//!         timings: Timings::default(),
//!         handoff_delay: std::time::Duration::from_secs(2),
//!         workload_ends_first: false,
//!     },
//!     token_remembered: Token::ZERO,
//!     lease_longest_remembered: None,
//!     supervises: false,
//!     predecessor_claim: None,
//! };
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

/// No rule is broken outside of this crate's own tests.
#[cfg(not(test))]
macro_rules! planted {
    ($name:ident) => {
        false
    };
}

pub mod election;
pub mod judge;
pub mod lock;

#[cfg(test)]
#[macro_use]
mod sim;
// After it: it uses its macros.
#[cfg(test)]
mod lock_sim;
#[cfg(test)]
mod model;
