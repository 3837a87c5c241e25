//! Goal: during a handoff, a Service never routes to two pods. The old leader's label is `follower`
//! before the lease is free, even if the API server takes almost `label_wait` to answer. Method: a
//! proxy delays the demotion, and watches record the order of the changes. If the machine is so
//! slow that `label_wait` may have elapsed, the handoff proves nothing, and the test repeats it.

use std::fmt::Debug;
use std::time::{Duration, Instant};

use futures_util::{StreamExt, TryStreamExt};
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, ListParams, WatchEvent, WatchParams};
use kube::{Resource, ResourceExt};
use leasehold_testbed::{Daemon, Proxy};
use serde::de::DeserializeOwned;

use crate::cluster::{Cluster, LABEL, LONG, OF_SERVICE, Place, eventually, in_cluster, routed_to};

/// The maximum of `kubernetes.label_wait`.
const LABEL_WAIT: Duration = Duration::from_millis(400);
/// Delay of the demotion by the proxy, well below `LABEL_WAIT`.
const HELD: Duration = Duration::from_millis(150);
/// If a label changes within this time after the signal, the change is certainly within
/// `label_wait`.
const IN_TIME: Duration = Duration::from_millis(350);
const HAND_OFFS_MAX: usize = 20;

struct Side {
    name: &'static str,
    daemon: Daemon,
    proxy: Proxy,
    /// Keeps the daemon's credentials on disk.
    _place: Place,
}

impl Side {
    async fn start(cluster: &Cluster, name: &'static str) -> Self {
        let place = cluster.place(name).await;
        let proxy = cluster.kubernetes.proxy();
        let wait = LABEL_WAIT.as_millis();
        let daemon = cluster
            .candidate_through(&place, &proxy)
            .flag(&format!("--kubernetes-label-wait={wait}ms"))
            // If the old leader exits before it has written its label, `b` corrects the label, but
            // much later than IN_TIME.
            .flag("--kubernetes-demote-others=true")
            .start();
        Self {
            name,
            daemon,
            proxy,
            _place: place,
        }
    }
}

#[test]
fn the_old_leader_is_no_longer_an_endpoint_when_the_new_leader_leads() {
    in_cluster(async |cluster| {
        cluster.service().await;
        let mut old = Side::start(&cluster, "a").await;
        old.daemon.wait_leads(LONG).await;
        let mut new = Side::start(&cluster, "b").await;
        for attempt in 1..=HAND_OFFS_MAX {
            if hand_over(&cluster, &old, &new).await {
                println!("proven at handoff {attempt}");
                return;
            }
            old.daemon.restart_same_directory();
            std::mem::swap(&mut old, &mut new);
        }
        panic!("this machine was too slow at each of {HAND_OFFS_MAX} handoffs");
    });
}

/// Hands the lease off. Returns true if the handoff was quick enough to prove something.
async fn hand_over(cluster: &Cluster, old: &Side, new: &Side) -> bool {
    cluster.wait_label(old.name, "leader").await;
    cluster.wait_label(new.name, "follower").await;
    cluster.wait_routes_to(old.name).await;
    let mut pods = Watch::begin(cluster.pods(), "app=orders").await;
    let mut slices = Watch::begin(cluster.slices(), OF_SERVICE).await;

    old.proxy.stall();
    let begin = Instant::now();
    old.daemon.term();
    eventually("the proxy holds the demotion", async || {
        old.proxy.held_requests() > 0
    })
    .await;
    let mut in_time = true;
    while in_time && begin.elapsed() < HELD {
        let leads = new.daemon.leads();
        in_time = begin.elapsed() < IN_TIME;
        assert!(
            !in_time || !leads,
            "the new leader leads while the old leader's label says leader"
        );
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    old.proxy.resume();
    cluster.wait_label(old.name, "follower").await;
    in_time &= begin.elapsed() < IN_TIME;

    new.daemon.wait_leads(LONG).await;
    assert_eq!(old.daemon.wait_exit(LONG).await, 0);
    let mut order = Vec::new();
    let labels = pods.until(|pod: &Pod| {
        let label = pod.labels().get(LABEL).cloned().unwrap_or_default();
        let leads = pod.name_any() == new.name && label == "leader";
        order.push((pod.name_any(), label));
        leads
    });
    labels.await;
    let mut routes = Vec::new();
    let routed = slices.until(|slice| {
        routes.push(routed_to(slice));
        routes.last().is_some_and(|pods| *pods == [new.name])
    });
    routed.await;
    println!("{order:?} {routes:?} in time: {in_time}");
    if in_time {
        let turned = (old.name.to_owned(), "follower".to_owned());
        assert!(order.contains(&turned), "{order:?}");
        assert!(routes.iter().all(|pods| pods.len() <= 1), "{routes:?}");
    }
    in_time
}

struct Watch<K> {
    changes: futures_util::stream::BoxStream<'static, Result<WatchEvent<K>, kube::Error>>,
}

impl<K> Watch<K>
where
    K: Resource + Clone + DeserializeOwned + Debug + Send + 'static,
{
    async fn begin(objects: Api<K>, selector: &str) -> Self {
        let now = objects.list(&ListParams::default()).await.unwrap();
        let version = now.metadata.resource_version.unwrap();
        let selected = WatchParams::default().labels(selector);
        let changes = objects.watch(&selected, &version).await.unwrap();
        Self {
            changes: changes.boxed(),
        }
    }

    async fn until(&mut self, mut last: impl FnMut(&K) -> bool) {
        let looked = async {
            while let Some(change) = self.changes.try_next().await.unwrap() {
                match change {
                    WatchEvent::Added(object) | WatchEvent::Modified(object) => {
                        if last(&object) {
                            return;
                        }
                    }
                    other => panic!("{other:?}"),
                }
            }
            panic!("the watch has ended");
        };
        tokio::time::timeout(LONG, looked).await.unwrap();
    }
}
