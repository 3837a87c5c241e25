//! Goal: the chart never renders a flag that the daemon refuses, and never refuses a key that the
//! daemon accepts. Method: passes the rendered flags to `leasehold config`, checks durations with
//! the chart and with the daemon, and compares the chart's schema with the daemon's table of keys.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::process::Command;

use leasehold::config::KEYS;
use serde_json::Value;

use crate::documented::block;
use crate::helm::{Objects, render, root};

/// Keys that the chart computes from values, fields of the pod, or mount paths.
const SET_BY_THE_CHART: [&str; 15] = [
    "lease.name",
    "mongodb.uri",
    "mongodb.uri_file",
    "status.directory",
    "http.listen",
    "workload.ends_first",
    "workload.socket",
    "kubernetes.enabled",
    "kubernetes.pod_name",
    "kubernetes.pod_namespace",
    "kubernetes.pod_uid",
    "kubernetes.credentials",
    "kubernetes.label_prefix",
    "kubernetes.demote_others",
    "kubernetes.events",
];

fn flags(objects: &Objects) -> Vec<String> {
    let list = objects.daemon()["args"].as_array().unwrap().clone();
    let flags = list.iter().map(|flag| flag.as_str().unwrap().to_owned());
    flags.take_while(|flag| flag != "--").collect()
}

fn configured(config: &Value, section: &str, into: &mut BTreeMap<String, Value>) {
    for (name, value) in config.as_object().into_iter().flatten() {
        let path = format!("{section}{name}");
        match value {
            Value::Object(_) => configured(value, &format!("{path}."), into),
            _ => {
                into.insert(path, value.clone());
            }
        }
    }
}

#[test]
fn the_daemon_accepts_the_rendered_flags() {
    let mut checked = 0;
    for installation in [
        "minimal",
        "everything",
        "unlabelled",
        "supervisor",
        "same-container",
        "stateful-set",
        "leases",
    ] {
        let objects = Objects::of(installation, &[]);
        let given = flags(&objects);
        let (run, given) = given.split_first().unwrap();
        assert_eq!(run, "run");
        let mut environment = BTreeMap::new();
        for variable in objects.daemon()["env"].as_array().unwrap() {
            let path = &variable["valueFrom"]["fieldRef"]["fieldPath"];
            if let Some(path) = path.as_str() {
                let name = variable["name"].as_str().unwrap();
                environment.insert(name.to_owned(), path.to_owned());
            }
        }
        let output = Command::new(env!("CARGO_BIN_EXE_leasehold"))
            .args(["config", "--output", "json"])
            .args(given)
            .env_clear()
            .envs(environment)
            .output()
            .unwrap();
        let complaint = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{installation}: {complaint}");
        let shown: Value = serde_json::from_slice(&output.stdout).unwrap();
        for flag in given {
            let (flag, value) = flag.split_once('=').unwrap();
            let flag = flag.strip_suffix("-name").unwrap_or(flag);
            let key = KEYS.iter().find(|key| format!("--{}", key.flag()) == flag);
            let key = key.unwrap().path();
            let source = shown[&key]["source"].as_str().unwrap();
            assert_eq!(source, format!("flag {flag}"), "{installation}: {value}");
        }
        assert_eq!(shown["identity.name"]["value"], "metadata.name");
        let file = fs::read_to_string(crate::helm::values(installation)).unwrap();
        let values: Value = serde_saphyr::from_str(&file).unwrap();
        let mut said = BTreeMap::new();
        configured(&values["leasehold"]["config"], "", &mut said);
        for (key, value) in said {
            assert_eq!(shown[&key]["value"], value, "{installation}: {key}");
            checked += 1;
        }
    }
    assert!(checked > 15, "{checked}");
}

