//! The gauges that are computed at each scrape.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use leasehold_clock::boot_now;
use leasehold_core::election::{BootTime, Role, Status};
use leasehold_mongodb::store::StoreInfo;
use leasehold_status::render::{ClockPair, Identification, authority_at, leader_name_at};
use prometheus::core::{Collector, Desc};
use prometheus::proto::MetricFamily;
use prometheus::{Gauge, GaugeVec, Opts};
use tokio::sync::watch;

/// Time of the last write of the status files, on the boot clock.
#[derive(Debug, Clone)]
pub(super) struct LastWrite(pub(super) Arc<AtomicU64>);

impl LastWrite {
    pub(super) fn now() -> Self {
        Self(Arc::new(AtomicU64::new(boot_now().as_nanos())))
    }

    pub(super) fn age(&self, now: BootTime) -> Duration {
        now.since(BootTime::from_nanos(self.0.load(Ordering::Relaxed)))
    }
}

/// The gauges that are computed from the status at each scrape. Their values are not state; only
/// this collector has the gauges, and each scrape sets them before it reads them.
#[derive(Debug)]
pub(super) struct ComputedGauges {
    who: Identification,
    status: watch::Receiver<Status>,
    store: watch::Receiver<Option<StoreInfo>>,
    status_files: LastWrite,
    leader: Gauge,
    leader_alias: Gauge,
    paused: Gauge,
    authority_seconds: Gauge,
    token: Gauge,
    last_renewal: Gauge,
    status_file_age: Gauge,
    holder_info: GaugeVec,
    store_info: GaugeVec,
}

impl ComputedGauges {
    pub(super) fn new(
        who: &Identification,
        status: watch::Receiver<Status>,
        store: watch::Receiver<Option<StoreInfo>>,
        status_files: LastWrite,
    ) -> Result<Self, prometheus::Error> {
        let lease = who.lease.as_str();
        let opts = |name: &str, help: &str| Opts::new(name, help).const_label("lease", lease);
        Ok(Self {
            who: who.clone(),
            status,
            store,
            status_files,
            leader: Gauge::with_opts(opts(
                "leasehold_leader",
                "1 if this candidate leads at the time of the scrape, else 0.",
            ))?,
            leader_alias: Gauge::with_opts(
                Opts::new(
                    "leader_election_master_status",
                    "Equals leasehold_leader; Kubernetes dashboards know this name.",
                )
                .const_label("name", lease),
            )?,
            paused: Gauge::with_opts(opts(
                "leasehold_paused",
                "1 while this candidate knows that the lease is paused, so that no candidate leads, else 0.",
            ))?,
            authority_seconds: Gauge::with_opts(opts(
                "leasehold_authority_seconds",
                "How long the authority of this candidate still lasts, 0 without any.",
            ))?,
            token: Gauge::with_opts(opts(
                "leasehold_token",
                "The highest fencing token that this candidate has seen.",
            ))?,
            last_renewal: Gauge::with_opts(opts(
                "leasehold_last_renewal_timestamp_seconds",
                "When the last acknowledged renewal was sent, 0 before the first.",
            ))?,
            status_file_age: Gauge::with_opts(opts(
                "leasehold_status_file_age_seconds",
                "Time since status.json and status.env were last written; they are rewritten \
                 at least every 1.5 renew_intervals.",
            ))?,
            holder_info: GaugeVec::new(
                opts(
                    "leasehold_holder_info",
                    "1, with the identity of the leader; absent while none is known.",
                ),
                &["identity"],
            )?,
            store_info: GaugeVec::new(
                opts(
                    "leasehold_store_info",
                    "1, with the MongoDB set, database and collection of the lease; absent until MongoDB was reached.",
                ),
                &["kind", "set", "database", "collection"],
            )?,
        })
    }

    fn compute(&self, clocks: ClockPair) {
        let status = self.status.borrow().clone();
        let authority = authority_at(&status, clocks.boot);
        let leads = if authority.is_some() { 1.0 } else { 0.0 };
        self.leader.set(leads);
        self.leader_alias.set(leads);
        let paused = status.role == Role::Paused;
        self.paused.set(f64::from(u8::from(paused)));
        let left = authority.map(|a| a.valid_until.since(clocks.boot));
        self.authority_seconds
            .set(left.unwrap_or_default().as_secs_f64());
        // Exact up to 2^53. A lease that changes hands every millisecond reaches this after 285,000
        // years.
        self.token.set(status.token_highest.get() as f64);
        let renewed = status.renewed_at.map(|at| timestamp_seconds(at, clocks));
        self.last_renewal.set(renewed.unwrap_or(0.0));
        let age = self.status_files.age(clocks.boot);
        self.status_file_age.set(age.as_secs_f64());

        self.holder_info.reset();
        if let Some(name) = leader_name_at(&status, &self.who.identity, clocks.boot) {
            self.holder_info.with_label_values(&[name]).set(1.0);
        }
        self.store_info.reset();
        if let Some(store) = self.store.borrow().as_ref() {
            let set = store.set.as_deref().unwrap_or_default();
            let labels = [store.kind.as_str(), set, &store.database, &store.collection];
            self.store_info.with_label_values(&labels).set(1.0);
        }
    }

    fn collectors(&self) -> [&dyn Collector; 9] {
        [
            &self.leader,
            &self.leader_alias,
            &self.paused,
            &self.authority_seconds,
            &self.token,
            &self.last_renewal,
            &self.status_file_age,
            &self.holder_info,
            &self.store_info,
        ]
    }
}

impl Collector for ComputedGauges {
    fn desc(&self) -> Vec<&Desc> {
        self.collectors().iter().flat_map(|c| c.desc()).collect()
    }

    fn collect(&self) -> Vec<MetricFamily> {
        self.compute(ClockPair::now());
        self.collectors().iter().flat_map(|c| c.collect()).collect()
    }
}

fn timestamp_seconds(at: BootTime, clocks: ClockPair) -> f64 {
    let wall: SystemTime = clocks.wall;
    let now = wall.duration_since(UNIX_EPOCH).unwrap_or_default();
    now.saturating_sub(clocks.boot.since(at)).as_secs_f64()
}
