//! Goal: each alert fires when it should, and only then.
//! Method: `promtool` evaluates the rendered rules against the series of alerts.test.yaml; another
//! test checks that each alert has a firing and a quiet case there.

use std::collections::BTreeMap;
use std::fs;
use std::time::Duration;

use serde_json::{Value, json};

use crate::helm::{Objects, render, root, succeed, tool};

fn groups(changes: &[&str]) -> Value {
    let enabled = ["prometheusRule.enabled=true"];
    let objects = Objects::of("minimal", &[&enabled, changes].concat());
    objects.one("PrometheusRule")["spec"].clone()
}

/// Runs promtool's own linter and these unit tests on the rules.
fn promtool(changes: &[&str], tests: &str) {
    let directory = tempfile::tempdir().unwrap();
    let rules = directory.path().join("alerts.rules.yaml");
    // JSON is YAML.
    fs::write(&rules, groups(changes).to_string()).unwrap();
    let file = directory.path().join("alerts.test.yaml");
    fs::write(&file, tests).unwrap();
    for (subject, path) in [("check", &rules), ("test", &file)] {
        succeed(tool("promtool").args([subject, "rules"]).arg(path));
    }
}

#[test]
fn the_rules_pass_their_unit_tests() {
    let tests = fs::read_to_string(root().join("tests/chart/alerts.test.yaml")).unwrap();
    promtool(&[], &tests);
}

const NEARLY_GONE: &str = "LeaseholdAuthorityNearlyGone";

/// Returns a promtool unit test. `authority` is the authority that each scrape reports, in
/// milliseconds; `left` is the remaining authority as the alert prints it, or `None` if the alert
/// must not fire.
fn scraped(interval: u64, authority: &[u64], left: Option<&str>) -> Value {
    let values = |value: &dyn Fn(u64) -> f64| {
        let texts: Vec<_> = authority.iter().map(|ms| value(*ms).to_string()).collect();
        texts.join(" ")
    };
    let series = |name: &str, values: String| json!({"series": format!("{name}{{lease=\"shop.orders\",pod=\"a\"}}"), "values": values});
    let alert = left.map(|left| {
        json!({
            "exp_labels": {"severity": "warning", "lease": "shop.orders", "pod": "a"},
            "exp_annotations": {
                "runbook_url": "docs/operations.md#leaseholdauthoritynearlygone",
                "summary": "a is or was about to lose shop.orders",
                "description": format!("{left} of authority were left within the last minute: renewals do not get through."),
            },
        })
    });
    let last = interval * (authority.len() as u64 - 1);
    json!({
        "interval": format!("{interval}s"),
        "input_series": [
            series("leasehold_leader", values(&|ms| f64::from(u8::from(ms > 0)))),
            series("leasehold_authority_seconds", values(&|ms| Duration::from_millis(ms).as_secs_f64())),
        ],
        "alert_rule_test": [{
            "eval_time": format!("{last}s"),
            "alertname": NEARLY_GONE,
            "exp_alerts": alert.into_iter().collect::<Vec<_>>(),
        }],
    })
}

/// Authority left at `now` of a leader that renews until `outage`, all in milliseconds.
fn authority(deadline: u64, interval: u64, outage: u64, now: u64) -> u64 {
    let renewed = now.min(outage) / interval * interval;
    (renewed + deadline).saturating_sub(now)
}

fn run_all(changes: &[&str], tests: &[Value]) {
    let file = json!({
        "rule_files": ["alerts.rules.yaml"],
        "evaluation_interval": "10s",
        "tests": tests,
    });
    promtool(changes, &file.to_string());
}