/// The container's arguments must set these keys; otherwise, a variable from an `envFrom` could
/// override them. Templates cannot read the ConfigMaps and Secrets of an `envFrom`.
#[test]
fn variables_cannot_change_the_lease_the_database_or_the_collection() {
    for (installation, lease, collection) in [
        ("minimal", "shop.orders", "leasehold.leases"),
        ("everything", "orders.main", "elections.orders"),
        ("supervisor", "shop.orders", "leasehold.leases"),
        ("same-container", "shop.orders", "leasehold.leases"),
    ] {
        let objects = Objects::of(installation, &[]);
        let labels = &objects.template()["metadata"]["labels"];
        assert_eq!(labels["contends.leasehold.dev/in"], collection);
        let output = Command::new(env!("CARGO_BIN_EXE_leasehold"))
            .args(["config", "--output", "json"])
            .args(&flags(&objects)[1..])
            .env_clear()
            .envs(["POD_NAME", "POD_NAMESPACE", "POD_UID"].map(|name| (name, "x")))
            .envs(["LEASE__NAME", "MONGODB__DATABASE", "MONGODB__COLLECTION"].map(other))
            .env("LEASEHOLD_MONGODB__URI", "mongodb://other.example")
            .output()
            .unwrap();
        let complaint = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{installation}: {complaint}");
        let shown: Value = serde_json::from_slice(&output.stdout).unwrap();
        let value = |key: &str| shown[key]["value"].as_str().unwrap();
        assert_eq!(value("lease.name"), lease);
        let used = [value("mongodb.database"), value("mongodb.collection")].join(".");
        assert_eq!(used, collection, "{installation}");
        assert_eq!(value("mongodb.uri_file"), "/etc/leasehold/mongodb/uri");
        assert!(!shown.to_string().contains("other.example"), "{shown}");
    }
    for (installation, containers) in [("job", 1), ("leases", 3), ("injector", 2), ("web", 2)] {
        let rendered = render(installation, &[]).unwrap();
        for flag in ["--mongodb-database=", "--mongodb-collection="] {
            assert_eq!(
                rendered.matches(flag).count(),
                containers,
                "{installation}: {flag}"
            );
        }
    }
}

fn other(key: &str) -> (String, &str) {
    (format!("LEASEHOLD_{key}"), "other")
}

fn keys(section: &str, schema: &Value, into: &mut BTreeSet<String>) {
    for (name, schema) in schema["properties"].as_object().unwrap() {
        let path = format!("{section}{name}");
        if schema["properties"].is_object() {
            assert_eq!(schema["additionalProperties"], false, "{path}");
            keys(&format!("{path}."), schema, into);
        } else {
            into.insert(path);
        }
    }
}

#[test]
fn the_schema_has_every_key() {
    let path = root().join("charts/leasehold-sidecar/values.schema.json");
    let schema: Value = serde_json::from_str(&fs::read_to_string(path).unwrap()).unwrap();
    let mut known = BTreeSet::new();
    keys("", &schema["definitions"]["config"], &mut known);
    let all: BTreeSet<_> = KEYS.iter().map(leasehold::config::Key::path).collect();
    assert_eq!(known, all);
}

#[test]
fn keys_that_the_chart_sets_are_refused_and_the_error_names_the_value_to_set() {
    for key in SET_BY_THE_CHART {
        let change = format!("leasehold.config.{key}=\"hunter2\"");
        let complaint = render("minimal", &[&change]).unwrap_err();
        let remedy = format!("leave out leasehold.config.{key}: ");
        assert!(complaint.contains(&remedy), "{complaint}");
        assert!(!complaint.contains("hunter2"), "{complaint}");
    }
}

#[test]
fn an_identity_contains_the_pod_name_and_optional_other_text() {
    let identity = |name: &str| format!("leasehold.config.identity.name=\"{name}\"");
    for (installation, runs) in [
        ("minimal", "run"),
        ("leases", "run"),
        ("supervisor", "run"),
        ("same-container", "run"),
        ("stateful-set", "run"),
        ("cron-job", "lock"),
    ] {
        let objects = Objects::of(installation, &[&identity("eu1.$(POD_NAME)")]);
        let container = objects.container(|container| container["args"][0] == runs);
        let container = container.unwrap();
        let mut flags = container["args"].as_array().unwrap().iter();
        let flag = flags.find_map(|flag| flag.as_str()?.strip_prefix("--identity-name="));
        // Expands the container's variables, as the kubelet does.
        let mut name = flag.expect(installation).to_owned();
        for variable in container["env"].as_array().unwrap() {
            if let Some(path) = variable["valueFrom"]["fieldRef"]["fieldPath"].as_str() {
                let variable = format!("$({})", variable["name"].as_str().unwrap());
                name = name.replace(&variable, path);
            }
        }
        assert_eq!(name, "eu1.metadata.name", "{installation}");
    }
    for name in ["eu1", "eu1.$(HOSTNAME)", "$$(POD_NAME)"] {
        let complaint = render("minimal", &[&identity(name)]).unwrap_err();
        assert!(
            complaint.contains("leasehold.config.identity.name"),
            "{complaint}"
        );
        assert!(complaint.contains("as in eu1.$(POD_NAME)"), "{complaint}");
    }
}

