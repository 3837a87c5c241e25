//! Goal: settings that platform teams prescribe reach every object or pod that they concern, and
//! the chart refuses settings that would block a drain or route to nothing. Method: parses helm's
//! output with the settings off, at their defaults, and with other values. The installation
//! `platform` is also applied to a real API server in published.rs.

use serde_json::{Value, json};

use crate::helm::{INSTALLATIONS, Objects, refused, render};

#[test]
fn common_annotations_are_on_every_object_and_on_no_pod() {
    let change = r#"commonAnnotations={"example.com/owner":"orders"}"#;
    for installation in INSTALLATIONS {
        let objects = Objects::of(installation, &[change, "extraObjects=[]"]);
        for object in objects.iter() {
            let annotations = &object["metadata"]["annotations"];
            let own = installation == "platform" && object["metadata"]["name"] == "orders";
            let expected = match object["kind"].as_str() {
                Some("Service") if own => "billing",
                _ => "orders",
            };
            let kind = &object["kind"];
            let found = &annotations["example.com/owner"];
            assert_eq!(found, expected, "{installation}: {kind}");
        }
        if installation == "injector" || installation == "everything" {
            continue;
        }
        let pod = &objects.template()["metadata"]["annotations"];
        assert_eq!(pod.get("example.com/owner"), None, "{installation}");
    }
    // The annotations of the chart itself are kept.
    let objects = Objects::of("minimal", &[change]);
    let annotations = &objects.one("Deployment")["metadata"]["annotations"];
    assert!(annotations["leasehold.dev/contends-for"].is_string());
    assert_eq!(
        objects.one("Pod")["metadata"]["annotations"]["helm.sh/hook"],
        "test"
    );
    refused(
        r#"
        minimal: commonAnnotations={"helm.sh/hook":"post-install"}
            commonAnnotations has helm.sh/hook: leave it out
            set job.annotations

        minimal: commonAnnotations={"a":1}
            '/commonAnnotations/a'

        minimal: commonAnnotation={"a":"b"}
            'commonAnnotation' not allowed
        "#,
    );
}

#[test]
fn the_pods_have_the_scheduling_fields_of_kubernetes() {
    let objects = Objects::of("platform", &[]);
    let pod = objects.pod();
    assert_eq!(pod["schedulerName"], "binpack");
    let gate = json!([{"conditionType": "target-health.example.com/orders"}]);
    assert_eq!(pod["readinessGates"], gate);
    assert_eq!(objects.one("Deployment")["spec"]["revisionHistoryLimit"], 0);
    let constraints = pod["topologySpreadConstraints"].as_array().unwrap();
    for (field, value) in [
        ("maxSkew", json!(2)),
        ("minDomains", json!(2)),
        ("whenUnsatisfiable", json!("DoNotSchedule")),
        ("nodeAffinityPolicy", json!("Honor")),
        ("nodeTaintsPolicy", json!("Honor")),
        ("matchLabelKeys", json!(["pod-template-hash"])),
    ] {
        assert_eq!(constraints[0][field], value, "{field}");
    }
    let labels = &objects.template()["metadata"]["labels"];
    crate::helm::assert_selects(&constraints[0]["labelSelector"]["matchLabels"], labels);
    // The user's selector is complete, so the chart adds nothing to it.
    let own = json!({"matchLabels": {"group": "orders"}});
    assert_eq!(constraints[1]["labelSelector"], own);
    assert_eq!(constraints[1].get("matchLabelKeys"), None);

    let plain = Objects::of("minimal", &[]);
    for field in ["schedulerName", "readinessGates"] {
        assert_eq!(plain.pod().get(field), None, "{field}");
    }
    let linux = json!({"kubernetes.io/os": "linux"});
    assert_eq!(plain.pod()["nodeSelector"], linux);
    assert_eq!(plain.one("Pod")["spec"]["nodeSelector"], linux);
    assert_eq!(plain.one("Deployment")["spec"]["revisionHistoryLimit"], 10);
    let anywhere = Objects::of("minimal", &["deployment.nodeSelector=null"]);
    assert_eq!(anywhere.pod().get("nodeSelector"), None);
    refused(
        r#"
        minimal: deployment.topologySpreadConstraints=[{"maxSkew":1,"topologyKey":"a"}]
            '/deployment/topologySpreadConstraints/0'

        minimal: deployment.topologySpreadConstraints=[{"maxSkew":1,"topologyKey":"a","whenUnsatisfiable":"ScheduleAnyway","minDomain":1}]
            'minDomain' not allowed

        minimal: topologySpread.enabled=false
            'topologySpread' not allowed

        minimal: deployment.readinessGates=[{"condition":"a"}]
            '/deployment/readinessGates/0'

        minimal: deployment.revisionHistoryLimit=-1
            '/deployment/revisionHistoryLimit'
        "#,
    );
}

