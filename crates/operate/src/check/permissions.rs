//! Tries each action that the role must have.

use super::report::{Check, Name};
use super::servers::failed;
use super::{Installation, NOT_REACHED, within};
use leasehold_config::Watch;
use leasehold_mongodb::store::Failure;
use leasehold_mongodb::store::mongo::probe::{
    DeploymentKind, Description, Product, lacks_hints, lacks_right, requires_login,
};

/// The actions that were granted, on which other checks depend.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Granted {
    pub(super) find: bool,
    pub(super) update: bool,
    pub(super) change_stream: bool,
}

const NAMES: [Name; 5] = [
    Name::Find,
    Name::Insert,
    Name::Update,
    Name::ChangeStream,
    Name::Hints,
];

/// An action of MongoDB's roles.
#[derive(Debug, Clone, Copy)]
struct MongoAction {
    name: Name,
    /// Its name in a role.
    action: &'static str,
    /// Description of a success.
    tried: &'static str,
}

const FIND: MongoAction = MongoAction {
    name: Name::Find,
    action: "find",
    tried: "the lease document was read",
};
const INSERT: MongoAction = MongoAction {
    name: Name::Insert,
    action: "insert",
    tried: "insert is permitted (tested with a document that no server stores)",
};
const UPDATE: MongoAction = MongoAction {
    name: Name::Update,
    action: "update",
    tried: "an update that matches no document was accepted",
};
const CHANGE_STREAM: MongoAction = MongoAction {
    name: Name::ChangeStream,
    action: "changeStream",
    tried: "a change stream was opened and closed",
};

pub(super) async fn checks(
    installation: &Installation,
    reached: Option<&Description>,
) -> (Vec<Check>, Granted) {
    let Installation { store, timeout, .. } = installation;
    let Some(description) = reached else {
        let skipped = NAMES.map(|name| Check::skipped(name, NOT_REACHED));
        return (skipped.into(), Granted::default());
    };
    let found = within(*timeout, store.read(false)).await;
    let updated = within(*timeout, store.update()).await;
    let mut granted = Granted {
        find: found.is_ok(),
        update: updated.is_ok(),
        change_stream: false,
    };
    let insert = match description.product {
        Product::MongoDb => {
            let inserted = within(*timeout, store.insert()).await;
            INSERT.judged(inserted, installation)
        }
        Product::Lookalike(_) | Product::Unrecognized => Check::skipped(
            Name::Insert,
            "a server that is not MongoDB could store the document",
        ),
    };
    let change_stream = match description.kind {
        DeploymentKind::Standalone => Check::skipped(
            Name::ChangeStream,
            "a standalone server has no change streams",
        ),
        _ if !granted.find => {
            Check::skipped(Name::ChangeStream, "a change stream requires find as well")
        }
        DeploymentKind::ReplicaSet(_) | DeploymentKind::Router => {
            let watched = within(*timeout, store.watch()).await;
            granted.change_stream = watched.is_ok();
            CHANGE_STREAM.judged(watched, installation)
        }
    };
    let checks = vec![
        FIND.judged(found, installation),
        insert,
        UPDATE.judged(updated, installation),
        change_stream,
        hints(installation, granted).await,
    ];
    (checks, granted)
}

async fn hints(installation: &Installation, granted: Granted) -> Check {
    let name = Name::Hints;
    let watch = installation.config.mongodb.watch;
    if matches!(watch, Watch::Stream | Watch::Poll) {
        return Check::skipped(name, format!("mongodb.watch is {watch}"));
    }
    let Installation { store, timeout, .. } = installation;
    let mut usable = within(*timeout, store.hints()).await;
    let to_create = watch == Watch::Hints && usable.as_ref().is_err_and(lacks_hints);
    if to_create {
        usable = within(*timeout, store.hints_creation()).await;
    }
    match usable {
        Ok(()) if to_create => Check::ok(
            name,
            "not there yet: the first candidate creates the collection, as its role allows",
        ),
        Ok(()) => Check::ok(
            name,
            "a cursor on the collection of hints was opened and closed",
        ),
        Err(failure) => {
            let instead = match (watch, granted.change_stream) {
                (Watch::Auto, true) => "followers use a change stream instead",
                _ => "followers poll instead",
            };
            let what = format!("{}: {instead}", failure.kind);
            if watch == Watch::Auto && (lacks_hints(&failure) || lacks_right(&failure)) {
                // Hints are not configured.
                return Check::skipped(name, format!("{what}; {}", failure.detail));
            }
            Check::warning(name, what, failure.detail)
        }
    }
}

impl MongoAction {
    fn judged(self, tried: Result<(), Failure>, installation: &Installation) -> Check {
        let Self { name, action, .. } = self;
        let failure = match tried {
            Ok(()) => return Check::ok(name, self.tried),
            Err(failure) => failure,
        };
        if !lacks_right(&failure) {
            return failed(name, &failure);
        }
        let mongodb = &installation.config.mongodb;
        let (database, collection) = (&mongodb.database, &mongodb.collection);
        if requires_login(&failure) {
            let remedy = "put the user and its password into the MongoDB URI (docs/mongodb.md)";
            return Check::failed(
                name,
                "the server requires a user, and the URI has none",
                remedy,
            );
        }
        let detail = format!("the user may not {action} on {database}.{collection}");
        let remedy = format!(
            "db.getSiblingDB({database:?}).grantPrivilegesToRole(\"leasehold\", [{{ resource: {{ db: {database:?}, collection: {collection:?} }}, actions: [{action:?}] }}]), or create that role: docs/mongodb.md"
        );
        match name {
            Name::ChangeStream => {
                let detail = format!("{detail}: followers poll instead");
                Check::warning(name, detail, remedy)
            }
            _ => Check::failed(name, detail, remedy),
        }
    }
}
