//! Access to MongoDB, granted and refused: TLS, passwords, certificates, roles. One set with TLS
//! and users serves all tests, and all output of a daemon is searched for their passwords (I12).

// The tests observe from outside and use their own clocks.
#![allow(clippy::disallowed_methods)]

mod certificates;
mod dropped_users;
mod entrance;
mod name_lookups;
mod passwords;
mod roles;
mod unusual_users;
mod uri_options;
