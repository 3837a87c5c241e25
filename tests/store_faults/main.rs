//! What MongoDB, the network and its operators can do to a candidate, on real
//! replica sets with real daemons. One file per behaviour.

// It observes from outside, so it has clocks of its own.
#![allow(clippy::disallowed_methods)]

mod acquire_reply_lost;
mod any_stored_document;
mod change_streams;
mod connection_stalled;
mod duplicate_claims;
mod filters;
mod foreign_documents;
mod history;
mod late_landings;
mod majority_lost;
mod mongodb_elections;
mod moved_uri;
mod operator_requests;
mod outcomes;
mod scene;
mod stale_streams;
mod standalone;
mod store_load;
mod store_went_back;
mod stream_connections;
mod wall_clocks;
