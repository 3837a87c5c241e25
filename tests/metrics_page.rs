//! Goal: docs/metrics.md never misses a metric that a scrape shows, and never lists another one.
//! Method: generates the table from the registry and compares it with the page; `UPDATE_DOCS=1
//! cargo test --test metrics_page` writes the page.

#![cfg(feature = "kubernetes")]
#![allow(clippy::unwrap_used, reason = "a failing fixture should fail the test")]

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use leasehold::clock::boot_now;
use leasehold::election::{HolderView, Identity, ResourceName, Role, Session, Status, Token};
use leasehold::publish::StoreInfo;
use leasehold::publish::kubernetes::{LabelInSync, LabelState};
use leasehold::publish::metrics::Metrics;
use leasehold::publish::render::Identification;
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

fn table() -> String {
    let mut table = "| metric | type | labels | meaning |\n| --- | --- | --- | --- |\n".to_owned();
    for family in full_scrape().registry().gather() {
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
fn the_page_lists_exactly_what_a_scrape_shows() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/metrics.md");
    let page = fs::read_to_string(&path).unwrap();
    let (before, rest) = page.split_once(BEGIN).unwrap();
    let (listed, after) = rest.split_once(END).unwrap();
    let table = table();
    if std::env::var_os("UPDATE_DOCS").is_some() {
        fs::write(&path, format!("{before}{BEGIN}{table}{END}{after}")).unwrap();
        return;
    }
    assert_eq!(
        listed, table,
        "run: UPDATE_DOCS=1 cargo test --test metrics_page"
    );
}

#[test]
fn names_follow_the_conventions_of_prometheus() {
    for family in full_scrape().registry().gather() {
        let name = family.name();
        let kind = format!("{:?}", family.get_field_type()).to_lowercase();
        assert_eq!(name.ends_with("_total"), kind == "counter", "{name} {kind}");
        let ours = name.starts_with("leasehold_") || name.starts_with("process_");
        assert!(ours || name == "leader_election_master_status", "{name}");
        assert!(family.help().ends_with('.'), "{name}: {}", family.help());
    }
}
