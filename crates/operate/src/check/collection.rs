//! Tries each action that the role must permit and each feature that the protocol needs, and
//! measures latencies.

use std::time::Duration;

use super::report::{Check, CheckResult, Checked, Finding, Skip, shown};
use super::{Installation, Primary};
use crate::operators::did_you_mean;
use crate::operators::observed::Evidence;
#[cfg(test)]
use crate::operators::observed::wall;
use crate::operators::render::short;
use leasehold_core::election::{ForeignDocument, Found, ResourceName, WallMillis};
use leasehold_mongodb::store::mongo::WatchMode;
use leasehold_mongodb::store::mongo::operators::Scope;
use leasehold_mongodb::store::mongo::probe::{
    Latencies, MEASURED_MAX, Product, lacks_hints, lacks_right, requires_login,
};
use leasehold_mongodb::store::{Failure, StoreKind};

/// The only action that the role may lack.
const CHANGE_STREAM: &str = "changeStream";

/// Results of the permission checks. `Err` is the reason to skip the checks that need this
/// permission.
struct Tried<'a> {
    installation: &'a Installation,
    primary: Primary<'a>,
    find: Result<(), Skip>,
    update: Result<(), Skip>,
    change_stream: Result<(), Skip>,
}

pub(super) async fn checks(
    installation: &Installation,
    primary: Primary<'_>,
) -> (Vec<Check>, Vec<Check>) {
    let reached = primary.map(drop);
    let mut tried = Tried {
        installation,
        primary,
        find: reached,
        update: reached,
        change_stream: reached,
    };
    let granted = |checked: &Checked, why| reached.and(checked.as_ref().map(drop).map_err(|_| why));
    let found = tried.find().await;
    tried.find = granted(&found, "find is not granted");
    let inserted = tried.insert().await;
    let updated = tried.update().await;
    tried.update = granted(&updated, "update is not granted");
    let watched = tried.change_stream().await;
    tried.change_stream = granted(&watched, "there is no change stream");
    let permissions = vec![
        Check::new("find", found),
        Check::new("insert", inserted),
        Check::new("update", updated),
        Check::new("change-stream", watched),
        Check::new("hints", tried.hints().await),
    ];
    // The checks run one after the other, because concurrent calls would distort the latencies.
    let reads_and_writes = vec![
        Check::new("collection", tried.collection().await),
        Check::new("lease-document", tried.lease_document().await),
        Check::new("majority-read", tried.majority_read().await),
        Check::new("linearizable-read", tried.linearizable_read().await),
        Check::new("journal", tried.journal().await),
        Check::new("round-trip", tried.round_trip().await),
        Check::new("majority-write", tried.majority_write().await),
        Check::new("change-stream-delay", tried.change_stream_delay().await),
    ];
    (permissions, reads_and_writes)
}

