//! The kind of a deployment, from the server's description of itself.
//!
//! The absence of a set's name decides nothing: a router has none either.

use mongodb::ServerType;
use mongodb::bson::Document;

use crate::store::StoreKind;

/// The text in a router's reply to `hello`.
const ROUTER: &str = "isdbgrid";

/// Returns the kind behind a server of this type; `None` if it accepts no writes.
pub(super) fn by_type(server: ServerType) -> Option<StoreKind> {
    match server {
        ServerType::RsPrimary => Some(StoreKind::ReplicaSet),
        ServerType::Standalone => Some(StoreKind::Standalone),
        // Only routers may be behind a load balancer.
        ServerType::Mongos | ServerType::LoadBalancer => Some(StoreKind::Sharded),
        _ => None,
    }
}

/// Returns the kind of a server that accepts writes and sends this reply to `hello`.
pub(super) fn by_hello(hello: &Document) -> StoreKind {
    if is_router(hello) {
        StoreKind::Sharded
    } else if hello.contains_key("setName") {
        StoreKind::ReplicaSet
    } else {
        StoreKind::Standalone
    }
}

/// Returns true if a router sends this reply to `hello`.
pub(super) fn is_router(hello: &Document) -> bool {
    hello.get_str("msg").is_ok_and(|text| text == ROUTER)
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
            assert_eq!(by_type(server), kind, "{server}");
        }
    }

    #[test]
    fn a_missing_name_of_a_set_is_not_enough_for_a_standalone_server() {
        let of = |hello| by_hello(&hello);
        let router = doc! { "isWritablePrimary": true, "msg": "isdbgrid" };
        assert_eq!(of(router), StoreKind::Sharded);
        assert_eq!(of(doc! { "setName": "rs0" }), StoreKind::ReplicaSet);
        assert_eq!(of(doc! { "msg": "hello" }), StoreKind::Standalone);
    }
}
