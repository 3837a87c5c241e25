//! Goal: the candidate with the highest priority becomes the standby and leads next. A leader with
//! `lease.prefer = "priority"` hands over automatically to a candidate of higher priority, never to
//! a candidate of lower priority. Two candidates never lead at once.

use std::time::Duration;

use leasehold_testbed::{Daemon, DaemonTimings, LeaderMonitor, StoredLease, wait};

use crate::contest::{Contest, LONG, eventually, records};

/// Number of handoffs. The standby must win at least one handoff. On a busy machine, the standby
/// may miss its head start and lose the other handoffs.
const HANDOFFS: usize = 20;
/// Maximum time until the leader hands over: `lease.prefer_interval`, a lease duration and a round
/// trip.
const HANDOVER_MAX: Duration = Duration::from_secs(180);

fn start(contest: &Contest, identity: &str, priority: u32, flags: &[&str]) -> Daemon {
    let mut candidate = contest
        .candidate_at(identity, DaemonTimings::KUBERNETES)
        .flag(&format!("--identity-priority={priority}"));
    for flag in flags {
        candidate = candidate.flag(flag);
    }
    candidate.start()
}

async fn registered(stored: &StoredLease, priority: i64) -> String {
    let mut found = None;
    eventually("the standby has this priority", async || {
        let lease = stored.get().await;
        let standby = lease.get_document("standby").cloned().unwrap_or_default();
        let this = standby.get_i64("priority").ok() == Some(priority);
        found = standby.get_str("identity").ok().map(str::to_owned);
        this
    })
    .await;
    found.expect("registered")
}

#[tokio::test]
async fn the_candidate_with_the_highest_priority_is_the_standby_and_leads_next() {
    let contest = Contest::new("priorities-standby").await;
    let stored = contest.stored();
    let mut leader = start(&contest, "first", 9, &[]);
    leader.wait_leads(LONG).await;
    for handoff in 0..HANDOFFS {
        let low = start(&contest, &format!("low{handoff}"), 1, &[]);
        assert!(registered(&stored, 1).await.starts_with("low"));
        let high = start(&contest, &format!("high{handoff}"), 2, &[]);
        // The candidate with the higher priority replaces the first standby.
        assert_eq!(registered(&stored, 2).await, high.identity());
        low.wait_follows(leader.identity(), LONG).await;
        assert_eq!(leader.term_and_exit(LONG).await, 0);
        let mut first = None;
        eventually("another leads", async || {
            first = [&low, &high].into_iter().position(Daemon::leads);
            first.is_some()
        })
        .await;
        if first == Some(1) {
            return;
        }
        assert_eq!(high.term_and_exit(LONG).await, 0);
        leader = low;
    }
    panic!("the standby never came first in {HANDOFFS} handoffs");
}

#[tokio::test]
async fn a_leader_hands_over_only_to_a_preferred_standby() {
    let contest = Contest::new("priorities-prefer").await;
    let prefer = ["--lease-prefer=priority", "--lease-prefer-interval=10s"];
    let first = start(&contest, "first", 1, &prefer);
    first.wait_leads(LONG).await;
    let low = start(&contest, "low", 0, &prefer);
    let monitor = LeaderMonitor::of([&first, &low]);
    assert_eq!(registered(&contest.stored(), 0).await, "low");
    let high = start(&contest, "high", 2, &prefer);
    monitor.add(&high);
    wait::within(HANDOVER_MAX, "the preferred standby leads", async || {
        high.leads()
    })
    .await;
    let ended = contest.last_ended().await;
    let (identity, reason) = (ended.identity.as_str(), ended.reason.as_str());
    assert_eq!((identity, reason), ("first", "transferred"));
    let said = records(&first, "handing over to the standby");
    assert_eq!(said.len(), 1, "{said:?}");
    assert_eq!(
        (&said[0]["standby"], &said[0]["priority"]),
        (&"high".into(), &2.into())
    );
    // The other candidates have lower priorities, so `high` must not hand over again, even after
    // two intervals.
    let token = high.status()["token"].clone();
    for _ in 0..12 {
        let status = high.wait_renewal(LONG).await;
        assert_eq!(status["token"], token);
    }
    assert_eq!(contest.stored().history().await.len(), 1);
    assert_eq!(monitor.violations(), [""; 0]);
}
