//! Goal: the dashboards and the rules query only metrics that exist, and each panel shows correct
//! values in each documented topology. Method: checks that docs/metrics.md and
//! docs/collection-metrics.md list every metric and label that the expressions use; another test
//! compares these pages with a scrape. promtool evaluates the panels on the series of
//! dashboard.test.yaml and collection.test.yaml.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use serde_json::{Map, Value, json};

use crate::helm::{Objects, root, succeed, tool};

/// Labels that a scrape adds to each series. Only series of injected pods have the last label.
const TARGET_LABELS: [&str; 5] = ["namespace", "pod", "instance", "job", "injected_by"];

/// The file of each dashboard, and the file of its panels' unit tests.
const DASHBOARDS: [(&str, &str); 2] = [
    ("leasehold.json", "dashboard.test.yaml"),
    ("collection.json", "collection.test.yaml"),
];

/// Returns each metric's labels, by metric name, from the documentation. tests/metrics_page.rs
/// asserts that the documentation matches a scrape.
fn exposed() -> BTreeMap<String, BTreeSet<String>> {
    let page = |name| fs::read_to_string(root().join(name)).unwrap();
    let page = page("docs/metrics.md") + &page("docs/collection-metrics.md");
    let mut exposed = BTreeMap::new();
    for line in page.lines() {
        let cells: Vec<_> = line.split('|').map(str::trim).collect();
        let [_, name, kind, labels, _, _] = cells.as_slice() else {
            continue;
        };
        let Some(name) = name
            .strip_prefix('`')
            .and_then(|name| name.strip_suffix('`'))
        else {
            continue;
        };
        let labels = labels
            .split(", ")
            .map(|label| label.trim_matches('`').to_owned());
        let mut labels: BTreeSet<_> = labels.collect();
        exposed.insert(name.to_owned(), labels.clone());
        if *kind == "histogram" {
            labels.insert("le".to_owned());
            exposed.insert(format!("{name}_bucket"), labels);
        }
    }
    assert!(exposed.len() > 10, "{exposed:?}");
    exposed
}

fn dashboard(file: &str) -> Value {
    let path = root().join("charts/leasehold/dashboards").join(file);
    serde_json::from_str(&fs::read_to_string(path).unwrap()).unwrap()
}

fn dashboards() -> [Value; 2] {
    DASHBOARDS.map(|(file, _)| dashboard(file))
}

fn targets(dashboard: &Value) -> Vec<(Value, Value)> {
    let mut found = Vec::new();
    for panel in dashboard["panels"].as_array().unwrap() {
        for target in panel["targets"].as_array().unwrap() {
            found.push((panel.clone(), target.clone()));
        }
    }
    found
}

fn expressions() -> Vec<(String, String)> {
    let mut found = Vec::new();
    let mut add = |place: &Value, of: &Value| {
        let expression = of["expr"].as_str().unwrap();
        found.push((place.to_string(), expression.to_owned()));
    };
    for dashboard in dashboards() {
        for (panel, target) in targets(&dashboard) {
            add(&panel["title"], &target);
        }
        for annotation in dashboard["annotations"]["list"].as_array().unwrap() {
            add(&annotation["name"], annotation);
        }
    }
    let installations = [
        Objects::of("everything", &[]),
        Objects::of("web", &["web.monitoring.enabled=true"]),
    ];
    let objects = installations.iter().flat_map(Objects::iter);
    for object in objects.filter(|object| object["kind"] == "PrometheusRule") {
        let rules = &object["spec"]["groups"][0]["rules"];
        for rule in rules.as_array().unwrap() {
            add(&rule["alert"], rule);
        }
    }
    found
}

/// Returns the identifiers in an expression, ignoring quoted strings.
fn words(expression: &str) -> BTreeSet<String> {
    let unquoted: String = expression
        .split('"')
        .step_by(2)
        .collect::<Vec<_>>()
        .join(" ");
    let words = unquoted.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    words
        .filter(|word| !word.is_empty())
        .map(str::to_owned)
        .collect()
}

/// Returns the label names that an expression uses in `by` clauses and selectors.
fn labels(expression: &str) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for list in expression.split("by (").skip(1) {
        let list = list.split(')').next().unwrap();
        found.extend(list.split(',').map(|label| label.trim().to_owned()));
    }
    for selector in expression.split('{').skip(1) {
        let selector = selector.split('}').next().unwrap();
        for matcher in selector.split(',') {
            let end = matcher.find(['=', '!']).unwrap();
            found.insert(matcher[..end].trim().to_owned());
        }
    }
    found
}

