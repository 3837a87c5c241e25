//! Goal: one follower registers as the standby, acquires the lease first after a release, and is
//! replaced when it exits.

use leasehold_testbed::{Daemon, DaemonTimings, StoredLease};
use mongodb::bson::{Bson, Document};

use crate::contest::{Contest, LONG, eventually};

/// Maximum number of handoffs. The standby must win at least one handoff. On a busy machine, the
/// standby may miss its head start and lose the other handoffs.
const HANDOFFS: usize = 20;

async fn standby(stored: &StoredLease) -> Option<String> {
    let lease = stored.get().await;
    let standby = lease.get_document("standby").ok()?;
    standby.get_str("identity").ok().map(str::to_owned)
}

async fn registered(stored: &StoredLease, leader: &str) -> String {
    let mut found = None;
    eventually("a standby is registered", async || {
        found = standby(stored).await.filter(|name| name != leader);
        found.is_some()
    })
    .await;
    found.expect("registered")
}

fn revision(lease: &Document) -> Bson {
    lease.get("revision").expect("a revision").clone()
}

#[tokio::test]
async fn the_standby_leads_next_and_another_registers() {
    let contest = Contest::new("standby-leads").await;
    let stored = contest.stored();
    let start = |identity: &str| {
        contest
            .candidate_at(identity, DaemonTimings::DEFAULT)
            .start()
    };
    let first = start("first");
    first.wait_leads(LONG).await;
    let mut leader = first;
    let mut others: Vec<Daemon> = vec![start("a"), start("b")];
    for handoff in 0..HANDOFFS {
        for other in &others {
            other.wait_follows(leader.identity(), LONG).await;
        }
        let standby = registered(&stored, leader.identity()).await;
        assert_eq!(leader.term_and_exit(LONG).await, 0);
        let mut next = None;
        eventually("another leads", async || {
            next = others.iter().position(Daemon::leads);
            next.is_some()
        })
        .await;
        leader = others.swap_remove(next.expect("a new leader"));
        if leader.identity() == standby {
            // The new leader has removed its own registration, so the other follower can register.
            registered(&stored, leader.identity()).await;
            return;
        }
        others.push(start(&format!("c{handoff}")));
    }
    panic!("the standby never came first in {HANDOFFS} handoffs");
}

#[tokio::test]
async fn a_registration_keeps_the_revision_and_an_exiting_standby_withdraws() {
    let contest = Contest::new("standby-withdraws").await;
    let stored = contest.stored();
    let leader = contest.candidate_at("leader", DaemonTimings::DEFAULT);
    let leader = leader.start();
    leader.wait_leads(LONG).await;
    leader.wait_renewal(LONG).await;
    // The leader is frozen, so only the standby writes from now on.
    leader.stop();
    let before = revision(&stored.get().await);
    let follower = contest.candidate_at("follower", DaemonTimings::DEFAULT);
    let follower = follower.start();
    assert_eq!(registered(&stored, "leader").await, "follower");
    assert_eq!(revision(&stored.get().await), before);
    assert_eq!(follower.term_and_exit(LONG).await, 0);
    // The standby may exit before MongoDB acknowledges its withdrawal, so the test polls.
    eventually("withdrawn", async || standby(&stored).await.is_none()).await;
    assert_eq!(revision(&stored.get().await), before);
    leader.cont();
}
