//! Tests `leasehold check` with real components: replica sets with users and TLS, unreachable
//! servers, a Kubernetes API server, and this host.

#![allow(clippy::unwrap_used, reason = "a failing fixture should fail the test")]
// Test code may read the clock directly.
#![allow(clippy::disallowed_methods)]

mod bad_input;
mod client_certificates;
mod healthy;
mod host;
#[cfg(feature = "kubernetes")]
mod kubernetes;
mod permissions;
mod scene;
mod servers;
mod timings;
mod tls;
