//! What MongoDB, the network and its operators can do to a candidate, on real
//! replica sets with real daemons. One file per behaviour.

// It observes from outside, so it has clocks of its own.
#![allow(clippy::disallowed_methods)]

#[path = "store_faults/acquire_reply_lost.rs"]
mod acquire_reply_lost;
#[path = "store_faults/any_stored_document.rs"]
mod any_stored_document;
#[path = "store_faults/change_streams.rs"]
mod change_streams;
#[path = "store_faults/connection_stalled.rs"]
mod connection_stalled;
#[path = "store_faults/duplicate_claims.rs"]
mod duplicate_claims;
#[path = "store_faults/filters.rs"]
mod filters;
#[path = "store_faults/foreign_documents.rs"]
mod foreign_documents;
#[path = "store_faults/history.rs"]
mod history;
#[path = "store_faults/late_landings.rs"]
mod late_landings;
#[path = "store_faults/majority_lost.rs"]
mod majority_lost;
#[path = "store_faults/mongodb_elections.rs"]
mod mongodb_elections;
#[path = "store_faults/moved_uri.rs"]
mod moved_uri;
#[path = "store_faults/operator_requests.rs"]
mod operator_requests;
#[path = "store_faults/outcomes.rs"]
mod outcomes;
#[path = "store_faults/scene.rs"]
mod scene;
#[path = "store_faults/stale_streams.rs"]
mod stale_streams;
#[path = "store_faults/standalone.rs"]
mod standalone;
#[path = "store_faults/store_load.rs"]
mod store_load;
#[path = "store_faults/store_went_back.rs"]
mod store_went_back;
#[path = "store_faults/stream_connections.rs"]
mod stream_connections;
#[path = "store_faults/wall_clocks.rs"]
mod wall_clocks;
