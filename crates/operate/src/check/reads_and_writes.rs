//! Checks of what the protocol relies on, and how long it takes.

use std::time::Duration;

use super::permissions::Granted;
use super::report::{Check, Name, shown};
use super::servers::failed;
use super::{Installation, NOT_REACHED, within};
use leasehold_core::election::Found;
use leasehold_mongodb::store::Failure;
use leasehold_mongodb::store::mongo::probe::{
    DeploymentKind, Description, Indexes, Latencies, MEASURED_MAX, Product, lacks_right,
};

const NAMES: [Name; 8] = [
    Name::Collection,
    Name::LeaseDocument,
    Name::MajorityRead,
    Name::LinearizableRead,
    Name::Journal,
    Name::RoundTrip,
    Name::MajorityWrite,
    Name::ChangeStreamDelay,
];
const NO_FIND: &str = "find is not granted";
const ALONE: &str = "a standalone server has no majority";

pub(super) async fn checks(
    installation: &Installation,
    reached: Option<&Description>,
    granted: Granted,
) -> Vec<Check> {
    let Some(description) = reached else {
        return NAMES.map(|name| Check::skipped(name, NOT_REACHED)).into();
    };
    let alone = description.kind == DeploymentKind::Standalone;
    vec![
        collection(installation, description).await,
        lease_document(installation, granted).await,
        majority_read(installation, granted).await,
        linearizable_read(installation, granted, alone).await,
        journal(installation, granted).await,
        round_trip(installation).await,
        majority_write(installation, granted, alone).await,
        change_stream_delay(installation, granted).await,
    ]
}

/// Checks that the collection accepts leases (validators, views and foreign indexes may not), and
/// that no index deletes them.
async fn collection(installation: &Installation, description: &Description) -> Check {
    let name = Name::Collection;
    if description.kind == DeploymentKind::Standalone || description.product != Product::MongoDb {
        return Check::skipped(name, "it takes a transaction, which this server has not");
    }
    let Installation { store, timeout, .. } = installation;
    let tried = async {
        store.try_documents().await?;
        store.indexes().await
    };
    let accepts = "accepts leases and locks (written in a transaction, which was aborted)";
    match within(*timeout, tried).await {
        Ok(Indexes::Harmless) => Check::ok(name, accepts),
        Ok(Indexes::Unknown) => Check::ok(
            name,
            format!("{accepts}; TTL indexes are not looked for without the right listIndexes"),
        ),
        Err(failure) if lacks_right(&failure) => {
            Check::skipped(name, "insert and update are not both granted, see above")
        }
        Err(failure) => failed(name, &failure),
    }
}

async fn lease_document(installation: &Installation, granted: Granted) -> Check {
    let name = Name::LeaseDocument;
    if !granted.find {
        return Check::skipped(name, NO_FIND);
    }
    let Installation { store, timeout, .. } = installation;
    match within(*timeout, store.lease()).await {
        Ok(Found::Missing) => Check::ok(name, "not there yet: the first candidate creates it"),
        Ok(Found::Foreign(why)) => Check::failed(
            name,
            format!("the document of this name is not a lease: {why}"),
            "choose another lease or collection: a daemon neither overwrites it nor leads",
        ),
        Ok(Found::Lease(lease)) if lease.paused => Check::warning(
            name,
            format!("paused, with token {}: no candidate leads", lease.token),
            "resume it when its operator agrees (docs/operations.md)",
        ),
        Ok(Found::Lease(lease)) => Check::ok(
            name,
            match &lease.holder {
                Some(holder) => format!("held by {} with token {}", holder.identity, lease.token),
                None => format!("free, with token {}", lease.token),
            },
        ),
        Err(failure) => failed(name, &failure),
    }
}

async fn majority_read(installation: &Installation, granted: Granted) -> Check {
    let name = Name::MajorityRead;
    if !granted.find {
        return Check::skipped(name, NO_FIND);
    }
    let Installation { store, timeout, .. } = installation;
    match within(*timeout, store.read(false)).await {
        Ok(()) => Check::ok(name, "majority reads work"),
        Err(failure) => failed(name, &failure),
    }
}

async fn linearizable_read(installation: &Installation, granted: Granted, alone: bool) -> Check {
    let name = Name::LinearizableRead;
    if alone {
        return Check::skipped(name, "a standalone server neither has nor needs them");
    }
    if !granted.find {
        return Check::skipped(name, NO_FIND);
    }
    let Installation { store, timeout, .. } = installation;
    match within(*timeout, store.read(true)).await {
        Ok(()) => Check::ok(name, "the primary has confirmed that it is the primary"),
        Err(failure) => failed(name, &failure),
    }
}