#[test]
fn the_daemon_exposes_every_metric_and_label_of_the_expressions() {
    let exposed = exposed();
    for (place, expression) in expressions() {
        let metrics: Vec<_> = words(&expression)
            .into_iter()
            .filter(|word| word.starts_with("leasehold_"))
            .collect();
        assert!(!metrics.is_empty(), "{place}: {expression}");
        let mut known: BTreeSet<_> = TARGET_LABELS.map(str::to_owned).into();
        if expression.contains("label_replace(") && expression.contains("\"replica\", \"$1\"") {
            known.insert("replica".to_owned());
        }
        for metric in metrics {
            let labels = exposed.get(&metric);
            let labels = labels.unwrap_or_else(|| panic!("{place}: no metric {metric}"));
            known.extend(labels.iter().cloned());
        }
        for label in labels(&expression) {
            let exposed = known.contains(&label);
            assert!(exposed, "{place}: no label {label} in {expression}");
        }
    }
}

#[test]
fn promtool_accepts_every_expression_of_the_dashboard() {
    let rules: Vec<_> = expressions()
        .into_iter()
        .enumerate()
        .map(|(index, (_, expression))| {
            let expression = expression.replace("$__rate_interval", "1m");
            json!({"record": format!("panel:{index}"), "expr": expression})
        })
        .collect();
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("rules.yaml");
    let file = json!({"groups": [{"name": "dashboard", "rules": rules}]});
    fs::write(&path, file.to_string()).unwrap();
    succeed(tool("promtool").args(["check", "rules"]).arg(&path));
}

/// Returns a dashboard's queries as recording rules. The queries of the daemons' dashboard are
/// evaluated for all namespaces and for one namespace.
fn recorded(file: &str) -> BTreeMap<String, String> {
    let dashboard = dashboard(file);
    let mut queries = Vec::new();
    for (panel, target) in targets(&dashboard) {
        let query = target["refId"].as_str().unwrap();
        queries.push((format!("panel_{}_{query}", panel["id"]), target));
    }
    let annotations = dashboard["annotations"]["list"].clone();
    for (index, annotation) in annotations.as_array().unwrap().iter().enumerate() {
        queries.push((format!("annotation_{index}"), annotation.clone()));
    }
    let selections = match all_namespaces(&dashboard) {
        Some(all) => vec![("all", all), ("shop", "shop".to_owned())],
        None => vec![("all", String::new())],
    };
    let mut rules = BTreeMap::new();
    for (selection, namespace) in &selections {
        for (name, query) in &queries {
            let expression = query["expr"].as_str().unwrap();
            let expression = expression
                .replace("$__rate_interval", "1m")
                .replace("$job", "shop/orders-web")
                .replace("$lease", "shop.orders")
                .replace("$namespace", namespace);
            rules.insert(format!("{selection}:{name}"), expression);
        }
    }
    rules
}

/// Returns Grafana's regular expression for `$namespace` if no namespace is selected, or `None` if
/// the dashboard does not have this variable.
fn all_namespaces(dashboard: &Value) -> Option<String> {
    let mut variables = dashboard["templating"]["list"].as_array().unwrap().iter();
    let namespace = variables.find(|variable| variable["name"] == "namespace");
    Some(namespace?["allValue"].as_str().unwrap().to_owned())
}

#[test]
fn each_panel_is_correct_in_each_topology() {
    for (file, tests) in DASHBOARDS {
        panels_pass(file, tests);
    }
}

fn panels_pass(dashboard: &str, file: &str) {
    let tests = fs::read_to_string(root().join("tests/chart").join(file)).unwrap();
    let rules: Vec<_> = recorded(dashboard)
        .into_iter()
        .map(|(name, expression)| json!({"record": name, "expr": expression}))
        .collect();
    let directory = tempfile::tempdir().unwrap();
    let rules = json!({"groups": [{"name": "dashboard", "rules": rules}]});
    fs::write(
        directory.path().join("dashboard.rules.yaml"),
        rules.to_string(),
    )
    .unwrap();
    let path = directory.path().join(file);
    fs::write(&path, &tests).unwrap();
    succeed(tool("promtool").args(["test", "rules"]).arg(&path));

    let tests: Value = serde_saphyr::from_str(&tests).unwrap();
    let mut shown = BTreeSet::new();
    for test in tests["tests"].as_array().unwrap() {
        for case in test["promql_expr_test"].as_array().unwrap() {
            if case["exp_samples"] != json!([]) {
                shown.insert(case["expr"].as_str().unwrap().to_owned());
            }
        }
    }
    let queries = recorded(dashboard);
    for name in queries.keys().filter(|name| name.starts_with("all:")) {
        assert!(shown.contains(name), "{file} expects no sample of {name}");
    }
}

/// Series of hosts have no label `pod`, so a legend or grouping by `pod` alone would merge all
/// hosts.
#[test]
fn legends_use_only_labels_that_the_query_keeps_and_that_hosts_have() {
    for (panel, target) in dashboards().iter().flat_map(targets) {
        let (title, expression) = (&panel["title"], target["expr"].as_str().unwrap());
        let kept = labels(expression);
        let legend = target["legendFormat"].as_str().unwrap_or_default();
        for name in legend.split("{{").skip(1) {
            let name = name.split("}}").next().unwrap();
            assert!(kept.contains(name) && name != "pod", "{title}: {legend}");
        }
        for list in expression.split(" by (").skip(1) {
            let (list, rest) = list.split_once(')').unwrap();
            let merges = list.split(", ").any(|label| label == "pod")
                && !list.contains("instance")
                && !(rest.starts_with(" (\"started\"") && rest.contains("pod!=\"\""));
            assert!(!merges, "{title}: by ({list}) merges hosts");
        }
    }
}

