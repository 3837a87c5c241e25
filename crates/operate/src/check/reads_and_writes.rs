//! Checks of what the protocol relies on, and how long it takes.

use std::time::Duration;

use super::permissions::Prerequisites;
use super::report::{Check, CheckResult, Checked, Finding, shown};
use leasehold_core::election::Found;
use leasehold_mongodb::store::StoreKind;
use leasehold_mongodb::store::mongo::probe::{Latencies, Product, lacks_right};

pub(super) async fn checks(prerequisites: Prerequisites<'_>) -> Vec<Check> {
    vec![
        Check::new("collection", prerequisites.collection().await),
        Check::new("lease-document", prerequisites.lease_document().await),
        Check::new("majority-read", prerequisites.majority_read().await),
        Check::new("linearizable-read", prerequisites.linearizable_read().await),
        Check::new("journal", prerequisites.journal().await),
        Check::new("round-trip", prerequisites.round_trip().await),
        Check::new("majority-write", prerequisites.majority_write().await),
        Check::new(
            "change-stream-delay",
            prerequisites.change_stream_delay().await,
        ),
    ]
}

impl Prerequisites<'_> {
    /// Checks that the collection accepts leases (validators, views and foreign indexes may not), and
    /// that no index deletes them.
    async fn collection(self) -> Checked {
        let description = self.primary?;
        if description.kind == StoreKind::Standalone || description.product != Product::MongoDb {
            return Err("this server has no transactions, which the check needs".into());
        }
        let store = &self.installation.store;
        let tried = async {
            store.try_documents().await?;
            Ok(store.indexes().await)
        };
        let accepts = "accepts leases and locks (written in a transaction, which was aborted)";
        match self.installation.within(tried).await {
            Ok(Ok(())) => Ok(Finding::ok(accepts)),
            Ok(Err(failure)) if lacks_right(&failure) => Ok(Finding::ok(format!(
                "{accepts}; TTL indexes are not visible without the right listIndexes"
            ))),
            Err(failure) if lacks_right(&failure) => {
                Err("insert and update are not both granted, see above".into())
            }
            Ok(Err(failure)) | Err(failure) => Err(failure.into()),
        }
    }

    async fn lease_document(self) -> Checked {
        self.find?;
        let lease = self.installation.store.lease();
        Ok(match self.installation.within(lease).await? {
            Found::Missing => Finding::ok("does not exist yet; the first candidate creates it"),
            Found::Foreign(why) => Finding::failed(
                format!("the document of this name is not a lease: {why}"),
                "choose another lease or collection: a daemon neither overwrites it nor leads",
            ),
            Found::Lease(lease) if lease.paused => Finding::warning(
                format!("paused, with token {}: no candidate leads", lease.token),
                "resume it when its operator agrees (docs/operations.md)",
            ),
            Found::Lease(lease) => Finding::ok(match &lease.holder {
                Some(holder) => format!("held by {} with token {}", holder.identity, lease.token),
                None => format!("free, with token {}", lease.token),
            }),
        })
    }

    async fn majority_read(self) -> Checked {
        self.find?;
        let read = self.installation.store.read(false);
        self.installation.within(read).await?;
        Ok(Finding::ok("majority reads work"))
    }

    async fn linearizable_read(self) -> Checked {
        if self.primary?.kind == StoreKind::Standalone {
            return Err("a standalone server neither has nor needs linearizable reads".into());
        }
        self.find?;
        let read = self.installation.store.read(true);
        self.installation.within(read).await?;
        Ok(Finding::ok("the primary confirmed its role"))
    }

    async fn journal(self) -> Checked {
        self.find?;
        self.update?;
        let store = &self.installation.store;
        self.installation.within(store.write_nothing()).await?;
        let acknowledged =
            "a write that matches nothing was acknowledged with w: majority, j: true";
        let engine = self.installation.within(store.storage_engine()).await;
        Ok(match engine {
            Ok(engine) if engine.persistent => {
                Finding::ok(format!("{acknowledged}; storage engine {}", engine.name))
            }
            Ok(engine) => Finding::warning(
                format!(
                    "the storage engine {} keeps data in memory only: an acknowledged write is lost if a majority restarts",
                    engine.name
                ),
                "use a persistent storage engine (wiredTiger)",
            ),
            Err(failure) if lacks_right(&failure) => Finding::ok(format!(
                "{acknowledged}; the storage engine is not visible without the right serverStatus"
            )),
            Err(failure) => Finding::ok(format!("{acknowledged}; serverStatus: {failure}")),
        })
    }

    async fn round_trip(self) -> Checked {
        self.primary?;
        let pings = self.installation.store.round_trips();
        let measured = self.installation.measured(pings).await?;
        Ok(self.judged(&measured, "pings of the primary"))
    }

    async fn majority_write(self) -> Checked {
        if self.primary?.kind == StoreKind::Standalone {
            return Err("a standalone server has no majority".into());
        }
        self.find?;
        let writes = self.installation.store.majority_writes();
        let measured = self.installation.measured(writes).await?;
        let calls = "linearizable reads, each confirmed by an empty log entry on a majority";
        Ok(self.judged(&measured, calls))
    }

    /// Compares measured durations with `operation_timeout`, after which a renewal counts as unknown.
    fn judged(self, measured: &Latencies, calls: &str) -> Finding {
        let limit = self.installation.config.lease.timings.operation_timeout();
        let result = match measured.p99 {
            slowest if slowest >= limit => CheckResult::Failed,
            slowest if slowest >= limit / 2 => CheckResult::Warning,
            _ => CheckResult::Ok,
        };
        let detail = described(measured, calls, "operation_timeout", limit);
        let remedy = "find out why the servers or the network are slow, or raise mongodb.operation_timeout with lease.renew_deadline";
        numbered(Finding::new(result, detail, remedy), measured)
    }

    async fn change_stream_delay(self) -> Checked {
        self.change_stream?;
        let delays = self.installation.store.stream_delays();
        let measured = self.installation.measured(delays).await;
        let measured = measured
            .map_err(|failure| Finding::skipped(format!("could not be measured: {failure}")))?;
        // Followers without a change stream poll at this interval.
        let polling = self.installation.config.lease.timings.retry_interval();
        let calls = "empty log entries, from sending to arrival in the change stream";
        let detail = described(&measured, calls, "retry_interval", polling);
        let remedy = "polling would be faster, and on a sharded cluster a handoff takes up to a renew_interval: use a replica set, or hints (docs/mongodb.md)";
        let finding = Finding::warning_if(measured.p50 > polling, detail, remedy);
        Ok(numbered(finding, &measured))
    }
}

fn described(measured: &Latencies, calls: &str, setting: &str, limit: Duration) -> String {
    let (p50, p99, limit) = (shown(measured.p50), shown(measured.p99), shown(limit));
    let count = measured.count;
    format!("p50 {p50}, p99 {p99} of {count} {calls} ({setting} {limit})")
}

fn numbered(finding: Finding, measured: &Latencies) -> Finding {
    let finding = finding.millis("p50_ms", measured.p50);
    let finding = finding.millis("p99_ms", measured.p99);
    finding.number("samples", measured.count)
}
