use mongodb::bson::{Bson, Document};

use crate::store::mongo::display::list;
use crate::store::mongo::{home, lookalike};
use crate::store::{DeploymentId, StoreKind};

/// A deployment, as its primary describes it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Description {
    /// The kind of deployment.
    pub kind: StoreKind,
    /// The name of the replica set; empty without one.
    pub set: String,
    /// The product that implements MongoDB's protocol.
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

/// A product that implements MongoDB's protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Product {
    /// The server describes itself like MongoDB.
    MongoDb,
    /// This other product, whose guarantees differ from MongoDB's.
    Lookalike(&'static str),
    /// The product is unknown, because `buildInfo` lacks fields of MongoDB.
    Unrecognized,
}

impl Description {
    pub(super) fn of(hello: &Document, build: &Document, seeds: &[String]) -> Self {
        let kind = StoreKind::of_hello(hello);
        let seeds = || seeds.iter().map(String::as_str);
        let lookalike = lookalike::by_host(seeds())
            .or_else(|| lookalike::by_hello(hello))
            .or_else(|| lookalike::by_build(build));
        // A router has no storage engine.
        let engines = kind == StoreKind::Sharded || !list(build, "storageEngines").is_empty();
        let product = match lookalike {
            Some(product) => Product::Lookalike(product),
            None if engines && build.contains_key("gitVersion") => Product::MongoDb,
            None => Product::Unrecognized,
        };
        let names = |field| {
            let names = list(hello, field).iter().filter_map(Bson::as_str);
            names.map(|name| shown(&home::canonical(name)))
        };
        Self {
            kind,
            set: text(hello, "setName"),
            product,
            version: text(build, "version"),
            id: home::identify(hello, seeds()),
            members: names("hosts").chain(names("passives")).collect(),
            arbiters: names("arbiters").collect(),
        }
    }

    /// Returns the version as numbers, such as `(6, 0)`.
    pub fn version_numbers(&self) -> Option<(u32, u32)> {
        let mut numbers = self.version.split('.');
        let mut next = || numbers.next()?.parse().ok();
        Some((next()?, next()?))
    }
}

/// Returns a string field of a reply, safe to show; empty if the field is not a string.
pub(super) fn text(document: &Document, field: &str) -> String {
    document.get_str(field).map(shown).unwrap_or_default()
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
        assert_eq!((set.kind, &*set.set), (StoreKind::ReplicaSet, "rs0"));
        assert_eq!(set.product, Product::MongoDb);
        assert_eq!(set.members, ["a:1", "b:1", "c:1"]);
        assert_eq!(set.arbiters, ["d:1"]);
        assert_eq!(set.version_numbers(), Some((6, 0)));
        let alone = of(doc! { "isWritablePrimary": true }, mongod());
        assert_eq!(alone.kind, StoreKind::Standalone);
        let router = doc! { "isWritablePrimary": true, "msg": "isdbgrid" };
        let build = doc! { "version": "7.0.1", "gitVersion": "x" };
        let router = of(router, build);
        assert_eq!(
            (router.kind, router.product),
            (StoreKind::Sharded, Product::MongoDb)
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
        assert_eq!(of(set, mongod()).set, "e\\u{1b}[31mvil");
    }
}
