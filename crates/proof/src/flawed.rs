//! Machines with a rule broken on purpose, from outside: they receive other options, inputs or
//! instants than a host that observes the rule would pass. A bug belongs here if it can, so that the
//! rules are read without it.

pub(crate) mod lock;
