//! Goal: docs/metrics.md and docs/collection-metrics.md list exactly the metrics that a scrape
//! shows. Method: generates the tables from the registries and compares them with the pages.
//! `UPDATE_DOCS=1 cargo test --test metrics_page` writes the pages.

#![cfg(feature = "kubernetes")]
#![allow(clippy::unwrap_used, reason = "a failing fixture should fail the test")]

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::time::Duration;

use leasehold::clock::boot_now;
use leasehold::election::{HolderView, Identity, ResourceName, Role, Session, Status, Token};
use leasehold::publish::StoreInfo;
use leasehold::publish::kubernetes::{LabelInSync, LabelState};
use leasehold::publish::metrics::Metrics;
use leasehold::publish::metrics::collection::{
    CollectionSample, DocumentSamples, LeaseHolder, LeaseSample, LockSample,
};
use leasehold::publish::render::Identification;
use prometheus::proto::MetricFamily;
use tokio::sync::watch;

const BEGIN: &str = "<!-- table: made by tests/metrics_page.rs -->\n";
const END: &str = "<!-- end of table -->";

/// Sets every metric, so that each family has a series in the scrape.
fn full_scrape() -> Metrics {
    let who = Identification {
        lease: ResourceName::new("orders").unwrap(),
        identity: Identity::new("me").unwrap(),
        boot_id: None,
    };
    let status = Status {
        role: Role::Follower,
        holder: Some(HolderView {
            identity: Identity::new("other").unwrap(),
            token: Token::ZERO,
            until: boot_now() + std::time::Duration::from_secs(3600),
            unconfirmed: false,
        }),
        ..Status::initial(Session::from_bytes([1; 16]), boot_now())
    };
    let store = StoreInfo {
        set: None,
        database: "leasehold".to_owned(),
        collection: "leases".to_owned(),
        ..StoreInfo::default()
    };
    let (_, status) = watch::channel(status);
    let (_, store) = watch::channel(Some(store));
    let (_, shown) = watch::channel(LabelState::Unknown);
    let metrics = Metrics::new(&who, status.clone(), store).unwrap();
    let metrics = metrics.with_revision("r").unwrap();
    let label = LabelInSync::new(&who.lease, status, shown).unwrap();
    metrics.registry().register(Box::new(label)).unwrap();
    metrics
}

/// Returns the metrics of a collection, with a series for each family.
fn full_collection() -> Vec<MetricFamily> {
    let age = Duration::from_secs(1);
    let holder = LeaseHolder {
        identity: "a",
        silent: Some(false),
        last_write_age: Some(age),
        ..LeaseHolder::default()
    };
    let lease = LeaseSample {
        name: "orders",
        holder: Some(holder),
        paused_since: Some(age),
        candidates: Some((2, age)),
        ..LeaseSample::default()
    };
    let lock = LockSample {
        name: "nightly",
        kept: Some(0),
        silent: Some(0),
        held: Some(age),
        successes: vec![("default", age)],
        ..LockSample::default()
    };
    let documents = DocumentSamples {
        leases: vec![lease],
        locks: vec![lock],
        kinds: vec![("lease", 1)],
        not_shown: vec![("names", 1)],
    };
    let sample = CollectionSample {
        store: Some(StoreInfo::default()),
        last_answer_age: Some(age),
        documents: Some(documents),
    };
    sample.registry().unwrap().gather()
}

fn pages() -> [(&'static str, Vec<MetricFamily>); 2] {
    [
        ("docs/metrics.md", full_scrape().registry().gather()),
        ("docs/collection-metrics.md", full_collection()),
    ]
}

fn table(families: &[MetricFamily]) -> String {
    let mut table = "| metric | type | labels | meaning |\n| --- | --- | --- | --- |\n".to_owned();
    for family in families {
        let labels: BTreeSet<_> = family
            .get_metric()
            .iter()
            .flat_map(|metric| metric.get_label())
            .map(|label| format!("`{}`", label.name()))
            .collect();
        let labels: Vec<_> = labels.into_iter().collect();
        let kind = format!("{:?}", family.get_field_type()).to_lowercase();
        table += &format!(
            "| `{}` | {kind} | {} | {} |\n",
            family.name(),
            labels.join(", "),
            family.help()
        );
    }
    table
}

#[test]
fn the_pages_list_exactly_the_metrics_of_a_scrape() {
    for (page, families) in pages() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(page);
        let text = fs::read_to_string(&path).unwrap();
        let (before, rest) = text.split_once(BEGIN).unwrap();
        let (listed, after) = rest.split_once(END).unwrap();
        let table = table(&families);
        if std::env::var_os("UPDATE_DOCS").is_some() {
            fs::write(&path, format!("{before}{BEGIN}{table}{END}{after}")).unwrap();
            continue;
        }
        assert_eq!(
            listed, table,
            "run: UPDATE_DOCS=1 cargo test --test metrics_page"
        );
    }
}

#[test]
fn names_follow_the_conventions_of_prometheus() {
    for family in pages().iter().flat_map(|(_, families)| families) {
        let name = family.name();
        let kind = format!("{:?}", family.get_field_type()).to_lowercase();
        assert_eq!(name.ends_with("_total"), kind == "counter", "{name} {kind}");
        let ours = name.starts_with("leasehold_") || name.starts_with("process_");
        assert!(ours || name == "leader_election_master_status", "{name}");
        assert!(family.help().ends_with('.'), "{name}: {}", family.help());
    }
}

/// A Prometheus that scrapes both daemons and collections must not mix up their series.
#[test]
fn a_collection_has_no_series_of_a_daemon() {
    let [(_, daemon), (_, collection)] = pages();
    let daemon: BTreeSet<_> = daemon.iter().map(MetricFamily::name).collect();
    let shared = collection.iter().map(MetricFamily::name);
    let shared = shared.filter(|name| daemon.contains(name) && !name.starts_with("process_"));
    assert_eq!(shared.collect::<Vec<_>>(), [""; 0]);
}
