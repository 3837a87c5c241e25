//! Getting into MongoDB, and staying out: TLS, passwords, certificates, roles.
//! One set with TLS and users serves all tests; every password of theirs is
//! looked for in everything that a daemon says (I12).

// It observes from outside, so it has clocks of its own.
#![allow(clippy::disallowed_methods)]

#[path = "mongo_access/certificates.rs"]
mod certificates;
#[path = "mongo_access/entrance.rs"]
mod entrance;
#[path = "mongo_access/passwords.rs"]
mod passwords;
#[path = "mongo_access/roles.rs"]
mod roles;
