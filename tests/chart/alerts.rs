//! Goal: each alert fires when it should and is silent otherwise.
//! Method: `promtool` on the rules as rendered, with the series of
//! alerts.test.yaml; and a look that no alert is without such a test.

use std::collections::BTreeMap;
use std::fs;

use serde_json::{Value, json};

use crate::helm::{Objects, root, text, tool};

fn groups() -> Value {
    let objects = Objects::of("minimal", &["prometheusRule.enabled=true"]);
    objects.one("PrometheusRule")["spec"].clone()
}

#[test]
fn the_rules_pass_their_unit_tests() {
    let directory = tempfile::tempdir().unwrap();
    let rules = directory.path().join("alerts.rules.yaml");
    // JSON is YAML.
    fs::write(&rules, groups().to_string()).unwrap();
    let tests = directory.path().join("alerts.test.yaml");
    fs::copy(root().join("tests/chart/alerts.test.yaml"), &tests).unwrap();
    let output = tool("promtool")
        .args(["check", "rules"])
        .arg(&rules)
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", text(&output));
    let output = tool("promtool")
        .args(["test", "rules"])
        .arg(&tests)
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", text(&output));
}

#[test]
fn each_alert_is_seen_silent_and_firing() {
    let tests = fs::read_to_string(root().join("tests/chart/alerts.test.yaml")).unwrap();
    let tests: Value = serde_saphyr::from_str(&tests).unwrap();
    let mut seen: BTreeMap<String, [bool; 2]> = BTreeMap::new();
    for test in tests["tests"].as_array().unwrap() {
        for case in test["alert_rule_test"].as_array().unwrap() {
            let name = case["alertname"].as_str().unwrap().to_owned();
            let fires = case["exp_alerts"] != json!([]);
            seen.entry(name).or_default()[usize::from(fires)] = true;
        }
    }
    for rule in groups()["groups"][0]["rules"].as_array().unwrap() {
        let name = rule["alert"].as_str().unwrap();
        assert_eq!(
            seen.remove(name),
            Some([true, true]),
            "{name}: silent, firing"
        );
        for annotation in ["summary", "description"] {
            assert!(rule["annotations"][annotation].is_string(), "{name}");
        }
    }
    assert!(seen.is_empty(), "alerts that are not there: {seen:?}");
}
