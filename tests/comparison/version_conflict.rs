//! Goal: a version check after the work refuses the second *write*, but cannot undo the work that
//! both clients have already done. Method: starts two clients, and injects no fault.

use crate::client::NOT_OURS;
use crate::designs::Design;
use crate::fixture::{AT_WORK, ByHand, Fixture};

#[tokio::test]
async fn both_work_and_only_one_may_write() {
    let fixture = Fixture::new(ByHand::extended(Design::VersionCheck)).await;
    let (a, b) = (fixture.start("a"), fixture.start("b"));
    fixture.acts_more("a", AT_WORK).await;
    fixture.acts_more("b", AT_WORK).await;
    fixture.acts_more("a", AT_WORK).await;
    fixture.assert_both_acted("a", "b");
    let mut codes = Vec::new();
    for (client, name) in [(a, "a"), (b, "b")] {
        codes.push(fixture.end(&client, name).await);
    }
    assert_eq!(codes, [0, i32::from(NOT_OURS)], "{}", fixture.describe());
}
