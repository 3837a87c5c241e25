//! Getting into MongoDB, and staying out: TLS, passwords, certificates, roles.
//! One set with TLS and users serves all tests; every password of theirs is
//! looked for in everything that a daemon says (I12).

// It observes from outside, so it has clocks of its own.
#![allow(clippy::disallowed_methods)]

mod certificates;
mod entrance;
mod passwords;
mod roles;
