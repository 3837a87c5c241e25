//! Goal: followers, the metrics and the page can be reached by the objects that a platform prefers:
//! a Service for followers, a ServiceMonitor, an Ingress or an HTTPRoute. Each selects the right
//! pods and ports. Method: parses helm's output; published.rs applies the installation `routes` to
//! a real API server.

use serde_json::{Value, json};

use crate::documented::documented;
use crate::helm::{Objects, assert_selects, refused};

#[test]
fn the_service_for_followers_selects_only_followers() {
    let objects = Objects::of("routes", &[]);
    let leader = &objects.named("Service", "orders")["spec"];
    let followers = objects.named("Service", "orders-followers");
    let spec = &followers["spec"];
    let label = "leasehold.dev/shop.orders";
    assert_eq!(leader["selector"][label], "leader");
    assert_eq!(spec["selector"][label], "follower");
    let mut others = spec["selector"].clone();
    others.as_object_mut().unwrap().remove(label);
    assert_selects(&others, &objects.template()["metadata"]["labels"]);
    assert_eq!(spec["type"], "ClusterIP");
    let annotations = &followers["metadata"]["annotations"];
    assert_eq!(*annotations, json!({"example.com/reads": "yes"}));
    // The leader's Service uses the port on the nodes.
    assert_eq!(leader["ports"][0]["nodePort"], 30080);
    assert_eq!(leader["ports"][1]["nodePort"], 30081);
    for (port, of_leader) in [0, 1].map(|i| (&spec["ports"][i], &leader["ports"][i])) {
        let mut expected = of_leader.clone();
        expected.as_object_mut().unwrap().remove("nodePort");
        assert_eq!(*port, expected);
    }
    let alone = Objects::of("minimal", &["service.followers.enabled=true"]);
    let services = alone.iter().filter(|object| object["kind"] == "Service");
    let names: Vec<_> = services
        .map(|service| &service["metadata"]["name"])
        .collect();
    assert!(names.contains(&&json!("orders-followers")), "{names:?}");
    assert!(!names.contains(&&json!("orders")), "{names:?}");
    refused(
        r#"
        unlabelled: service.followers.enabled=true
            service.followers.enabled needs labels

        supervisor: service.followers.enabled=true
            service.followers.enabled: in mode supervisor
            set mode to sidecar

        job: service.followers.enabled=true
            service.followers.enabled routes to replicas that stay

        injector: service.followers.enabled=true
            service.followers.enabled needs deployment.enabled

        minimal: service.followers.replicas=1
            'replicas' not allowed
        "#,
    );
}

fn names(ports: &Value, field: &str) -> Vec<String> {
    let ports = ports.as_array().unwrap().iter();
    ports
        .map(|port| port[field].as_str().unwrap().to_owned())
        .collect()
}

#[test]
fn a_service_monitor_finds_each_lease_of_every_replica_by_its_service() {
    let objects = Objects::of(
        "leases",
        &["podMonitor.enabled=false", "serviceMonitor.enabled=true"],
    );
    let monitor = &objects.named("ServiceMonitor", "orders")["spec"];
    let matching = objects.iter().filter(|object| {
        let wanted = monitor["selector"]["matchLabels"].as_object().unwrap();
        let labels = &object["metadata"]["labels"];
        object["kind"] == "Service" && wanted.iter().all(|(key, value)| labels[key] == *value)
    });
    let services: Vec<_> = matching.collect();
    assert_eq!(services.len(), 1, "{services:?}");
    let service = &services[0]["spec"];
    assert_eq!(services[0]["metadata"]["name"], "orders-metrics");
    assert_eq!(service["clusterIP"], "None");
    assert_eq!(service["publishNotReadyAddresses"], true);
    assert_selects(
        &service["selector"],
        &objects.template()["metadata"]["labels"],
    );
    let ports = names(&service["ports"], "name");
    assert_eq!(ports, names(&monitor["endpoints"], "port"));
    assert_eq!(ports.len(), 3);
    assert!(objects.find("PodMonitor").is_none());
}

