//! Explores, within bounds, every order of events of two or three processes that run the shipped
//! state machines against a modelled store.
//!
//! [`election`] models candidates for a lease, and [`lock`] models contenders for a lock. The two
//! models share the calls in flight ([`calls`]), the canonical form ([`canonical`]), durations
//! ([`pace`]), random numbers ([`draw`]) and figures ([`exploration`]). The models have no driver
//! and no files. Time is a count of ticks. In each tick every process's clock advances by its own
//! amount. `docs/verification/models.md` lists the other abstractions.

mod calls;
mod canonical;
mod draw;
mod election;
mod exploration;
mod lock;
mod merging;
mod pace;
mod planted_bugs;

mod explore;
