//! Goal: the chart deploys the web page only on request, with its own database user and token.
//! Selectors for the workload's pods never match the page's pod. Method: parses helm's output.

use std::fs;
use std::process::Command;

use serde_json::{Value, json};

use crate::helm::{Objects, refused, root};

fn of<'a>(objects: &'a Objects, kind: &str, name: &str) -> &'a Value {
    let mut found = objects.iter();
    let is_it = |object: &&Value| object["kind"] == kind && object["metadata"]["name"] == name;
    found
        .find(is_it)
        .unwrap_or_else(|| panic!("no {kind} {name}"))
}

#[test]
fn the_page_accepts_the_settings_of_the_sidecars() {
    let mongodb = r#""database":"d","operation_timeout":"4s","heartbeat":"10s","watch":"hints""#;
    let change = format!(
        r#"leasehold.config={{"mongodb":{{{mongodb}}},"log":{{"level":"debug","format":"text"}}}}"#
    );
    let objects = Objects::of("web", &[&change]);
    let pod = &of(&objects, "Deployment", "orders-web")["spec"]["template"]["spec"];
    let arguments = pod["containers"][0]["args"].as_array().unwrap();
    let flags = arguments.iter().map(|flag| flag.as_str().unwrap());
    let output = Command::new(env!("CARGO_BIN_EXE_leasehold"))
        .args(flags)
        .env_clear()
        .output()
        .unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    // An unknown flag would end the program before it reads files.
    assert!(
        said.contains("cannot read /etc/leasehold/mongodb/uri"),
        "{said}"
    );
}

#[test]
fn the_page_has_a_user_and_a_token_of_its_own() {
    let change = r#"leasehold.config={"mongodb":{"database":"elections"},"lease":{"renew_interval":"2s"},"log":{"level":"debug"}}"#;
    let objects = Objects::of("web", &[change]);
    let pod = &of(&objects, "Deployment", "orders-web")["spec"]["template"]["spec"];
    let container = &pod["containers"][0];
    assert_eq!(
        container["args"],
        json!([
            "web",
            "--listen=0.0.0.0:9500",
            "--token-file=/etc/leasehold/web/token",
            "--mongodb-uri-file=/etc/leasehold/mongodb/uri",
            "--allow-actions",
            "--by=orders-web.shop",
            "--log-level=debug",
            "--mongodb-collection=leases",
            "--mongodb-database=elections",
        ])
    );
    let secrets: Vec<_> = pod["volumes"]
        .as_array()
        .unwrap()
        .iter()
        .map(|v| &v["secret"])
        .collect();
    assert_eq!(secrets[0]["secretName"], "orders-web-mongodb");
    assert_eq!(secrets[1]["secretName"], "orders-web");
    for secret in secrets {
        // The program refuses a token file that other users can read.
        assert_eq!(secret["defaultMode"], 0o440);
    }
    assert_eq!(pod["securityContext"]["fsGroup"], 1000);
    assert_eq!(pod["automountServiceAccountToken"], false);
    assert_eq!(container["securityContext"]["readOnlyRootFilesystem"], true);
    assert_eq!(
        container["livenessProbe"]["httpGet"],
        json!({ "path": "/livez", "port": 9500 })
    );
    assert_eq!(
        container["readinessProbe"]["httpGet"],
        json!({ "path": "/readyz", "port": 9500 })
    );
    let service = &of(&objects, "Service", "orders-web")["spec"];
    assert_eq!(service["ports"][0]["port"], 8080);
    assert_eq!(service["ports"][0]["targetPort"], 9500);
}

