//! `leasehold completions`: scripts for shells.

use clap_complete::Shell;

use super::{CommandError, answer, command};

/// Prints the completion script of a shell.
///
/// # Errors
/// [`CommandError`] if it cannot be written.
pub fn run(shell: Shell) -> Result<(), CommandError> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut command(), "leasehold", &mut script);
    answer(&script)
}
