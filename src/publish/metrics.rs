//! The metrics for Prometheus.
//!
//! Gauges about leadership are not stored but computed from the deadline at the time of the scrape,
//! so a daemon that was frozen past its deadline never reports that it leads.

#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use prometheus::core::{Collector, Desc};
use prometheus::process_collector::ProcessCollector;
use prometheus::proto::MetricFamily;
use prometheus::{
    Gauge, GaugeVec, Histogram, HistogramOpts, HistogramVec, IntCounter, IntCounterVec, IntGauge,
    Opts, Registry, TextEncoder,
};
use tokio::sync::watch;

use super::render::{ClockPair, Identification, authority_at, leader_name_at};
use super::{StoreInfo, Surface};
use crate::clock::boot_now;
use crate::election::{BootTime, Reason, Role, Status};

/// Content type of [`Metrics::text`].
pub const CONTENT_TYPE: &str = prometheus::TEXT_FORMAT;

/// All values of the label `operation`.
pub const OPERATIONS: [&str; 9] = [
    "create",
    "acquire",
    "take_over",
    "renew",
    "release",
    "register",
    "withdraw",
    "read",
    "watch",
];

/// All values of the label `outcome`.
pub const OUTCOMES: [&str; 4] = ["applied", "rejected", "failed", "unknown"];

/// Upper bounds of the duration buckets. A renewal takes 2–4 ms on a healthy set, a call waits 3 s
/// (`operation_timeout`) by default, and 30 s is the longest wait of the driver itself.
const DURATION_BUCKETS: [f64; 12] = [
    0.001, 0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0,
];

/// Upper bounds of the buckets for stopping a workload. A workload that exits immediately takes
/// some milliseconds; `loss_grace` is 3 s and `stop_grace` 30 s by default.
const STOP_BUCKETS: [f64; 10] = [0.005, 0.02, 0.1, 0.5, 1.0, 3.0, 10.0, 30.0, 60.0, 300.0];

/// The role changes whose series exist with 0 from the first scrape, so that `rate()` sees the
/// first change. The remaining combinations of 5 roles and 14 reasons cannot occur, and more than
/// 40 series that are always 0 would only add cost.
const TRANSITIONS: [(Role, &[Reason]); 4] = [
    (
        Role::Leader,
        &[Reason::Acquired, Reason::TookOver, Reason::Renewed],
    ),
    (
        Role::Stopping,
        &[
            Reason::Requested,
            Reason::Transferred,
            Reason::Paused,
            Reason::Unhealthy,
            Reason::WorkloadExit,
            Reason::Shutdown,
            Reason::StoreRolledBack,
            Reason::Duplicate,
        ],
    ),
    (
        Role::Follower,
        &[
            Reason::Deadline,
            Reason::Rejected,
            Reason::Requested,
            Reason::Transferred,
            Reason::Unhealthy,
            Reason::WorkloadExit,
            Reason::WorkloadStuck,
            Reason::StoreRolledBack,
            Reason::Duplicate,
        ],
    ),
    (Role::Paused, &[Reason::Paused]),
];

/// The registry of one candidate, and the counters that other modules increment. Clones share them.
#[derive(Debug, Clone)]
pub struct Metrics {
    registry: Registry,
    transitions: IntCounterVec,
    store_operations: IntCounterVec,
    store_durations: HistogramVec,
    publish_failures: IntCounterVec,
    watch_connected: IntGauge,
    workload_up: IntGauge,
    workload_stops: Histogram,
    log_lines_lost: IntCounter,
    http_evictions: IntCounter,
    http_streams_refused: IntCounter,
    status_files: Written,
}

/// Time of the last write of the status files, on the boot clock.
#[derive(Debug, Clone)]
struct Written(Arc<AtomicU64>);

impl Written {
    fn now() -> Self {
        Self(Arc::new(AtomicU64::new(boot_now().as_nanos())))
    }

    fn age(&self, now: BootTime) -> Duration {
        now.since(BootTime::from_nanos(self.0.load(Ordering::Relaxed)))
    }
}