#[test]
fn the_pod_of_the_page_has_its_own_scheduling_fields() {
    let deployment = [
        r#"deployment.nodeSelector.pool="workers""#,
        r#"deployment.priorityClassName="high""#,
        r#"deployment.tolerations=[{"key":"workers","operator":"Exists"}]"#,
        r#"deployment.affinity={"podAntiAffinity":{}}"#,
    ];
    let keys = [
        "nodeSelector",
        "tolerations",
        "affinity",
        "priorityClassName",
    ];
    let objects = Objects::of("web", &deployment);
    let pod = &of(&objects, "Deployment", "orders-web")["spec"]["template"]["spec"];
    assert_eq!(
        pod["nodeSelector"],
        json!({ "pool": "tools", "kubernetes.io/os": "linux" })
    );
    assert_eq!(
        pod["tolerations"],
        json!([{ "key": "tools", "operator": "Exists", "effect": "NoSchedule" }])
    );
    let preferred =
        &pod["affinity"]["nodeAffinity"]["preferredDuringSchedulingIgnoredDuringExecution"];
    assert_eq!(preferred[0]["weight"], 1);
    assert_eq!(pod["priorityClassName"], "low");
    let resources =
        json!({ "requests": { "cpu": "10m", "memory": "40Mi" }, "limits": { "memory": "200Mi" } });
    assert_eq!(pod["containers"][0]["resources"], resources);
    let workload = &of(&objects, "Deployment", "orders")["spec"]["template"]["spec"];
    for key in keys {
        assert_ne!(workload[key], pod[key], "{key}");
    }
    let plain = Objects::of(
        "web",
        &[
            "web.nodeSelector=null",
            "web.tolerations=[]",
            "web.affinity=null",
            r#"web.priorityClassName="""#,
        ],
    );
    let pod = &of(&plain, "Deployment", "orders-web")["spec"]["template"]["spec"];
    for key in keys {
        assert_eq!(pod.get(key), None, "{key}");
    }
}

#[test]
fn the_page_is_read_only_by_default() {
    let objects = Objects::of("web", &["web.allowActions=false"]);
    let pod = &of(&objects, "Deployment", "orders-web")["spec"]["template"]["spec"];
    let args = pod["containers"][0]["args"].to_string();
    assert!(
        !args.contains("allow-actions") && !args.contains("--by"),
        "{args}"
    );
}

#[test]
fn selectors_for_the_workload_do_not_match_the_pod_of_the_page() {
    let objects = Objects::of("web", &[]);
    let labels =
        &of(&objects, "Deployment", "orders-web")["spec"]["template"]["metadata"]["labels"];
    let selects = |selector: &Value| {
        let mut pairs = selector.as_object().unwrap().iter();
        pairs.all(|(key, value)| labels[key] == *value)
    };
    assert!(selects(
        &of(&objects, "Service", "orders-web")["spec"]["selector"]
    ));
    let page = &of(&objects, "NetworkPolicy", "orders-web")["spec"];
    assert!(selects(&page["podSelector"]["matchLabels"]));
    assert_eq!(
        page["ingress"][0]["from"][0]["namespaceSelector"]["matchLabels"]["name"],
        "ingress"
    );
    for (kind, field) in [
        ("Deployment", "selector"),
        ("PodDisruptionBudget", "selector"),
        ("NetworkPolicy", "podSelector"),
    ] {
        let other = &of(&objects, kind, "orders")["spec"][field]["matchLabels"];
        assert!(!selects(other), "{kind}");
    }
}

#[test]
fn a_page_without_its_secrets_is_refused() {
    refused(
        r#"
        web: web.mongodb.secretName=""
            set web.mongodb.secretName
            find and changeStream

        web: web.token.secretName=""
            set web.token.secretName

        web: web.replicas=2
            replicas
        "#,
    );
}

#[test]
fn invalid_scheduling_fields_are_refused() {
    refused(
        r#"
        web: web.nodeSelector.pool=1
            /web/nodeSelector/pool

        web: web.tolerations={}
            /web/tolerations

        web: web.priorityClassName=1
            /web/priorityClassName
        "#,
    );
}

/// The page's pod keeps running while the workload has no replicas, so a wait whose selector
/// matches the page's pod would never end.
#[test]
fn the_documented_wait_before_a_rollback_matches_only_pods_of_the_workload() {
    let page = fs::read_to_string(root().join("docs/kubernetes.md")).unwrap();
    let (_, rest) = page
        .split_once("wait --for=delete pod --selector ")
        .unwrap();
    let selector = rest.split_whitespace().next().unwrap();
    let objects = Objects::of("web", &["fullnameOverride=\"web\""]);
    let selected = |deployment: &str| {
        let template = &of(&objects, "Deployment", deployment)["spec"]["template"];
        let mut terms = selector
            .split(',')
            .map(|term| term.split_once('=').unwrap());
        terms.all(|(label, value)| template["metadata"]["labels"][label] == value)
    };
    assert!(selected("web"), "{selector}");
    assert!(!selected("web-web"), "{selector}");
}