#[test]
fn every_panel_has_a_description_and_panels_do_not_overlap() {
    dashboards().iter().for_each(panels_are_placed);
}

fn panels_are_placed(dashboard: &Value) {
    let mut taken = BTreeSet::new();
    let mut ids = BTreeSet::new();
    for panel in dashboard["panels"].as_array().unwrap() {
        let title = panel["title"].as_str().unwrap();
        assert!(ids.insert(panel["id"].as_i64().unwrap()), "{title}");
        let description = panel["description"].as_str().unwrap();
        assert!(description.ends_with('.'), "{title}: {description}");
        let unit = &panel["fieldConfig"]["defaults"]["unit"];
        assert!(unit.is_string(), "{title}: {unit}");
        let at = |name: &str| panel["gridPos"][name].as_i64().unwrap();
        assert!(at("x") + at("w") <= 24, "{title}");
        for x in at("x")..at("x") + at("w") {
            for y in at("y")..at("y") + at("h") {
                assert!(taken.insert((x, y)), "{title} overlaps another panel");
            }
        }
        for target in panel["targets"].as_array().unwrap() {
            assert_eq!(target["datasource"]["uid"], "${datasource}", "{title}");
        }
    }
}

/// Grafana refuses a second dashboard with an equal uid or title. All ConfigMaps are mounted into
/// one directory, so their file names must differ too.
#[test]
fn the_names_in_the_dashboards_config_map_contain_the_release() {
    let held = |release: &str| {
        let change = format!("fullnameOverride=\"{release}\"");
        let objects = Objects::of("everything", &[&change]);
        let map = objects.named("ConfigMap", &format!("{release}-dashboard"));
        let mut files = map["data"].as_object().unwrap().iter();
        let (file, text) = files.next().unwrap();
        let held: Value = serde_json::from_str(text.as_str().unwrap()).unwrap();
        (file.clone(), held)
    };
    let ((file, mut one), (other_file, other)) = (held("orders"), held("other"));
    assert_eq!(file, "leasehold.shop.orders.json");
    assert_ne!(file, other_file);
    assert_ne!(one["uid"], other["uid"]);
    assert_eq!(one["title"], "leasehold: shop/orders");
    assert_ne!(one["title"], other["title"]);
    let uid = one["uid"].as_str().unwrap();
    // Grafana accepts at most 40 characters.
    assert!(uid.starts_with("leasehold-") && uid.len() <= 40, "{uid}");
    (one["uid"], one["title"]) = (json!("leasehold"), json!("leasehold"));
    variable(&mut one, "lease").remove("current").unwrap();
    assert_eq!(one, dashboard("leasehold.json"));
}

fn variable<'a>(dashboard: &'a mut Value, name: &str) -> &'a mut Map<String, Value> {
    let variables = dashboard["templating"]["list"].as_array_mut().unwrap();
    let mut variables = variables.iter_mut();
    let found = variables.find(|variable| variable["name"] == name);
    found.unwrap().as_object_mut().unwrap()
}

/// If no lease were selected, Grafana would select the first lease in alphabetical order, which may
/// belong to another release.
#[test]
fn the_dashboard_of_a_release_opens_with_its_lease_selected() {
    let chosen = |installation: &str, changes: &[&str]| {
        let changes = [&["dashboard.enabled=true"], changes].concat();
        let objects = Objects::of(installation, &changes);
        let mut maps = objects.iter().filter(|map| map["kind"] == "ConfigMap");
        let files = maps.find_map(|map| {
            map["data"]
                .as_object()?
                .iter()
                .find(|(file, _)| file.ends_with(".json"))
        });
        let mut shown = serde_json::from_str(files.unwrap().1.as_str().unwrap()).unwrap();
        variable(&mut shown, "lease").get("current").cloned()
    };
    let lease = |name: &str| Some(json!({"text": name, "value": name}));
    assert_eq!(chosen("minimal", &[]), lease("shop.orders"));
    assert_eq!(chosen("everything", &[]), lease("orders.main"));
    assert_eq!(chosen("leases", &[]), lease("shop.orders"));
    assert_eq!(
        chosen("stateful-set", &["fullnameOverride=\"web\""]),
        lease("shop.web")
    );
    // A release that only injects sidecars has no lease, and the lock of a CronJob has no metrics.
    assert_eq!(chosen("injector", &[]), None);
    assert_eq!(chosen("cron-job", &[]), None);
}
