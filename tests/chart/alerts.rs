//! Goal: each fault fires its alert and no other alert. Method: `promtool` evaluates the rendered
//! rules against the series in alerts.test.yaml. Another test checks that, for each alert,
//! alerts.test.yaml contains a case in which the alert fires and a case in which it does not.

use std::collections::BTreeMap;
use std::fs;
use std::time::Duration;

use serde_json::{Value, json};

use crate::helm::{Objects, refused, render, root, succeed, tool};

/// The page with the runbooks, as the packages install it.
const RUNBOOKS_PATH: &str = "file:///usr/share/doc/leasehold/operations.md";
pub(crate) const RUNBOOKS: &str =
    "leasehold.rules.runbookUrl=\"file:///usr/share/doc/leasehold/operations.md\"";

fn groups(changes: &[&str]) -> Value {
    let enabled = ["prometheusRule.enabled=true"];
    let objects = Objects::of("minimal", &[&enabled, changes].concat());
    objects.one("PrometheusRule")["spec"].clone()
}

fn promtool(changes: &[&str], tests: &str) {
    promtool_on(&groups(changes), tests);
}

pub(crate) fn promtool_on(groups: &Value, tests: &str) {
    let directory = tempfile::tempdir().unwrap();
    let rules = directory.path().join("alerts.rules.yaml");
    // JSON is valid YAML.
    fs::write(&rules, groups.to_string()).unwrap();
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

#[test]
fn a_release_scaled_to_zero_needs_no_leader() {
    let tests = json!({
        "rule_files": ["alerts.rules.yaml"],
        "tests": [{
            "interval": "15s",
            "input_series": [{"series": "leasehold_leader{lease=\"shop.billing\"}", "values": "1x80"}],
            "alert_rule_test": [{"eval_time": "15m", "alertname": "LeaseholdNoLeader", "exp_alerts": []}],
        }],
    });
    promtool(&["deployment.replicas=0"], &tests.to_string());
}

/// As documented, a kustomization's `namespace:` does not change the expressions of the rules.
#[test]
fn without_aggregation_labels_a_moved_release_has_a_leader() {
    let tests = |alerts: Value| {
        let leads = json!({"series": "leasehold_leader{lease=\"orders\",namespace=\"moved\",pod=\"a\"}", "values": "1x80"});
        json!({
            "rule_files": ["alerts.rules.yaml"],
            "tests": [{
                "interval": "15s",
                "input_series": [leads],
                "alert_rule_test": [{"eval_time": "15m", "alertname": "LeaseholdNoLeader", "exp_alerts": alerts}],
            }],
        })
        .to_string()
    };
    let named = "leasehold.leaseName=\"orders\"";
    let aggregated = [named, "leasehold.rules.aggregationLabels=[]"];
    promtool(&aggregated, &tests(json!([])));
    let fires = json!([{
        "exp_labels": {"severity": "critical", "lease": "orders", "namespace": "shop"},
        "exp_annotations": {
            "summary": "No replica leads orders",
            "description": "No replica leads, or none is scraped. MongoDB may have no primary, or no pod runs.",
        },
    }]);
    promtool(&[named], &tests(fires));
}

/// The default rules count leaders per namespace, and a host has no namespace. They would therefore
/// count pods and hosts separately.
#[test]
fn without_aggregation_labels_leaders_in_a_pod_and_on_a_host_are_counted_together() {
    let expected = |name: &str, summary: &str, description: &str| {
        json!({"eval_time": "8m", "alertname": name, "exp_alerts": [{
            "exp_labels": {"severity": "critical", "lease": "shop.orders"},
            "exp_annotations": {"summary": summary, "description": description},
        }]})
    };
    let tests = |cases: Value| {
        let series = |metric: &str, labels: &str| json!({"series": format!("{metric}{{lease=\"shop.orders\",{labels}}}"), "values": "1x40"});
        let store =
            |set: &str| format!("set=\"{set}\",database=\"leasehold\",collection=\"leases\"");
        let (pod, host) = ("namespace=\"shop\",pod=\"a\"", "instance=\"host-1:9402\"");
        json!({
            "rule_files": ["alerts.rules.yaml"],
            "evaluation_interval": "15s",
            "tests": [{
                "interval": "15s",
                "input_series": [
                    series("leasehold_leader", pod),
                    series("leasehold_leader", host),
                    series("leasehold_store_info", &format!("{pod},{}", store("rs0"))),
                    series("leasehold_store_info", &format!("{host},{}", store("hosts"))),
                ],
                "alert_rule_test": cases,
            }],
        })
        .to_string()
    };
    let two = json!([
        expected(
            "LeaseholdMoreThanOneLeader",
            "2 replicas lead shop.orders",
            "The likely cause is different stores (compare leasehold_store_info) or a stopped clock. Stop all replicas except one.",
        ),
        expected(
            "LeaseholdStoresDiffer",
            "Replicas of shop.orders contend on different stores",
            "They do not exclude each other. Give all of them one connection string, database and collection.",
        ),
    ]);
    promtool(
        &["leasehold.rules.aggregationLabels=[]"],
        &tests(two.clone()),
    );
    let mut on_hosts = two;
    for case in on_hosts.as_array_mut().unwrap() {
        let name = case["alertname"].as_str().unwrap().to_lowercase();
        let annotations = &mut case["exp_alerts"][0]["exp_annotations"];
        annotations["runbook_url"] = json!(format!("{RUNBOOKS_PATH}#{name}"));
    }
    promtool_on(&file_for_hosts(), &tests(on_hosts));
    let none = ["LeaseholdMoreThanOneLeader", "LeaseholdStoresDiffer"]
        .map(|name| json!({"eval_time": "8m", "alertname": name, "exp_alerts": []}));
    promtool(&[], &tests(json!(none)));
}

const NEARLY_GONE: &str = "LeaseholdAuthorityNearlyGone";

/// Returns a promtool unit test. `authority` lists the remaining milliseconds that successive
/// scrapes report. `left` is the remaining time in the alert's text; if `left` is `None`, the alert
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
                "summary": "a is or was about to lose shop.orders",
                "description": format!("{left} of authority were left within the last minute: MongoDB does not acknowledge renewals."),
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

/// Returns a leader's remaining authority at `now`, in milliseconds, if all renewals since `outage`
/// have failed.
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
fn scrapes_at_the_charts_interval_notice_every_loss_of_authority() {
    let monitor = Objects::of("minimal", &["podMonitor.enabled=true"]);
    let endpoint = &monitor.one("PodMonitor")["spec"]["podMetricsEndpoints"][0];
    assert_eq!(endpoint["interval"], "10s");
    let tests: Vec<_> = (0..10_000)
        .step_by(500)
        // The alert cannot fire at this phase, because one scrape reports exactly the limit of 10
        // s, and the next scrape reports no authority.
        .filter(|phase| phase % 10_000 != 8_000)
        .map(|phase| {
            // The leader sends its last renewal at 60 s, so its authority ends at 78 s.
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
fn a_healthy_leader_never_fires_the_alert_whatever_its_timings() {
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
fn a_limit_that_would_always_fire_is_refused() {
    let limit = |seconds: &str| {
        let limit = format!("leasehold.rules.authorityLeftSeconds={seconds}");
        render("minimal", &["prometheusRule.enabled=true", &limit])
    };
    assert!(limit("15").unwrap_err().contains("must be less than 15"));
    let rules = limit("14").unwrap();
    assert!(rules.contains("[1m:5s]) < 14"), "{rules}");
}

#[test]
fn an_alert_can_be_disabled_and_its_severity_duration_and_limit_changed() {
    let all = groups(&[])["groups"][0]["rules"]
        .as_array()
        .unwrap()
        .clone();
    let names: Vec<_> = all
        .iter()
        .map(|rule| rule["alert"].as_str().unwrap())
        .collect();
    assert_eq!(names.len(), 8);
    for name in &names {
        let off = format!("leasehold.rules.alerts.{name}.enabled=false");
        let left = groups(&[&off])["groups"][0]["rules"]
            .as_array()
            .unwrap()
            .clone();
        let left: Vec<_> = left
            .iter()
            .map(|rule| rule["alert"].as_str().unwrap().to_owned())
            .collect();
        let others: Vec<_> = names.iter().filter(|other| *other != name).collect();
        assert_eq!(
            left,
            others
                .iter()
                .map(|name| (**name).to_owned())
                .collect::<Vec<_>>()
        );
        let changed =
            format!("leasehold.rules.alerts.{name}={{\"severity\":\"page\",\"for\":\"7m\"}}");
        let rules = groups(&[&changed, r#"leasehold.rules.alertLabels={"team":"orders"}"#]);
        for rule in rules["groups"][0]["rules"].as_array().unwrap() {
            let changed = rule["alert"] == *name;
            assert_eq!(rule["labels"]["severity"] == "page", changed, "{rule}");
            assert_eq!(rule["for"] == "7m", changed, "{rule}");
            assert_eq!(rule["labels"]["team"], "orders");
        }
    }
    let expression = |changes: &[&str], name: &str| {
        let rules = groups(changes)["groups"][0]["rules"]
            .as_array()
            .unwrap()
            .clone();
        let rule = rules.iter().find(|rule| rule["alert"] == name);
        rule.unwrap()["expr"].as_str().unwrap().to_owned()
    };
    for (key, name) in [
        ("acquisitionsMax", "LeaseholdLeadershipFlaps"),
        ("renewFailuresMax", "LeaseholdRenewalsFail"),
        ("surfaceFailuresMax", "LeaseholdSurfaceFails"),
    ] {
        let limit = expression(&[&format!("leasehold.rules.{key}=9")], name);
        assert!(limit.ends_with("> 9"), "{limit}");
    }
    let all_off: Vec<_> = names
        .iter()
        .map(|name| format!("leasehold.rules.alerts.{name}.enabled=false"))
        .collect();
    let all_off: Vec<_> = all_off
        .iter()
        .map(String::as_str)
        .chain(["prometheusRule.enabled=true"])
        .collect();
    let complaint = render("minimal", &all_off).unwrap_err();
    assert!(
        complaint.contains("set prometheusRule.enabled to false"),
        "{complaint}"
    );
    refused(
        r#"
        everything: leasehold.rules.alertLabels={"severity":"page"}
            leave out leasehold.rules.alertLabels.severity

        everything: leasehold.rules.alerts.LeaseholdNoLeadr={"enabled":false}
            'LeaseholdNoLeadr' not allowed
        "#,
    );
}

#[test]
fn runbook_urls_have_the_configured_base_or_are_absent() {
    let urls = |url: &str| {
        let rules = groups(&[&format!("leasehold.rules.runbookUrl=\"{url}\"")]);
        let rules = rules["groups"][0]["rules"].as_array().unwrap().clone();
        rules
            .iter()
            .map(|rule| rule["annotations"]["runbook_url"].clone())
            .collect::<Vec<_>>()
    };
    let own = urls("https://runbooks.example/lh");
    assert_eq!(own[0], "https://runbooks.example/lh#leaseholdnoleader");
    assert!(urls("").iter().all(Value::is_null));
    // There is no default URL, because a path of this repository would be a dead link in an alert.
    let default = groups(&[]);
    let annotations = &default["groups"][0]["rules"][0]["annotations"];
    assert!(annotations.get("runbook_url").is_none(), "{annotations}");
}

fn injected(changes: &[&str]) -> Objects {
    let enabled = ["podMonitor.enabled=true", "prometheusRule.enabled=true"];
    Objects::of("injector", &[&enabled, changes].concat())
}

#[test]
fn injected_pods_are_scraped_by_the_label_of_the_policy() {
    let objects = injected(&[]);
    let monitor = &objects.named("PodMonitor", "orders-injected")["spec"];
    assert_eq!(monitor["namespaceSelector"]["any"], true);
    let label = monitor["selector"]["matchLabels"]["leasehold.dev/injected-by"]
        .as_str()
        .unwrap();
    let policy = objects.one("MutatingAdmissionPolicy").to_string();
    assert!(policy.contains(label), "{label}: {policy}");
    assert!(label.starts_with("orders.") && label.len() <= 63, "{label}");
    let relabeling = &monitor["podMetricsEndpoints"][0]["relabelings"][0];
    assert_eq!(relabeling["targetLabel"], "injected_by");
    // Service discovery replaces characters that a label name cannot contain.
    let selected = monitor["selector"]["matchLabels"].as_object().unwrap();
    let name = selected
        .keys()
        .next()
        .unwrap()
        .replace(['.', '/', '-'], "_");
    let discovered = format!("__meta_kubernetes_pod_label_{name}");
    assert_eq!(relabeling["sourceLabels"], json!([discovered]));
    // This release deploys no pods, so the chart renders no PodMonitor.
    assert!(
        objects
            .iter()
            .all(|object| object["metadata"]["name"] != "orders")
    );
    let rules = objects
        .named("PrometheusRule", "orders-leasehold-injected")
        .to_string();
    assert!(
        rules.contains(&format!("injected_by=\\\"{label}\\\"")),
        "{rules}"
    );
    // Injected sidecars do not label their pods.
    assert!(!rules.contains("LeaseholdLabelOutOfSync"), "{rules}");
    refused("injector: prometheusRule.enabled=true\nneeds podMonitor.enabled");
}

#[test]
fn alerts_on_injected_pods_name_the_lease_without_a_leader() {
    let objects = injected(&[]);
    let rules = objects.one("PrometheusRule")["spec"].clone();
    let monitor = objects.one("PodMonitor");
    let by = &monitor["spec"]["selector"]["matchLabels"]["leasehold.dev/injected-by"];
    let series = |lease: &str, pod: &str, by: &str, values: &str| {
        let series =
            format!("leasehold_leader{{lease=\"{lease}\",pod=\"{pod}\",injected_by=\"{by}\"}}");
        json!({"series": series, "values": values})
    };
    let by = by.as_str().unwrap();
    let tests = json!({
        "rule_files": ["alerts.rules.yaml"],
        "evaluation_interval": "10s",
        "tests": [{
            "interval": "10s",
            "input_series": [
                series("a.x", "a-0", by, "0x30"),
                series("a.x", "a-1", by, "0x30"),
                series("b.x", "b-0", by, "1x30"),
                series("b.x", "b-1", by, "0x30"),
                series("c.x", "c-0", "another", "0x30"),
            ],
            "alert_rule_test": [
                {"eval_time": "50s", "alertname": "LeaseholdNoLeader", "exp_alerts": []},
                {"eval_time": "2m", "alertname": "LeaseholdNoLeader", "exp_alerts": [{
                    "exp_labels": {"severity": "critical", "lease": "a.x"},
                    "exp_annotations": {
                        "summary": "No replica leads a.x",
                        "description": "No replica leads, or none is scraped. MongoDB may have no primary, or no pod runs.",
                    },
                }]},
                {"eval_time": "4m", "alertname": "LeaseholdMoreThanOneLeader", "exp_alerts": []},
            ],
        }],
    });
    promtool_on(&rules, &tests.to_string());
}

fn file_for_hosts() -> Value {
    let path = root().join("packaging/monitoring/alerts.yml");
    serde_saphyr::from_str(&fs::read_to_string(path).unwrap()).unwrap()
}

#[test]
fn the_file_for_hosts_without_helm_has_the_alerts_of_the_chart() {
    let changes = ["leasehold.rules.aggregationLabels=[]", RUNBOOKS];
    let objects = injected(&changes);
    let label = &objects.one("PodMonitor")["spec"]["selector"]["matchLabels"];
    let by = label["leasehold.dev/injected-by"].as_str().unwrap();
    let chart = objects.one("PrometheusRule")["spec"]["groups"][0]["rules"].to_string();
    let matcher = format!("injected_by=\\\"{by}\\\"");
    let expected = chart
        .replace(&format!("{matcher},"), "")
        .replace(&matcher, "");
    let expected: Value = serde_json::from_str(&expected).unwrap();
    let file = file_for_hosts();
    if file["groups"][0]["rules"] != expected {
        let rules = serde_json::to_string_pretty(&expected).unwrap();
        panic!("packaging/monitoring/alerts.yml should have {rules}");
    }
}

#[test]
fn each_alert_has_a_firing_and_a_quiet_case() {
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
        let heading = format!("\n### {name}\n");
        assert!(operations.contains(&heading), "{name} has no runbook");
    }
    assert!(seen.is_empty(), "unknown alerts: {seen:?}");
}
