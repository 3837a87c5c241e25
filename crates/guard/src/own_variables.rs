//! The environment variables of leasehold itself, which its command must not get.

use std::ffi::OsStr;
use std::process::Command as Process;

/// Removes the environment variables that are meant for the daemon only.
pub fn without_ours(process: &mut Process) {
    for (name, _) in std::env::vars_os().filter(|(name, _)| is_ours(name)) {
        process.env_remove(name);
    }
}

/// Returns true for variables of the configuration (I12) or of the service manager's notifications.
fn is_ours(name: &OsStr) -> bool {
    let bytes = name.as_encoded_bytes();
    is_configuration(name) || bytes == b"NOTIFY_SOCKET" || bytes.starts_with(b"WATCHDOG_")
}

pub(super) fn is_configuration(name: &OsStr) -> bool {
    let key = name.as_encoded_bytes().strip_prefix(b"LEASEHOLD_");
    key.is_some_and(|key| key.windows(2).any(|pair| pair == b"__"))
}