impl Tried<'_> {
    async fn find(&self) -> Checked {
        self.primary?;
        let read = self.installation.store.read(false);
        self.action("find", read, "allowed").await
    }

    async fn insert(&self) -> Checked {
        if self.primary?.product != Product::MongoDb {
            return Err("a server that is not MongoDB could store the test document".into());
        }
        let permitted = "insert is permitted (tested with a document that no server stores)";
        let insert = self.installation.store.insert();
        self.action("insert", insert, permitted).await
    }

    async fn update(&self) -> Checked {
        self.primary?;
        let permitted = "an update that matches no document was accepted";
        let update = self.installation.store.update();
        self.action("update", update, permitted).await
    }

    async fn change_stream(&self) -> Checked {
        if self.primary?.kind == StoreKind::Standalone {
            return Err("a standalone server has no change streams".into());
        }
        self.find
            .map_err(|_| "a change stream also requires find")?;
        let watch = self.installation.store.watch();
        let permitted = "a change stream was opened and closed";
        self.action(CHANGE_STREAM, watch, permitted).await
    }

    /// Tries an action. If the action is not permitted, the finding names the action and the
    /// command that grants it.
    async fn action(
        &self,
        action: &str,
        call: impl Future<Output = Result<(), Failure>>,
        permitted: &str,
    ) -> Checked {
        let Err(failure) = self.installation.within(call).await else {
            return Ok(Finding::ok(permitted));
        };
        if requires_login(&failure) {
            return Err(Finding::failed(
                "the server requires a user, and the URI has none",
                "put the user and its password into the MongoDB URI (docs/mongodb.md)",
            ));
        }
        if !lacks_right(&failure) {
            return Err(failure.into());
        }
        let mongodb = &self.installation.config.mongodb;
        let (database, collection) = (&mongodb.database, &mongodb.collection);
        let detail = format!("the user may not {action} on {database}.{collection}");
        let remedy = format!(
            "db.getSiblingDB({database:?}).grantPrivilegesToRole(\"leasehold\", [{{ resource: {{ db: {database:?}, collection: {collection:?} }}, actions: [{action:?}] }}]), or create that role: docs/mongodb.md"
        );
        Err(match action {
            CHANGE_STREAM => Finding::warning(format!("{detail}: followers poll instead"), remedy),
            _ => Finding::failed(detail, remedy),
        })
    }

    async fn hints(&self) -> Checked {
        self.primary?;
        let installation = self.installation;
        let watch = installation.config.mongodb.watch;
        match watch {
            WatchMode::Stream => return Err(Finding::skipped("mongodb.watch is stream")),
            WatchMode::Poll => return Err(Finding::skipped("mongodb.watch is poll")),
            _ => {}
        }
        let store = &installation.store;
        let mut usable = installation.within(store.hints()).await;
        let to_create = usable.as_ref().is_err_and(lacks_hints);
        if to_create {
            usable = installation.within(store.hints_creation()).await;
        }
        let Err(failure) = usable else {
            return Ok(Finding::ok(match to_create {
                true => {
                    "does not exist yet; the first candidate creates the collection, as its role allows"
                }
                false => "a cursor on the collection of hints was opened and closed",
            }));
        };
        let instead = match (watch, self.change_stream) {
            (WatchMode::Auto, Ok(())) => {
                "followers use a change stream instead, which is slower and costs MongoDB more CPU"
            }
            _ => "followers poll instead",
        };
        let what = format!("{}: {instead}", failure.kind);
        let not_configured =
            watch == WatchMode::Auto && (lacks_hints(&failure) || lacks_right(&failure));
        Err(match not_configured {
            true => Finding::skipped(format!("{what}; {}", failure.detail)),
            false => Finding::warning(what, failure.detail),
        })
    }

    /// Checks that the collection accepts leases, and that no TTL index deletes them. A view, a
    /// validator or a unique index would refuse leases.
    async fn collection(&self) -> Checked {
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

    async fn lease_document(&self) -> Checked {
        self.find?;
        let lease = self.installation.store.lease();
        let (found, renewed_at) = self.installation.within(lease).await?;
        Ok(match found {
            Found::Missing => {
                let documents = self.installation.store.documents();
                let listed = documents.list(&Scope::Leases).await.unwrap_or_default();
                let names: Vec<_> = listed.iter().map(|entry| entry.name.as_str()).collect();
                let near = did_you_mean(self.installation.config.lease.name.as_str(), &names);
                let created = "does not exist yet; the first candidate creates it";
                Finding::ok(created.to_owned() + &near.unwrap_or_default())
            }
            Found::Foreign(ForeignDocument::Lock(_)) => {
                let name = &self.installation.config.lease.name;
                Finding::failed(
                    format!("{name} is a lock, not a lease"),
                    format!("choose another lease; leasehold describe {name} shows the lock"),
                )
            }
            Found::Foreign(why) => Finding::failed(
                format!("the document of this name is not a lease: {why}"),
                "choose another lease or collection: a daemon does not overwrite the document, and cannot lead",
            ),
            Found::Lease(lease) if lease.paused => Finding::warning(
                format!("paused, with token {}: no candidate leads", lease.token),
                format!(
                    "ask the operator who paused the lease, then: leasehold resume {}",
                    self.installation.config.lease.name
                ),
            ),
            Found::Lease(lease) => match &lease.holder {
                Some(holder) => held(
                    &self.installation.config.lease.name,
                    format!("held by {} with token {}", holder.identity, lease.token),
                    renewed_at,
                    holder.lease_duration.duration(),
                ),
                None => Finding::ok(format!("free, with token {}", lease.token)),
            },
        })
    }

    async fn majority_read(&self) -> Checked {
        self.find?;
        let read = self.installation.store.read(false);
        self.installation.within(read).await?;
        Ok(Finding::ok("majority reads work"))
    }

    async fn linearizable_read(&self) -> Checked {
        if self.primary?.kind == StoreKind::Standalone {
            return Err("a standalone server has no linearizable reads".into());
        }
        self.find?;
        let read = self.installation.store.read(true);
        self.installation.within(read).await?;
        Ok(Finding::ok("the primary confirmed its role"))
    }

    async fn journal(&self) -> Checked {
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

    async fn round_trip(&self) -> Checked {
        self.primary?;
        let pings = self.installation.store.round_trips();
        let measured = self.installation.limited(MEASURED_MAX, pings).await?;
        Ok(self.judged(&measured, "pings of the primary"))
    }

    async fn majority_write(&self) -> Checked {
        if self.primary?.kind == StoreKind::Standalone {
            return Err("a standalone server has no majority".into());
        }
        self.find?;
        let writes = self.installation.store.majority_writes();
        let measured = self.installation.limited(MEASURED_MAX, writes).await?;
        let calls = "linearizable reads, each confirmed by a majority";
        Ok(self.judged(&measured, calls))
    }

    /// Compares latencies with `operation_timeout`, the time after which a renewal's outcome counts
    /// as unknown.
    fn judged(&self, measured: &Latencies, calls: &str) -> Finding {
        let limit = self.installation.config.lease.timings.operation_timeout();
        let result = match measured.p99 {
            slowest if slowest >= limit => CheckResult::Failed,
            slowest if slowest >= limit / 2 => CheckResult::Warning,
            _ => CheckResult::Ok,
        };
        let detail = described(measured, calls, "operation_timeout", limit);
        let remedy = "check the latency of the servers and the network, or raise mongodb.operation_timeout and lease.renew_deadline";
        numbered(Finding::new(result, detail, remedy), measured)
    }

    async fn change_stream_delay(&self) -> Checked {
        self.change_stream?;
        let delays = self.installation.store.stream_delays();
        let measured = self.installation.limited(MEASURED_MAX, delays).await;
        let failed = |failure| Finding::skipped(format!("could not be measured: {failure}"));
        let measured = measured.map_err(failed)?;
        // Followers without a change stream poll at this interval.
        let polling = self.installation.config.lease.timings.retry_interval();
        let calls = "no-op writes, from sending to arrival in the change stream";
        let detail = described(&measured, calls, "retry_interval", polling);
        let remedy = "use a replica set, or hints (docs/mongodb.md): polling would be faster, and on a sharded cluster a handoff takes up to a renew_interval";
        let finding = Finding::warning_if(measured.p50 > polling, detail, remedy);
        Ok(numbered(finding, &measured))
    }
}

/// Warns if the holder's last renewal is older than its lease duration. The age is an estimate,
/// because the date of the renewal is from the holder's wall clock.
fn held(
    lease: &ResourceName,
    held: String,
    renewed_at: WallMillis,
    lease_duration: Duration,
) -> Finding {
    let evidence = Evidence::at_first_look(renewed_at, lease_duration);
    let ahead = evidence.dated().filter(|_| evidence.is_ahead());
    if let Some(dated) = ahead {
        return Finding::warning(
            format!("{held}; {dated}, so the clocks differ and the holder may be gone"),
            format!(
                "synchronize the clocks; leasehold describe {lease} shows whether the holder renews"
            ),
        );
    }
    let age = evidence.last_write_ago.filter(|_| evidence.is_silent());
    let Some(age) = age.and_then(|millis| u64::try_from(millis).ok()) else {
        return Finding::ok(held);
    };
    let (ago, lasts) = (short(Duration::from_millis(age)), shown(lease_duration));
    Finding::warning(
        format!("{held}; last renewal {ago} ago by the holder's clock (lease duration {lasts})"),
        format!("leasehold describe {lease} shows whether a candidate answers"),
    )
}

#[cfg(test)]
#[test]
fn a_renewal_dated_far_in_the_future_causes_a_warning() {
    let name = ResourceName::new("orders").expect("a name");
    let lasts = Duration::from_secs(24);
    let found = |ago: i64| {
        let renewed_at = WallMillis(wall().0 - 1_000 * ago);
        held(
            &name,
            "held by a with token 1".to_owned(),
            renewed_at,
            lasts,
        )
    };
    for (ago, result, part) in [
        (
            -3_600,
            CheckResult::Warning,
            " in the future, so the clocks differ and the holder may be gone",
        ),
        (-2, CheckResult::Ok, "held by a with token 1"),
        (
            60,
            CheckResult::Warning,
            "last renewal 1m ago by the holder's clock",
        ),
    ] {
        let found = found(ago);
        assert_eq!(found.result, result, "{ago}");
        assert!(found.detail.contains(part), "{}", found.detail);
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
