//! Goal: if two processes have the same claim (a cloned virtual machine), one steps down within a
//! renew_interval and does not release its twin's lease. A copied status directory never creates a
//! second leader. Method: the test itself sends renewals with the leader's claim, as a cloned
//! machine would. Another test starts a second daemon on a copy of the first daemon's status
//! directory.
//!
//! After cloning, two leaders overlap for up to a renew_interval and a round trip. No lock can
//! prevent this overlap.

use std::time::Duration;

use leasehold_testbed::daemon::boottime_ns;
use leasehold_testbed::{Daemon, DaemonTimings, LeaderMonitor, Scratch, Stage};

use crate::fixture::{LONG, eventually, shared_stage, throughout, without_change_stream};

/// With these timings, a leader on a busy machine survives until its twin renews.
const TIMINGS: DaemonTimings = DaemonTimings::DEMO;
const DUPLICATE: &str = "another process renewed with this claim";

/// Renews `a`'s claim for some time, as a cloned virtual machine would, and then stops. `a` must
/// step down and must not take the lease from its twin.
async fn a_twin_renews(stage: &Stage, a: &Daemon) {
    let monitor = LeaderMonitor::of([a]);
    let stored = stage.stored();
    let claim = stored.claim().await.expect("a claim");
    let session = a.status()["session"].clone();
    let forked = boottime_ns();
    assert!(stored.renew_as(&claim).await);
    a.wait_not_leader(LONG).await;
    let lasted = Duration::from_nanos(boottime_ns() - forked);
    // The limit leaves time for a slow round trip on a busy machine.
    let most = TIMINGS.renew_interval + Duration::from_millis(1_500);
    assert!(lasted < most, "reported leader for {lasted:?}");

    let twin_lives = Duration::from_millis(2_000);
    let mut last = forked;
    throughout(twin_lives, "the twin keeps its lease", async || {
        tokio::time::sleep(Duration::from_millis(100)).await;
        last = boottime_ns();
        !a.leads() && stored.renew_as(&claim).await
    })
    .await;
    assert!(a.transitions("duplicate").await >= 1.0, "{}", a.logs());
    assert_eq!(a.logged(DUPLICATE), 1);
    assert_ne!(a.status()["session"], session);
    // `a` treats its twin like any other holder, and waits a lease duration after the twin's last
    // renewal.
    a.wait_leads(LONG).await;
    TIMINGS.assert_waited_since(last, &a.status());
    assert_eq!(a.token(), Some(2));
    let reasons = stored.reasons().await;
    assert_eq!(reasons, ["took_over"], "not released");
    drop(monitor);
}

#[tokio::test]
async fn a_leader_yields_to_a_renewing_twin_that_its_change_stream_shows() {
    let stage = shared_stage().await.timings(TIMINGS);
    let a = stage.candidate("a").leading(LONG).await;
    a_twin_renews(&stage, &a).await;
}

#[tokio::test]
async fn a_leader_yields_to_a_renewing_twin_at_the_next_renewal() {
    let stage = shared_stage().await.timings(TIMINGS);
    let (_proxy, polling) = without_change_stream(&stage);
    let a = polling.candidate("a").leading(LONG).await;
    a_twin_renews(&stage, &a).await;
}

#[tokio::test]
async fn with_a_change_stream_a_twin_is_noticed_before_the_next_renewal_is_due() {
    // The next renewal is three seconds away.
    let stage = shared_stage().await.timings(DaemonTimings::DEFAULT);
    // Other tests write to the shared set, so by default the candidate could choose hints.
    let a = stage.candidate("a").flag("--mongodb-watch=stream");
    let a = a.leading(LONG).await;
    a.wait_renewal(LONG).await;
    let stored = stage.stored();
    let claim = stored.claim().await.expect("a claim");
    assert!(stored.renew_as(&claim).await);
    let forked = boottime_ns();
    a.wait_not_leader(LONG).await;
    let lasted = Duration::from_nanos(boottime_ns() - forked);
    assert!(lasted < Duration::from_secs(2), "{lasted:?}");
    eventually("the reason is logged", async || a.logged(DUPLICATE) == 1).await;
}

#[tokio::test]
async fn i8_a_copy_of_the_leaders_status_directory_does_not_make_a_second_leader() {
    let stage = shared_stage().await.timings(TIMINGS);
    let a = stage.candidate("a").leading(LONG).await;
    let scratch = Scratch::new();
    let copy = scratch.path().join("copy");
    std::fs::create_dir(&copy).expect("a directory");
    for entry in std::fs::read_dir(a.status_directory()).expect("a directory") {
        let from = entry.expect("an entry").path();
        // The daemon may be replacing the file.
        let _ = std::fs::copy(&from, copy.join(from.file_name().expect("a name")));
    }
    // The copy contains the same identity and records, and `b` can lock it.
    let b = stage.candidate("a").status_directory(&copy).start();
    b.wait_role("follower", LONG).await;
    // Start the monitor only now, because until `b` runs, the copy shows the status of `a`.
    let monitor = LeaderMonitor::of([&a, &b]);
    let time = TIMINGS.lease_duration;
    throughout(time, "the copy follows", async || !b.leads()).await;
    assert!(a.leads());
    // `b` trusts the highest token in the copy, but not the copied claim.
    a.kill();
    let last = TIMINGS.sent_ns(&a.status());
    b.wait_leads(LONG).await;
    TIMINGS.assert_waited_since(last, &b.status());
    assert_eq!(b.token(), Some(2));
    assert_eq!(monitor.reigns().len(), 2);
}
