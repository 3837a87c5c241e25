//! Goal: if the disk hangs while the guard records a command in the claim file, the guard still
//! enforces every deadline, and the command does not run before it is recorded. The disk delays
//! only the command.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::time::Duration;

use leasehold::clock::boot_now;
use leasehold::workload::claim_share::{Child, ClaimPlace, ClaimShares, children, no_children};
use leasehold::workload::{CommandEnd, CommandProgress, GuardedCommand, Termination, Terms};
use leasehold_testbed::pid::{self, exists, state};
use leasehold_testbed::{FreezableDisk, Frozen};
use rustix::process::Signal;

use crate::fixture::{Fixture, LONG, STARTS, eventually, millis, terms};

/// A shim that is in state D this many times in a row counts as waiting for the frozen disk.
const SEEN_WAITING: u32 = 20;
const SCRIPT: &str = "echo $$ > pid; exec sleep 60";

struct Claim {
    disk: FreezableDisk,
    shares: ClaimShares,
}

impl Claim {
    fn new() -> Option<Self> {
        let disk = FreezableDisk::new()?;
        let path = disk.path().join("claim");
        std::fs::write(&path, "").unwrap();
        let file = File::options().read(true).write(true).open(path).unwrap();
        let places = leasehold::workload::claim_share::PLACES_BEGIN;
        file.write_all_at(&no_children(), places as u64).unwrap();
        file.sync_all().unwrap();
        let shares = ClaimShares::new(file.into());
        Some(Self { disk, shares })
    }

    /// Starts the script while the disk hangs. Returns the workload, and the shim that waits for
    /// the disk.
    async fn start_frozen(&self, fixture: &Fixture, terms: Terms) -> (GuardedCommand, u32, Frozen) {
        let share = self.shares.share(ClaimPlace::Command, LONG).await.unwrap();
        let frozen = self.disk.freeze();
        let workload = GuardedCommand::start(&fixture.script(SCRIPT), terms, Some(share)).unwrap();
        let mut shim = None;
        // A process may also be in state D for other reasons, such as a page fault, but only
        // briefly.
        let mut seen = 0;
        eventually("the shim waits for the disk", || {
            shim = pid::children(workload.guard()).first().copied();
            let waits = shim.is_some_and(|shim| state(shim) == Some('D'));
            seen = if waits { seen + 1 } else { 0 };
            seen == SEEN_WAITING
        })
        .await;
        (workload, shim.unwrap(), frozen)
    }

    fn recorded(&self) -> Child {
        children(File::open(self.disk.path().join("claim")).unwrap()).unwrap()[0]
    }
}

/// True if SIGKILL is pending. SIGKILL stays pending while a process is in an uninterruptible wait.
fn killed(process: u32) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).unwrap();
    let pending = status.lines().find_map(|line| line.strip_prefix("SigPnd:"));
    let pending = u64::from_str_radix(pending.unwrap().trim(), 16).unwrap();
    pending & (1 << (Signal::KILL.as_raw() - 1)) != 0
}

/// Waits until the workload has ended. A hanging disk must not prevent this.
async fn ended(workload: &mut GuardedCommand) -> Termination {
    let ended = tokio::time::timeout(LONG, workload.ended()).await;
    ended.unwrap_or_else(|_| {
        let guard = workload.guard();
        let children = pid::children(guard);
        let states: Vec<_> = children
            .iter()
            .map(|child| (child, state(*child)))
            .collect();
        panic!(
            "the guard waits for the disk: {:?}, children {states:?}",
            state(guard)
        )
    })
}

