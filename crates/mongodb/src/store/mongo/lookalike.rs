//! Servers that implement MongoDB's protocol but are not MongoDB.
//!
//! Their acknowledgements have another meaning: a majority write may cover only one node, or one
//! region of several, and then two candidates lead. Such servers are recognized by their host
//! names, as MongoDB's drivers do, and by their build information.

use mongodb::bson::Document;

const HOSTS: [(&str, &str); 4] = [
    (".cosmos.azure.com", "Azure Cosmos DB"),
    (".documents.azure.com", "Azure Cosmos DB"),
    (".docdb.amazonaws.com", "Amazon DocumentDB"),
    (".docdb-elastic.amazonaws.com", "Amazon DocumentDB"),
];

/// Returns the product behind one of these hosts, if it is not MongoDB.
pub(super) fn by_host<'a>(hosts: impl IntoIterator<Item = &'a str>) -> Option<&'static str> {
    hosts.into_iter().find_map(|host| {
        let host = host.to_lowercase();
        let name = host
            .rsplit_once(':')
            .map_or(host.as_str(), |(name, _)| name);
        let found = HOSTS.iter().find(|(suffix, _)| name.ends_with(suffix));
        found.map(|(_, product)| *product)
    })
}

/// Returns the product that sends this reply to `buildInfo`, if it is not MongoDB.
pub(super) fn by_build(info: &Document) -> Option<&'static str> {
    let ferret = info.keys().any(|key| key.starts_with("ferretdb"));
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
            by_build(&doc! { "version": "6.0.5", "gitVersion": "x" }),
            None
        );
    }
}
