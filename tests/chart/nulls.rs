//! Goal: a null value has the documented effect of an empty value, or is refused with the name of
//! its key. A null never silently disables a feature or empties a field. Method: sets the values of
//! values.yaml to null, and compares helm's output with the output for the defaults. The schema's
//! errors must name every missing value.

use std::collections::BTreeMap;
use std::fs;

use k8s_openapi::api::apps::v1::Deployment;
use kube::api::{Api, Patch, PatchParams};
use leasehold_testbed::run;
use serde_json::{Value, json};

use crate::helm::{Objects, chart, render, render_by, values};
use crate::release::Place;

/// Maps that the chart copies into fields of Kubernetes objects. In these maps, null removes a
/// default.
const OF_KUBERNETES: [&str; 12] = [
    "deployment.nodeSelector",
    "web.nodeSelector",
    "dashboard.labels",
    "deployment.podSecurityContext",
    "deployment.strategy.rollingUpdate",
    "workload.securityContext",
    "leasehold.securityContext",
    "leasehold.resources",
    "leasehold.startupProbe",
    "leasehold.livenessProbe",
    "leasehold.readinessProbe",
    "web.resources",
];

/// Values whose default null removes: the replica count, which an autoscaler may set, and
/// maps that the chart copies into Kubernetes objects.
const REPLACED: [&str; 9] = [
    "deployment.nodeSelector",
    "web.nodeSelector",
    "web.fsGroup",
    "dashboard.labels.grafana_dashboard",
    "deployment.replicas",
    "deployment.podSecurityContext",
    "deployment.strategy.rollingUpdate",
    "workload.securityContext",
    "leasehold.securityContext",
];

/// Values that the user must set. A template, not the schema, reports their absence.
const ASKED_FOR: [&str; 4] = [
    "workload.image.repository",
    "workload.image.tag",
    "leasehold.image.repository",
    "leasehold.mongodb.secretName",
];

fn defaults() -> BTreeMap<String, Value> {
    fn walk(path: &str, values: &Value, found: &mut BTreeMap<String, Value>) {
        for (key, value) in values.as_object().unwrap() {
            let path = format!("{path}{key}");
            found.insert(path.clone(), value.clone());
            let is_map = value.as_object().is_some_and(|map| !map.is_empty());
            if is_map && !OF_KUBERNETES.contains(&path.as_str()) {
                walk(&format!("{path}."), value, found);
            }
        }
    }
    let text = fs::read_to_string(chart().join("values.yaml")).unwrap();
    let mut found = BTreeMap::new();
    walk("", &serde_saphyr::from_str(&text).unwrap(), &mut found);
    found
}

fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null | Value::Bool(false) => true,
        Value::Bool(true) => false,
        Value::Number(number) => number.as_f64() == Some(0.0),
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Object(map) => map.values().all(is_empty),
    }
}

fn is_named(path: &str, complaint: &str) -> bool {
    let (section, key) = path.rsplit_once('.').unwrap_or(("", path));
    let pointer = match section {
        "" => String::new(),
        section => format!("/{}", section.replace('.', "/")),
    };
    let (at, key) = (
        format!("at '{pointer}': missing propert"),
        format!("'{key}'"),
    );
    let mut lines = complaint.lines();
    lines.any(|line| line.contains(&at) && line.contains(&key))
}

/// Sets the values at these paths to null and renders. Asserts that helm 3 and 4 agree.
fn render_nulls(paths: &[&str]) -> Result<String, String> {
    render_nulls_in("minimal", paths)
}

fn render_nulls_in(installation: &str, paths: &[&str]) -> Result<String, String> {
    let nulls: Vec<_> = paths.iter().map(|path| format!("{path}=null")).collect();
    let file = values(installation);
    let mut arguments = vec!["--values", file.to_str().unwrap()];
    arguments.extend(nulls.iter().flat_map(|null| ["--set-json", null]));
    let [three, four] = ["helm3", "helm"].map(|version| render_by(version, &chart(), &arguments));
    let objects =
        |rendered: &str| -> Vec<Value> { Objects::parse(rendered).iter().cloned().collect() };
    match (&three, &four) {
        (Ok(three), Ok(four)) => assert!(objects(three) == objects(four), "{paths:?}"),
        (Err(three), Err(four)) => {
            for complaint in [three, four] {
                assert!(
                    !complaint.contains("error calling"),
                    "{paths:?}: {complaint}"
                );
            }
        }
        (three, four) => panic!("{paths:?}: helm 3: {three:?}; helm 4: {four:?}"),
    }
    four
}

