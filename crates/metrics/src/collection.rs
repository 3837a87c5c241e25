//! The metrics of a collection, as `leasehold web` observes it. Each scrape builds new gauges, so a
//! deleted document has no series.

use std::time::Duration;

use leasehold_mongodb::store::StoreInfo;
use prometheus::{GaugeVec, Opts, Registry, TextEncoder};

use crate::process::ProcessMetrics;

/// A collection at the time of a scrape.
#[derive(Debug, Default)]
pub struct CollectionSample<'a> {
    /// The collection; `None` until MongoDB was reached.
    pub store: Option<StoreInfo>,
    /// Time since MongoDB last answered; `None` before the first answer.
    pub last_answer_age: Option<Duration>,
    /// The documents; `None` while they may be out of date.
    pub documents: Option<DocumentSamples<'a>>,
}

/// The documents of a collection.
#[derive(Debug, Default)]
pub struct DocumentSamples<'a> {
    /// The exported leases.
    pub leases: Vec<LeaseSample<'a>>,
    /// The exported locks.
    pub locks: Vec<LockSample<'a>>,
    /// Number of documents of each kind.
    pub kinds: Vec<(&'static str, usize)>,
    /// Number of documents without series, for each reason.
    pub not_shown: Vec<(&'static str, usize)>,
}

/// A lease.
#[derive(Debug, Default)]
pub struct LeaseSample<'a> {
    /// Name of the lease.
    pub name: &'a str,
    /// The holder that the document names.
    pub holder: Option<LeaseHolder<'a>>,
    /// The newest token.
    pub token: i64,
    /// True if the lease is paused.
    pub paused: bool,
    /// Time of the pause by the operator's clock, counted from the Unix epoch; `None` if
    /// unrecorded.
    pub paused_since: Option<Duration>,
    /// True if a standby is registered.
    pub standby: bool,
    /// Time since the exporter last saw the document change.
    pub last_change_age: Duration,
    /// The number of candidates that answered the last roll call, and the time since then.
    pub candidates: Option<(usize, Duration)>,
}

/// The holder of a lease.
#[derive(Debug, Default)]
pub struct LeaseHolder<'a> {
    /// Identity of the holder.
    pub identity: &'a str,
    /// True if the holder seems to be gone; `None` if unknown, for example because of an outage.
    pub silent: Option<bool>,
    /// Time of the acquisition by the holder's clock, counted from the Unix epoch.
    pub since: Duration,
    /// Time since the last write, by the holder's clock.
    pub last_write_age: Option<Duration>,
    /// The declared lease duration.
    pub lease_duration: Duration,
}

/// A lock.
#[derive(Debug, Default)]
pub struct LockSample<'a> {
    /// Name of the lock.
    pub name: &'a str,
    /// Identities of the holders whose work or minimum hold has not ended.
    pub holders: Vec<&'a str>,
    /// Number of holders whose work has ended but whose minimum hold has not; `None` if unknown
    /// because of an outage.
    pub kept: Option<usize>,
    /// Number of holders that seem to be gone. During an outage, `None` unless a holder is known to
    /// be gone.
    pub silent: Option<usize>,
    /// Number of waiters.
    pub waiters: usize,
    /// Number of slots.
    pub slots: u32,
    /// The newest token.
    pub token: i64,
    /// The longest time that a renewing holder has worked under the lock; `None` if unknown because
    /// of an outage.
    pub held: Option<Duration>,
    /// The longest time that a waiter has waited.
    pub waited: Duration,
    /// Time since the last success of each key, newest first.
    pub successes: Vec<(&'a str, Duration)>,
}

/// Maximum number of series for the holders of a lock, and for the keys of its successes.
const EACH_MAX: usize = 16;

