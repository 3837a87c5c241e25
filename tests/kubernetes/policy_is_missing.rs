//! Goal: a daemon that a chart deployed warns the operator if no admission policy restricts its
//! token, and never mistakes a missing Role for a policy.

use std::time::Duration;

use leasehold_testbed::{Daemon, run};

use crate::cluster::{Cluster, LONG, Place, eventually, in_cluster};

const MISSING: &str = "no admission policy restricts the token of this pod";
/// The daemon logs this text while its token has no rights that a policy could restrict.
const NOT_GRANTED: &str = "admission policy not verified yet";

async fn rendered(cluster: &Cluster, place: &Place) -> Daemon {
    let place_of_chart = format!("{}/orders", cluster.namespace);
    let builder = cluster.candidate(place).flag("--log-level=debug");
    let builder = builder.flag(&format!("--kubernetes-rendered-for={place_of_chart}"));
    builder.leading(LONG).await
}

async fn wait_error(daemon: &Daemon) {
    let errors = || {
        let records = daemon.log_records().into_iter();
        records
            .filter(|record| record.to_string().contains(MISSING))
            .collect::<Vec<_>>()
    };
    // The daemon retries for 30 s, because a new policy takes effect after a while.
    let wait = async || {
        eventually("the missing policy is reported", async || {
            !errors().is_empty()
        })
        .await
    };
    let _: Duration = wait().await;
    let errors = errors();
    assert_eq!(errors.len(), 1, "{}", daemon.logs());
    assert!(
        errors[0].to_string().to_lowercase().contains("error"),
        "{}",
        daemon.logs()
    );
}

#[test]
fn a_missing_policy_is_logged_once() {
    in_cluster(async |cluster| {
        let place = cluster.place("a").await;
        let daemon = rendered(&cluster, &place).await;
        wait_error(&daemon).await;
        assert!(!daemon.logs().contains(NOT_GRANTED), "{}", daemon.logs());
        assert!(daemon.leads());
    });
}

#[test]
fn a_role_that_is_created_late_is_not_mistaken_for_a_policy() {
    run(async {
        let cluster = Cluster::without_rights().await;
        let place = cluster.place("a").await;
        let daemon = rendered(&cluster, &place).await;
        eventually("the daemon notices the missing right", async || {
            daemon.logs().contains(NOT_GRANTED)
        })
        .await;
        // The daemon retries the label only after a minute, so the test does not wait for the
        // label.
        cluster.grant().await;
        wait_error(&daemon).await;
    });
}
