//! Tests of the options and decisions of a client, without a server.

use std::sync::Arc;
use std::time::Duration;

use mongodb::options::{ClientOptions, ReadConcern, ServerMonitoringMode};

use super::client::CONNECTIONS_MAX;
use super::{Deployment, Monitoring, StoreOptions};
use crate::store::StoreKind;
use leasehold_core::election::Identity;

fn deployment() -> Arc<Deployment> {
    let uri = Arc::new(|| Err("none".to_owned()));
    let options = StoreOptions::with_uri_provider(uri, Identity::new("a").expect("legal"));
    Deployment::new(options, Monitoring::Reports, || {}).0
}

fn client_options(uri: &str) -> ClientOptions {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    let options = async { deployment().client_options(uri).await };
    let options = runtime.expect("a runtime").block_on(options);
    options.expect("a legal connection string")
}

#[test]
fn elections_are_streamed_whatever_the_connection_string_and_the_environment_say() {
    for uri in [
        "mongodb://h/",
        "mongodb://h/?serverMonitoringMode=poll",
        "mongodb://h/?serverMonitoringMode=auto",
    ] {
        let mode = client_options(uri).server_monitoring_mode;
        assert_eq!(mode, Some(ServerMonitoringMode::Stream), "{uri}");
    }
}

#[test]
fn every_call_can_have_a_connection_in_addition_to_the_streams() {
    for (uri, size) in [
        ("mongodb://h/", CONNECTIONS_MAX),
        (
            "mongodb://h/?maxPoolSize=1&maxConnecting=1",
            CONNECTIONS_MAX,
        ),
        ("mongodb://h/?maxPoolSize=100&maxConnecting=100", 100),
    ] {
        let options = client_options(uri);
        assert_eq!(options.max_pool_size, Some(size), "{uri}");
        assert_eq!(options.max_connecting, Some(size), "{uri}");
    }
}

#[test]
fn only_a_server_alone_is_asked_for_less_than_a_linearizable_read() {
    for (set, kind, wanted) in [
        (
            Some("rs0"),
            StoreKind::ReplicaSet,
            ReadConcern::linearizable(),
        ),
        // A router has no set name either.
        (None, StoreKind::Sharded, ReadConcern::linearizable()),
        (None, StoreKind::Standalone, ReadConcern::majority()),
    ] {
        let deployment = deployment();
        deployment.note_primary(set.map(str::to_owned), kind);
        assert_eq!(deployment.read_concern(true), wanted, "{kind:?}");
        assert_eq!(deployment.read_concern(false), ReadConcern::majority());
    }
}

#[test]
fn a_client_that_gets_no_answer_is_given_up_after_a_while() {
    let mut deployment = deployment();
    assert!(!deployment.is_given_up(false), "it is a first failure");
    let only = Arc::get_mut(&mut deployment).expect("one owner");
    only.give_up_after = Duration::ZERO;
    assert!(!deployment.is_given_up(true));
    assert!(deployment.is_given_up(false));
}

#[tokio::test]
async fn the_host_of_another_product_is_known_with_the_client() {
    for (uri, other) in [
        ("mongodb://127.0.0.1:1/", false),
        ("mongodb://127.0.0.1:1,x.docdb.amazonaws.com:1/", true),
    ] {
        let identity = Identity::new("a").expect("legal");
        let deployment =
            Deployment::new(StoreOptions::new(uri, identity), Monitoring::Reports, || {}).0;
        assert!(deployment.connect().await.is_ok());
        assert_eq!(deployment.is_other_product(), other, "{uri}");
        deployment.shut_down().await;
    }
}
