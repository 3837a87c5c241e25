//! Protection from other processes of the same user.

use rustix::process::{DumpableBehavior, set_dumpable_behavior};

/// Hides this process's memory and environment, which contain the connection string.
pub fn hide_from_the_user() {
    if let Err(error) = set_dumpable_behavior(DumpableBehavior::NotDumpable) {
        tracing::warn!(%error, "other processes of this user may read the connection string");
    }
}
