//! Goal: if a chart depends on our chart twice, the two uses never share an object or a lease.
//! Method: renders a chart that lists our chart as a dependency twice.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::symlink;

use serde_json::Value;

use leasehold_testbed::assert_contains;

use crate::helm::{KUBERNETES, Objects, chart, render, render_by, tool};

/// Renders a chart that depends on our chart twice, as `orders` and as `billing`, with these
/// values. Asserts that helm 3 and 4 agree.
fn umbrella(values: &str) -> Result<Objects, String> {
    let around = tempfile::tempdir().unwrap();
    let path = around.path();
    fs::create_dir(path.join("charts")).unwrap();
    symlink(chart(), path.join("charts/leasehold")).unwrap();
    let dependency = |alias: &str| {
        let version = env!("CARGO_PKG_VERSION");
        format!(
            "- {{name: leasehold, alias: {alias}, version: {version}, repository: file://x, condition: {alias}.enabled}}\n"
        )
    };
    let text = format!(
        "apiVersion: v2\nname: shop\nversion: 1.0.0\ndependencies:\n{}{}",
        dependency("orders"),
        dependency("billing"),
    );
    fs::write(path.join("Chart.yaml"), text).unwrap();
    let minimal = fs::read_to_string(crate::helm::values("minimal")).unwrap();
    let minimal = minimal.replace('\n', "\n  ");
    let text = format!("global: {{a: b}}\norders:\n  {minimal}\nbilling:\n  {minimal}\n");
    fs::write(path.join("values.yaml"), text).unwrap();
    let file = path.join("more.yaml");
    fs::write(&file, values).unwrap();
    let [three, four] = ["helm3", "helm"].map(|version| {
        let rendered = render_by(version, path, &["--values", file.to_str().unwrap()]);
        rendered.map(|yaml| Objects::parse(&yaml))
    });
    match (&three, &four) {
        (Ok(three), Ok(four)) => {
            assert!(
                three.iter().eq(four.iter()),
                "helm 3 renders different objects"
            )
        }
        (Err(_), Err(_)) => {}
        (three, four) => panic!("helm 3: {three:?}; helm 4: {four:?}"),
    }
    four
}

fn names(objects: &Objects) -> Vec<String> {
    let name = |object: &Value| format!("{} {}", object["kind"], object["metadata"]["name"]);
    objects.iter().map(name).collect()
}

fn of_kind<'a>(objects: &'a Objects, kind: &str) -> Vec<&'a Value> {
    let found = objects.iter().filter(|object| object["kind"] == kind);
    found.collect()
}

const TWICE: &str = "orders: {service: {enabled: true}, test: {enabled: false}}\nbilling: {service: {enabled: true}, test: {enabled: false}}";

#[test]
fn two_uses_in_one_release_create_two_of_each_object() {
    let objects = umbrella(TWICE).unwrap();
    let all = names(&objects);
    let different: BTreeSet<_> = all.iter().collect();
    assert_eq!(different.len(), all.len(), "{all:#?}");
    let deployments = of_kind(&objects, "Deployment");
    assert_eq!(deployments.len(), 2);
    let mut leases = BTreeSet::new();
    for deployment in deployments {
        let pod = &deployment["spec"]["template"];
        let args = pod["spec"]["initContainers"][0]["args"].to_string();
        let (_, rest) = args.split_once("--lease-name=").unwrap();
        leases.insert(rest.split('"').next().unwrap().to_owned());
    }
    let expected = ["shop.orders", "shop.orders-billing"].map(str::to_owned);
    // The first name has no suffix, because the alias equals the release's name.
    assert_eq!(leases, BTreeSet::from(expected));
}

#[test]
fn conditions_of_dependencies_and_globals_of_other_charts_are_accepted() {
    let of_others = "global: {storageClass: fast, leasehold: {a: b}}\n";
    let values = TWICE.replace(": {service", ": {enabled: true, service");
    assert!(umbrella(&format!("{of_others}{values}")).is_ok());
    let off = TWICE.replacen(": {service", ": {enabled: false, service", 1);
    let one = umbrella(&off).unwrap();
    assert_eq!(of_kind(&one, "Deployment").len(), 1);
    one.named("Deployment", "orders-billing");
    let library = TWICE.replace(": {service", ": {leasehold: {enabled: true}, service");
    assert!(umbrella(&library).is_ok());
    let ignored = library.replacen("{enabled: true}", "{enabled: false}", 1);
    assert_contains(
        &umbrella(&ignored).unwrap_err(),
        "leasehold.enabled is false, and has no effect: set it as the condition",
    );
    for key in ["enabled", "leasehold.enabled"] {
        for value in [true, false] {
            let complaint = render("minimal", &[&format!("{key}={value}")]).unwrap_err();
            assert_contains(
                &complaint,
                &format!("leave out {key}: it is for the condition"),
            );
            assert_contains(&complaint, "set deployment.enabled");
        }
    }
}

