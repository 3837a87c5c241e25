//! The metrics of a daemon and of a collection for Prometheus. Each scrape compares the clock with
//! the deadline, so a daemon that was frozen past its deadline never reports leadership.

#![forbid(unsafe_code)]

pub mod collection;
mod computed;
#[cfg(any(test, feature = "fixture"))]
pub mod fixture;
mod process;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use prometheus::core::Collector;
use prometheus::{
    GaugeVec, Histogram, HistogramOpts, HistogramVec, IntCounter, IntCounterVec, IntGauge, Opts,
    Registry, TextEncoder,
};
use tokio::sync::watch;

use leasehold_clock::boot_now;
use leasehold_core::election::{Reason, Role, Status};
use leasehold_mongodb::store::StoreInfo;
use leasehold_status::Surface;
use leasehold_status::render::Identification;

use self::computed::ComputedGauges;
use self::process::ProcessMetrics;

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
pub const OUTCOMES: [&str; 5] = ["applied", "primary_only", "rejected", "failed", "unknown"];

/// Seconds. A renewal takes 2–4 ms on a healthy set, and `operation_timeout` is 3 s by default.
/// Answers after the timeout are recorded too.
const DURATION_BUCKETS: [f64; 12] = [
    0.001, 0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0,
];

/// Seconds. By default, `loss_grace` is 3 s and `stop_grace` 30 s.
const STOP_BUCKETS: [f64; 10] = [0.005, 0.02, 0.1, 0.5, 1.0, 3.0, 10.0, 30.0, 60.0, 300.0];

/// The possible role changes. Their series start at 0, so that `rate()` sees the first change.
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

/// The registry and the counters of one candidate. Clones share them.
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
    status_files: Arc<AtomicU64>,
}

impl Metrics {
    /// Creates and registers all metrics of one lease. Fails only if two names are equal (a bug).
    pub fn new(
        who: &Identification,
        status: watch::Receiver<Status>,
        store: watch::Receiver<Option<StoreInfo>>,
    ) -> Result<Self, prometheus::Error> {
        let lease = who.lease.as_str();
        let registry = Registry::new();
        let opts = |name: &str, help: &str| Opts::new(name, help).const_label("lease", lease);
        let counter = |name, help| registered(&registry, IntCounter::with_opts(opts(name, help)));
        let counters = |name, help, labels: &[&str]| {
            registered(&registry, IntCounterVec::new(opts(name, help), labels))
        };
        let gauge = |name, help| registered(&registry, IntGauge::with_opts(opts(name, help)));
        let histogram = |name, help, buckets: &[f64]| {
            HistogramOpts::from(opts(name, help)).buckets(buckets.to_vec())
        };
        let status_files = Arc::new(AtomicU64::new(boot_now().as_nanos()));
        let computed = ComputedGauges::new(who, status, store, status_files.clone());
        registered(&registry, computed)?;
        registry.register(Box::new(ProcessMetrics::new()))?;
        let metrics = Self {
            transitions: counters(
                "leasehold_transitions_total",
                "Changes of role since the start.",
                &["to", "reason"],
            )?,
            store_operations: counters(
                "leasehold_store_operations_total",
                "MongoDB calls by outcome; unknown means that the write may have been applied.",
                &["operation", "outcome"],
            )?,
            store_durations: {
                let options = histogram(
                    "leasehold_store_operation_duration_seconds",
                    "Time from sending a call to its answer or timeout.",
                    &DURATION_BUCKETS,
                );
                registered(&registry, HistogramVec::new(options, &["operation"]))?
            },
            publish_failures: counters(
                "leasehold_publish_failures_total",
                "Failed attempts to publish the status on a surface; each attempt is retried.",
                &["surface"],
            )?,
            watch_connected: gauge(
                "leasehold_watch_connected",
                "1 while a change stream or a cursor on hints is open; otherwise this candidate \
                 polls MongoDB.",
            )?,
            workload_up: gauge(
                "leasehold_workload_up",
                "1 while the command of leasehold run -- CMD runs.",
            )?,
            workload_stops: {
                let options = histogram(
                    "leasehold_workload_stop_duration_seconds",
                    "Time from the stop request until the workload was confirmed to have exited.",
                    &STOP_BUCKETS,
                );
                registered(&registry, Histogram::with_opts(options))?
            },
            log_lines_lost: counter(
                "leasehold_log_lines_lost_total",
                "Log lines that were dropped because standard error was not read fast enough.",
            )?,
            http_evictions: counter(
                "leasehold_http_connections_evicted_total",
                "HTTP connections that were closed to make room for new ones.",
            )?,
            http_streams_refused: counter(
                "leasehold_http_streams_refused_total",
                "Requests for an event stream or a wait that arrived when all places were taken; each \
                 was refused, or an older stream was closed to make room.",
            )?,
            status_files,
            registry,
        };
        metrics.create_series();
        Ok(metrics)
    }

