//! Goal: a program that embeds a candidate never mistakes an unconfirmed release of its lease for a
//! confirmed release. Method: a proxy withholds the reply to the release.

use std::sync::Arc;
use std::time::Duration;

use leasehold::election::ResourceName;
use leasehold::elector::{Elector, ElectorError, ElectorOptions};
use leasehold_testbed::Stage;

use crate::fixture::{NAME, shared_stage, store_options, stored};

async fn leading(stage: &Stage, uri: String) -> Elector {
    let mut store = store_options(stage, "a");
    store.uri = Arc::new(move || Ok(uri.clone()));
    let mut options = ElectorOptions::new(store, ResourceName::new(NAME).expect("legal"));
    options.handoff_delay = Duration::ZERO;
    let elector = Elector::start(options);
    let mut status = elector.status();
    while elector.authority().is_none() {
        status.changed().await.expect("the status is published");
    }
    elector
}

#[tokio::test]
async fn a_stop_reports_whether_the_release_is_confirmed() {
    let stage = shared_stage().await;
    let stored = stored(&stage);
    let elector = leading(&stage, stage.set().uri()).await;
    assert_eq!(stored.holder().await.as_deref(), Some("a"));
    elector.stop().await.expect("the lease is released");
    assert_eq!(stored.holder().await, None);

    let proxy = stage.set().proxy();
    let elector = leading(&stage, stage.set().proxied_uri(&proxy)).await;
    proxy.stall();
    let stopped = elector.stop().await;
    assert!(
        matches!(stopped, Err(ElectorError::Unconfirmed)),
        "{stopped:?}"
    );
    assert_eq!(stored.holder().await.as_deref(), Some("a"));
    proxy.resume();
}