fn page(objects: &Objects) -> &Value {
    &objects.named("Deployment", "orders-web")["spec"]["template"]
}

#[test]
fn the_page_and_the_dashboard_have_annotations_of_their_own() {
    let objects = Objects::of("platform", &[]);
    let annotations = &page(&objects)["metadata"]["annotations"];
    assert_eq!(*annotations, json!({"example.com/scan": "yes"}));
    let dashboard = objects.named("ConfigMap", "orders-dashboard");
    let annotations = &dashboard["metadata"]["annotations"];
    assert_eq!(annotations["grafana_folder"], "leasehold");
    let history = &objects.named("Deployment", "orders-web")["spec"]["revisionHistoryLimit"];
    assert_eq!(*history, 0);
    let plain = Objects::of("web", &["dashboard.enabled=true"]);
    assert_eq!(page(&plain)["metadata"].get("annotations"), None);
    let dashboard = &plain.named("ConfigMap", "orders-dashboard")["metadata"];
    assert_eq!(dashboard.get("annotations"), None);
}

#[test]
fn a_service_routes_to_a_port_by_its_name() {
    let objects = Objects::of("platform", &[]);
    let port = &objects.named("Service", "orders")["spec"]["ports"][0];
    assert_eq!(port["targetPort"], "http");
    let proxy = [
        r#"service={"enabled":true,"targetPort":"proxy"}"#,
        r#"deployment.extraContainers=[{"name":"proxy","image":"a","ports":[{"name":"proxy","containerPort":80}]}]"#,
    ];
    render("minimal", &proxy).unwrap();
    refused(
        r#"
        platform: service.targetPort="htp"
            the targetPort htp of the port leader of the Service
            add it to workload.ports

        platform: service.extraPorts=[{"name":"admin","port":81,"targetPort":"admin"}]
            the targetPort admin of the port admin of the Service

        platform: service.targetPort="a_b"
            '/service/targetPort'

        platform: service.targetPort=0
            '/service/targetPort'
        "#,
    );
}

#[test]
fn a_budget_may_name_the_pods_that_stay() {
    let objects = Objects::of("platform", &[]);
    let budget = &objects.one("PodDisruptionBudget")["spec"];
    assert_eq!(budget["minAvailable"], 2);
    assert_eq!(budget.get("maxUnavailable"), None);
    for (replicas, stay) in [
        ("2", "1"),
        ("2", "\"50%\""),
        ("4", "\"75%\""),
        ("null", "9"),
    ] {
        let changes = [
            format!("deployment.replicas={replicas}"),
            format!("podDisruptionBudget.minAvailable={stay}"),
        ];
        let changes = changes.each_ref().map(String::as_str);
        let objects = Objects::of("minimal", &changes);
        let budget = &objects.one("PodDisruptionBudget")["spec"];
        assert_eq!(budget["minAvailable"].to_string(), stay);
    }
    refused(
        r#"
        minimal: podDisruptionBudget.minAvailable=2
            podDisruptionBudget.minAvailable is 2, and deployment.replicas is 2
            a drain would never end

        minimal: podDisruptionBudget.minAvailable="51%"
            podDisruptionBudget.minAvailable is 51%

        minimal: podDisruptionBudget.minAvailable="100%"
            '/podDisruptionBudget/minAvailable'

        minimal: podDisruptionBudget.minAvailable=0
            '/podDisruptionBudget/minAvailable'
        "#,
    );
}
