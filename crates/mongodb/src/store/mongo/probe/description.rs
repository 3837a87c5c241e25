//! The description of a deployment by its primary: what kind it is, and whose product.

use std::time::Duration;

use mongodb::bson::{Bson, Document};

use crate::store::mongo::document::integer;
use crate::store::mongo::history::list;
use crate::store::mongo::{home, lookalike};
use crate::store::{DeploymentId, StoreKind};

/// A deployment, as its primary describes it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Description {
    /// The kind of deployment.
    pub kind: DeploymentKind,
    /// The product.
    pub product: Product,
    /// The version that the server reports.
    pub version: String,
    /// The identity of the deployment.
    pub id: Option<DeploymentId>,
    /// The members of the set that may become primary or hold data, as `host:port`.
    pub members: Vec<String>,
    /// The members of the set that only vote.
    pub arbiters: Vec<String>,
}

/// A kind of deployment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DeploymentKind {
    /// A replica set with this name.
    ReplicaSet(String),
    /// One server without a replica set.
    Standalone,
    /// The routers of a sharded cluster.
    Router,
}

/// The product behind the protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Product {
    /// A server that describes itself as MongoDB does.
    MongoDb,
    /// This product, which implements MongoDB's protocol with another meaning.
    Lookalike(&'static str),
    /// Unknown: `buildInfo` lacks fields of MongoDB.
    Unrecognized,
}

impl Description {
    pub(super) fn of(hello: &Document, build: &Document, seeds: &[String]) -> Self {
        let kind = match StoreKind::of_hello(hello) {
            StoreKind::ReplicaSet => DeploymentKind::ReplicaSet(text(hello, "setName")),
            StoreKind::Sharded => DeploymentKind::Router,
            StoreKind::Standalone => DeploymentKind::Standalone,
        };
        let names = |field| {
            let names = list(hello, field).iter().filter_map(Bson::as_str);
            names
                .map(|name| shown(&home::canonical(name)))
                .collect::<Vec<_>>()
        };
        let mut members = names("hosts");
        members.extend(names("passives"));
        Self {
            product: product(&kind, (hello, build), seeds),
            kind,
            version: text(build, "version"),
            id: home::identify(hello, seeds.iter().map(String::as_str)),
            members,
            arbiters: names("arbiters"),
        }
    }

    /// Returns the version as numbers, such as `(6, 0)`.
    pub fn version_numbers(&self) -> Option<(u32, u32)> {
        let mut numbers = self.version.split('.');
        let mut next = || numbers.next()?.parse().ok();
        Some((next()?, next()?))
    }
}

fn product(
    kind: &DeploymentKind,
    (hello, build): (&Document, &Document),
    seeds: &[String],
) -> Product {
    let seeds = seeds.iter().map(String::as_str);
    let product = lookalike::by_host(seeds)
        .or_else(|| lookalike::by_hello(hello))
        .or_else(|| lookalike::by_build(build));
    if let Some(product) = product {
        return Product::Lookalike(product);
    }
    // A router has no storage engine.
    let engines = *kind == DeploymentKind::Router || !list(build, "storageEngines").is_empty();
    match engines && build.contains_key("gitVersion") {
        true => Product::MongoDb,
        false => Product::Unrecognized,
    }
}

/// Returns a text of the server, safe to show; empty if the field is not a text.
pub(super) fn text(document: &Document, field: &str) -> String {
    document.get_str(field).map(shown).unwrap_or_default()
}

/// Returns a number of milliseconds; `None` if it is negative or the field is not a number.
pub(in crate::store::mongo) fn millis(document: &Document, field: &str) -> Option<Duration> {
    let millis = match document.get(field)? {
        Bson::Double(millis) => Some(*millis as i64),
        other => integer(other),
    };
    let millis = millis.and_then(|millis| u64::try_from(millis).ok());
    millis.map(Duration::from_millis)
}

fn shown(text: &str) -> String {
    text.escape_debug().to_string()
}

#[cfg(test)]
mod tests {
    use mongodb::bson::doc;

    use super::*;

    fn of(hello: Document, build: Document) -> Description {
        Description::of(&hello, &build, &["a:1".to_owned()])
    }

    fn mongod() -> Document {
        doc! { "version": "6.0.5", "gitVersion": "x", "storageEngines": ["wiredTiger"] }
    }

    #[test]
    fn kinds_are_distinguished() {
        let set = doc! {
            "isWritablePrimary": true, "setName": "rs0", "hosts": ["a:1", "b:1"],
            "passives": ["c:1"], "arbiters": ["d:1"],
        };
        let set = of(set, mongod());
        assert_eq!(set.kind, DeploymentKind::ReplicaSet("rs0".to_owned()));
        assert_eq!(set.product, Product::MongoDb);
        assert_eq!(set.members, ["a:1", "b:1", "c:1"]);
        assert_eq!(set.arbiters, ["d:1"]);
        assert_eq!(set.version_numbers(), Some((6, 0)));
        let alone = of(doc! { "isWritablePrimary": true }, mongod());
        assert_eq!(alone.kind, DeploymentKind::Standalone);
        let router = doc! { "isWritablePrimary": true, "msg": "isdbgrid" };
        let build = doc! { "version": "7.0.1", "gitVersion": "x" };
        let router = of(router, build);
        assert_eq!(
            (router.kind, router.product),
            (DeploymentKind::Router, Product::MongoDb)
        );
    }

    #[test]
    fn a_build_without_mongodbs_fields_is_not_taken_for_mongodb() {
        let hello = || doc! { "isWritablePrimary": true };
        let unknown = of(hello(), doc! { "version": "6.0.0" });
        assert_eq!(unknown.product, Product::Unrecognized);
        let ferret = of(hello(), doc! { "version": "7.0.77", "ferretdb": {} });
        assert_eq!(ferret.product, Product::Lookalike("FerretDB"));
    }

    #[test]
    fn texts_of_a_server_move_no_cursor() {
        let set = doc! { "isWritablePrimary": true, "setName": "e\u{1b}[31mvil" };
        let set = of(set, mongod());
        assert_eq!(
            set.kind,
            DeploymentKind::ReplicaSet("e\\u{1b}[31mvil".to_owned())
        );
    }

    #[test]
    fn a_negative_number_of_milliseconds_means_no_limit() {
        let settings = doc! { "a": -1, "b": 2000_i64, "c": 2000.0, "d": "x" };
        assert_eq!(millis(&settings, "a"), None);
        assert_eq!(millis(&settings, "b"), Some(Duration::from_secs(2)));
        assert_eq!(millis(&settings, "c"), Some(Duration::from_secs(2)));
        assert_eq!(millis(&settings, "d"), None);
    }
}
