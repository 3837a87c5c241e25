use mongodb::ServerType;
use mongodb::bson::Document;

/// The kind of a deployment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum StoreKind {
    /// A replica set.
    #[default]
    ReplicaSet,
    /// A sharded cluster, through its routers (`mongos`).
    Sharded,
    /// A single server without a replica set.
    Standalone,
}

impl StoreKind {
    pub(crate) fn of_server(server: ServerType) -> Option<Self> {
        match server {
            ServerType::RsPrimary => Some(Self::ReplicaSet),
            ServerType::Standalone => Some(Self::Standalone),
            // Only routers can be behind a load balancer.
            ServerType::Mongos | ServerType::LoadBalancer => Some(Self::Sharded),
            _ => None,
        }
    }

    /// Returns the kind of a server that accepts writes. Replies of other servers do not show the
    /// kind.
    pub(crate) fn of_hello(hello: &Document) -> Self {
        // Like a standalone server, a router has no set name.
        if is_router(hello) {
            Self::Sharded
        } else if hello.contains_key("setName") {
            Self::ReplicaSet
        } else {
            Self::Standalone
        }
    }

    /// Returns the name used in JSON and metrics.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::ReplicaSet => "replica_set",
            Self::Sharded => "sharded",
            Self::Standalone => "standalone",
        }
    }

    /// True if a change stream may report a change seconds late. A router holds back an event until
    /// every shard has reported a later time, which an idle shard does only every ten seconds.
    pub const fn has_late_streams(self) -> bool {
        matches!(self, Self::Sharded)
    }
}

pub(crate) fn is_router(hello: &Document) -> bool {
    hello.get_str("msg").is_ok_and(|text| text == "isdbgrid")
}

#[cfg(test)]
mod tests {
    use mongodb::bson::doc;

    use super::*;

    #[test]
    fn only_servers_that_accept_writes_have_a_kind() {
        for (server, kind) in [
            (ServerType::RsPrimary, Some(StoreKind::ReplicaSet)),
            (ServerType::Standalone, Some(StoreKind::Standalone)),
            (ServerType::Mongos, Some(StoreKind::Sharded)),
            (ServerType::LoadBalancer, Some(StoreKind::Sharded)),
            (ServerType::RsSecondary, None),
            (ServerType::RsArbiter, None),
            (ServerType::RsOther, None),
            (ServerType::RsGhost, None),
            (ServerType::Unknown, None),
        ] {
            assert_eq!(StoreKind::of_server(server), kind, "{server}");
        }
    }

    #[test]
    fn a_missing_name_of_a_set_is_not_enough_for_a_standalone_server() {
        let of = |hello| StoreKind::of_hello(&hello);
        let router = doc! { "isWritablePrimary": true, "msg": "isdbgrid" };
        assert_eq!(of(router), StoreKind::Sharded);
        assert_eq!(of(doc! { "setName": "rs0" }), StoreKind::ReplicaSet);
        assert_eq!(of(doc! { "msg": "hello" }), StoreKind::Standalone);
    }
}
