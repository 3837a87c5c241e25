//! The witness: the program that a guard becomes if its daemon exits before it dismisses the guard.
//!
//! The guard executes the witness in its own process once CMD is gone and the end of CMD is recorded.
//! The lock of the claim file belongs to the open file, so it stays locked during the exec. If the
//! exec fails, the guard exits, and the lease expires.
//!
//! The witness needs the daemon's configuration, which may contain the connection string. The guard
//! holds the configuration in its memory, so the guard is not dumpable. CMD can read neither its
//! memory nor its descriptors (I12).

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::Command;

use rustix::process::{DumpableBehavior, set_dumpable_behavior};

use super::claim_share::ClaimShare;
use super::exec_spec::ExecSpec;
use super::{EXECUTABLE, WITNESS};
use leasehold_core::election::BootTime;

#[derive(Debug)]
pub(super) struct Witness(Command);

impl Witness {
    /// Hides this process from CMD. Called before the configuration arrives.
    pub(super) fn hide() -> io::Result<()> {
        Ok(set_dumpable_behavior(DumpableBehavior::NotDumpable)?)
    }

    pub(super) fn of_file(exec_spec: OwnedFd) -> io::Result<Self> {
        let ExecSpec { words, environment } = ExecSpec::of_file(exec_spec)?;
        let mut witness = Command::new(EXECUTABLE);
        witness.arg0("leasehold").arg(WITNESS);
        witness.args(words).envs(environment);
        Ok(Self(witness))
    }

    /// Becomes the witness. Returns only if that fails.
    pub(super) fn take_over(mut self, claim: &ClaimShare, valid_until: BootTime) -> io::Error {
        // The copy on standard input has no close-on-exec flag.
        if let Err(error) = rustix::stdio::dup2_stdin(claim.as_fd()) {
            return error.into();
        }
        self.0.arg(valid_until.as_nanos().to_string()).exec()
    }
}
