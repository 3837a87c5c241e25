//! Goal: the daemon accepts what the chart gives it, and the chart lets through
//! exactly the keys that it does not set itself. Method: the rendered flags go
//! to `leasehold config`, whose judgement of durations the chart shares, and the
//! schema is compared with the table of keys.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::process::Command;

use leasehold::config::KEYS;
use serde_json::Value;

use crate::helm::{Objects, render, root};

/// Keys that the chart sets from values of its own, or from the pod, or that
/// name a place where it mounts something.
const SET_BY_THE_CHART: [&str; 15] = [
    "lease.name",
    "identity.name",
    "mongodb.uri",
    "mongodb.uri_file",
    "status.directory",
    "http.listen",
    "workload.ends_first",
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
    let list = objects.sidecar()["args"].as_array().unwrap().clone();
    list.iter()
        .map(|flag| flag.as_str().unwrap().to_owned())
        .collect()
}

#[test]
fn the_flags_are_a_configuration() {
    for installation in ["minimal", "everything", "unlabelled"] {
        let objects = Objects::of(installation, &[]);
        let given = flags(&objects);
        let (run, given) = given.split_first().unwrap();
        assert_eq!(run, "run");
        let mut environment = BTreeMap::new();
        for variable in objects.sidecar()["env"].as_array().unwrap() {
            environment.insert(
                variable["name"].as_str().unwrap().to_owned(),
                "x".to_owned(),
            );
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
        let shown = String::from_utf8(output.stdout).unwrap();
        for flag in given {
            let (_, value) = flag.split_once('=').unwrap();
            assert!(shown.contains(value), "{installation}: {flag} in {shown}");
        }
    }
}

#[test]
fn the_schema_knows_every_key() {
    let path = root().join("charts/leasehold-sidecar/values.schema.json");
    let schema: Value = serde_json::from_str(&fs::read_to_string(path).unwrap()).unwrap();
    let sections = schema["properties"]["config"]["properties"]
        .as_object()
        .unwrap();
    let mut known = BTreeSet::new();
    for (section, keys) in sections {
        for key in keys["properties"].as_object().unwrap().keys() {
            known.insert(format!("{section}.{key}"));
        }
    }
    let all: BTreeSet<_> = KEYS.iter().map(leasehold::config::Key::path).collect();
    assert_eq!(known, all);
}

#[test]
fn the_keys_that_the_chart_sets_are_refused_with_what_to_set_instead() {
    for key in SET_BY_THE_CHART {
        let change = format!("leasehold.config.{key}=\"hunter2\"");
        let complaint = render("minimal", &[&change]).unwrap_err();
        let remedy = format!("leave out leasehold.config.{key}: ");
        assert!(complaint.contains(&remedy), "{complaint}");
        assert!(!complaint.contains("hunter2"), "{complaint}");
    }
}

#[test]
fn the_chart_refuses_the_relations_of_durations_that_the_daemon_refuses() {
    let config = |settings: &[(&str, &str)]| {
        let given = flags(&Objects::of("minimal", &[]));
        let flag =
            |(key, value): &(&str, &str)| format!("--{}={value}", key.replace(['.', '_'], "-"));
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
    // At the default of the others: 1.2 × (3 s + 1 s) + 2 × 3 s, and (18 s + 3 s) × 1.1 + 500 ms.
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
