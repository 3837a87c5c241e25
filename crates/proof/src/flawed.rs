//! Machines with a rule broken on purpose, from outside: they receive other options, inputs or
//! instants than a correct host would pass. Plant a bug here if possible, so that the code of the
//! rules stays free of it.

pub(crate) mod lock;
