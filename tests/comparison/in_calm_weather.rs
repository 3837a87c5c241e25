//! Goal: the comparison is fair. Each hand-made design excludes other owners as long as no fault
//! occurs, and the scenario that breaks a hand-made lock does not break a correct lock. Method:
//! three contenders for each design work briefly, one after another. No contender may act again
//! after another contender has acted. In a second test, the work takes longer than the lock's
//! expiry, and the owner extends the lock.

use futures_util::future::join_all;
use leasehold_testbed::run;

use crate::client;
use crate::designs::Design;
use crate::fixture::{AT_WORK, ByHand, Fixture, KEPT_OUT, LONG, outlast};
use crate::journal::returns;

#[test]
fn each_design_excludes() {
    client::act_as_client();
    run(async {
        let designs = [
            Design::TtlIndex,
            Design::LockedAt,
            Design::FindAndModify,
            Design::Counter { slots: 1 },
            Design::Pessimistic,
        ];
        for design in designs {
            // The expiry is long, so a delayed extension on a busy machine does not break the lock.
            let by_hand = ByHand {
                life: LONG,
                ..ByHand::extended(design)
            };
            let fixture = Fixture::new(by_hand).await;
            let mut contenders = ["a", "b", "c"]
                .map(|name| (name, fixture.start(name)))
                .into_iter()
                .collect::<Vec<_>>();
            // Each holder works for a while and exits. Then the next holder acquires the lock.
            while !contenders.is_empty() {
                let at_work = fixture.first_at_work(&contenders).await;
                let (name, client) = contenders.remove(at_work);
                fixture.acts_more(name, AT_WORK).await;
                let code = fixture.end(&client, name).await;
                assert_eq!(code, 0, "{design:?}: {}", fixture.describe());
            }
            let acts = fixture.journal.acts();
            assert_eq!(returns(&acts), 0, "{design:?}: {}", fixture.describe());
        }
    });
}

#[tokio::test]
async fn an_extended_lock_excludes_others() {
    let designs = [
        Design::TtlIndex,
        Design::LockedAt,
        Design::FindAndModify,
        Design::Counter { slots: 1 },
    ];
    join_all(designs.map(async |design| {
        let fixture = Fixture::new(ByHand::extended(design)).await;
        let came = outlast(&fixture, KEPT_OUT).await;
        assert!(!came, "{design:?}: {}", fixture.describe());
    }))
    .await;
}
