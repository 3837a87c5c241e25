//! A collection that resembles production: leases and locks with a history. Some leases are paused,
//! have a silent holder, or have no candidate. Some locks have waiters.

use std::time::{Duration, SystemTime};

use leasehold_testbed::Stage;
use mongodb::Collection;
use mongodb::bson::{Bson, DateTime, Document, Uuid, doc};
use tokio::task::JoinSet;
use tokio::time::sleep;

const LEASE_DURATION_MS: i64 = 24_000;
const MINUTE: f64 = 60.0;
pub(crate) const LONG_NAME: &str =
    "geo-cache-warmer-for-the-tile-servers-in-eu-west-1-and-eu-central-1";
/// The lease whose holder stopped writing before the page was opened.
pub(crate) const SILENT: &str = "payments-us";
/// The documents whose holders do not renew.
const GONE: [&str; 3] = [SILENT, "mail-outbox", "nightly-report"];

/// Keeps the holders and waiters renewing until dropped.
pub(crate) struct Production {
    _renewals: JoinSet<()>,
}

pub(crate) fn ago(seconds: f64) -> DateTime {
    let date = SystemTime::now() - Duration::from_secs_f64(seconds);
    DateTime::from_system_time(date)
}

/// A former holder: identity, begin and end in minutes ago, and reason.
type Past<'a> = (&'a str, f64, f64, &'a str);

fn history(token: i64, past: &[Past]) -> Vec<Document> {
    let first = token - i64::try_from(past.len()).unwrap();
    let past = (first..).zip(past);
    let past = past.map(|(token, (identity, from, to, reason))| {
        doc! {
            "token": token, "identity": *identity, "session": Uuid::new(), "reason": *reason,
            "acquired_at": ago(from * MINUTE), "ended_at": ago(to * MINUTE),
        }
    });
    past.collect()
}

/// Returns a lease that `holder` acquired some minutes ago, or a free lease.
fn lease(name: &str, token: i64, holder: Option<(&str, f64)>, past: &[Past]) -> Document {
    let holder = holder.map(|(identity, since)| {
        doc! {
            "identity": identity, "session": Uuid::new(), "claim": Uuid::new(), "token": token,
            "lease_duration_ms": LEASE_DURATION_MS, "renew_interval_ms": 3_000_i64,
            "address": "10.24.3.17:9402",
            "acquired_at": ago(since * MINUTE), "renewed_at": ago(0.5),
        }
    });
    let last = if holder.is_some() { token } else { token + 1 };
    let standby = holder.as_ref().zip(past.last());
    let standby =
        standby.map(|(_, (identity, ..))| doc! { "identity": *identity, "session": Uuid::new() });
    doc! {
        "_id": name, "schema": 1, "kind": "lease", "token": token, "revision": Uuid::new(),
        "holder": holder, "paused": false, "request": null, "reserved_for": null, "standby": standby,
        "history": history(last, past),
    }
}

/// Returns a holder or waiter of a lock; `token` is `None` for a waiter.
pub(crate) fn entry(identity: &str, mode: &str, token: Option<i64>, since: f64) -> Document {
    let revision = Uuid::new();
    doc! {
        "claim": Uuid::new(), "identity": identity, "session": Uuid::new(), "mode": mode,
        "revision": revision, "granted_revision": Uuid::new(), "lease_duration_ms": LEASE_DURATION_MS,
        "token": token, "acquired_at": ago(since * MINUTE), "renewed_at": ago(0.5),
    }
}

pub(crate) fn lock(name: &str, token: i64, entries: [Vec<Document>; 2], past: &[Past]) -> Document {
    let [holders, queue] = entries;
    doc! {
        "_id": name, "schema": 1, "kind": "lock", "token": token, "slots": 0_i64,
        "history": history(token - i64::try_from(holders.len()).unwrap() + 1, past),
        "holders": holders, "queue": queue,
    }
}

pub(crate) fn with(mut document: Document, fields: Document) -> Document {
    document.extend(fields);
    document
}

fn leases() -> Vec<Document> {
    let action = |action: &str, reason: &str, minutes: f64| {
        doc! {
            "id": Uuid::new(), "action": action, "token": 4_i64, "by": "olga@ops1",
            "reason": reason, "at": ago(minutes * MINUTE),
        }
    };
    let flaps: Vec<_> = (0..20_u32)
        .map(|number| {
            let from = 205.0 - 9.0 * f64::from(number);
            let identity = ["session-gc-0", "session-gc-1"][number as usize % 2];
            (identity, from, from - 8.0, "deadline")
        })
        .collect();
    let mut outbox = lease(
        "mail-outbox",
        18,
        Some(("mailer-3", 240.0)),
        &[("mailer-1", 2_400.0, 241.0, "deadline")],
    );
    let holder = outbox.get_document_mut("holder").unwrap();
    holder.insert("renewed_at", ago(205.0));
    // The entry expires while the page is being opened.
    holder.insert("lease_duration_ms", 3_000_i64);
    let mut silent = lease(
        SILENT,
        4,
        Some(("payments-us-0", 186.0)),
        &[("payments-us-1", 4_800.0, 190.0, "unhealthy")],
    );
    let holder = silent.get_document_mut("holder").unwrap();
    holder.insert("renewed_at", ago(372.0));
    vec![
        lease(
            "billing-invoices",
            13,
            Some(("billing-7c9f4d5b8-x2kqz", 312.0)),
            &[
                ("billing-7c9f4d5b8-m4n8t", 2_400.0, 315.0, "shutdown"),
                ("billing-7c9f4d5b8-q9p1r", 315.0, 312.0, "requested"),
            ],
        ),
        lease(
            "orders",
            9,
            Some(("orders-2", 47.0)),
            &[
                ("orders-1", 540.0, 204.0, "shutdown"),
                ("orders-0", 204.0, 132.0, "deadline"),
                ("orders-1", 131.0, 47.1, "transferred"),
            ],
        ),
        lease("payments-eu", 1, Some(("payments-eu-1", 1_560.0)), &[]),
        silent,
        lease(
            "search-indexer",
            89,
            Some((
                "search-indexer-5d8f7-x4kq2-on-node-eu-west-1c.example.internal",
                95.0,
            )),
            &[("search-indexer-0", 1_200.0, 95.5, "workload_exit")],
        ),
        outbox,
        lease(
            "recommendations",
            21,
            None,
            &[("reco-0", 1_800.0, 156.0, "workload_exit")],
        ),
        with(
            lease(
                "ledger-export",
                4,
                None,
                &[("ledger-1", 1_800.0, 72.0, "paused")],
            ),
            doc! { "paused": true, "actions": [action("pause", "freeze until Monday", 72.0)] },
        ),
        lease(
            LONG_NAME,
            131,
            Some(("warmer-0", 22.0)),
            &[("warmer-1", 480.0, 22.1, "requested")],
        ),
        lease("session-gc", 320, Some(("session-gc-0", 24.0)), &flaps),
    ]
}