#[test]
fn a_priority_may_come_from_an_environment_variable() {
    let documented = block("docs/operations.md", "priority.yaml");
    let documented: Value = serde_saphyr::from_str(&documented).unwrap();
    let index = format!("leasehold.extraEnv={}", documented["leasehold"]["extraEnv"]);
    let documented = documented["leasehold"]["config"]["identity"]["priority"].to_string();
    let priority = |value: &str| format!("leasehold.config.identity.priority={value}");
    for installation in ["minimal", "stateful-set", "supervisor", "same-container"] {
        let objects = Objects::of(installation, &[&index, &priority(&documented)]);
        assert!(objects.has_flag("--identity-priority=$(POD_INDEX)"));
        let environment = objects.daemon()["env"].as_array().unwrap();
        let mut names = environment.iter().map(|variable| &variable["name"]);
        assert!(names.any(|name| name == "POD_INDEX"), "{environment:?}");
    }
    for wrong in ["1001", "\"2\"", "\"high\""] {
        let complaint = render("minimal", &[&priority(wrong)]).unwrap_err();
        assert!(complaint.contains("priority"), "{wrong}: {complaint}");
    }
}

#[test]
fn the_chart_and_the_daemon_refuse_the_same_combinations_of_durations() {
    let config = |settings: &[(&str, &str)]| {
        let given = flags(&Objects::of("minimal", &[]));
        let flag = |(path, value): &(&str, &str)| {
            let key = KEYS.iter().find(|key| key.path() == *path);
            format!("--{}={value}", key.unwrap().flag())
        };
        let output = Command::new(env!("CARGO_BIN_EXE_leasehold"))
            .arg("config")
            .args(&given[1..])
            .args(settings.iter().map(flag))
            .env_clear()
            .envs(["POD_NAME", "POD_NAMESPACE", "POD_UID"].map(|name| (name, "x")))
            .output()
            .unwrap();
        output.status.success()
    };
    let chart = |settings: &[(&str, &str)]| {
        let changes: Vec<_> = settings
            .iter()
            .map(|(key, value)| format!("leasehold.config.{key}=\"{value}\""))
            .collect();
        let changes: Vec<_> = changes.iter().map(String::as_str).collect();
        render("minimal", &changes).is_ok()
    };
    let (duration, deadline) = ("lease.lease_duration", "lease.renew_deadline");
    // With the other keys at their defaults, the minimum `renew_deadline` is 1.2 × (3 s + 1 s) + 2
    // × 3 s, and the minimum `lease_duration` is (18 s + 3 s) × 1.1 + 500 ms.
    for (accepted, settings) in [
        (true, &[][..]),
        (false, &[(deadline, "90s")]),
        (false, &[(deadline, "0s")]),
        (true, &[(deadline, "10800ms")]),
        (false, &[(deadline, "10s799ms")]),
        (true, &[(duration, "23s600ms")]),
        (false, &[(duration, "23599ms")]),
        (true, &[(duration, "1m"), (deadline, "51s")]),
        (false, &[("lease.renew_interval", "9s1ms")]),
        (true, &[("lease.renew_interval", "9s")]),
        (false, &[("lease.retry_interval", "8s")]),
        (false, &[("mongodb.operation_timeout", "6601ms")]),
        (true, &[("mongodb.operation_timeout", "6600ms")]),
        (false, &[("workload.loss_grace", "4s")]),
    ] {
        assert_eq!(config(settings), accepted, "the daemon: {settings:?}");
        assert_eq!(chart(settings), accepted, "the chart: {settings:?}");
    }
}
