//! Goal: no connection string and no environment variable changes an option that the protocols rely
//! on. Method: inspect the options and decisions of a client, without a server.

use std::sync::Arc;
use std::time::Duration;

use mongodb::bson::doc;
use mongodb::options::{AuthMechanism, ClientOptions, ReadConcern, ServerMonitoringMode};

use super::client::{CONNECTIONS_MAX, adapt_login};
use super::{Deployment, Monitoring, StoreOptions, lock};
use crate::store::StoreKind;
use crate::store::mongo::lookalike;
use crate::uri::{OPTIONS, Treatment, UriOption};
use leasehold_core::election::{Identity, Timings};
use leasehold_core::lock::scaled;

fn deployment() -> Arc<Deployment> {
    let uri = Arc::new(|| Err("none".to_owned()));
    let options = StoreOptions::with_uri_provider(uri, Identity::new("a").expect("legal"));
    Deployment::new(options, Monitoring::Reports)
}

fn client_options(uri: &str) -> ClientOptions {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    let options = async { deployment().client_options(uri).await };
    let options = runtime.expect("a runtime").block_on(options);
    options.unwrap_or_else(|_| panic!("{uri} is legal"))
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
    for uri in [
        "mongodb://h/",
        "mongodb://h/?maxPoolSize=1&maxConnecting=1&minPoolSize=5",
        "mongodb://h/?maxPoolSize=0&maxConnecting=100",
    ] {
        let options = client_options(uri);
        assert_eq!(options.max_pool_size, Some(CONNECTIONS_MAX), "{uri}");
        assert_eq!(options.max_connecting, Some(CONNECTIONS_MAX), "{uri}");
    }
    let pool = UriOption::find("maxPoolSize").expect("an option").treatment;
    let size = CONNECTIONS_MAX.to_string();
    assert_eq!(
        pool,
        Treatment::Overridden(&size.leak()[..]),
        "as documented"
    );
}

#[test]
fn an_option_that_is_not_applied_changes_nothing_of_the_client() {
    let plain = client_options("mongodb://h/");
    let mut compared = 0;
    for option in OPTIONS.iter() {
        let (Treatment::Overridden(_) | Treatment::Ignored(_)) = option.treatment else {
            continue;
        };
        for name in [option.name].iter().chain(option.aliases) {
            for value in ["0", "1", "true", "false", "secondary", "x:y", "zstd", ""] {
                let options = client_options(&format!("mongodb://h/?{name}={value}"));
                assert_eq!(options, plain, "{name}={value}");
                compared += 1;
            }
        }
    }
    assert!(compared > 100, "{compared}");
}

#[test]
fn a_login_is_sent_in_a_form_that_servers_accept() {
    let sent = |uri: &str| {
        let mut options = client_options(uri);
        adapt_login(&mut options);
        let credential = options.credential.expect("a login");
        (credential.username, credential.mechanism)
    };
    let name = |name: &str| Some(name.to_owned());
    let sha_256 = Some(AuthMechanism::ScramSha256);
    assert_eq!(sent("mongodb://me:x@h/"), (name("me"), None));
    assert_eq!(
        sent("mongodb://a%2Cb%3Dc:x@h/"),
        (name("a=2Cb=3Dc"), sha_256)
    );
    let old = "mongodb://a,b:x@h/?authMechanism=SCRAM-SHA-1";
    assert_eq!(sent(old), (name("a,b"), Some(AuthMechanism::ScramSha1)));
    let certificate = "mongodb://CN%3Dme%2CO%3Dx@h/?authMechanism=MONGODB-X509";
    assert_eq!(sent(certificate), (None, Some(AuthMechanism::MongoDbX509)));
}

#[test]
fn only_a_server_alone_is_asked_for_less_than_a_linearizable_read() {
    for (set, kind, wanted) in [
        (
            Some("rs0"),
            StoreKind::ReplicaSet,
            ReadConcern::linearizable(),
        ),
        (None, StoreKind::Sharded, ReadConcern::linearizable()),
        (None, StoreKind::Standalone, ReadConcern::majority()),
    ] {
        let deployment = deployment();
        deployment.note_primary((set.map(str::to_owned), None), kind);
        assert_eq!(deployment.read_concern(true), wanted, "{kind:?}");
        assert_eq!(deployment.read_concern(false), ReadConcern::majority());
    }
}

#[test]
fn a_client_that_gets_no_answer_is_given_up_after_a_while() {
    let deployment = deployment();
    assert!(!deployment.is_given_up(false), "this is the first failure");
    let five_seconds_ago = leasehold_clock::boot_now() - Duration::from_secs(5);
    *lock(&deployment.unanswered_since) = Some(five_seconds_ago);
    assert!(!deployment.is_given_up(false), "the default is 24 s");
    let short = scaled(&Timings::default(), Duration::from_secs(4)).expect("legal");
    deployment.timings.send_replace(short);
    assert!(
        deployment.is_given_up(false),
        "the reload shortened the lease duration"
    );
    assert!(!deployment.is_given_up(true));
}

#[tokio::test]
async fn the_host_of_another_product_is_known_with_the_client() {
    for (uri, other) in [
        ("mongodb://127.0.0.1:1/", false),
        ("mongodb://127.0.0.1:1,x.docdb.amazonaws.com:1/", true),
    ] {
        let identity = Identity::new("a").expect("legal");
        let deployment = Deployment::new(StoreOptions::new(uri, identity), Monitoring::Reports);
        assert!(deployment.connect().await.is_ok());
        assert_eq!(deployment.other_product().is_some(), other, "{uri}");
        deployment.shut_down().await;
    }
}

#[tokio::test]
async fn a_new_client_keeps_the_product_that_buildinfo_showed() {
    let identity = Identity::new("a").expect("legal");
    let options = StoreOptions::new("mongodb://127.0.0.1:1/", identity);
    let deployment = Deployment::new(options, Monitoring::Reports);
    assert!(deployment.connect().await.is_ok());
    deployment.note_product(lookalike::by_build(&doc! { "ferretdbVersion": "v2" }));
    assert!(deployment.discard(|_| true));
    assert!(deployment.connect().await.is_ok());
    assert_eq!(deployment.other_product(), Some("FerretDB"));
    deployment.shut_down().await;
}
