//! Access to MongoDB, granted and refused: TLS, passwords, certificates, roles. All tests share one
//! replica set with TLS and users, and check that no daemon prints a password (I12).

// The tests observe processes from outside, with their own clocks.
#![allow(clippy::disallowed_methods)]

mod certificates;
mod dropped_users;
mod entrance;
mod name_lookups;
mod passwords;
mod roles;
mod unusual_users;
mod uri_options;
