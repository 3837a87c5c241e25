//! Goal: a takeover that arrives after another write of the holder is never applied, and the
//! checker does not report the correct rejection as a violation. Method: proxies delay a renewal
//! and a takeover, and pass the renewal first.

use leasehold_testbed::{Changes, ReplicaSet, Scratch, StoredLease, eventually, run, trace};
use rustix::process::Signal;

use crate::{LONG, daemon};

#[test]
fn a_takeover_that_lands_after_a_late_renewal_is_rejected() {
    let scratch = Scratch::new();
    let (trace, file) = (scratch.path().join("trace"), scratch.path().join("changes"));
    let rejected = run(async {
        let set = ReplicaSet::builder().members(1).start().await;
        let mut changes = Changes::record(&set.uri(), "leasehold", "leases", &file).await;
        let (of_a, of_b) = (set.proxy(), set.proxy());
        let behind = |proxy, identity| {
            let uri = set.proxied_uri(proxy);
            daemon(&set, "late", identity, &trace).uri(&uri)
        };
        let a = behind(&of_a, "a").leading(LONG).await;
        let b = behind(&of_b, "b").following("a", LONG).await;
        let stored = StoredLease::new(&set.client(), "leasehold", "leases", "late");
        eventually("b is the standby", async || {
            stored.get().await.get_document("standby").is_ok()
        })
        .await;
        of_a.hold_requests_containing("findAndModify");
        eventually("a renewal is held", async || of_a.held_requests() > 0).await;
        a.signal(Signal::STOP);
        let revision = async || stored.get().await.get("revision").cloned();
        let before = revision().await;
        of_b.hold_requests_containing("findAndModify");
        eventually("a takeover is held", async || of_b.held_requests() > 0).await;
        of_a.resume();
        eventually("the renewal has been applied", async || {
            revision().await != before
        })
        .await;
        of_b.resume();
        b.wait_leads(LONG).await;
        let rejected = b.operations("take_over", "rejected").await;
        a.signal(Signal::CONT);
        for one in [a, b] {
            one.term();
            one.wait_exit(LONG).await;
        }
        changes.drain().await.unwrap();
        rejected
    });
    let checked = trace::check(&[&file], &[&trace]);
    let checked = checked.unwrap_or_else(|found| panic!("{found:#?}"));
    assert_eq!(checked.skipped, [""; 0]);
    assert_eq!(
        checked.transitions.calls, checked.transitions.all,
        "{checked:?}"
    );
    assert!(rejected >= 1.0, "{checked:?}");
}
