//! Goal: platform settings (labels, registries, pull secrets, pod fields, Service options, scrape
//! options) reach every object, image and pod of the chart. Method: parses helm's output with the
//! settings off, at their defaults, and with other values.

use serde_json::{Value, json};

use crate::helm::{INSTALLATIONS, Objects, refused, render};

fn templates(objects: &Objects) -> Vec<&Value> {
    let all = objects
        .iter()
        .map(|object| match object["kind"].as_str().unwrap() {
            "Pod" => object,
            "CronJob" => &object["spec"]["jobTemplate"]["spec"]["template"],
            _ => &object["spec"]["template"],
        });
    all.filter(|template| template["spec"]["containers"].is_array())
        .collect()
}

fn fields<'a>(value: &'a Value, name: &str, into: &mut Vec<&'a Value>) {
    match value {
        Value::Object(map) => {
            for (key, value) in map {
                if key == name {
                    into.push(value);
                }
                fields(value, name, into);
            }
        }
        Value::Array(items) => items.iter().for_each(|item| fields(item, name, into)),
        _ => {}
    }
}

const TEAM: &str = r#"commonLabels={"team":"orders","example.com/cost":"7"}"#;

#[test]
fn common_labels_are_on_every_object_and_pod_and_in_no_selector() {
    for installation in INSTALLATIONS {
        // Ignores extra objects, because their labels belong to the user.
        let objects = Objects::of(
            installation,
            &[TEAM, "extraObjects=[]", "deployment.podLabels={}"],
        );
        for object in objects.iter() {
            let labels = &object["metadata"]["labels"];
            let kind = &object["kind"];
            assert_eq!(labels["team"], "orders", "{installation}: {kind}");
            assert_eq!(labels["example.com/cost"], "7", "{installation}: {kind}");
            for name in [
                "matchLabels",
                "selector",
                "namespaceSelector",
                "podSelector",
            ] {
                let mut selectors = Vec::new();
                fields(&object["spec"], name, &mut selectors);
                for selector in selectors {
                    let selector = selector.to_string();
                    assert!(!selector.contains("\"team\""), "{kind}: {selector}");
                }
            }
        }
        for template in templates(&objects) {
            assert_eq!(
                template["metadata"]["labels"]["team"], "orders",
                "{installation}"
            );
        }
    }
    // A pod label takes precedence over a common label.
    let objects = Objects::of(
        "minimal",
        &[TEAM, r#"deployment.podLabels={"team":"billing"}"#],
    );
    assert_eq!(objects.template()["metadata"]["labels"]["team"], "billing");
    let objects = Objects::of("everything", &[r#"commonLabels={"release":"mine"}"#]);
    assert_eq!(
        objects.named("PodMonitor", "orders")["metadata"]["labels"]["release"],
        "prometheus"
    );
    assert!(!render("minimal", &[]).unwrap().contains("team"));
}

#[test]
fn labels_that_the_chart_sets_are_refused() {
    refused(
        r#"
        minimal: commonLabels={"app.kubernetes.io/instance":"else"}
            commonLabels has app.kubernetes.io/instance
            set nameOverride or fullnameOverride

        minimal: commonLabels={"helm.sh/chart":"else"}
            commonLabels has helm.sh/chart

        minimal: commonLabels={"leasehold.dev/shop.orders":"leader"}
            commonLabels has leasehold.dev/shop.orders
            leave it out

        everything: podMonitor.labels={"app.kubernetes.io/name":"else"}
            podMonitor.labels has app.kubernetes.io/name

        everything: leasehold.rules.labels={"app.kubernetes.io/name":"else"}
            leasehold.rules.labels has app.kubernetes.io/name

        minimal: commonLabels={"team":1}
            /commonLabels/team
        "#,
    );
}

fn images(objects: &Objects) -> Vec<String> {
    let mut found = Vec::new();
    for template in templates(objects) {
        let mut images = Vec::new();
        fields(&template["spec"], "image", &mut images);
        found.extend(
            images
                .iter()
                .map(|image| image.as_str().unwrap().to_owned()),
        );
    }
    found
}

#[test]
fn one_registry_serves_every_image() {
    let bare = [
        r#"workload.image.repository="team/orders""#,
        r#"leasehold.image.repository="leasehold""#,
    ];
    let of = |installation: &str, more: &[&str]| {
        images(&Objects::of(installation, &[&bare[..], more].concat()))
    };
    for (more, registry) in [
        (&[][..], ""),
        (
            &[r#"global.imageRegistry="mirror.example:5000""#],
            "mirror.example:5000/",
        ),
        (
            &[
                r#"global.imageRegistry="mirror.example/""#,
                r#"leasehold.image.registry="a.example""#,
            ],
            "mirror.example/",
        ),
    ] {
        let mut found = of("web", more);
        found.sort();
        let ours = format!("{registry}leasehold:{}", env!("CARGO_PKG_VERSION"));
        let workload = format!("{registry}team/orders:1");
        assert_eq!(found, [ours.clone(), ours.clone(), ours, workload]);
    }
    let own = [
        r#"workload.image.registry="a.example""#,
        r#"leasehold.image.registry="b.example""#,
    ];
    let found = of("minimal", &own);
    assert!(
        found.contains(&"a.example/team/orders:1".to_owned()),
        "{found:?}"
    );
    assert!(
        found
            .iter()
            .any(|image| image.starts_with("b.example/leasehold:")),
        "{found:?}"
    );
    let injected = Objects::of(
        "injector",
        &[bare[1], r#"global.imageRegistry="mirror.example""#],
    );
    let policy = injected.one("MutatingAdmissionPolicy").to_string();
    assert!(policy.contains("mirror.example/leasehold:"), "{policy}");
    let installs = Objects::of(
        "supervisor",
        &[bare[0], bare[1], r#"global.imageRegistry="mirror.example""#],
    );
    for image in images(&installs) {
        assert!(image.starts_with("mirror.example/"), "{image}");
    }
}

#[test]
fn a_registry_in_both_values_is_refused() {
    refused(
        r#"
        minimal: global.imageRegistry="mirror.example"
            repository is registry.example/
            put registry.example into
            .registry, which global.imageRegistry replaces

        minimal: workload.image.registry="mirror.example"
            workload.image.repository is registry.example/orders
            put registry.example into workload.image.registry

        stateful-set: global.imageRegistry="https://mirror.example"
            global.imageRegistry is https://mirror.example
            leave out the scheme
        "#,
    );
}

#[test]
fn every_pod_has_each_pull_secret_once() {
    let secrets = [
        r#"global.imagePullSecrets=["mirror",{"name":"both"}]"#,
        r#"imagePullSecrets=[{"name":"local"},"both"]"#,
    ];
    let expected = json!([{"name": "mirror"}, {"name": "both"}, {"name": "local"}]);
    for installation in INSTALLATIONS.into_iter().filter(|name| *name != "injector") {
        let objects = Objects::of(installation, &secrets);
        let templates = templates(&objects);
        assert!(!templates.is_empty());
        for template in templates {
            assert_eq!(
                template["spec"]["imagePullSecrets"], expected,
                "{installation}"
            );
        }
    }
    for template in templates(&Objects::of("web", &[])) {
        assert_eq!(template["spec"].get("imagePullSecrets"), None);
    }
    refused("minimal: imagePullSecrets=[{\"nam\":\"a\"}]\n/imagePullSecrets/0");
}

#[test]
fn fields_of_the_pod_follow_the_values_and_are_absent_by_default() {
    let objects = Objects::of("stateful-set", &[]);
    let pod = objects.pod();
    assert_eq!(pod["runtimeClassName"], "gvisor");
    assert_eq!(pod["dnsPolicy"], "None");
    assert_eq!(pod["dnsConfig"]["nameservers"][0], "192.0.2.53");
    assert_eq!(pod["hostAliases"][0]["hostnames"][0], "db1");
    assert_eq!(
        objects.workload()["lifecycle"]["preStop"]["sleep"]["seconds"],
        5
    );
    assert_eq!(pod["containers"][1]["name"], "logs");
    // The sidecar is last, so a replica does not lead while its other init containers run.
    assert_eq!(pod["initContainers"][0]["name"], "prepare");
    assert_eq!(pod["initContainers"][1]["name"], "leasehold");
    let annotations = &objects.maker()["metadata"]["annotations"];
    assert_eq!(annotations["example.com/reload"], "true");
    let plain = Objects::of("minimal", &[]);
    let pod = plain.pod();
    for field in [
        "runtimeClassName",
        "dnsPolicy",
        "dnsConfig",
        "hostAliases",
        "imagePullSecrets",
    ] {
        assert_eq!(pod.get(field), None, "{field}");
    }
    assert_eq!(plain.workload().get("lifecycle"), None);
    assert_eq!(plain.one("Deployment")["spec"].get("minReadySeconds"), None);
    let ready = Objects::of("minimal", &["deployment.minReadySeconds=7"]);
    assert_eq!(ready.one("Deployment")["spec"]["minReadySeconds"], 7);
    refused(
        r#"
        minimal: deployment.extraContainers=[{"name":"workload","image":"a"}]
            deployment.extraContainers
            the name workload

        minimal: deployment.extraInitContainers=[{"name":"leasehold","image":"a"}]
            deployment.extraInitContainers
            the name leasehold

        minimal: deployment.dnsPolicy="Mine"
            /deployment/dnsPolicy

        supervisor: workload.lifecycle={"preStop":{"sleep":{"seconds":5}}}
            leave out workload.lifecycle
            leasehold.config.hooks.on_step_down

        cron-job: workload.lifecycle={"preStop":{"sleep":{"seconds":5}}}
            leave out workload.lifecycle
        "#,
    );
}

#[test]
fn the_service_has_the_options_of_its_type() {
    let objects = Objects::of("stateful-set", &[]);
    let service = objects.named("Service", "orders");
    assert_eq!(service["metadata"]["labels"]["example.com/exposed"], "yes");
    assert_eq!(service["metadata"]["annotations"]["example.com/a"], "b");
    let spec = &service["spec"];
    for (field, value) in [
        ("type", json!("LoadBalancer")),
        ("externalTrafficPolicy", json!("Local")),
        ("internalTrafficPolicy", json!("Cluster")),
        ("trafficDistribution", json!("PreferClose")),
        ("loadBalancerClass", json!("example.com/internal")),
        ("loadBalancerSourceRanges", json!(["192.0.2.0/24"])),
        ("ipFamilyPolicy", json!("SingleStack")),
        ("ipFamilies", json!(["IPv4"])),
        ("sessionAffinity", json!("ClientIP")),
        (
            "sessionAffinityConfig",
            json!({"clientIP": {"timeoutSeconds": 60}}),
        ),
    ] {
        assert_eq!(spec[field], value, "{field}");
    }
    let first = json!({
        "name": "http", "port": 80, "targetPort": 8080, "protocol": "TCP", "appProtocol": "http", "nodePort": 30080,
    });
    assert_eq!(spec["ports"][0], first);
    assert_eq!(spec["ports"][1]["name"], "admin");
    let plain = Objects::of("minimal", &["service.enabled=true"]);
    let spec = plain.named("Service", "orders")["spec"].clone();
    let fields: Vec<_> = spec.as_object().unwrap().keys().collect();
    assert_eq!(fields, ["ports", "selector", "type"]);
    let headless = ["service.enabled=true", r#"service.clusterIP="None""#];
    let headless = Objects::of("minimal", &headless);
    assert_eq!(
        headless.named("Service", "orders")["spec"]["clusterIP"],
        "None"
    );
    refused(
        r#"
        everything: service.loadBalancerClass="a/b"
            service.loadBalancerClass is for a load balancer, and service.type is NodePort
            set service.type to LoadBalancer

        supervisor: service.nodePort=30000
            service.nodePort is for traffic from outside the cluster
            set service.type to NodePort

        everything: service.sessionAffinityTimeoutSeconds=5
            needs service.sessionAffinity: ClientIP

        everything: service.extraPorts=[{"name":"leader","port":1}]
            service.extraPorts: the name leader
        "#,
    );
}

#[test]
fn scrapes_have_the_options_of_a_pod_monitor() {
    let objects = Objects::of("stateful-set", &[]);
    let monitor = objects.one("PodMonitor");
    assert_eq!(monitor["metadata"]["annotations"]["example.com/a"], "b");
    assert_eq!(monitor["spec"]["podTargetLabels"], json!(["team"]));
    let endpoint = &monitor["spec"]["podMetricsEndpoints"][0];
    assert_eq!(endpoint["scrapeTimeout"], "5s");
    assert_eq!(endpoint["relabelings"][0]["targetLabel"], "node");
    assert_eq!(endpoint["metricRelabelings"][0]["action"], "drop");
    let plain = Objects::of("minimal", &["podMonitor.enabled=true"]);
    let endpoint = &plain.one("PodMonitor")["spec"]["podMetricsEndpoints"][0];
    let fields: Vec<_> = endpoint.as_object().unwrap().keys().collect();
    assert_eq!(fields, ["interval", "path", "port"]);
}

#[test]
fn extra_objects_are_templates() {
    let object = r#"extraObjects=[{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"{{ .Release.Name }}-a"}},"apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: {{ include \"leasehold.fullname\" . }}-b\n"]"#;
    let objects = Objects::of("minimal", &[object]);
    objects.named("ConfigMap", "orders-a");
    objects.named("ConfigMap", "orders-b");
    let plain = Objects::of("minimal", &[]);
    let maps = plain.iter().filter(|object| object["kind"] == "ConfigMap");
    let names: Vec<_> = maps.map(|map| &map["metadata"]["name"]).collect();
    assert_eq!(names, ["orders.leasehold"]);
    refused("minimal: extraObjects=[1]\n/extraObjects/0");
}
