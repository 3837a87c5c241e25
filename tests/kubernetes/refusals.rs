//! Goal: the daemon keeps leading when the API server refuses its requests, and logs each kind of
//! refusal once, with its remedy.

use std::time::Duration;

use leasehold::clock::boot_now;
use leasehold_testbed::run;

use crate::cluster::{Cluster, LONG, eventually, in_cluster, wait_label_failures};
use crate::publisher::{LABEL_WAIT, Publisher, follower, leader};

const REPAIR: Duration = Duration::from_millis(200);

#[test]
fn without_the_right_the_daemon_leads_and_one_line_names_the_missing_rule() {
    run(async {
        let cluster = Cluster::without_rights().await;
        let place = cluster.place("a").await;
        let daemon = cluster.candidate(&place).leading(LONG).await;
        wait_label_failures(&daemon, 2.0).await;
        let records = daemon.log_records();
        let lines: Vec<_> = records
            .iter()
            .filter(|record| record.to_string().contains("patch pods/status"))
            .collect();
        assert!((1..=2).contains(&lines.len()), "{}", daemon.logs());
        assert!(daemon.leads());
        assert_eq!(daemon.metric("leasehold_label_in_sync").await, 0.0);
        assert_eq!(cluster.label("a").await, None);
        assert!(
            !daemon.logs().contains(place.credentials.token().trim()),
            "I12"
        );

        // A step-down writes the label immediately, whereas a retry would wait a minute.
        cluster.grant().await;
        assert_eq!(daemon.term_and_exit(LONG).await, 0);
    });
}

#[test]
fn a_recreated_pod_does_not_get_the_label_of_the_old_pod() {
    in_cluster(async |cluster| {
        let old = cluster.place("a").await;
        let publisher = Publisher::start_as_administrator(&cluster, &old, REPAIR);
        publisher.set(leader(boot_now() + LONG));
        cluster.wait_label("a", "leader").await;
        cluster.kubernetes.delete_pod(&cluster.namespace, "a").await;
        eventually("the pod is gone", async || {
            cluster.pods().get_opt("a").await.unwrap().is_none()
        })
        .await;
        // While the pod is being deleted, a write may fail although the next write succeeds.
        eventually("a write has failed", async || {
            !publisher.in_sync() && publisher.failures() > 0
        })
        .await;

        let _new = cluster.place("a").await;
        let before = publisher.failures();
        eventually(
            "the publisher has tried to write to the new pod",
            async || publisher.failures() >= before + 3,
        )
        .await;
        assert_eq!(cluster.label("a").await, None);
        // A step-down does not wait for the label of a deleted pod.
        publisher.set(follower());
        let begin = std::time::Instant::now();
        publisher.kubernetes.demoted().await;
        assert!(begin.elapsed() < LABEL_WAIT / 2, "{:?}", begin.elapsed());
    });
}

#[test]
fn a_replaced_token_file_is_used_at_the_next_attempt() {
    in_cluster(async |cluster| {
        let mut place = cluster.place("a").await;
        std::fs::write(place.credentials.token_file(), "not.a.token").unwrap();
        let daemon = cluster.candidate(&place).leading(LONG).await;
        wait_label_failures(&daemon, 1.0).await;
        assert_eq!(cluster.label("a").await, None);
        place.credentials.rotate().await;
        cluster.wait_label("a", "leader").await;
    });
}

#[test]
fn a_request_uses_the_current_token_of_the_file() {
    in_cluster(async |cluster| {
        let mut place = cluster.place("a").await;
        let publisher = Publisher::start(&cluster, &place, 10 * LONG);
        cluster.wait_label("a", "follower").await;
        eventually("the label is in sync", async || publisher.in_sync()).await;
        assert_eq!(publisher.failures(), 0);
        // The refusal of an invalid token shows that the publisher uses the file's token
        // immediately, although the previous token is still valid.
        place.credentials.publish("not.a.token");
        publisher.set(leader(boot_now() + LONG));
        eventually("refused", async || publisher.failures() > 0).await;
        assert_eq!(cluster.label("a").await.as_deref(), Some("follower"));
        place.credentials.rotate().await;
        cluster.wait_label("a", "leader").await;
    });
}
