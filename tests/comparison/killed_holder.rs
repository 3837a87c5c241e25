//! Goal: a killed holder keeps a counter's slot while another holder runs, and keeps a lock without
//! expiry indefinitely. Method: kills one client and its work with SIGKILL.

use std::time::Duration;

use leasehold_testbed::process::exit_code;

use crate::client::NOT_ACQUIRED;
use crate::designs::Design;
use crate::fixture::{ByHand, Fixture, KEPT_OUT, LONG, kill_one_while_another_holds};

/// The counter records only the number of holders, so all holders share one expiry. As long as one
/// holder extends the expiry, the slot of a killed holder stays taken.
#[tokio::test]
async fn a_counter_never_frees_the_slot_of_a_killed_holder_while_another_runs() {
    let fixture = Fixture::new(ByHand::extended(Design::Counter { slots: 2 })).await;
    let came = kill_one_while_another_holds(&fixture, KEPT_OUT).await;
    assert!(!came, "the counter freed a slot: {}", fixture.describe());
    fixture.acts_more("b", 1).await;
}

#[tokio::test]
async fn a_lock_without_expiry_stays_with_its_killed_holder() {
    let means = ByHand {
        wait: Duration::from_secs(3),
        ..ByHand::extended(Design::Pessimistic)
    };
    let fixture = Fixture::new(means).await;
    let a = fixture.at_work("a").await;
    fixture.kill(&a, "a");
    for name in ["b", "c"] {
        let status = fixture
            .start(name)
            .wait(LONG)
            .await
            .expect("the contender gives up");
        assert_eq!(exit_code(status), i32::from(NOT_ACQUIRED));
        assert_eq!(fixture.journal.count(name), 0, "{}", fixture.describe());
    }
}
