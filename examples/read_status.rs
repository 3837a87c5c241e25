//! Checks leadership in the status file of a sidecar: `cargo run --example read_status -- DIRECTORY`.
//!
//! The rules are in docs/reading-status.md. `leader: true` alone is not sufficient, because the
//! daemon may have stopped since it wrote the file.

#![allow(clippy::print_stdout, reason = "the example shows what it does")]

use std::fs;
use std::io::ErrorKind::{NotFound, PermissionDenied};
use std::path::Path;
use std::process::ExitCode;

use rustix::time::{ClockId, clock_gettime};

/// Returns the fencing token if this candidate leads now.
fn leads(directory: &Path) -> Option<i64> {
    let text = fs::read(directory.join("status.json")).ok()?;
    let status: serde_json::Value = serde_json::from_slice(&text).ok()?;
    if status["leader"] != true {
        return None;
    }
    // A deadline from another boot is meaningless.
    let ours = match fs::read_to_string("/proc/sys/kernel/random/boot_id") {
        Ok(boot_id) => Some(boot_id),
        // This system has no boot id. After any other error, such as EMFILE, the current boot is
        // unknown.
        Err(error) if matches!(error.kind(), NotFound | PermissionDenied) => None,
        Err(_) => return None,
    };
    if let (Some(ours), Some(theirs)) = (ours, status["boot_id"].as_str())
        && ours.trim() != theirs
    {
        return None;
    }
    // Read the clock after the file, because the process may have been frozen in between.
    let deadline = status["valid_until_boottime_ns"].as_i64()?;
    let now = clock_gettime(ClockId::Boottime);
    let now = now.tv_sec * 1_000_000_000 + now.tv_nsec;
    if now >= deadline {
        return None;
    }
    status["token"].as_i64()
}

fn main() -> ExitCode {
    let directory = std::env::args_os().nth(1).unwrap_or_default();
    match leads(Path::new(&directory)) {
        Some(token) => {
            println!("leader, token {token}");
            ExitCode::SUCCESS
        }
        None => ExitCode::FAILURE,
    }
}
