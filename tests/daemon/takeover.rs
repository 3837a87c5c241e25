//! Goal: another candidate takes over from a killed leader, but not before the lease has expired.

use leasehold_testbed::DaemonTimings;

use crate::contest::{Contest, LONG, eventually, records, token};

const TIMINGS: DaemonTimings = DaemonTimings::SHORT;

#[tokio::test]
async fn i1_a_takeover_from_a_killed_leader_waits_for_its_lease_duration() {
    let contest = Contest::new("killed").await;
    let candidate = |identity| contest.candidate_at(identity, TIMINGS);
    let old = candidate("old").leading(LONG).await;
    let new = candidate("new").following("old", LONG).await;

    old.kill();
    let last = old.status();
    assert_eq!(
        last["leader"], true,
        "the killed leader left its file unchanged"
    );
    let leading = new.wait_leads(LONG).await;
    TIMINGS.assert_waited_since(TIMINGS.sent_ns(&last), &leading);
    assert!(!old.leads(), "the deadline in the file has passed");
    assert_eq!(token(&leading), token(&last) + 1, "I3");

    let overtook = || records(&new, "took over from an expired holder");
    eventually("the takeover is logged", async || !overtook().is_empty()).await;
    let [line] = &overtook()[..] else {
        panic!("expected one line: {:?}", overtook());
    };
    assert_eq!(line["level"], "WARN");
    assert_eq!(line["holder"], "old");
    assert_eq!(line["token"], token(&last));
    assert!(line["silent_ms"].as_u64() >= Some(3_000), "{line}");

    let ended = contest.last_ended().await;
    assert_eq!(ended.reason, "took_over");
    assert_eq!(ended.identity, "old");
}
