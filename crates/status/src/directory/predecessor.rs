//! Checks that no command is still running under the claim of a process that has exited.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{self, ErrorKind};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::Duration;

use super::GUARD_POLL;
use crate::directory::status_file;
use leasehold_clock as clock;
use leasehold_guard::claim_share::{Child, children};
use leasehold_guard::survivors;

/// Maximum wait for a child whose guard was killed. The kernel kills the child within milliseconds
/// (hundreds of milliseconds if throttled), but not a child that changed its user.
const CHILD_AWAITED_MAX: Duration = Duration::from_secs(1);

/// The reason why a claim is not a proof of death.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unproven {
    /// A command or hook with this process id, or a descendant of it, may still run.
    MayRun(i32),
    /// The record does not list the children, because the record is damaged or from an earlier
    /// version.
    NotRecorded,
    /// A status file of the previous daemon cannot be removed. The file's deadline may be in the
    /// future.
    FileRemains(&'static str, ErrorKind),
}

/// Waits for proof that no command runs under the claim, for at most `patience` or
/// [`CHILD_AWAITED_MAX`], whichever is shorter. Returns `None` if there is proof, otherwise the
/// reason why there is none. The caller holds the lock of `claim`, so the guards have exited, and
/// their records no longer change.
pub(super) fn may_run(
    claim: &File,
    directory: &Path,
    patience: Duration,
) -> io::Result<Option<Unproven>> {
    let until = clock::boot_now() + CHILD_AWAITED_MAX.min(patience);
    let status_file = status_file(directory);
    let place = |path: &Path| fs::metadata(path).map(|found| (found.dev(), found.ino()));
    let own = place(directory)?;
    // The daemon may have named the directory differently, for example through a symbolic link.
    let mark = |variable: &[u8]| {
        let value = variable.strip_prefix(b"LEASEHOLD_STATUS_FILE=");
        value
            .map(OsStr::from_bytes)
            .map(Path::new)
            .is_some_and(|path| {
                let parent = path.parent().map(place);
                path == status_file || parent.is_some_and(|found| found.is_ok_and(|it| it == own))
            })
    };
    for child in children(claim)? {
        let process = match child {
            Child::None | Child::Gone => continue,
            Child::Unreadable => return Ok(Some(Unproven::NotRecorded)),
            Child::Running(process) => process,
        };
        while survivors::may_run(&process, mark) {
            if clock::boot_now() >= until {
                return Ok(Some(Unproven::MayRun(process.pid)));
            }
            std::thread::sleep(GUARD_POLL);
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use std::process::{Child as Started, Command};

    use super::*;
    use crate::directory::tests::{claim, is_locked, orders, token};
    use crate::directory::{CLAIM_FILE, RecoveredState, StatusDirectory};
    use leasehold_guard::claim_share::{ClaimPlace, ClaimShare, PLACES_BEGIN};
    use leasehold_guard::survivors::ProcessId;

    /// Returns the directory of a daemon that led and has exited. `child` is the record that its
    /// guard wrote at `place`.
    fn left_with(place: ClaimPlace, child: Child) -> tempfile::TempDir {
        let directory = tempfile::tempdir().unwrap();
        let (daemon, _) = StatusDirectory::open(directory.path(), &orders()).unwrap();
        daemon.record(Some(claim()), token(7), None).unwrap();
        let share = ClaimShare::new(daemon.lock_handle().unwrap(), place);
        share.write(child).unwrap();
        directory
    }

    fn sleeper() -> (Started, Child) {
        let started = Command::new("sleep").arg("600").spawn().unwrap();
        let id = ProcessId::of(i32::try_from(started.id()).unwrap());
        (started, Child::Running(id))
    }

    fn end(mut started: Started) {
        started.kill().unwrap();
        started.wait().unwrap();
    }

    /// Retries while the directory is locked. If another test forks a process, the child holds a
    /// copy of every lock of this process until the child executes its program.
    fn open(path: &Path, patience: Duration) -> (StatusDirectory, RecoveredState) {
        loop {
            match StatusDirectory::open_after(path, &orders(), patience, |_| {}, || false) {
                Err(error) if is_locked(&error) => std::thread::yield_now(),
                opened => return opened.unwrap(),
            }
        }
    }

    fn opened_twice(path: &Path, patience: Duration) -> (RecoveredState, RecoveredState) {
        let (first, memory) = open(path, patience);
        drop(first);
        let (_, again) = open(path, Duration::ZERO);
        (memory, again)
    }

    #[test]
    fn i6_a_claim_with_a_possible_workload_does_not_prove_its_end() {
        for place in ClaimPlace::ALL {
            let (started, child) = sleeper();
            let pid = i32::try_from(started.id()).unwrap();
            let directory = left_with(place, child);
            let patience = Duration::from_millis(20);
            let (memory, again) = opened_twice(directory.path(), patience);
            let expected = RecoveredState {
                token: token(7),
                unproven: Some(Unproven::MayRun(pid)),
                ..RecoveredState::default()
            };
            assert_eq!(memory, expected, "{place:?}");
            // The record no longer contains the unproven claim or its child.
            let expected = RecoveredState {
                unproven: None,
                ..expected
            };
            assert_eq!(again, expected, "{place:?}");
            end(started);
        }
    }

    #[test]
    fn i6_a_survivor_counts_if_it_names_the_directory_differently() {
        let (leader, child) = sleeper();
        end(leader);
        let directory = left_with(ClaimPlace::Command, child);
        let link = tempfile::tempdir().unwrap();
        let link = link.path().join("link");
        std::os::unix::fs::symlink(directory.path(), &link).unwrap();
        let survivor = Command::new("setsid")
            .args(["sleep", "600"])
            .env("LEASEHOLD_STATUS_FILE", link.join("status.json"))
            .spawn()
            .unwrap();
        let (_, memory) = open(directory.path(), Duration::from_millis(20));
        end(survivor);
        assert!(matches!(memory.unproven, Some(Unproven::MayRun(_))));
    }

    #[test]
    fn a_claim_without_running_children_is_a_proof() {
        let (started, running) = sleeper();
        end(started);
        for child in [Child::None, Child::Gone, running] {
            let directory = left_with(ClaimPlace::Command, child);
            let (memory, again) = opened_twice(directory.path(), Duration::ZERO);
            let expected = RecoveredState {
                claim: Some(claim()),
                token: token(7),
                ..RecoveredState::default()
            };
            assert_eq!((memory, again), (expected, expected), "{child:?}");
        }
    }

    #[test]
    fn an_exiting_process_is_awaited() {
        let (started, child) = sleeper();
        let directory = left_with(ClaimPlace::Command, child);
        let ender = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(50));
            end(started);
        });
        let patience = Duration::from_secs(600);
        let (_, memory) = open(directory.path(), patience);
        assert_eq!((memory.claim, memory.unproven), (Some(claim()), None));
        ender.join().unwrap();
    }

    #[test]
    fn a_record_without_children_yields_only_the_token() {
        let directory = left_with(ClaimPlace::Command, Child::Gone);
        let file = directory.path().join(CLAIM_FILE);
        let newer = fs::read_to_string(&file).unwrap();
        // Simulates an earlier version that has overwritten the record of a later version.
        let older = newer.replace(r#","children":true"#, "                ");
        let torn = format!("{}\0\0\0\0", &newer[..PLACES_BEGIN]);
        for text in [older[..256].to_owned(), older, torn] {
            fs::write(&file, text).unwrap();
            let (_, memory) = open(directory.path(), Duration::ZERO);
            let expected = RecoveredState {
                token: token(7),
                unproven: Some(Unproven::NotRecorded),
                ..RecoveredState::default()
            };
            assert_eq!(memory, expected);
        }
    }
}