impl Metrics {
    /// Creates and registers all metrics of one lease.
    ///
    /// # Errors
    /// If two metrics collide, which is a bug and never a configuration error.
    pub fn new(
        who: &Identification,
        status: watch::Receiver<Status>,
        store: watch::Receiver<Option<StoreInfo>>,
    ) -> Result<Self, prometheus::Error> {
        let lease = who.lease.as_str();
        let opts = |name: &str, help: &str| Opts::new(name, help).const_label("lease", lease);
        let metrics = Self {
            registry: Registry::new(),
            transitions: IntCounterVec::new(
                opts(
                    "leasehold_transitions_total",
                    "Changes of role since the start.",
                ),
                &["to", "reason"],
            )?,
            store_operations: IntCounterVec::new(
                opts(
                    "leasehold_store_operations_total",
                    "Calls of the store by what is known of their effect; unknown means \
                     that the write may or may not have been applied.",
                ),
                &["operation", "outcome"],
            )?,
            store_durations: HistogramVec::new(
                HistogramOpts::new(
                    "leasehold_store_operation_duration_seconds",
                    "Time from the send of a call to its answer or time-out.",
                )
                .const_label("lease", lease)
                .buckets(DURATION_BUCKETS.to_vec()),
                &["operation"],
            )?,
            publish_failures: IntCounterVec::new(
                opts(
                    "leasehold_publish_failures_total",
                    "Failed attempts to show the status on a surface; each is retried.",
                ),
                &["surface"],
            )?,
            watch_connected: IntGauge::with_opts(opts(
                "leasehold_watch_connected",
                "1 while a change stream or a cursor on hints is open; without one the store is \
                 polled.",
            ))?,
            workload_up: IntGauge::with_opts(opts(
                "leasehold_workload_up",
                "1 while the command of leasehold run -- CMD runs.",
            ))?,
            workload_stops: Histogram::with_opts(
                HistogramOpts::new(
                    "leasehold_workload_stop_duration_seconds",
                    "Time from the order to end until the workload was confirmed gone.",
                )
                .const_label("lease", lease)
                .buckets(STOP_BUCKETS.to_vec()),
            )?,
            log_lines_lost: IntCounter::with_opts(opts(
                "leasehold_log_lines_lost_total",
                "Log lines that were dropped because standard error was not read fast enough.",
            ))?,
            http_evictions: IntCounter::with_opts(opts(
                "leasehold_http_connections_evicted_total",
                "HTTP connections that were closed to make room for new ones.",
            ))?,
            http_streams_refused: IntCounter::with_opts(opts(
                "leasehold_http_streams_refused_total",
                "Requests for an event stream or a wait that found all places taken; each was \
                 refused, or another stream was closed for it.",
            ))?,
            status_files: Written::now(),
        };
        metrics.register(who, status, store)?;
        metrics.create_series();
        Ok(metrics)
    }

    /// Counts a change of role. The label `reason` is empty if there is none (before the first
    /// read).
    pub fn transition(&self, to: Role, reason: Option<Reason>) {
        let reason = reason.map_or("", Reason::as_str);
        self.transitions
            .with_label_values(&[to.as_str(), reason])
            .inc();
    }

    /// Counts a call of the store. `operation` is one of [`OPERATIONS`], `outcome` one of
    /// [`OUTCOMES`].
    pub fn store_operation(&self, operation: &'static str, outcome: &'static str, took: Duration) {
        debug_assert!(OPERATIONS.contains(&operation), "{operation} is not listed");
        self.store_operations
            .with_label_values(&[operation, outcome])
            .inc();
        self.store_durations
            .with_label_values(&[operation])
            .observe(took.as_secs_f64());
    }

    /// Counts a failed attempt to publish the status.
    pub fn publish_failed(&self, surface: Surface) {
        self.publish_failures
            .with_label_values(&[surface.as_str()])
            .inc();
    }

    /// Returns the number of failed attempts so far.
    pub fn publish_failures(&self, surface: Surface) -> u64 {
        self.publish_failures
            .with_label_values(&[surface.as_str()])
            .get()
    }

    /// Records whether the supervised command is running.
    pub fn workload_up(&self, up: bool) {
        self.workload_up.set(i64::from(up));
    }