async fn journal(installation: &Installation, granted: Granted) -> Check {
    let name = Name::Journal;
    let Installation { store, timeout, .. } = installation;
    if !granted.find || !granted.update {
        return Check::skipped(name, "find and update are not both granted");
    }
    if let Err(failure) = within(*timeout, store.write_nothing()).await {
        return failed(name, &failure);
    }
    let acknowledged = "a write that matches nothing was acknowledged with w: majority, j: true";
    match within(*timeout, store.storage_engine()).await {
        Ok(engine) if engine.persistent => Check::ok(
            name,
            format!("{acknowledged}; storage engine {}", engine.name),
        ),
        Ok(engine) => Check::warning(
            name,
            format!(
                "the storage engine {} keeps data in memory only: an acknowledged write is lost if a majority restarts",
                engine.name
            ),
            "use a persistent storage engine (wiredTiger)",
        ),
        Err(failure) if lacks_right(&failure) => Check::ok(
            name,
            format!(
                "{acknowledged}; the storage engine is not shown without the right serverStatus"
            ),
        ),
        Err(failure) => Check::ok(name, format!("{acknowledged}; serverStatus: {failure}")),
    }
}

async fn round_trip(installation: &Installation) -> Check {
    let Installation { store, timeout, .. } = installation;
    let measured = within(*timeout + MEASURED_MAX, store.round_trips()).await;
    judged(
        Name::RoundTrip,
        "pings of the primary",
        measured,
        installation,
    )
}

async fn majority_write(installation: &Installation, granted: Granted, alone: bool) -> Check {
    let name = Name::MajorityWrite;
    if alone {
        return Check::skipped(name, ALONE);
    }
    if !granted.find {
        return Check::skipped(name, NO_FIND);
    }
    let Installation { store, timeout, .. } = installation;
    let measured = within(*timeout + MEASURED_MAX, store.majority_writes()).await;
    let how = "linearizable reads, each confirmed by an empty log entry on a majority";
    judged(name, how, measured, installation)
}

/// Compares measured durations with `operation_timeout`, after which a renewal counts as unknown.
fn judged(
    name: Name,
    how: &str,
    measured: Result<Latencies, Failure>,
    installation: &Installation,
) -> Check {
    let latencies = match measured {
        Ok(latencies) => latencies,
        Err(failure) => return failed(name, &failure),
    };
    let limit = installation.config.lease.timings.operation_timeout();
    let detail = format!(
        "{} (operation_timeout {})",
        described(&latencies, how),
        shown(limit)
    );
    let remedy = "find out why the servers or the network are slow, or raise mongodb.operation_timeout with lease.renew_deadline";
    let check = match latencies.p99() {
        slowest if slowest >= limit => Check::failed(name, detail, remedy),
        slowest if slowest >= limit / 2 => Check::warning(name, detail, remedy),
        _ => Check::ok(name, detail),
    };
    numbered(check, &latencies)
}

async fn change_stream_delay(installation: &Installation, granted: Granted) -> Check {
    let name = Name::ChangeStreamDelay;
    if !granted.change_stream {
        return Check::skipped(name, "there is no change stream");
    }
    let Installation {
        config,
        store,
        timeout,
    } = installation;
    let latencies = match within(*timeout + MEASURED_MAX, store.stream_delays()).await {
        Ok(latencies) => latencies,
        Err(failure) => {
            return Check::skipped(name, format!("could not be measured: {failure}"));
        }
    };
    let detail = described(
        &latencies,
        "empty log entries, from sending to arrival in the change stream",
    );
    // Followers without a change stream poll at this interval.
    let polling = config.lease.timings.retry_interval();
    let check = match latencies.p50() > polling {
        true => Check::warning(
            name,
            format!("{detail}: slower than polling every {}", shown(polling)),
            "handoffs take as long, on a sharded cluster up to a renew_interval: use a replica set, or hints (docs/mongodb.md)",
        ),
        false => Check::ok(name, detail),
    };
    numbered(check, &latencies)
}

fn described(latencies: &Latencies, how: &str) -> String {
    let (p50, p99) = (shown(latencies.p50()), shown(latencies.p99()));
    format!("p50 {p50}, p99 {p99} of {} {how}", latencies.count())
}

fn numbered(check: Check, latencies: &Latencies) -> Check {
    let millis = |check: Check, name, duration: Duration| check.millis(name, duration);
    let check = millis(check, "p50_ms", latencies.p50());
    millis(check, "p99_ms", latencies.p99()).number("samples", latencies.count())
}
