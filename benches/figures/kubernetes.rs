//! Measures what the label costs, and how long the label and the Service take to follow a change of
//! leader.

use std::collections::BTreeMap;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::future::join_all;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::ResourceExt;
use kube::api::{Api, WatchEvent, WatchParams};
use leasehold_testbed::daemon::boottime_ns;
use leasehold_testbed::kubernetes::{Place, routed_to};
use leasehold_testbed::{Daemon, DaemonBuilder, Kubernetes, ReplicaSet};
use tokio::sync::mpsc;

use crate::launch::{Setup, seconds, watching};
use crate::report::{Bound, Row, Statistic, Unit};
use crate::usage::Memory;

const LEASE: &str = "orders";
const LABEL: &str = "leasehold.dev/orders";
const LEADS_MAX: Duration = Duration::from_secs(60);
const EXIT_MAX: Duration = Duration::from_secs(20);
/// Time that the daemons and the API server need to finish their work after a change of leader.
const SETTLE: Duration = Duration::from_millis(500);
const STEADY_AFTER: Duration = Duration::from_secs(30);
/// Length of a measurement, long enough for two rounds of the label's periodic repair.
const STEADY: Duration = Duration::from_secs(120);
const PODS: usize = 20;

struct Stage {
    kubernetes: Kubernetes,
    set: ReplicaSet,
    namespace: String,
    places: Vec<Place>,
}

/// Times at which the API server's state changed, each with the names of the leaders.
type LeadersShown = mpsc::UnboundedReceiver<(u64, Vec<String>)>;

impl Stage {
    async fn new(setup: &Setup, pods: usize) -> Self {
        let (kubernetes, set) = tokio::join!(Kubernetes::start(), setup.set());
        let namespace = kubernetes.namespace().await;
        kubernetes.grant(&namespace).await;
        kubernetes.route_to_leader(&namespace, LEASE, LABEL).await;
        let mut places = Vec::new();
        for index in 0..pods {
            let name = format!("{LEASE}-{index}");
            places.push(kubernetes.place(&namespace, &name, LEASE).await);
        }
        Self {
            kubernetes,
            set,
            namespace,
            places,
        }
    }

    fn daemon(&self, setup: &Setup, index: usize) -> DaemonBuilder {
        let place = &self.places[index];
        let daemon = setup
            .daemon(LEASE, &place.pod.name_any(), &self.set.uri())
            .handoff_delay("0s");
        place.sidecar(daemon, self.kubernetes.environment())
    }

    fn start(&self, setup: &Setup) -> Vec<Daemon> {
        let all = 0..self.places.len();
        all.map(|index| self.daemon(setup, index).start()).collect()
    }

    /// After each change to a pod, sends the names of the pods whose label says leader.
    fn labels(&self) -> LeadersShown {
        let pods: Api<Pod> = self.kubernetes.objects(&self.namespace);
        let mut labels = BTreeMap::new();
        watch_leaders(pods, move |pod: &Pod| {
            let label = pod.labels().get(LABEL).cloned();
            labels.insert(pod.name_any(), label);
            let leads =
                |(_, label): &(&String, &Option<String>)| label.as_deref() == Some("leader");
            labels
                .iter()
                .filter(leads)
                .map(|(name, _)| name.clone())
                .collect()
        })
    }

    /// After each change to the EndpointSlice, sends the names of the pods to which the Service
    /// routes.
    fn endpoints(&self) -> LeadersShown {
        let slices: Api<EndpointSlice> = self.kubernetes.objects(&self.namespace);
        watch_leaders(slices, routed_to)
    }
}

fn watch_leaders<K>(
    api: Api<K>,
    mut leads: impl FnMut(&K) -> Vec<String> + Send + 'static,
) -> LeadersShown
where
    K: Clone + std::fmt::Debug + serde::de::DeserializeOwned + Send + Sync + 'static,
{
    let (sender, receiver) = mpsc::unbounded_channel();
    tokio::spawn(async move {
        loop {
            let events = api.watch(&WatchParams::default(), "0").await;
            // The watch fails once the API server has stopped at the end of the measurement.
            let Ok(events) = events else { return };
            let mut events = std::pin::pin!(events);
            while let Some(Ok(event)) = events.next().await {
                let (WatchEvent::Added(object) | WatchEvent::Modified(object)) = event else {
                    continue;
                };
                if sender.send((boottime_ns(), leads(&object))).is_err() {
                    return;
                }
            }
        }
    });
    receiver
}

/// Waits until this pod is shown as the only leader. Returns the time.
async fn only(told: &mut LeadersShown, name: &str) -> u64 {
    let waited = tokio::time::timeout(LEADS_MAX, async {
        loop {
            match told.recv().await {
                Some((at, names)) if names == [name] => return at,
                Some(_) => {}
                None => panic!("the watch ended"),
            }
        }
    });
    waited
        .await
        .unwrap_or_else(|_| panic!("the API server does not show that {name} leads"))
}

