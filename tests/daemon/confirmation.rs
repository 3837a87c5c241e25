//! Goal: a workload's confirmation ends the handoff delay early, but only if it contains the token
//! of the ending leadership.

use leasehold_testbed::DaemonTimings;
use rustix::process::Signal;

use crate::contest::{Contest, LONG, token};

#[tokio::test]
async fn a_confirmed_token_ends_the_handoff_delay_early() {
    let contest = Contest::new("confirmed").await;
    let start = |identity| {
        contest
            .candidate_with(identity, DaemonTimings::DEMO, "1h")
            .start()
    };
    let old = start("old");
    let led = old.wait_leads(LONG).await;
    let new = start("new");
    new.wait_follows("old", LONG).await;
    let post = async |token: i64| {
        let path = format!("/stepped-down?token={token}");
        old.http_request("POST", &path, &[]).await.unwrap()
    };
    let (code, body) = post(token(&led)).await;
    assert_eq!(code, 409, "nothing is stepping down yet: {body}");

    old.signal(Signal::TERM);
    old.wait_role("stopping", LONG).await;
    for wrong in [token(&led) + 1, token(&led) - 1] {
        let (code, body) = post(wrong).await;
        assert_eq!(code, 409, "{body}");
        assert!(body.contains(&format!("not {wrong}")), "{body}");
    }
    assert_eq!(
        old.exit_code(),
        None,
        "the daemon still waits for its workload"
    );
    assert_eq!(new.status()["role"], "follower");

    let (code, body) = post(token(&led)).await;
    assert_eq!(code, 202, "{body}");
    let leading = new.wait_leads(LONG).await;
    assert_eq!(token(&leading), token(&led) + 1);
    assert_eq!(old.wait_exit(LONG).await, 0);
}
