//! Tests candidates that reach MongoDB through routers, as on a sharded cluster. Most tests simulate
//! the routers (`leasehold_testbed::router`) in front of real replica sets, so they cover only
//! leasehold's side. `sharded_cluster` runs on real routers if `MONGOS` names a `mongos`.

// Test code may read the clock directly.
#![allow(clippy::disallowed_methods)]

mod elections;
mod fixture;
mod kind;
mod late_streams;
mod lookalikes;
mod no_streams;
mod sharded_cluster;