    /// Counts a change of role. Before the first read, the label `reason` is empty.
    pub fn transition(&self, to: Role, reason: Option<Reason>) {
        let labels = [to.as_str(), reason.map_or("", Reason::as_str)];
        self.transitions.with_label_values(&labels).inc();
    }

    /// Counts a call to the store. `operation` is one of [`OPERATIONS`], `outcome` one of
    /// [`OUTCOMES`].
    pub fn store_operation(&self, operation: &'static str, outcome: &'static str, took: Duration) {
        debug_assert!(OPERATIONS.contains(&operation), "{operation} is not listed");
        let calls = self
            .store_operations
            .with_label_values(&[operation, outcome]);
        calls.inc();
        let durations = self.store_durations.with_label_values(&[operation]);
        durations.observe(took.as_secs_f64());
    }

    /// Counts a failed attempt to publish the status.
    pub fn publish_failed(&self, surface: Surface) {
        let labels = [surface.as_str()];
        self.publish_failures.with_label_values(&labels).inc();
    }

    /// Returns the number of failed attempts to publish the status.
    pub fn publish_failures(&self, surface: Surface) -> u64 {
        let labels = [surface.as_str()];
        self.publish_failures.with_label_values(&labels).get()
    }

    /// Sets the gauge that shows whether the supervised command runs.
    pub fn workload_up(&self, up: bool) {
        self.workload_up.set(i64::from(up));
    }

    /// Records how long a requested stop of the supervised command took.
    pub fn workload_stopped(&self, took: Duration) {
        self.workload_stops.observe(took.as_secs_f64());
    }

    /// Counts an attempt to open a change stream, and sets the gauge of open streams.
    pub fn watch_connected(&self, connected: bool) {
        let labels = ["watch", if connected { "applied" } else { "failed" }];
        self.store_operations.with_label_values(&labels).inc();
        self.watch_connected.set(i64::from(connected));
    }

    /// Counts dropped log lines.
    pub fn log_lines_lost(&self, lines: u64) {
        self.log_lines_lost.inc_by(lines);
    }

    /// Counts an HTTP connection that was evicted for a new connection.
    pub fn http_connection_evicted(&self) {
        self.http_evictions.inc();
    }

    /// Counts a request for an event stream or a long poll that arrived when all places were taken.
    pub fn http_stream_refused(&self) {
        self.http_streams_refused.inc();
    }

    /// Records that both status files were written.
    pub fn status_files_written(&self) {
        let now = boot_now().as_nanos();
        self.status_files.store(now, Ordering::Relaxed);
    }

    /// Adds a metric with the program's version and this revision.
    pub fn with_revision(self, revision: &str) -> Result<Self, prometheus::Error> {
        let build = Opts::new(
            "leasehold_build_info",
            "Always 1; the labels show the version.",
        );
        let build = GaugeVec::new(build, &["version", "revision"])?;
        let labels = [env!("CARGO_PKG_VERSION"), revision];
        build.with_label_values(&labels).set(1.0);
        self.registry.register(Box::new(build))?;
        Ok(self)
    }

    /// Returns the registry, for metrics of other modules.
    pub fn registry(&self) -> &Registry {
        &self.registry
    }

    /// Renders all metrics in the text format of Prometheus.
    pub fn text(&self) -> Result<String, prometheus::Error> {
        TextEncoder::new().encode_to_string(&self.registry.gather())
    }

    fn create_series(&self) {
        for (to, reasons) in TRANSITIONS {
            for reason in reasons {
                let labels = [to.as_str(), reason.as_str()];
                self.transitions.with_label_values(&labels);
            }
        }
        for operation in OPERATIONS {
            for outcome in OUTCOMES {
                let labels = [operation, outcome];
                self.store_operations.with_label_values(&labels);
            }
            self.store_durations.with_label_values(&[operation]);
        }
        for surface in Surface::ALL {
            self.publish_failures.with_label_values(&[surface.as_str()]);
        }
    }
}

fn registered<C: Collector + Clone + 'static>(
    registry: &Registry,
    metric: Result<C, prometheus::Error>,
) -> Result<C, prometheus::Error> {
    let metric = metric?;
    registry.register(Box::new(metric.clone()))?;
    Ok(metric)
}