async fn leader(daemons: &[Daemon], except: Option<usize>) -> (usize, u64) {
    let end = boottime_ns() + 60_000_000_000;
    loop {
        for (index, daemon) in daemons.iter().enumerate() {
            if Some(index) != except && daemon.leads() {
                return (index, boottime_ns());
            }
        }
        assert!(boottime_ns() < end, "nobody leads");
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

pub(crate) async fn of_three(setup: Setup) -> Vec<Row> {
    let stage = Stage::new(&setup, 3).await;
    let mut daemons = stage.start(&setup);
    let (mut old, _) = leader(&daemons, None).await;
    join_all(daemons.iter().map(watching)).await;
    let (mut labels, mut endpoints) = (stage.labels(), stage.endpoints());
    let name = |index: usize| stage.places[index].pod.name_any();
    only(&mut labels, &name(old)).await;
    only(&mut endpoints, &name(old)).await;
    let (mut label, mut endpoint) = (Vec::new(), Vec::new());
    for _ in 0..setup.count(50, 15) {
        tokio::time::sleep(SETTLE).await;
        let sent = boottime_ns();
        daemons[old].term();
        let (new, led) = leader(&daemons, Some(old)).await;
        label.push(seconds(led, only(&mut labels, &name(new)).await));
        endpoint.push(seconds(sent, only(&mut endpoints, &name(new)).await));
        daemons[old].wait_exit(EXIT_MAX).await;
        daemons[old].restart_same_directory();
        watching(&daemons[old]).await;
        old = new;
    }
    let mut rows = vec![
        Row::new(
            "label",
            "its file says leader → its pod's label does, and no other's",
            Unit::Time,
            &label,
            &[],
        ),
        Row::new(
            "endpoint",
            "SIGTERM → the Service's EndpointSlice names the new pod",
            Unit::Time,
            &endpoint,
            &[Bound::AtMost(Statistic::Median, 0.050)],
        ),
    ];
    rows.extend(steady(&stage, &daemons).await);
    rows
}

/// Measures an idle daemon with Kubernetes enabled.
pub(crate) async fn memory_of_one(setup: &Setup) -> Memory {
    let stage = Stage::new(setup, 1).await;
    let daemons = stage.start(setup);
    leader(&daemons, None).await;
    watching(&daemons[0]).await;
    tokio::time::sleep(setup.pause(STEADY_AFTER)).await;
    Memory::of(daemons[0].pid())
}

async fn steady(stage: &Stage, daemons: &[Daemon]) -> Vec<Row> {
    tokio::time::sleep(STEADY_AFTER).await;
    let before = requests(&stage.kubernetes).await;
    tokio::time::sleep(STEADY).await;
    let after = requests(&stage.kubernetes).await;
    let pods = daemons.len() as f64;
    let rate = (after - before) / pods / (STEADY.as_secs_f64() / 60.0);
    let all: Vec<_> = daemons.iter().map(|d| Memory::of(d.pid())).collect();
    let most = |limit| [Bound::AtMost(Statistic::Max, limit)];
    let row = |what: &str, unit, value: fn(&Memory) -> f64, bounds: &[Bound]| {
        let series: Vec<_> = all.iter().map(value).collect();
        Row::new("kubernetes_memory", what, unit, &series, bounds)
    };
    vec![
        row(
            "RSS with Kubernetes on",
            Unit::Bytes,
            |m| m.rss,
            &most(11e6),
        ),
        row(
            "RssAnon with Kubernetes on",
            Unit::Bytes,
            |m| m.rss_anon,
            &[],
        ),
        row(
            "threads with Kubernetes on",
            Unit::Count,
            |m| m.threads,
            &most(3.0),
        ),
        Row::new(
            "api_requests",
            "requests to the API server, a minute and pod",
            Unit::Count,
            &[rate],
            &most(1.0),
        ),
    ]
}

/// Counts the requests that only sidecars send, because no other client here patches a pod's status
/// or writes an Event of this API group.
async fn requests(kubernetes: &Kubernetes) -> f64 {
    let request = http::Request::get("/metrics").body(Vec::new());
    let text = kubernetes
        .client()
        .request_text(request.expect("a path without a query"))
        .await
        .expect("the API server shows its metrics");
    let ours = |line: &&str| {
        line.starts_with("apiserver_request_total{")
            && ((line.contains("resource=\"pods\"") && line.contains("subresource=\"status\""))
                || line.contains("group=\"events.k8s.io\""))
    };
    let counts = text.lines().filter(ours);
    counts
        .filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok())
        .sum()
}

pub(crate) async fn of_twenty(setup: Setup) -> Vec<Row> {
    let mut series = Vec::new();
    for _ in 0..setup.count(3, 1) {
        let stage = Stage::new(&setup, PODS).await;
        let pods: Api<Pod> = stage.kubernetes.objects(&stage.namespace);
        let began = boottime_ns();
        let daemons = stage.start(&setup);
        let mut labelled = watch_leaders(pods, {
            let mut names = std::collections::BTreeSet::new();
            move |pod: &Pod| {
                if pod.labels().contains_key(LABEL) {
                    names.insert(pod.name_any());
                }
                names.iter().cloned().collect()
            }
        });
        let all = tokio::time::timeout(LEADS_MAX, async {
            while let Some((at, names)) = labelled.recv().await {
                if names.len() == PODS {
                    return at;
                }
            }
            panic!("the watch ended")
        });
        let at = all.await.expect("all pods get a label");
        series.push(seconds(began, at));
        drop(daemons);
    }
    let what = "20 daemons start at once → every pod has its label";
    vec![Row::new("pods_20", what, Unit::Time, &series, &[])]
}
