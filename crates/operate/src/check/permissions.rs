//! Tries each action that the role must have.

use super::report::{Check, Checked, Finding, Skip};
use super::{Installation, Primary};
use leasehold_mongodb::store::mongo::WatchMode;
use leasehold_mongodb::store::mongo::probe::{Product, lacks_hints, lacks_right, requires_login};
use leasehold_mongodb::store::{Failure, StoreKind};

/// The only action that a candidate can do without.
const CHANGE_STREAM: &str = "changeStream";

/// An installation with its primary and the granted actions, or the reasons for skipping checks that
/// depend on them.
#[derive(Clone, Copy)]
pub(super) struct Prerequisites<'a> {
    pub(super) installation: &'a Installation,
    pub(super) primary: Primary<'a>,
    pub(super) find: Result<(), Skip>,
    pub(super) update: Result<(), Skip>,
    pub(super) change_stream: Result<(), Skip>,
}

pub(super) async fn checks<'a>(
    installation: &'a Installation,
    primary: Primary<'a>,
) -> (Vec<Check>, Prerequisites<'a>) {
    let found = find(installation, primary).await;
    let updated = update(installation, primary).await;
    let granted = |checked: &Checked, why| {
        let reached = primary.map(drop);
        reached.and(checked.as_ref().map(drop).map_err(|_| why))
    };
    let find = granted(&found, "find is not granted");
    let watched = change_stream(installation, primary, find).await;
    let prerequisites = Prerequisites {
        installation,
        primary,
        find,
        update: granted(&updated, "update is not granted"),
        change_stream: granted(&watched, "there is no change stream"),
    };
    let checks = vec![
        Check::new("find", found),
        Check::new("insert", insert(installation, primary).await),
        Check::new("update", updated),
        Check::new("change-stream", watched),
        Check::new("hints", hints(prerequisites).await),
    ];
    (checks, prerequisites)
}

async fn find(installation: &Installation, primary: Primary<'_>) -> Checked {
    primary?;
    let read = installation.store.read(false);
    tried(installation, "find", read, "the lease document was read").await
}

async fn insert(installation: &Installation, primary: Primary<'_>) -> Checked {
    if primary?.product != Product::MongoDb {
        return Err("a server that is not MongoDB could store the document".into());
    }
    let insert = installation.store.insert();
    let permitted = "insert is permitted (tested with a document that no server stores)";
    tried(installation, "insert", insert, permitted).await
}

async fn update(installation: &Installation, primary: Primary<'_>) -> Checked {
    primary?;
    let update = installation.store.update();
    let permitted = "an update that matches no document was accepted";
    tried(installation, "update", update, permitted).await
}

async fn change_stream(
    installation: &Installation,
    primary: Primary<'_>,
    find: Result<(), Skip>,
) -> Checked {
    if primary?.kind == StoreKind::Standalone {
        return Err("a standalone server has no change streams".into());
    }
    find.map_err(|_| "a change stream also requires find")?;
    let watch = installation.store.watch();
    let permitted = "a change stream was opened and closed";
    tried(installation, CHANGE_STREAM, watch, permitted).await
}

/// Tries an action. A refusal names the action that the role lacks, and how to grant it.
async fn tried(
    installation: &Installation,
    action: &str,
    call: impl Future<Output = Result<(), Failure>>,
    permitted: &str,
) -> Checked {
    let Err(failure) = installation.within(call).await else {
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
    let mongodb = &installation.config.mongodb;
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

async fn hints(prerequisites: Prerequisites<'_>) -> Checked {
    let installation = prerequisites.installation;
    prerequisites.primary?;
    let watch = installation.config.mongodb.watch;
    match watch {
        WatchMode::Stream => return Err(Finding::skipped("mongodb.watch is stream")),
        WatchMode::Poll => return Err(Finding::skipped("mongodb.watch is poll")),
        _ => {}
    }
    let store = &installation.store;
    let mut usable = installation.within(store.hints()).await;
    let to_create = watch == WatchMode::Hints && usable.as_ref().is_err_and(lacks_hints);
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
    let instead = match (watch, prerequisites.change_stream) {
        (WatchMode::Auto, Ok(())) => "followers use a change stream instead",
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