/// Name, help and value.
type LeaseGauge = (
    &'static str,
    &'static str,
    fn(&LeaseSample<'_>) -> Option<f64>,
);
type LockGauge = (
    &'static str,
    &'static str,
    fn(&LockSample<'_>) -> Option<f64>,
);

const LEASE_GAUGES: [LeaseGauge; 12] = [
    (
        "leasehold_collection_lease_held",
        "1 if the lease has a holder that renews, 0 if it is free or its holder no longer renews; absent while an outage hides the holder's state.",
        |lease| match &lease.holder {
            Some(holder) => flag(!holder.silent?),
            None => flag(false),
        },
    ),
    (
        "leasehold_collection_lease_silent",
        "1 if the holder has not renewed for a lease duration, else 0; absent while an outage hides the holder's state.",
        |lease| match &lease.holder {
            Some(holder) => flag(holder.silent?),
            None => flag(false),
        },
    ),
    (
        "leasehold_collection_lease_paused",
        "1 while the lease is paused (no candidate leads), else 0.",
        |lease| flag(lease.paused),
    ),
    (
        "leasehold_collection_lease_paused_since_timestamp_seconds",
        "When the lease was paused, by the operator's clock; absent unless the lease is paused and the pause is recorded.",
        |lease| seconds(lease.paused_since),
    ),
    (
        "leasehold_collection_lease_standby",
        "1 if a standby is registered to acquire the lease before other candidates, else 0.",
        |lease| flag(lease.standby),
    ),
    (
        "leasehold_collection_lease_token",
        "The newest fencing token of the lease.",
        // Exact up to 2^53.
        |lease| Some(lease.token as f64),
    ),
    (
        "leasehold_collection_lease_leader_since_timestamp_seconds",
        "When the holder acquired the lease, by the holder's clock; absent while the lease is free.",
        |lease| Some(lease.holder.as_ref()?.since.as_secs_f64()),
    ),
    (
        "leasehold_collection_lease_last_write_age_by_holder_clock_seconds",
        "Time since the holder's last write, by the holder's clock; absent while the lease is free or the write is dated in the future.",
        |lease| seconds(lease.holder.as_ref()?.last_write_age),
    ),
    (
        "leasehold_collection_lease_last_change_age_seconds",
        "Time since the exporter last saw the lease change; restarts at 0 after an outage.",
        |lease| seconds(Some(lease.last_change_age)),
    ),
    (
        "leasehold_collection_lease_duration_seconds",
        "The lease duration that the holder declared; absent while the lease is free.",
        |lease| seconds(Some(lease.holder.as_ref()?.lease_duration)),
    ),
    (
        "leasehold_collection_lease_candidates",
        "Candidates that answered the last roll call; absent before the first roll call.",
        |lease| Some(lease.candidates?.0 as f64),
    ),
    (
        "leasehold_collection_lease_candidates_age_seconds",
        "Time since the last roll call was answered or ended without an answer.",
        |lease| seconds(Some(lease.candidates?.1)),
    ),
];

const LOCK_GAUGES: [LockGauge; 8] = [
    (
        "leasehold_collection_lock_holders",
        "Holders of the lock whose work or minimum hold has not ended.",
        |lock| count(Some(lock.holders.len())),
    ),
    (
        "leasehold_collection_lock_kept",
        "Holders whose work has ended and whose minimum hold has not; absent while an outage hides a holder's state.",
        |lock| count(lock.kept),
    ),
    (
        "leasehold_collection_lock_silent",
        "Holders that have not renewed for a lease duration; absent while an outage hides a holder's state, unless another holder is known to be silent.",
        |lock| count(lock.silent),
    ),
    (
        "leasehold_collection_lock_waiters",
        "Waiters in the queue of the lock.",
        |lock| count(Some(lock.waiters)),
    ),
    (
        "leasehold_collection_lock_slots",
        "Slots of the lock; 0 for a lock with exclusive and shared modes.",
        |lock| Some(f64::from(lock.slots)),
    ),
    (
        "leasehold_collection_lock_token",
        "The newest fencing token of the lock, which grows with each acquisition.",
        |lock| Some(lock.token as f64),
    ),
    (
        "leasehold_collection_lock_held_seconds",
        "The longest time that a renewing holder has worked under the lock, counted from the acquisition as dated by MongoDB's clock; 0 if no holder renews; absent while an outage hides a holder's state.",
        |lock| seconds(lock.held),
    ),
    (
        "leasehold_collection_lock_wait_seconds",
        "The longest time that a waiter has waited, by the waiter's clock; 0 without waiters.",
        |lock| seconds(Some(lock.waited)),
    ),
];

fn flag(is_set: bool) -> Option<f64> {
    Some(f64::from(u8::from(is_set)))
}

fn count(number: Option<usize>) -> Option<f64> {
    Some(number? as f64)
}

fn seconds(duration: Option<Duration>) -> Option<f64> {
    Some(duration?.as_secs_f64())
}

struct GaugeRegistry(Registry);

impl GaugeRegistry {
    fn gauge<'a, const N: usize>(
        &self,
        (name, help): (&str, &str),
        labels: [&str; N],
        series: impl IntoIterator<Item = ([&'a str; N], f64)>,
    ) -> Result<(), prometheus::Error> {
        let gauge = GaugeVec::new(Opts::new(name, help), &labels)?;
        for (labels, value) in series {
            gauge.with_label_values(&labels).set(value);
        }
        self.0.register(Box::new(gauge))
    }

    fn documents(&self, documents: &DocumentSamples) -> Result<(), prometheus::Error> {
        for (name, help, value) in LEASE_GAUGES {
            let leases = documents.leases.iter();
            let series = leases.filter_map(|lease| Some(([lease.name], value(lease)?)));
            self.gauge((name, help), ["lease"], series)?;
        }
        for (name, help, value) in LOCK_GAUGES {
            let locks = documents.locks.iter();
            let series = locks.filter_map(|lock| Some(([lock.name], value(lock)?)));
            self.gauge((name, help), ["lock"], series)?;
        }
        let successes = documents.locks.iter().flat_map(|lock| {
            let successes = lock.successes.iter().take(EACH_MAX);
            successes.map(|(key, age)| ([lock.name, *key], age.as_secs_f64()))
        });
        self.gauge(
            (
                "leasehold_collection_lock_last_success_age_seconds",
                "Time since the last success that lock --once-per recorded under this key, by the clock of MongoDB; for the 16 newest keys.",
            ),
            ["lock", "key"],
            successes,
        )?;
        let leaders = documents.leases.iter().filter_map(|lease| {
            let holder = lease.holder.as_ref()?;
            Some(([lease.name, "", holder.identity], 1.0))
        });
        let holders = documents.locks.iter().flat_map(|lock| {
            let holders = lock.holders.iter().take(EACH_MAX);
            holders.map(|identity| (["", lock.name, *identity], 1.0))
        });
        self.gauge(
            (
                "leasehold_collection_holder_info",
                "Always 1; the labels show the identity of a holder of a lease or lock. Covers only the first 16 holders of each lock.",
            ),
            ["lease", "lock", "identity"],
            leaders.chain(holders),
        )?;
        let number = |(label, number): &(&'static str, usize)| ([*label], *number as f64);
        self.gauge(
            (
                "leasehold_collection_documents",
                "Documents of the collection by kind; at most 10000 are counted. Excludes retired leases, pruned locks, and documents whose _id is not a string. The kind foreign means neither a lease nor a lock.",
            ),
            ["kind"],
            documents.kinds.iter().map(number),
        )?;
        self.gauge(
            (
                "leasehold_collection_documents_not_shown",
                "Documents without series: not matched by --metrics-names, beyond the maximum number, or foreign.",
            ),
            ["reason"],
            documents.not_shown.iter().map(number),
        )
    }
}

impl CollectionSample<'_> {
    /// Returns a registry of gauges with these values.
    pub fn registry(&self) -> Result<Registry, prometheus::Error> {
        let registry = GaugeRegistry(Registry::new());
        registry.0.register(Box::new(ProcessMetrics::new()))?;
        let store = self.store.as_ref().map(|store| {
            let set = store.set.as_deref().unwrap_or_default();
            let (database, collection) = (store.database.as_str(), store.collection.as_str());
            let version = env!("CARGO_PKG_VERSION");
            (
                [store.kind.as_str(), set, database, collection, version],
                1.0,
            )
        });
        registry.gauge(
            (
                "leasehold_collection_info",
                "Always 1; the labels show the MongoDB set, database and collection, and the version of the exporter. Absent until MongoDB has been reached.",
            ),
            ["kind", "set", "database", "collection", "version"],
            store,
        )?;
        registry.gauge(
            (
                "leasehold_collection_live",
                "1 if the series of leases and locks are current; 0 if MongoDB has not answered for 30 s (these series are then absent).",
            ),
            [],
            flag(self.documents.is_some()).map(|live| ([], live)),
        )?;
        registry.gauge(
            (
                "leasehold_collection_last_answer_age_seconds",
                "Time since MongoDB last answered, normally at most 2 s; absent before the first answer.",
            ),
            [],
            seconds(self.last_answer_age).map(|age| ([], age)),
        )?;
        if let Some(documents) = &self.documents {
            registry.documents(documents)?;
        }
        Ok(registry.0)
    }

    /// Renders the metrics in the text format of Prometheus.
    pub fn text(&self) -> Result<String, prometheus::Error> {
        TextEncoder::new().encode_to_string(&self.registry()?.gather())
    }
}
