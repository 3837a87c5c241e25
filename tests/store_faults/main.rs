//! Tests how MongoDB, the network and operators affect candidates, with real daemons on real
//! replica sets. Each file tests one behavior.

// The tests observe processes from outside, with their own clocks.
#![allow(clippy::disallowed_methods)]

mod acquire_reply_lost;
mod any_stored_document;
mod cast;
mod change_streams;
mod connection_stalled;
mod duplicate_claims;
mod filters;
mod fixture;
mod foreign_documents;
mod hints;
mod history;
mod hung_uri;
mod late_landings;
mod lock_waits;
mod majority_lost;
mod mongodb_elections;
mod moved_uri;
mod one_set;
mod operator_requests;
mod outcomes;
mod real_refusals;
mod refusals;
mod stale_streams;
mod standalone;
mod store_load;
mod store_went_back;
mod stream_connections;
mod streams_of_the_majority;
mod wall_clocks;
