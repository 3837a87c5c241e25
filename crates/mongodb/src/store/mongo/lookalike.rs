//! Recognizes servers that are not MongoDB by host name or by replies to `hello` and `buildInfo`.
//! On such servers, a majority may be a single node or region, so two candidates could lead.

use mongodb::bson::{Bson, Document};

use super::display::list;

const HOSTS: [(&str, &str); 4] = [
    (".cosmos.azure.com", "Azure Cosmos DB"),
    (".documents.azure.com", "Azure Cosmos DB"),
    (".docdb.amazonaws.com", "Amazon DocumentDB"),
    (".docdb-elastic.amazonaws.com", "Amazon DocumentDB"),
];

pub(super) fn by_host<'a>(hosts: impl IntoIterator<Item = &'a str>) -> Option<&'static str> {
    hosts.into_iter().find_map(|host| {
        let host = host.to_lowercase();
        let name = host.rsplit_once(':').map_or(&*host, |(name, _)| name);
        let found = HOSTS.iter().find(|(suffix, _)| name.ends_with(suffix));
        found.map(|(_, product)| *product)
    })
}

pub(super) fn by_hello(hello: &Document) -> Option<&'static str> {
    let text = |field| hello.get_str(field).ok();
    let hosts = list(hello, "hosts").iter().filter_map(Bson::as_str);
    let named = by_host(hosts.chain(text("me")).chain(text("primary")));
    let internal = hello.get_document("internal").ok();
    let has = |field| internal.is_some_and(|internal| internal.contains_key(field));
    if named.is_some() {
        named
    } else if has("documentdb_versions") || has("cosmos_versions") {
        Some("DocumentDB on PostgreSQL")
    } else if text("setName") == Some("globaldb") || hello.contains_key("_t") {
        Some("Azure Cosmos DB")
    } else {
        ferret(hello)
    }
}

pub(super) fn by_build(info: &Document) -> Option<&'static str> {
    if info.contains_key("_t") {
        return Some("Azure Cosmos DB");
    }
    let internal = info.get_document("internal").ok();
    let documentdb = internal.is_some_and(|internal| {
        let mut keys = internal.keys();
        keys.any(|key| key.starts_with("documentdb") || key.starts_with("cosmos"))
    });
    ferret(info).or(documentdb.then_some("DocumentDB on PostgreSQL"))
}

fn ferret(reply: &Document) -> Option<&'static str> {
    let ferret = reply.keys().any(|key| key.starts_with("ferretdb"));
    ferret.then_some("FerretDB")
}

#[cfg(test)]
mod tests {
    use mongodb::bson::doc;

    use super::*;

    #[test]
    fn known_hosts_are_recognised() {
        for (host, product) in [
            ("x.mongo.cosmos.azure.com:10255", "Azure Cosmos DB"),
            ("x.MONGOCLUSTER.cosmos.azure.com", "Azure Cosmos DB"),
            (
                "c.node.eu-west-1.docdb.amazonaws.com:27017",
                "Amazon DocumentDB",
            ),
        ] {
            assert_eq!(by_host(["db-1:27017", host]), Some(product), "{host}");
        }
        assert_eq!(
            by_host(["docdb.amazonaws.com.example.org:27017", "[::1]:27017"]),
            None
        );
    }

    #[test]
    fn a_build_that_names_itself_is_recognised() {
        assert_eq!(
            by_build(&doc! { "version": "7.0.77", "ferretdb": {} }),
            Some("FerretDB")
        );
        assert_eq!(
            by_build(&doc! { "ferretdbVersion": "v1.24.0" }),
            Some("FerretDB")
        );
        assert_eq!(
            by_build(&doc! { "_t": "BuildInfoResponse", "version": "4.2.0" }),
            Some("Azure Cosmos DB")
        );
        assert_eq!(
            by_build(&doc! { "version": "6.0.5", "gitVersion": "x" }),
            None
        );
    }

    #[test]
    fn a_server_behind_another_name_is_recognised_by_its_description() {
        let member = "c.node.eu-west-1.docdb.amazonaws.com:27017";
        for (hello, product) in [
            (
                doc! { "setName": "rs0", "hosts": [member] },
                "Amazon DocumentDB",
            ),
            (doc! { "setName": "rs0", "me": member }, "Amazon DocumentDB"),
            (
                doc! { "msg": "isdbgrid", "internal": { "documentdb_versions": ["1.0"] } },
                "DocumentDB on PostgreSQL",
            ),
            (
                doc! { "msg": "isdbgrid", "internal": { "cosmos_versions": ["1.0"] } },
                "DocumentDB on PostgreSQL",
            ),
            (doc! { "setName": "globaldb" }, "Azure Cosmos DB"),
            (doc! { "ferretdb": {} }, "FerretDB"),
        ] {
            assert_eq!(by_hello(&hello), Some(product), "{hello}");
        }
        for hello in [
            doc! { "setName": "rs0", "hosts": ["db-1:27017"], "me": "db-1:27017" },
            doc! { "msg": "isdbgrid", "internal": "x" },
        ] {
            assert_eq!(by_hello(&hello), None, "{hello}");
        }
    }
}