/// Helm 3 itself passes the library's values to the second use under this key.
#[test]
fn values_under_the_name_of_the_library_are_refused() {
    let remedy = "leave out leasehold-sidecar: its values belong under leasehold";
    for part in ["orders", "billing"] {
        let wrong = format!("{part}: {{leasehold-sidecar: {{leaseName: x}}}}");
        assert_contains(&umbrella(&wrong).unwrap_err(), remedy);
    }
    let complaint = render("minimal", &[r#"leasehold-sidecar={"http":{"port":1}}"#]).unwrap_err();
    assert_contains(&complaint, remedy);
}

/// Different values can produce equal lease names. If both uses had the same lease name, only one
/// pod of both uses would lead.
#[test]
fn two_uses_in_one_release_have_different_leases_by_default() {
    let further = |key: &str, more: &str| {
        format!("orders: {{leasehold: {{extraLeases: {{{key}: {{port: 9403{more}}}}}}}}}")
    };
    let complaint = umbrella(&further("billing", "")).unwrap_err();
    for words in [
        "another use of the chart in this release also contends for shop.orders-billing in leasehold.leases",
        "leaseName to another name, or to shop.orders-billing to share it",
    ] {
        assert_contains(&complaint, words);
    }
    umbrella(&further("reports", "")).unwrap();
    umbrella(&further("billing", ", leaseName: shop.orders-billing")).unwrap();
    // Equal names in different databases are allowed.
    let apart = "billing: {leasehold: {config: {mongodb: {database: other}}}}";
    umbrella(&format!("{}\n{apart}", further("billing", ""))).unwrap();
}

fn contended(objects: &Objects) -> Vec<String> {
    let all: Vec<_> = objects.iter().map(Value::to_string).collect();
    let all = all.join("\n");
    let leases = all.split("\"--lease-name=").skip(1);
    let locks = all.split("[\"lock\",\"").skip(1);
    let names = leases
        .chain(locks)
        .filter_map(|rest| rest.split('"').next());
    // Ignores matches in the policies' expressions, whose quotes are escaped here.
    let names = names.filter(|name| !name.ends_with('\\'));
    names.map(str::to_owned).collect()
}

#[test]
fn names_differ_between_uses_releases_and_namespaces() {
    let lock = "workload: {kind: CronJob, command: [/report]}, mode: supervisor, cronJob: {schedule: '@daily'}";
    let locks = format!("orders: {{{lock}}}\nbilling: {{{lock}}}");
    let twice = umbrella(&locks).unwrap();
    let found = contended(&twice);
    assert_eq!(found, ["shop.orders-billing", "shop.orders"], "{found:?}");
    let all: BTreeSet<_> = names(&twice).into_iter().collect();
    assert_eq!(all.len(), names(&twice).len(), "{all:?}");
    // An upgrade recognizes each use of the chart by a ConfigMap whose name does not change when
    // the other objects are renamed.
    let renamed =
        umbrella(&locks.replacen("workload:", "nameOverride: web, workload:", 1)).unwrap();
    let records = |objects: &Objects| {
        let all = names(objects).into_iter();
        let records = all.filter(|name| name.starts_with("\"ConfigMap\""));
        records.collect::<BTreeSet<_>>()
    };
    assert_eq!(records(&renamed), records(&twice));
    assert_ne!(names(&renamed), names(&twice));

    let everything = crate::helm::values("everything");
    let everything = everything.to_str().unwrap();
    let own = [
        "leasehold.leaseName=",
        "leasehold.serviceAccount.name=",
        "web.enabled=true,web.mongodb.secretName=a,web.token.secretName=a",
    ];
    let (mut seen, mut rendered) = (BTreeSet::new(), 0);
    for release in ["orders", "billing"] {
        for namespace in ["shop", "prod"] {
            let mut helm = tool("helm");
            helm.args(["template", release]).arg(chart());
            helm.args(["--namespace", namespace, "--kube-version", KUBERNETES]);
            helm.args(["--values", everything]);
            helm.args(own.iter().flat_map(|change| ["--set", *change]));
            let output = helm.output().unwrap();
            let objects = Objects::parse(&String::from_utf8(output.stdout).unwrap());
            for object in objects.iter() {
                let (kind, metadata) = (&object["kind"], &object["metadata"]);
                let id = format!("{kind} {} {}", metadata["namespace"], metadata["name"]);
                assert!(seen.insert(id), "{kind} {metadata}");
                rendered += 1;
            }
            let dashboard = objects.named("ConfigMap", &format!("{release}-dashboard"));
            let (file, text) = dashboard["data"]
                .as_object()
                .unwrap()
                .iter()
                .next()
                .unwrap();
            let board: Value = serde_json::from_str(text.as_str().unwrap()).unwrap();
            let ids = [
                file.as_str(),
                board["uid"].as_str().unwrap(),
                board["title"].as_str().unwrap(),
            ];
            let ids = ids.into_iter().map(str::to_owned);
            let leases = contended(&objects);
            for id in ids.chain(leases) {
                assert!(seen.insert(format!("id {id}")), "{id} twice");
            }
        }
    }
    assert!(rendered > 80, "{rendered}");
}

#[test]
fn selectors_match_the_pods_of_one_use_only() {
    let objects = umbrella(TWICE).unwrap();
    let mut selectors = Vec::new();
    for (kind, at) in [
        ("Deployment", "/spec/selector/matchLabels"),
        ("PodDisruptionBudget", "/spec/selector/matchLabels"),
        ("Service", "/spec/selector"),
    ] {
        let found = of_kind(&objects, kind).into_iter();
        selectors.extend(found.map(|object| object.pointer(at).unwrap()));
    }
    assert_eq!(selectors.len(), 6);
    for selector in selectors {
        let selected = |deployment: &&Value| {
            let labels = &deployment["spec"]["template"]["metadata"]["labels"];
            let mut wanted = selector.as_object().unwrap().iter();
            wanted.all(|(key, value)| key.starts_with("leasehold.dev/") || labels[key] == *value)
        };
        let found = of_kind(&objects, "Deployment").into_iter().filter(selected);
        assert_eq!(found.count(), 1, "{selector}");
    }
}

#[test]
fn names_can_be_overridden_and_the_lease_follows_them() {
    for (change, name) in [
        ("deployment.replicas=2", "orders"),
        ("nameOverride=\"web\"", "orders-web"),
        ("nameOverride=\"orders\"", "orders"),
        ("fullnameOverride=\"web\"", "web"),
    ] {
        let objects = Objects::of("minimal", &[change, "service.enabled=true"]);
        for kind in ["Deployment", "Service", "PodDisruptionBudget"] {
            objects.named(kind, name);
        }
        for kind in ["ServiceAccount", "Role", "RoleBinding"] {
            let full = format!("{name}-leasehold");
            assert_eq!(objects.one(kind)["metadata"]["name"], full, "{change}");
        }
        let policy = &objects.one("ValidatingAdmissionPolicy")["metadata"]["name"];
        assert_eq!(policy, &format!("{name}.shop.leasehold"), "{change}");
        let args = objects.sidecar()["args"].to_string();
        let lease = format!("\"--lease-name=shop.{name}\"");
        assert!(args.contains(&lease), "{change}: {args}");
    }
}

#[test]
fn a_name_that_is_too_long_is_refused_and_not_truncated() {
    let long = "x".repeat(50);
    let complaint = render("minimal", &[&format!("nameOverride=\"{long}\"")]).unwrap_err();
    assert_contains(&complaint, "longer than 53 characters");
    assert!(complaint.contains("set fullnameOverride"), "{complaint}");
    let complaint = render("minimal", &["fullnameOverride=\"A\""]).unwrap_err();
    assert!(complaint.contains("'/fullnameOverride'"), "{complaint}");
}

/// Unquoted, `123`, `1.5`, `1e3` and `true` are not strings in YAML, and the API server would
/// refuse them.
#[test]
fn names_that_look_like_numbers_are_strings() {
    for name in ["123", "1e3", "true", "null"] {
        let own = [
            format!("fullnameOverride=\"{name}\""),
            format!("nameOverride=\"{name}\""),
        ];
        let changes: Vec<&str> = own.iter().map(String::as_str).collect();
        let objects = Objects::of("minimal", &changes);
        let metadata = &objects.maker()["metadata"];
        assert_eq!(metadata["name"], name);
        let labels = &objects.template()["metadata"]["labels"];
        assert_eq!(labels["app.kubernetes.io/instance"], name);
        assert_eq!(labels["app.kubernetes.io/name"], name);
        for object in objects.iter() {
            assert!(object["metadata"]["name"].is_string(), "{object}");
        }
    }
    let service = r#"service={"enabled":true,"portName":"1e3"}"#;
    let ports =
        Objects::of("minimal", &[service]).named("Service", "orders")["spec"]["ports"].clone();
    assert_eq!(ports[0]["name"], "1e3");
    let set = Objects::of(
        "stateful-set",
        &[
            r#"fullnameOverride="true""#,
            "service.enabled=false",
            r#"statefulSet.serviceName="true""#,
        ],
    );
    assert_eq!(set.maker()["spec"]["serviceName"], "true");
}