#[test]
fn a_service_monitor_has_the_settings_of_the_pod_monitor() {
    let instead = ["podMonitor.enabled=false", "serviceMonitor.enabled=true"];
    let (pod, service) = (
        Objects::of("stateful-set", &[]),
        Objects::of("stateful-set", &instead),
    );
    let (pod, service) = (pod.one("PodMonitor"), service.one("ServiceMonitor"));
    assert_eq!(pod["metadata"], service["metadata"]);
    let endpoints = &service["spec"]["endpoints"];
    assert_eq!(pod["spec"]["podMetricsEndpoints"], *endpoints);
    assert_eq!(
        pod["spec"]["podTargetLabels"],
        service["spec"]["podTargetLabels"]
    );

    // The page's pod has a monitor of the same kind, with or without a workload.
    let objects = Objects::of("routes", &[]);
    let page = &objects.named("ServiceMonitor", "orders-web")["spec"];
    let service = objects.named("Service", "orders-web");
    assert_selects(
        &page["selector"]["matchLabels"],
        &service["metadata"]["labels"],
    );
    assert_eq!(
        page["endpoints"][0]["port"],
        service["spec"]["ports"][0]["name"]
    );
    assert_eq!(page["endpoints"][0]["authorization"]["type"], "Bearer");
    assert!(objects.find("PodMonitor").is_none());
    let off = [
        "deployment.enabled=false",
        r#"service={"enabled":false,"followers":{"enabled":false}}"#,
        "prometheusRule.enabled=false",
    ];
    let alone = Objects::of("routes", &off);
    let monitors = alone
        .iter()
        .filter(|object| object["kind"] == "ServiceMonitor");
    assert_eq!(monitors.count(), 1);
    refused(
        r#"
        everything: serviceMonitor.enabled=true
            podMonitor.enabled and serviceMonitor.enabled
            leave one of them out

        cron-job: serviceMonitor.enabled=true
            serviceMonitor.enabled: a CronJob in mode supervisor

        injector: serviceMonitor.enabled=true
            serviceMonitor.enabled needs deployment.enabled

        routes: podMonitor.interval="1m"
            podMonitor.interval is 1m

        minimal: serviceMonitor.interval="10s"
            'interval' not allowed
        "#,
    );
}

#[test]
fn an_ingress_and_a_route_lead_to_the_service_of_the_page() {
    let objects = Objects::of("routes", &[]);
    let port = &objects.named("Service", "orders-web")["spec"]["ports"][0];
    let ingress = objects.named("Ingress", "orders-web");
    let annotations = json!({"example.com/issuer": "internal"});
    assert_eq!(ingress["metadata"]["annotations"], annotations);
    let spec = &ingress["spec"];
    assert_eq!(spec["ingressClassName"], "internal");
    assert_eq!(spec["tls"][0]["secretName"], "leases-tls");
    let backend = json!({"service": {"name": "orders-web", "port": {"name": port["name"]}}});
    for (rule, host) in
        [0, 1].map(|i| (&spec["rules"][i], ["leases.example", "*.leases.example"][i]))
    {
        assert_eq!(rule["host"], host);
        let path = json!({"path": "/", "pathType": "Prefix", "backend": backend});
        assert_eq!(rule["http"]["paths"], json!([path]));
    }
    let route = objects.named("HTTPRoute", "orders-web");
    assert_eq!(
        route["metadata"]["annotations"],
        json!({"example.com/a": "b"})
    );
    let expected = json!({
        "parentRefs": [{"name": "public", "namespace": "gateways", "sectionName": "https"}],
        "hostnames": ["leases.example"],
        "rules": [{"backendRefs": [{"name": "orders-web", "port": port["port"]}]}],
    });
    assert_eq!(route["spec"], expected);
    let documented = documented("web-ingress.yaml", Some("web"));
    let rules = &documented.one("Ingress")["spec"]["rules"];
    assert_eq!(rules[0]["host"], "leases.example");
    for kind in ["Ingress", "HTTPRoute"] {
        assert!(Objects::of("web", &[]).find(kind).is_none(), "{kind}");
    }
    refused(
        r#"
        web: web.ingress.enabled=true
            set web.ingress.hosts

        web: web.httpRoute.enabled=true
            set web.httpRoute.parentRefs

        routes: web.ingress.hosts=["https://leases.example/"]
            '/web/ingress/hosts/0'

        routes: web.ingress.className="internal"
            'className' not allowed

        routes: web.ingress.tls=[{"secret":"a"}]
            'secret' not allowed

        routes: web.httpRoute.parentRefs=[{"nam":"a"}]
            '/web/httpRoute/parentRefs/0'
        "#,
    );
}
