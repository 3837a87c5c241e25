//! The gauges that are computed at each scrape.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, UNIX_EPOCH};

use leasehold_core::election::{Authority, BootTime, Role, Status};
use leasehold_mongodb::store::StoreInfo;
use leasehold_status::render::{ClockPair, Identification, authority_at, leader_name_at};
use prometheus::core::{Collector, Desc};
use prometheus::proto::MetricFamily;
use prometheus::{Gauge, GaugeVec, Opts};
use tokio::sync::watch;

#[derive(Debug, Clone)]
pub(super) struct ComputedGauges {
    who: Identification,
    status: watch::Receiver<Status>,
    store: watch::Receiver<Option<StoreInfo>>,
    /// Time of the last write of the status files, in nanoseconds of the boot clock.
    status_files: Arc<AtomicU64>,
    /// In the order of [`GAUGES`].
    numbers: Vec<Gauge>,
    holder_info: GaugeVec,
    store_info: GaugeVec,
}

struct StatusSample {
    status: Status,
    authority: Option<Authority>,
    clocks: ClockPair,
    status_file_age: Duration,
}

/// Name, name of the label that contains the lease, help, and value.
type NumberGauge = (
    &'static str,
    &'static str,
    &'static str,
    fn(&StatusSample) -> f64,
);

const GAUGES: [NumberGauge; 7] = [
    (
        "leasehold_leader",
        "lease",
        "1 if this candidate leads at the time of the scrape, else 0.",
        leads,
    ),
    (
        "leader_election_master_status",
        "name",
        "Equals leasehold_leader, under the name that Kubernetes dashboards use.",
        leads,
    ),
    (
        "leasehold_paused",
        "lease",
        "1 while this candidate knows that the lease is paused (no candidate leads), else 0.",
        |sample| f64::from(u8::from(sample.status.role == Role::Paused)),
    ),
    (
        "leasehold_authority_seconds",
        "lease",
        "Remaining time of this candidate's authority, 0 if it has none.",
        |sample| {
            let until = sample.authority.map(|a| a.valid_until);
            until.map_or(0.0, |until| until.since(sample.clocks.boot).as_secs_f64())
        },
    ),
    (
        "leasehold_token",
        "lease",
        "The highest fencing token that this candidate has seen.",
        // Exact up to 2^53.
        |sample| sample.status.token_highest.get() as f64,
    ),
    (
        "leasehold_last_renewal_timestamp_seconds",
        "lease",
        "When the last acknowledged renewal was sent, 0 if no renewal was acknowledged.",
        |sample| {
            let renewed_at = sample.status.renewed_at;
            renewed_at.map_or(0.0, |at| timestamp_seconds(at, sample.clocks))
        },
    ),
    (
        "leasehold_status_file_age_seconds",
        "lease",
        "Time since status.json and status.env were last written; they are rewritten \
         at least every 1.5 renew_intervals while this candidate leads, and otherwise at least twice per \
         lease_duration.",
        |sample| sample.status_file_age.as_secs_f64(),
    ),
];

fn leads(sample: &StatusSample) -> f64 {
    f64::from(u8::from(sample.authority.is_some()))
}

impl ComputedGauges {
    pub(super) fn new(
        who: &Identification,
        status: watch::Receiver<Status>,
        store: watch::Receiver<Option<StoreInfo>>,
        status_files: Arc<AtomicU64>,
    ) -> Result<Self, prometheus::Error> {
        let lease = who.lease.as_str();
        let info = |name: &str, help: &str, labels: &[&str]| {
            GaugeVec::new(Opts::new(name, help).const_label("lease", lease), labels)
        };
        let numbers = GAUGES.iter().map(|(name, label, help, _)| {
            Gauge::with_opts(Opts::new(*name, *help).const_label(*label, lease))
        });
        Ok(Self {
            who: who.clone(),
            status,
            store,
            status_files,
            numbers: numbers.collect::<Result<_, _>>()?,
            holder_info: info(
                "leasehold_holder_info",
                "Always 1; the labels show the identity of the leader. Absent while no leader is known.",
                &["identity"],
            )?,
            store_info: info(
                "leasehold_store_info",
                "Always 1; the labels show the MongoDB set, database and collection of the lease. Absent until MongoDB has been reached.",
                &["kind", "set", "database", "collection"],
            )?,
        })
    }

    fn compute(&self, clocks: ClockPair) {
        let status = self.status.borrow().clone();
        let written = BootTime::from_nanos(self.status_files.load(Ordering::Relaxed));
        let sample = StatusSample {
            authority: authority_at(&status, clocks.boot),
            status,
            clocks,
            status_file_age: clocks.boot.since(written),
        };
        for (gauge, (.., value)) in self.numbers.iter().zip(GAUGES) {
            gauge.set(value(&sample));
        }
        self.holder_info.reset();
        if let Some(name) = leader_name_at(&sample.status, &self.who.identity, clocks.boot) {
            self.holder_info.with_label_values(&[name]).set(1.0);
        }
        self.store_info.reset();
        if let Some(store) = self.store.borrow().as_ref() {
            let set = store.set.as_deref().unwrap_or_default();
            let labels = [store.kind.as_str(), set, &store.database, &store.collection];
            self.store_info.with_label_values(&labels).set(1.0);
        }
    }

    fn collectors(&self) -> impl Iterator<Item = &dyn Collector> {
        let numbers = self.numbers.iter().map(|gauge| gauge as &dyn Collector);
        numbers.chain([&self.holder_info as &dyn Collector, &self.store_info])
    }
}

impl Collector for ComputedGauges {
    fn desc(&self) -> Vec<&Desc> {
        self.collectors().flat_map(|c| c.desc()).collect()
    }

    fn collect(&self) -> Vec<MetricFamily> {
        self.compute(ClockPair::now());
        self.collectors().flat_map(|c| c.collect()).collect()
    }
}

fn timestamp_seconds(at: BootTime, clocks: ClockPair) -> f64 {
    let now = clocks.wall.duration_since(UNIX_EPOCH).unwrap_or_default();
    now.saturating_sub(clocks.boot.since(at)).as_secs_f64()
}
