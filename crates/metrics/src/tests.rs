use super::*;
use crate::fixture::{self, who};
use leasehold_clock::boot_now;
use leasehold_core::election::HolderView;

const LEADER: &str = r#"leasehold_leader{lease="orders"}"#;

fn value(text: &str, series: &str) -> Option<f64> {
    let line = text
        .lines()
        .find_map(|l| l.strip_prefix(series)?.strip_prefix(' '));
    line.map(|v| v.parse().unwrap())
}

fn leader(left: Duration) -> Status {
    let until = boot_now() + left;
    Status {
        holder: Some(HolderView {
            identity: who("me").identity,
            token: fixture::token(7),
            until,
            unconfirmed: false,
        }),
        renewed_at: Some(boot_now()),
        ..fixture::leader(7, until)
    }
}

#[test]
fn all_series_of_closed_lists_are_there_from_the_first_scrape() {
    let (_status, rx) = watch::channel(fixture::status(Role::Unknown));
    let text = fixture::metrics(rx).text().unwrap();
    for zero in [
        LEADER,
        r#"leader_election_master_status{name="orders"}"#,
        r#"leasehold_authority_seconds{lease="orders"}"#,
        r#"leasehold_token{lease="orders"}"#,
        r#"leasehold_last_renewal_timestamp_seconds{lease="orders"}"#,
        r#"leasehold_watch_connected{lease="orders"}"#,
        r#"leasehold_transitions_total{lease="orders",reason="acquired",to="leader"}"#,
        r#"leasehold_transitions_total{lease="orders",reason="shutdown",to="stopping"}"#,
    ] {
        assert_eq!(value(&text, zero), Some(0.0), "{zero}\n{text}");
    }
    for operation in OPERATIONS {
        for outcome in OUTCOMES {
            let series = format!(
                "leasehold_store_operations_total\
                 {{lease=\"orders\",operation=\"{operation}\",outcome=\"{outcome}\"}}"
            );
            assert_eq!(value(&text, &series), Some(0.0), "{series}");
        }
    }
    for surface in Surface::ALL.map(Surface::as_str) {
        let series =
            format!("leasehold_publish_failures_total{{lease=\"orders\",surface=\"{surface}\"}}");
        assert_eq!(value(&text, &series), Some(0.0), "{series}");
    }
    assert!(text.contains("\nleasehold_build_info{revision="));
    assert!(text.contains("\nprocess_resident_memory_bytes "));
    let cpu = value(&text, "process_cpu_seconds_total").unwrap();
    assert!(cpu > 0.0 && cpu.fract() > 0.0, "whole seconds: {cpu}");
    assert!(!text.contains("leasehold_holder_info{"));
}

#[test]
fn i4_the_leader_gauge_falls_at_the_deadline_without_any_event() {
    let (sender, rx) = watch::channel(leader(Duration::from_secs(60)));
    let store = StoreInfo {
        set: Some("rs0".to_owned()),
        database: "leasehold".to_owned(),
        collection: "leases".to_owned(),
        ..StoreInfo::default()
    };
    let (_store, store) = watch::channel(Some(store));
    let metrics = Metrics::new(&who("me"), rx, store).unwrap();
    let text = metrics.text().unwrap();
    assert_eq!(value(&text, LEADER), Some(1.0));
    let left = value(&text, r#"leasehold_authority_seconds{lease="orders"}"#);
    assert!(left.is_some_and(|l| l > 50.0 && l <= 60.0), "{left:?}");
    let info = r#"leasehold_holder_info{identity="me",lease="orders"}"#;
    assert_eq!(value(&text, info), Some(1.0), "{text}");
    let info = r#"leasehold_store_info{collection="leases",database="leasehold",kind="replica_set",lease="orders",set="rs0"}"#;
    assert_eq!(value(&text, info), Some(1.0), "{text}");

    sender.send_replace(leader(Duration::ZERO));
    let text = metrics.text().unwrap();
    assert_eq!(value(&text, LEADER), Some(0.0));
    let alias = r#"leader_election_master_status{name="orders"}"#;
    assert_eq!(value(&text, alias), Some(0.0));
    assert!(!text.contains("leasehold_holder_info{"), "{text}");
    let token = r#"leasehold_token{lease="orders"}"#;
    assert_eq!(value(&text, token), Some(7.0));
}

#[test]
fn calls_and_failures_are_counted() {
    let (_status, rx) = watch::channel(leader(Duration::ZERO));
    let metrics = fixture::metrics(rx);
    metrics.store_operation("renew", "unknown", Duration::from_millis(3));
    metrics.transition(Role::Leader, Some(Reason::TookOver));
    metrics.publish_failed(Surface::File);
    assert_eq!(metrics.publish_failures(Surface::File), 1);
    let text = metrics.text().unwrap();
    for series in [
        r#"leasehold_store_operations_total{lease="orders",operation="renew",outcome="unknown"}"#,
        r#"leasehold_store_operation_duration_seconds_bucket{lease="orders",operation="renew",le="0.005"}"#,
        r#"leasehold_transitions_total{lease="orders",reason="took_over",to="leader"}"#,
    ] {
        assert_eq!(value(&text, series), Some(1.0), "{series}\n{text}");
    }
}