#[test]
fn scrapes_at_the_charts_interval_see_every_leader_that_runs_out_of_authority() {
    let monitor = Objects::of("minimal", &["podMonitor.enabled=true"]);
    let endpoint = &monitor.one("PodMonitor")["spec"]["podMetricsEndpoints"][0];
    assert_eq!(endpoint["interval"], "10s");
    let tests: Vec<_> = (0..10_000)
        .step_by(500)
        // At this phase one scrape sees exactly the limit of 10 s, and the next sees no authority.
        .filter(|phase| phase % 10_000 != 8_000)
        .map(|phase| {
            // The last renewal is sent at 60 s; authority ends at 78 s.
            let shown: Vec<_> = (0..9)
                .map(|scrape| authority(18_000, 3_000, 60_000, scrape * 10_000 + phase))
                .collect();
            let least = shown.iter().filter(|ms| **ms > 0).min().unwrap();
            let left = match least {
                500 => "500ms".to_owned(),
                ms => format!("{}s", Duration::from_millis(*ms).as_secs_f64()),
            };
            scraped(10, &shown, Some(&left))
        })
        .collect();
    assert_eq!(tests.len(), 19);
    run_all(&[], &tests);
}

#[test]
fn a_leader_at_rest_is_not_warned_of_whatever_its_timings() {
    for (lease, deadline, interval, retry) in [
        (24_000, 18_000, 3_000, 1_000),
        (9_000, 4_500, 1_000, 200),
        (24_000, 18_000, 8_000, 1_000),
    ] {
        let changes = [
            ("lease.lease_duration", lease),
            ("lease.renew_deadline", deadline),
            ("lease.renew_interval", interval),
            ("lease.retry_interval", retry),
            ("mongodb.operation_timeout", 1_000),
        ];
        let changes = changes.map(|(key, ms)| format!("leasehold.config.{key}=\"{ms}ms\""));
        let changes = changes.each_ref().map(String::as_str);
        let tests: Vec<_> = (0..10_000)
            .step_by(700)
            .map(|phase| {
                let shown: Vec<_> = (0..9)
                    .map(|scrape| authority(deadline, interval, u64::MAX, scrape * 10_000 + phase))
                    .collect();
                scraped(10, &shown, None)
            })
            .collect();
        run_all(&changes, &tests);
    }
}

#[test]
fn a_limit_that_would_warn_continuously_is_refused() {
    let limit = |seconds: &str| {
        let limit = format!("leasehold.rules.authorityLeftSeconds={seconds}");
        render("minimal", &["prometheusRule.enabled=true", &limit])
    };
    assert!(limit("15").unwrap_err().contains("must be less than 15"));
    let rules = limit("14").unwrap();
    assert!(rules.contains("[1m:5s]) < 14"), "{rules}");
}

#[test]
fn each_alert_is_seen_quiet_and_firing() {
    let tests = fs::read_to_string(root().join("tests/chart/alerts.test.yaml")).unwrap();
    let tests: Value = serde_saphyr::from_str(&tests).unwrap();
    let operations = fs::read_to_string(root().join("docs/operations.md")).unwrap();
    let mut seen: BTreeMap<String, [bool; 2]> = BTreeMap::new();
    for test in tests["tests"].as_array().unwrap() {
        for case in test["alert_rule_test"].as_array().unwrap() {
            let name = case["alertname"].as_str().unwrap().to_owned();
            let fires = case["exp_alerts"] != json!([]);
            seen.entry(name).or_default()[usize::from(fires)] = true;
        }
    }
    for rule in groups(&[])["groups"][0]["rules"].as_array().unwrap() {
        let name = rule["alert"].as_str().unwrap();
        let cases = seen.remove(name);
        assert_eq!(cases, Some([true, true]), "{name}: silent, firing");
        for annotation in ["summary", "description"] {
            assert!(rule["annotations"][annotation].is_string(), "{name}");
        }
        let url = format!("docs/operations.md#{}", name.to_lowercase());
        assert_eq!(rule["annotations"]["runbook_url"], url);
        let heading = format!("\n### {name}\n");
        assert!(operations.contains(&heading), "{name} has no runbook");
    }
    assert!(seen.is_empty(), "alerts that are not there: {seen:?}");
}
