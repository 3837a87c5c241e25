//! Goal: the daemon accepts what the chart gives it, and the chart lets through
//! exactly the keys that it does not set itself. Method: the rendered flags go
//! to `leasehold config`, and the schema is compared with the table of keys.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::process::Command;

use leasehold::config::KEYS;
use serde_json::Value;

use crate::helm::{Objects, root};

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
fn the_schema_knows_the_keys_that_the_chart_does_not_set() {
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
    let set = SET_BY_THE_CHART.map(str::to_owned);
    let settable: BTreeSet<_> = KEYS
        .iter()
        .map(leasehold::config::Key::path)
        .filter(|path| !set.contains(path))
        .collect();
    assert_eq!(known, settable);
}