fn locks() -> Vec<Document> {
    let alone =
        |identity: &str, token, since| vec![entry(identity, "exclusive", Some(token), since)];
    let waiting = |identity: &str, since| entry(identity, "exclusive", None, since);
    let slots = [("gpu-a1", 33.0), ("gpu-b2", 18.0), ("gpu-c1", 3.0)];
    let slots = (0..3_i64).zip(slots).map(|(slot, (identity, since))| {
        let holder = entry(identity, "slot", Some(40 + slot), since);
        with(holder, doc! { "slot": slot })
    });
    let kept = doc! { "at_least_ms": 21_600_000_i64, "over": true, "over_at": ago(2_400.0) };
    vec![
        lock(
            "db-migrations",
            41,
            [
                alone("deploy-812", 41, 4.0),
                vec![waiting("deploy-813", 3.0), waiting("deploy-814", 1.0)],
            ],
            &[
                ("deploy-809", 306.0, 294.0, "released"),
                ("deploy-810", 180.0, 168.0, "expired"),
                ("deploy-811", 50.0, 41.0, "released"),
            ],
        ),
        with(
            lock(
                "nightly-report",
                41,
                [
                    vec![with(entry("batch-3", "exclusive", Some(41), 58.0), kept)],
                    vec![],
                ],
                &[("batch-1", 1_500.0, 1_494.0, "released")],
            ),
            doc! { "successes": [{ "key": "default", "at": ago(2_400.0) }] },
        ),
        with(
            lock(
                "video-transcode",
                42,
                [slots.collect(), vec![entry("gpu-d4", "slot", None, 0.7)]],
                &[
                    ("gpu-a1", 300.0, 228.0, "released"),
                    ("gpu-b2", 276.0, 132.0, "released"),
                    ("gpu-c1", 192.0, 66.0, "expired"),
                    ("gpu-a1", 120.0, 36.0, "released"),
                ],
            ),
            doc! { "slots": 3_i64 },
        ),
        lock(
            "config-readers",
            2,
            [
                vec![
                    entry("reader-1", "shared", Some(1), 10.0),
                    entry("reader-2", "shared", Some(2), 9.0),
                ],
                vec![],
            ],
            &[],
        ),
        lock(
            "backup-verify",
            11,
            [vec![], vec![]],
            &[("backup-1", 252.0, 234.0, "released")],
        ),
    ]
}

pub(crate) fn collection(stage: &Stage) -> Collection<Document> {
    let database = stage.set().client().database(stage.database());
    database.collection(stage.collection())
}

impl Production {
    pub(crate) async fn of(stage: &Stage) -> Self {
        let collection = collection(stage);
        let all = leases().into_iter().chain(locks());
        let foreign = doc! { "_id": "schema-version", "version": 12 };
        let all: Vec<_> = all.chain([foreign]).collect();
        let live = all
            .iter()
            .filter_map(|document| document.get_str("_id").ok());
        let live = live.filter(|name| !GONE.contains(name)).map(str::to_owned);
        let live: Vec<_> = live.collect();
        collection.insert_many(all).await.unwrap();
        let mut renewals = JoinSet::new();
        renewals.spawn(async move {
            loop {
                renew(&collection, &live).await;
                sleep(Duration::from_millis(900)).await;
            }
        });
        Self {
            _renewals: renewals,
        }
    }
}

async fn renew(collection: &Collection<Document>, names: &[String]) {
    for name in names {
        let (revision, now) = (Bson::from(Uuid::new()), DateTime::now());
        let lease = doc! { "_id": name, "holder": { "$type": "object" } };
        let update = doc! { "revision": &revision, "holder.renewed_at": now };
        let update = doc! { "$set": update };
        let _ = collection.update_one(lease, update).await;
        for list in ["holders", "queue"] {
            let lock = doc! { "_id": name, list: { "$type": "array" } };
            let update = doc! {
                format!("{list}.$[].revision"): &revision, format!("{list}.$[].renewed_at"): now,
            };
            let _ = collection.update_one(lock, doc! { "$set": update }).await;
        }
    }
}