#[tokio::test]
async fn a_command_that_is_killed_before_it_is_recorded_is_gone_at_once() {
    let (fixture, Some(claim)) = (Fixture::new(), Claim::new()) else {
        return;
    };
    let (mut workload, shim, frozen) = claim.start_frozen(&fixture, terms(LONG, LONG)).await;
    workload.kill();
    let ended = ended(&mut workload).await;
    assert_eq!(
        (ended.end, ended.by_us, ended.guard_lost),
        (CommandEnd::Refused, true, false)
    );
    assert!(
        exists(shim) && exists(workload.guard()),
        "both still wait for the disk"
    );
    // The shim may still write its record, so the next command must not use the record's slot yet.
    let busy = claim.shares.share(ClaimPlace::Command, millis(20)).await;
    assert!(busy.is_err(), "the record's slot is in use");
    drop(frozen);
    let share = claim.shares.share(ClaimPlace::Command, LONG).await;
    assert!(
        share.is_ok(),
        "the record's slot is free when the guard has exited"
    );
    assert_eq!(claim.recorded(), Child::Gone);
    assert!(!fixture.path("pid").exists(), "the command never ran");
}

#[tokio::test]
async fn the_deadline_of_a_command_passes_before_it_is_recorded() {
    let (fixture, Some(claim)) = (Fixture::new(), Claim::new()) else {
        return;
    };
    let deadline = terms(STARTS, millis(300));
    let (mut workload, _, frozen) = claim.start_frozen(&fixture, deadline).await;
    let ended = ended(&mut workload).await;
    assert!(boot_now() >= deadline.kill_at, "not before");
    assert_eq!((ended.end, ended.guard_lost), (CommandEnd::Refused, false));
    drop(frozen);
    let guard = workload.guard();
    eventually("the guard exits", || !exists(guard)).await;
    assert!(!fixture.path("pid").exists(), "the command never ran");
}

#[tokio::test]
async fn a_command_starts_and_is_recorded_once_the_disk_continues() {
    let (fixture, Some(claim)) = (Fixture::new(), Claim::new()) else {
        return;
    };
    let (mut workload, shim, frozen) = claim.start_frozen(&fixture, terms(LONG, LONG)).await;
    assert_eq!(workload.progress(), CommandProgress::Starting);
    assert!(
        !fixture.path("pid").exists(),
        "the command does not run before it is recorded"
    );
    drop(frozen);
    assert_eq!(fixture.wait_pid("pid").await, shim);
    assert!(matches!(claim.recorded(), Child::Running(process) if process.pid == shim as i32));
    workload.kill();
    let ended = tokio::time::timeout(Duration::from_secs(30), workload.ended()).await;
    assert!(ended.is_ok_and(|ended| ended.by_us));
}

#[tokio::test]
async fn a_guard_that_is_killed_leaves_the_claim_locked_until_its_shim_is_gone() {
    use rustix::fs::{FlockOperation, flock};
    let (fixture, Some(claim)) = (Fixture::new(), Claim::new()) else {
        return;
    };
    let path = claim.disk.path().join("claim");
    let free = || {
        let other = File::open(&path).unwrap();
        flock(other, FlockOperation::NonBlockingLockExclusive).is_ok()
    };
    let lock = claim.shares.share(ClaimPlace::OnLead, LONG).await.unwrap();
    flock(&lock, FlockOperation::NonBlockingLockExclusive).unwrap();
    let (mut workload, shim, frozen) = claim.start_frozen(&fixture, terms(LONG, LONG)).await;
    pid::signal(workload.guard(), Signal::KILL);
    // Close all descriptors of the claim file, as if this process had been killed too.
    let Claim { disk, shares } = claim;
    drop((lock, shares));
    assert!(!free(), "the shim may still write");
    // Without this wait, the shim could execute the command before the signal arrives.
    eventually("SIGKILL is pending for the shim", || killed(shim)).await;
    drop(frozen);
    let ended = workload.ended().await;
    assert!(
        ended.guard_lost && !exists(shim),
        "{ended:?}, {:?}",
        state(shim)
    );
    eventually("the lock is free", free).await;
    assert!(!fixture.path("pid").exists(), "the command never ran");
    drop(disk);
}
