//! Tests candidates that reach MongoDB through routers, as on a sharded cluster. The routers are
//! simulated (`leasehold_testbed::router`) in front of real replica sets, because `mongos` is not
//! available to the tests. The tests cover only leasehold's side.

// Test code may read the clock directly.
#![allow(clippy::disallowed_methods)]

mod elections;
mod fixture;
mod kind;
mod late_streams;
mod lookalikes;
mod no_streams;