    /// Counts a requested stop of the supervised command.
    pub fn workload_stopped(&self, took: Duration) {
        self.workload_stops.observe(took.as_secs_f64());
    }

    /// Records whether a change stream is open.
    pub fn watch_connected(&self, connected: bool) {
        let outcome = if connected { "applied" } else { "failed" };
        self.store_operations
            .with_label_values(&["watch", outcome])
            .inc();
        self.watch_connected.set(i64::from(connected));
    }

    /// Counts dropped log lines.
    pub fn log_lines_lost(&self, lines: u64) {
        self.log_lines_lost.inc_by(lines);
    }

    /// Counts an HTTP connection that was evicted for a new one.
    pub fn http_connection_evicted(&self) {
        self.http_evictions.inc();
    }

    /// Counts a request for an event stream or a long poll that found all places taken.
    pub fn http_stream_refused(&self) {
        self.http_streams_refused.inc();
    }

    /// Records that both status files were written.
    pub fn status_files_written(&self) {
        let now = boot_now().as_nanos();
        self.status_files.0.store(now, Ordering::Relaxed);
    }

    /// Returns the registry, in which other modules register metrics of their own.
    pub fn registry(&self) -> &Registry {
        &self.registry
    }

    /// Renders all metrics in the text format of Prometheus, computed now.
    ///
    /// # Errors
    /// If a registered collector returns an invalid metric, which is a bug.
    pub fn text(&self) -> Result<String, prometheus::Error> {
        TextEncoder::new().encode_to_string(&self.registry.gather())
    }

    fn register(
        &self,
        who: &Identification,
        status: watch::Receiver<Status>,
        store: watch::Receiver<Option<StoreInfo>>,
    ) -> Result<(), prometheus::Error> {
        let build = GaugeVec::new(
            Opts::new("leasehold_build_info", "1, with what is running."),
            &["version", "revision"],
        )?;
        build
            .with_label_values(&[env!("CARGO_PKG_VERSION"), env!("LEASEHOLD_REVISION")])
            .set(1.0);
        let collectors: [Box<dyn Collector>; 13] = [
            Box::new(self.transitions.clone()),
            Box::new(self.store_operations.clone()),
            Box::new(self.store_durations.clone()),
            Box::new(self.publish_failures.clone()),
            Box::new(self.watch_connected.clone()),
            Box::new(self.workload_up.clone()),
            Box::new(self.workload_stops.clone()),
            Box::new(self.log_lines_lost.clone()),
            Box::new(self.http_evictions.clone()),
            Box::new(self.http_streams_refused.clone()),
            Box::new(build),
            Box::new(ProcessCollector::for_self()),
            Box::new(Truth::new(who, status, store, self.status_files.clone())?),
        ];
        for collector in collectors {
            self.registry.register(collector)?;
        }
        Ok(())
    }

    fn create_series(&self) {
        for (to, reasons) in TRANSITIONS {
            for reason in reasons {
                self.transitions
                    .with_label_values(&[to.as_str(), reason.as_str()]);
            }
        }
        for operation in OPERATIONS {
            for outcome in OUTCOMES {
                self.store_operations
                    .with_label_values(&[operation, outcome]);
            }
            self.store_durations.with_label_values(&[operation]);
        }
        for surface in Surface::ALL {
            self.publish_failures.with_label_values(&[surface.as_str()]);
        }
    }
}

/// The gauges that are computed from the status at each scrape. Their values are not state; only
/// this collector has the gauges, and each scrape sets them before it reads them.
#[derive(Debug)]
struct Truth {
    who: Identification,
    status: watch::Receiver<Status>,
    store: watch::Receiver<Option<StoreInfo>>,
    status_files: Written,
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

impl Truth {
    fn new(
        who: &Identification,
        status: watch::Receiver<Status>,
        store: watch::Receiver<Option<StoreInfo>>,
        status_files: Written,
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
                    "The same as leasehold_leader, under the name that Kubernetes dashboards know.",
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
                    "1, with the store that is contended on; absent until it was reached.",
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

impl Collector for Truth {
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
