//! Goal: an alert fires for a lease without a holder, for a job that did not run and for an
//! exporter that cannot read MongoDB, and for no other state. Method: promtool evaluates the
//! rendered rules against the series in collection-alerts.test.yaml.

use std::collections::BTreeMap;
use std::fs;

use serde_json::{Value, json};

use crate::alerts::{RUNBOOKS, promtool_on};
use crate::helm::{Objects, refused, root};

const ENABLED: &str = "web.monitoring.enabled=true";
const JOBS: &str = r#"web.monitoring.jobs=[{"lock":"nightly-report","maxAgeSeconds":3600}]"#;

fn installed(changes: &[&str]) -> Objects {
    Objects::of("web", &[&[ENABLED, JOBS], changes].concat())
}

fn rules(changes: &[&str]) -> Value {
    let objects = installed(changes);
    objects.named("PrometheusRule", "orders-web")["spec"].clone()
}

fn cases() -> String {
    fs::read_to_string(root().join("tests/chart/collection-alerts.test.yaml")).unwrap()
}

#[test]
fn the_rules_for_the_collection_pass_their_unit_tests() {
    promtool_on(&rules(&[]), &cases());
}

#[test]
fn each_alert_on_the_collection_has_a_firing_and_a_quiet_case() {
    let tests: Value = serde_saphyr::from_str(&cases()).unwrap();
    let operations = fs::read_to_string(root().join("docs/operations.md")).unwrap();
    let mut seen: BTreeMap<String, [bool; 2]> = BTreeMap::new();
    for test in tests["tests"].as_array().unwrap() {
        for case in test["alert_rule_test"].as_array().unwrap() {
            let name = case["alertname"].as_str().unwrap().to_owned();
            let fires = case["exp_alerts"] != json!([]);
            seen.entry(name).or_default()[usize::from(fires)] = true;
        }
    }
    for rule in rules(&[])["groups"][0]["rules"].as_array().unwrap() {
        let name = rule["alert"].as_str().unwrap();
        assert_eq!(
            seen.remove(name),
            Some([true, true]),
            "{name}: quiet, firing"
        );
        let heading = format!("\n### {name}\n");
        assert!(operations.contains(&heading), "{name} has no runbook");
    }
    assert!(seen.is_empty(), "unknown alerts: {seen:?}");
}

#[test]
fn the_file_for_hosts_has_the_alerts_on_the_collection() {
    let path = root().join("packaging/monitoring/collection-alerts.yml");
    let file: Value = serde_saphyr::from_str(&fs::read_to_string(path).unwrap()).unwrap();
    let expected = rules(&[RUNBOOKS])["groups"][0]["rules"].to_string();
    let matcher = r#"job=\"shop/orders-web\""#;
    let expected = expected.replace(&format!("{matcher},"), "");
    let expected = expected.replace(matcher, "");
    let expected: Value = serde_json::from_str(&expected).unwrap();
    if file["groups"][0]["rules"] != expected {
        let rules = serde_json::to_string_pretty(&expected).unwrap();
        panic!("packaging/monitoring/collection-alerts.yml should have {rules}");
    }
}

#[test]
fn the_exporter_is_scraped_with_its_token_and_the_job_label_that_the_alerts_select() {
    let objects = installed(&[]);
    let monitor = &objects.named("PodMonitor", "orders-web")["spec"];
    let endpoint = &monitor["podMetricsEndpoints"][0];
    let token = json!({"type": "Bearer", "credentials": {"name": "orders-web", "key": "secret"}});
    assert_eq!(endpoint["authorization"], token);
    let job = endpoint["relabelings"][0].clone();
    assert_eq!(
        job,
        json!({"targetLabel": "job", "replacement": "shop/orders-web"})
    );
    let pod = &objects.named("Deployment", "orders-web")["spec"]["template"];
    let ports = pod["spec"]["containers"][0]["ports"].as_array().unwrap();
    assert!(ports.iter().any(|port| port["name"] == endpoint["port"]));
    let selected = monitor["selector"]["matchLabels"].as_object().unwrap();
    for (label, value) in selected {
        assert_eq!(pod["metadata"]["labels"][label], *value, "{label}");
    }
    let rules = rules(&[]).to_string();
    for series in rules.split("leasehold_collection_").skip(1) {
        let (_, rest) = series
            .split_once(|c: char| c != '_' && !c.is_ascii_alphanumeric())
            .unwrap();
        let is_text = rest.starts_with("names the holders");
        assert!(
            is_text || rest.starts_with(r#"job=\"shop/orders-web\""#),
            "{series}"
        );
    }
}

#[test]
fn the_alerts_on_the_collection_are_configurable() {
    let off = "web.monitoring.alerts.LeaseholdLockHeldLong.enabled=false";
    let limit = "web.monitoring.lockWaitMaxSeconds=7";
    let rules = rules(&[off, limit, r#"leasehold.rules.alertLabels={"team":"jobs"}"#]);
    let rules = rules["groups"][0]["rules"].as_array().unwrap();
    assert_eq!(rules.len(), 10);
    for rule in rules {
        assert_ne!(rule["alert"], "LeaseholdLockHeldLong");
        assert_eq!(rule["labels"]["team"], "jobs", "{rule}");
        let limited = rule["alert"] == "LeaseholdLockWaitersLong";
        assert_eq!(
            rule["expr"].as_str().unwrap().ends_with("> 7"),
            limited,
            "{rule}"
        );
    }
    refused(
        r#"
        web: web.monitoring.jobs=[{"lock":"x"}]
            maxAgeSeconds

        web: web.monitoring.alerts.LeaseholdLockHeldLnog={"enabled":false}
            'LeaseholdLockHeldLnog' not allowed

        web: web.metricsNames=["a,b"]
            /web/metricsNames/0

        web: web.metricsOnly=true
            leave out web.allowActions or web.metricsOnly
        "#,
    );
}

#[test]
fn an_exporter_without_the_web_page_shows_only_the_chosen_names() {
    let changes = [
        "web.metricsOnly=true",
        "web.allowActions=false",
        r#"web.metricsNames=["orders","nightly-*"]"#,
    ];
    let objects = installed(&changes);
    let pod = &objects.named("Deployment", "orders-web")["spec"]["template"]["spec"];
    let flags = pod["containers"][0]["args"].as_array().unwrap();
    for flag in ["--metrics-only", "--metrics-names=orders,nightly-*"] {
        assert!(flags.contains(&json!(flag)), "{flag}: {flags:?}");
    }
    let plain = Objects::of("web", &[]);
    assert!(plain.iter().all(|object| object["kind"] != "PodMonitor"));
}

#[test]
fn the_dashboard_for_the_collection_opens_with_its_exporter() {
    let objects = installed(&["dashboard.enabled=true"]);
    let map = objects.named("ConfigMap", "orders-dashboard");
    let held = |file: &str| -> Value {
        serde_json::from_str(map["data"][file].as_str().unwrap()).unwrap()
    };
    let collection = held("leasehold.shop.orders.collection.json");
    let daemons = held("leasehold.shop.orders.json");
    for key in ["uid", "title"] {
        assert_ne!(collection[key], daemons[key], "{key}");
    }
    assert!(collection["uid"].as_str().unwrap().len() <= 40);
    let job = &collection["templating"]["list"][1];
    assert_eq!(job["current"]["value"], "shop/orders-web");
}
