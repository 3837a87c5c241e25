//! Goal: a frozen or unreachable API server does not prevent renewals or end a leadership, and
//! delays a step-down by at most `label_wait`. Once the API server is reachable again, the daemon
//! sends it only the newest label.

use std::time::{Duration, Instant};

use leasehold_testbed::DaemonTimings;
use serde_json::Value;

use crate::cluster::{LONG, in_cluster, wait_label_failures};

fn deadline(status: &Value) -> u64 {
    status["valid_until_boottime_ns"].as_u64().unwrap_or(0)
}

#[test]
fn with_a_frozen_api_server_renewals_and_handoffs_are_not_delayed() {
    in_cluster(async |cluster| {
        let (place_a, place_b) = (cluster.place("a").await, cluster.place("b").await);
        let proxy = cluster.kubernetes.proxy();
        let a = cluster.candidate_through(&place_a, &proxy).start();
        let led = a.wait_leads(LONG).await;
        cluster.wait_label("a", "leader").await;
        let b = cluster.candidate(&place_b).start();
        cluster.wait_label("b", "follower").await;

        proxy.stall();
        let renewed = a
            .wait_until(
                |status| deadline(status) > deadline(&led) + 3_000_000_000,
                LONG,
            )
            .await;
        assert_eq!(renewed["token"], led["token"]);

        let begin = Instant::now();
        a.term();
        b.wait_leads(LONG).await;
        let handed_over = begin.elapsed();
        // The daemon waits 250 ms for the label; the rest is this machine's overhead. If the daemon
        // waited longer for the API server, the follower could not take over before the lease
        // expires.
        println!("handed over after {handed_over:?} behind a frozen API server");
        let expires = DaemonTimings::DEMO.lease_duration - DaemonTimings::DEMO.renew_interval;
        assert!(handed_over < expires, "{handed_over:?}");
        assert_eq!(a.wait_exit(LONG).await, 0);
        println!("ended after {:?}", begin.elapsed());
        cluster.wait_label("b", "leader").await;
    });
}

#[test]
fn a_returning_api_server_gets_the_newest_label_immediately() {
    in_cluster(async |cluster| {
        let place = cluster.place("a").await;
        let proxy = cluster.kubernetes.proxy();
        proxy.cut();
        let daemon = cluster
            .candidate_through(&place, &proxy)
            .leading(LONG)
            .await;
        wait_label_failures(&daemon, 5.0).await;
        assert_eq!(daemon.metric("leasehold_label_in_sync").await, 0.0);
        assert_eq!(cluster.label("a").await, None);
        proxy.resume();
        let took = cluster.wait_label("a", "leader").await;
        println!("label updated {took:?} after the API server came back");
        // The interval between two attempts is 5 s.
        assert!(took < Duration::from_secs(15), "{took:?}");
        let lines = daemon.log_records();
        let lines = lines
            .iter()
            .filter(|line| line["fields"]["surface"] == "label" || line["surface"] == "label");
        assert!(lines.count() <= 8, "{}", daemon.logs());
    });
}

/// Freezes the daemon as CPU throttling would. The freeze begins just after the daemon has written
/// its files, and lasts until all timeouts of a step-down have passed.
#[test]
fn with_an_unchanged_label_the_status_files_do_not_count_as_stuck() {
    in_cluster(async |cluster| {
        let place = cluster.place("a").await;
        let proxy = cluster.kubernetes.proxy();
        let a = cluster
            .candidate_through(&place, &proxy)
            .flag("--kubernetes-label-wait=400ms")
            .leading(LONG)
            .await;
        cluster.wait_label("a", "leader").await;
        proxy.stall();
        a.term();
        a.wait_not_leader(LONG).await;
        a.stop();
        // The daemon's timeouts are in real time, so the test must wait for them.
        tokio::time::sleep(Duration::from_millis(700)).await;
        a.cont();
        assert_eq!(a.wait_exit(LONG).await, 0);
        assert_eq!(a.logged("without a release"), 0, "{}", a.logs());
        assert_eq!(cluster.stored().holder().await, None, "released");
    });
}