#[test]
fn a_null_counts_as_empty_or_is_refused_with_its_key() {
    let defaults = defaults();
    let is_section = |value: &Value| value.as_object().is_some_and(|map| !map.is_empty());
    let leaves = defaults.iter().filter(|(path, value)| {
        let own = REPLACED.contains(&path.as_str()) || ASKED_FOR.contains(&path.as_str());
        !own && (!is_section(value) || OF_KUBERNETES.contains(&path.as_str()))
    });
    // The field `for` of an alert is required, even if its default is an empty string.
    let (empty, required): (Vec<_>, Vec<_>) =
        leaves.partition(|(path, value)| is_empty(value) && !path.ends_with(".for"));
    let paths = |leaves: &[(&String, &Value)]| -> Vec<String> {
        leaves.iter().map(|(path, _)| (*path).clone()).collect()
    };
    let (empty, required) = (paths(&empty), paths(&required));
    let [empty, required] =
        [&empty, &required].map(|all| all.iter().map(String::as_str).collect::<Vec<_>>());
    assert!(
        empty.len() > 100 && required.len() > 60,
        "{} {}",
        empty.len(),
        required.len()
    );
    let rendered = render_nulls(&empty).unwrap();
    assert!(
        rendered == render("minimal", &[]).unwrap(),
        "a null differs from an empty value"
    );
    let complaint = render_nulls(&required).unwrap_err();
    for path in required {
        assert!(is_named(path, &complaint), "{path}: {complaint}");
    }

    // Setting a section to null removes its subsections too, so each depth is tested separately.
    for depth in 0..4 {
        let sections = defaults.iter().filter(|(path, value)| {
            let own = ["global", "leasehold"].contains(&path.as_str());
            let own = own || OF_KUBERNETES.contains(&path.as_str());
            !own && is_section(value) && path.matches('.').count() == depth
        });
        let sections: Vec<_> = sections.map(|(path, _)| path.as_str()).collect();
        if sections.is_empty() {
            continue;
        }
        let complaint = render_nulls(&sections).unwrap_err();
        for path in sections {
            assert!(is_named(path, &complaint), "{path}: {complaint}");
        }
    }
    for path in REPLACED {
        render_nulls(&[path]).unwrap();
    }
    for path in ASKED_FOR {
        let complaint = render_nulls(&[path]).unwrap_err();
        assert!(
            complaint.contains(&format!("set {path}")),
            "{path}: {complaint}"
        );
    }
}

#[test]
fn a_map_of_kubernetes_may_have_a_null_for_each_field() {
    let defaults = defaults();
    for path in OF_KUBERNETES {
        let fields = defaults[path].as_object().unwrap().keys();
        let nulls: Vec<_> = fields
            .map(|field| format!("{path}.{}", field.replace('.', "\\.")))
            .collect();
        let nulls: Vec<_> = nulls.iter().map(String::as_str).collect();
        for installation in [
            "minimal",
            "everything",
            "supervisor",
            "same-container",
            "web",
        ] {
            let rendered = render_nulls_in(installation, &nulls);
            rendered.unwrap_or_else(|complaint| panic!("{installation} {nulls:?}: {complaint}"));
        }
    }
}

#[test]
fn null_replicas_are_left_to_an_autoscaler() {
    // An empty string must work too, because helm 4 ignores null in the values.yaml of a parent
    // chart.
    let none = ["deployment.replicas=null", "deployment.replicas=\"\""];
    for (kind, none) in ["Deployment", "StatefulSet"].into_iter().zip(none) {
        let kind = format!("workload.kind=\"{kind}\"");
        let objects = Objects::of("minimal", &[&kind, none]);
        let spec = objects.maker()["spec"].as_object().unwrap();
        assert!(!spec.contains_key("replicas"), "{kind}: {spec:?}");
        let test = objects.one("Pod").to_string();
        assert!(!test.contains("--expect"), "{kind}: {test}");
    }
    run(async {
        let place = Place::new().await;
        let null = ["--set", "deployment.replicas=null"];
        place.chart("install", "orders", &null).unwrap();
        let deployments: Api<Deployment> = place.kubernetes.objects(&place.namespace);
        let scale = Patch::Merge(json!({"spec": {"replicas": 5}}));
        let parameters = PatchParams::default();
        let scaled = deployments.patch_scale("orders", &parameters, &scale);
        scaled.await.unwrap();
        let more = [&null[..], &["--set", "workload.args={--serve}"]].concat();
        place.chart("upgrade", "orders", &more).unwrap();
        let there = deployments.get("orders").await.unwrap();
        assert_eq!(there.spec.unwrap().replicas, Some(5));

        // As documented, null sets one replica if the release previously set a number.
        place.chart("install", "named", &[]).unwrap();
        place.chart("upgrade", "named", &null).unwrap();
        let there = deployments.get("named").await.unwrap();
        assert_eq!(there.spec.unwrap().replicas, Some(1));
    });
}
