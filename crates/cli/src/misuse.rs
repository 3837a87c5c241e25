//! Arguments that clap accepts and a command does not.

use clap::Command;
use clap::error::{Error, ErrorKind};

/// The arguments of a subcommand are wrong.
#[derive(Debug)]
pub struct Misuse {
    path: Vec<String>,
    message: String,
}

/// Creates the error of the subcommand with this path.
pub fn wrong(path: &[&str], message: &str) -> Misuse {
    Misuse {
        path: path.iter().map(|name| (*name).to_owned()).collect(),
        message: message.to_owned(),
    }
}

impl Misuse {
    /// Returns the error of clap, with the usage of the intended subcommand of `root`.
    pub fn explained(self, mut root: Command) -> Error {
        root.build();
        let mut meant = &mut root;
        for name in &self.path {
            if meant.find_subcommand(name).is_none() {
                break;
            }
            meant = meant
                .find_subcommand_mut(name)
                .expect("it was found just now");
        }
        meant.error(ErrorKind::ValueValidation, self.message)
    }
}
