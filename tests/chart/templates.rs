//! Goal: each value has the intended effect on the templates when it is disabled, at its default,
//! and set to another value. Method: parses helm's output.

use serde_json::{Value, json};

use crate::helm::{INSTALLATIONS, NAMESPACE, Objects, refused, render};

const POLICY: &str = "leasehold.policy.create";
const LABEL: &str = "leasehold.dev/shop.orders";

#[test]
fn the_default_objects_suffice_for_a_singleton_and_need_no_operator() {
    let objects = Objects::of("minimal", &[]);
    let mut kinds = objects.kinds();
    kinds.sort_unstable();
    assert_eq!(
        kinds,
        [
            "ConfigMap",
            "Deployment",
            // The pod of `helm test`.
            "Pod",
            "PodDisruptionBudget",
            "Role",
            "RoleBinding",
            "Service",
            "ServiceAccount",
            "ValidatingAdmissionPolicy",
            "ValidatingAdmissionPolicy",
            "ValidatingAdmissionPolicyBinding",
            "ValidatingAdmissionPolicyBinding",
        ]
    );
}

#[test]
fn a_network_policy_names_the_configured_destinations() {
    let to = r#"[{"ipBlock":{"cidr":"192.0.2.0/24"}}]"#;
    let all = ["dnsTo", "mongodbTo", "apiServerTo"];
    let named = all.map(|key| format!("networkPolicy.{key}={to}"));
    let web = r#"web={"enabled":true,"mongodb":{"secretName":"a"},"token":{"secretName":"a"}}"#;
    let mut changes: Vec<&str> = vec!["networkPolicy.enabled=true", web];
    let rules = |changes: &[&str]| -> Vec<Value> {
        let objects = Objects::of("minimal", changes);
        let policies = objects
            .iter()
            .filter(|object| object["kind"] == "NetworkPolicy");
        let rules = policies.map(|policy| policy["spec"]["egress"].as_array().unwrap().clone());
        rules.flatten().collect()
    };
    let open = rules(&changes);
    assert_eq!(open.len(), 5);
    assert!(open.iter().all(|rule| rule.get("to").is_none()), "{open:?}");
    changes.extend(named.iter().map(String::as_str));
    let closed = rules(&changes);
    assert_eq!(closed.len(), 5);
    let to: Value = serde_json::from_str(to).unwrap();
    assert!(closed.iter().all(|rule| rule["to"] == to), "{closed:?}");
}

#[test]
fn each_object_can_be_enabled_and_disabled() {
    for (kind, value) in [
        ("PodDisruptionBudget", "podDisruptionBudget.enabled"),
        ("Service", "service.enabled"),
        ("PodMonitor", "podMonitor.enabled"),
        ("PrometheusRule", "prometheusRule.enabled"),
        ("NetworkPolicy", "networkPolicy.enabled"),
        ("MutatingAdmissionPolicy", "inject.enabled"),
        ("MutatingAdmissionPolicyBinding", "inject.enabled"),
        ("ServiceAccount", "leasehold.serviceAccount.create"),
        ("Role", "leasehold.rbac.create"),
        ("RoleBinding", "leasehold.rbac.create"),
        ("ValidatingAdmissionPolicy", POLICY),
        ("ValidatingAdmissionPolicyBinding", POLICY),
    ] {
        // The chart needs the name of a service account that it does not create.
        let account = "leasehold.serviceAccount.name=\"orders\"";
        for on in [true, false] {
            let change = format!("{value}={on}");
            let objects = Objects::of("minimal", &[account, &change, "test.enabled=false"]);
            assert_eq!(objects.find(kind).is_some(), on, "{kind}: {change}");
        }
    }
    let injector = Objects::of("injector", &[]);
    let kinds = injector.kinds();
    assert!(
        kinds.iter().all(|k| k.contains("AdmissionPolicy")),
        "{kinds:?}"
    );
}

#[test]
fn objects_for_the_pods_are_refused_without_a_deployment() {
    let page = ["deployment.enabled=false", "inject.enabled=false"];
    for value in ["service", "podMonitor", "prometheusRule", "networkPolicy"] {
        let change = format!("{value}.enabled=true");
        let complaint = render(
            "web",
            &[&page[..], &["networkPolicy.enabled=false", &change]].concat(),
        );
        let complaint = complaint.unwrap_err();
        let named = format!("{value}.enabled needs deployment.enabled");
        assert!(complaint.contains(&named), "{complaint}");
    }
}

#[test]
fn the_policy_for_events_exists_if_events_are_enabled() {
    let policies = |change: &str| {
        let objects = Objects::of("minimal", &[change]);
        let names = objects.iter().filter_map(|object| {
            let policy = object["kind"] == "ValidatingAdmissionPolicy";
            policy.then(|| object["metadata"]["name"].as_str().unwrap().to_owned())
        });
        let mut names: Vec<_> = names.collect();
        names.sort();
        names
    };
    let labels = "orders.shop.leasehold";
    let events = "orders.shop.leasehold.events";
    let with_events = policies("leasehold.kubernetes.events=true");
    assert_eq!(with_events, [labels, events]);
    assert_eq!(policies("leasehold.kubernetes.events=false"), [labels]);
}

#[test]
fn every_namespaced_object_names_its_namespace() {
    for installation in INSTALLATIONS {
        for object in Objects::of(installation, &[]).iter() {
            let kind = object["kind"].as_str().unwrap();
            let name = object["metadata"]["name"].as_str().unwrap();
            if kind.contains("AdmissionPolicy") {
                assert!(name.starts_with("orders.shop.leasehold"), "{kind} {name}");
            } else {
                assert_eq!(object["metadata"]["namespace"], NAMESPACE, "{kind} {name}");
            }
            let instance = &object["metadata"]["labels"]["app.kubernetes.io/instance"];
            assert_eq!(instance, "orders", "{kind} {name}");
        }
    }
}

#[test]
fn the_sidecar_is_native_and_its_flags_follow_the_values() {
    let objects = Objects::of("minimal", &[]);
    let sidecar = objects.sidecar();
    assert_eq!(sidecar["restartPolicy"], "Always");
    for flag in [
        "run",
        "--lease-name=shop.orders",
        "--workload-ends-first=true",
        "--kubernetes-enabled=on",
    ] {
        assert!(objects.has_flag(flag), "{flag}");
    }
    let others = Objects::of("everything", &[]);
    for flag in [
        "--lease-name=orders.main",
        "--http-listen=[::]:9500",
        "--lease-duration=15s",
        "--lease-handoff-delay=0s",
        "--mongodb-database=elections",
        "--workload-loss-grace=2s",
        "--kubernetes-label-prefix=lead.example.com",
        "--kubernetes-demote-others=false",
    ] {
        assert!(others.has_flag(flag), "{flag}: {:?}", others.flags());
    }
    for probe in ["startupProbe", "livenessProbe", "readinessProbe"] {
        assert_eq!(others.sidecar()[probe]["httpGet"]["port"], 9500, "{probe}");
    }
    assert_eq!(others.sidecar()["livenessProbe"]["periodSeconds"], 20);
    assert_eq!(others.sidecar()["ports"][0]["containerPort"], 9500);
    assert_eq!(others.sidecar()["env"][4]["name"], "SSL_CERT_DIR");
    let image = others.sidecar()["image"].as_str().unwrap();
    let digest = "registry.example/leasehold@sha256:b";
    assert!(image.starts_with(digest), "{image}");
}

#[test]
fn only_the_sidecar_gets_the_token_and_the_connection_string() {
    for installation in ["minimal", "everything", "unlabelled"] {
        let objects = Objects::of(installation, &[]);
        let pod = objects.pod();
        assert_eq!(pod["automountServiceAccountToken"], false);
        assert_eq!(pod["enableServiceLinks"], false);
        let mounted = |container: &Value| {
            let mounts = container["volumeMounts"].as_array().unwrap().clone();
            let names = mounts
                .iter()
                .map(|mount| mount["name"].as_str().unwrap().to_owned());
            names.collect::<Vec<_>>()
        };
        let workload = mounted(objects.workload());
        assert!(workload.contains(&"leasehold-status".to_owned()));
        assert_eq!(objects.workload()["volumeMounts"][0]["readOnly"], true);
        for secret in ["leasehold-token", "leasehold-mongodb"] {
            assert!(!workload.contains(&secret.to_owned()), "{secret}");
        }
        let labelled = installation != "unlabelled";
        let token = "leasehold-token".to_owned();
        assert_eq!(mounted(objects.sidecar()).contains(&token), labelled);
    }
}

#[test]
fn every_container_complies_with_the_restricted_level() {
    for installation in ["minimal", "unlabelled"] {
        let objects = Objects::of(installation, &[]);
        for container in [objects.sidecar(), objects.workload()] {
            let context = &container["securityContext"];
            assert_eq!(context["readOnlyRootFilesystem"], true);
            assert_eq!(context["runAsNonRoot"], true);
            assert_eq!(context["allowPrivilegeEscalation"], false);
            assert_eq!(context["capabilities"], json!({"drop": ["ALL"]}));
            assert_eq!(context["seccompProfile"]["type"], "RuntimeDefault");
        }
    }
}

#[test]
fn the_sidecar_has_requests_and_no_cpu_limit() {
    let objects = Objects::of("minimal", &[]);
    let resources = &objects.sidecar()["resources"];
    let expected = json!({
        "requests": {"cpu": "5m", "memory": "16Mi"}, "limits": {"memory": "32Mi"},
    });
    assert_eq!(*resources, expected);
}

#[test]
fn the_workload_follows_the_values() {
    let objects = Objects::of("everything", &[]);
    let workload = objects.workload();
    assert_eq!(workload["command"], json!(["/orders"]));
    assert_eq!(workload["args"], json!(["--serve", "a b"]));
    assert_eq!(workload["env"][0]["value"], "/status/status.json");
    assert_eq!(workload["env"][1], json!({"name": "MODE", "value": "yes"}));
    assert_eq!(workload["envFrom"][0]["configMapRef"]["name"], "orders");
    assert_eq!(workload["ports"][0]["containerPort"], 8081);
    for probe in ["startupProbe", "livenessProbe", "readinessProbe"] {
        assert_eq!(workload[probe]["tcpSocket"]["port"], 8081, "{probe}");
    }
    assert_eq!(workload["volumeMounts"][0]["mountPath"], "/status");
    assert_eq!(workload["volumeMounts"][1]["mountPath"], "/work");
    let deployment = objects.one("Deployment");
    assert_eq!(deployment["spec"]["replicas"], 3);
    assert_eq!(deployment["spec"]["strategy"], json!({"type": "Recreate"}));
    let template = &deployment["spec"]["template"];
    assert_eq!(template["metadata"]["labels"]["team"], "orders");
    let annotations = &template["metadata"]["annotations"];
    assert_eq!(annotations["example.com/owner"], "orders");
    let pod = objects.pod();
    assert_eq!(pod["terminationGracePeriodSeconds"], 60);
    assert_eq!(
        pod["nodeSelector"],
        json!({"disk": "ssd", "kubernetes.io/os": "linux"})
    );
    assert_eq!(pod["tolerations"][0]["tolerationSeconds"], 30);
    assert_eq!(pod["priorityClassName"], "system-cluster-critical");
    assert_eq!(pod["imagePullSecrets"][0]["name"], "registry");
    assert!(pod["affinity"]["nodeAffinity"].is_object());
    let keys = pod["topologySpreadConstraints"].as_array().unwrap();
    assert_eq!(keys.len(), 2);
    let strict = |key: &Value| key["whenUnsatisfiable"] == "DoNotSchedule";
    assert!(keys.iter().all(strict), "{keys:?}");
    let off = Objects::of("unlabelled", &[]);
    assert!(off.pod()["topologySpreadConstraints"].is_null());
}

#[test]
fn charts_that_route_to_the_leader_remove_stale_labels() {
    let routing = Objects::of("minimal", &["service.enabled=true"]);
    let demotes = routing.has_flag("--kubernetes-demote-others=true");
    assert!(demotes, "{:?}", routing.flags());
    let list = routing.one("Role")["rules"].to_string();
    assert!(list.contains("\"list\""), "{list}");
}

#[test]
fn every_object_names_its_chart_and_version() {
    let version = env!("CARGO_PKG_VERSION");
    for object in Objects::of("everything", &[]).iter() {
        let labels = &object["metadata"]["labels"];
        assert_eq!(labels["helm.sh/chart"], format!("leasehold-{version}"));
        assert_eq!(labels["app.kubernetes.io/version"], version);
    }
    // If the pods had this label, each new version of the chart would recreate the pods.
    let everything = Objects::of("everything", &[]);
    let template = &everything.one("Deployment")["spec"]["template"];
    assert!(template["metadata"]["labels"]["helm.sh/chart"].is_null());
}

#[test]
fn a_liveness_probe_fails_only_after_a_hanging_leader_has_lost_its_authority() {
    let objects = Objects::of("minimal", &[]);
    let probe = &objects.sidecar()["livenessProbe"];
    let number = |field: &str| probe[field].as_u64().unwrap();
    // Time from the first failed probe until the kubelet restarts the container.
    let patience = (number("failureThreshold") - 1) * number("periodSeconds");
    // Twice the sum of the default renew_deadline and loss_grace, for a busy machine.
    assert!(patience >= 2 * (18 + 3), "{probe}");
}

#[test]
fn the_policy_for_events_uses_only_types_of_old_servers() {
    // `namespace` is a reserved word of CEL, so Kubernetes 1.30 spells the field's name
    // differently.
    let objects = Objects::of("everything", &[]);
    let policies = objects
        .iter()
        .filter(|object| object["kind"] == "ValidatingAdmissionPolicy");
    for policy in policies {
        let text = policy["spec"]["validations"].to_string();
        let typed = text
            .replace("dyn(object).?regarding.?namespace", "")
            .replace("request.namespace", "");
        let selected = typed.contains(".namespace") || typed.contains("?namespace");
        assert!(!selected, "{text}");
    }
}

#[test]
fn selectors_find_the_pods() {
    let objects = Objects::of("everything", &[]);
    let deployment = objects.one("Deployment");
    let labels = &deployment["spec"]["template"]["metadata"]["labels"];
    let spread = &objects.pod()["topologySpreadConstraints"][0]["labelSelector"];
    for selector in [
        &deployment["spec"]["selector"]["matchLabels"],
        &objects.one("PodDisruptionBudget")["spec"]["selector"]["matchLabels"],
        &objects.named("PodMonitor", "orders")["spec"]["selector"]["matchLabels"],
        &objects.one("NetworkPolicy")["spec"]["podSelector"]["matchLabels"],
        &spread["matchLabels"],
    ] {
        let wanted = selector.as_object().unwrap();
        assert!(!wanted.is_empty());
        let found = wanted.iter().all(|(key, value)| labels[key] == *value);
        assert!(found, "{selector}");
    }
}

#[test]
fn the_service_selects_the_leader_by_its_label_and_a_numeric_port() {
    let objects = Objects::of("minimal", &["service.enabled=true"]);
    let spec = &objects.named("Service", "orders")["spec"];
    assert_eq!(spec["selector"][LABEL], "leader");
    assert_eq!(spec["ports"][0]["targetPort"], 8080);
    let others = Objects::of("everything", &[]);
    let spec = &others.named("Service", "orders")["spec"];
    assert_eq!(spec["selector"]["lead.example.com/orders.main"], "leader");
    assert_eq!(spec["ports"][0]["targetPort"], 8081);
    refused("unlabelled: service.enabled=true\nservice.enabled needs labels");
}

#[test]
fn without_a_policy_labels_and_permissions_need_explicit_consent() {
    let none = "leasehold.policy.create=false";
    let existing = "leasehold.policy.existing=true";
    let unrestricted = "leasehold.kubernetes.allowUnrestrictedStatusPatch=true";
    for (changes, labelled) in [
        (&[none][..], false),
        (&["leasehold.kubernetes.enabled=false"], false),
        (&[none, existing], true),
        (&[none, unrestricted], true),
    ] {
        let objects = Objects::of("minimal", changes);
        let found = |kind| objects.find(kind).is_some();
        assert_eq!(found("Role"), labelled, "{changes:?}");
        let flag = objects.has_flag("--kubernetes-enabled=on");
        assert_eq!(flag, labelled, "{changes:?}");
        assert!(!found("ValidatingAdmissionPolicy"), "{changes:?}");
    }
}

#[test]
fn the_role_has_exactly_the_verbs_of_the_enabled_features() {
    let rules = |changes: &[&str]| {
        let objects = Objects::of("minimal", changes);
        let rules = objects.one("Role")["rules"].as_array().unwrap().clone();
        let rule = |rule: &Value| format!("{} {}", rule["resources"], rule["verbs"]);
        rules.iter().map(rule).collect::<Vec<_>>()
    };
    let patch = r#"["pods/status"] ["patch"]"#.to_owned();
    let list = r#"["pods"] ["list"]"#.to_owned();
    let events = r#"["events"] ["create","patch"]"#.to_owned();
    assert_eq!(rules(&[]), [patch.clone(), list.clone(), events.clone()]);
    let quiet = "leasehold.kubernetes.events=false";
    assert_eq!(rules(&[quiet]), [patch.clone(), list]);
    let alone = "leasehold.kubernetes.demoteOthers=false";
    assert_eq!(rules(&[alone]), [patch.clone(), events]);
    assert_eq!(rules(&[alone, quiet]), [patch]);
}

#[test]
fn the_network_policy_allows_the_traffic_of_leasehold() {
    let ports = |installation: &str| {
        let objects = Objects::of(installation, &["networkPolicy.enabled=true"]);
        let spec = objects.one("NetworkPolicy")["spec"].clone();
        ["ingress", "egress"].map(|side| {
            let rules = spec[side].as_array().unwrap().iter();
            let port = |rule: &Value| rule["ports"][0]["port"].as_u64().unwrap();
            rules.map(port).collect::<Vec<_>>()
        })
    };
    assert_eq!(ports("minimal"), [vec![9402], vec![53, 27017, 443]]);
    // Without labels, the sidecar does not use the API server.
    assert_eq!(ports("unlabelled"), [vec![9402], vec![53, 27017]]);
    let both = Objects::of("minimal", &["networkPolicy.enabled=true"]);
    let server = &both.one("NetworkPolicy")["spec"]["egress"][2]["ports"];
    assert_eq!(server[1]["port"], 6443, "{server}");
    let expected = [vec![9500, 8081], vec![53, 27018, 443, 443]];
    assert_eq!(ports("everything"), expected);
}

#[test]
fn the_objects_for_prometheus_and_grafana_follow_the_values() {
    let objects = Objects::of("everything", &[]);
    let monitor = objects.named("PodMonitor", "orders");
    let endpoint = &monitor["spec"]["podMetricsEndpoints"][0];
    assert_eq!(endpoint["interval"], "4s");
    assert_eq!(endpoint["port"], objects.sidecar()["ports"][0]["name"]);
    assert_eq!(monitor["metadata"]["labels"]["release"], "prometheus");
    let rule = objects.named("PrometheusRule", "orders-leasehold");
    assert_eq!(rule["metadata"]["labels"]["release"], "prometheus");
    let config = objects.named("ConfigMap", "orders-dashboard");
    assert_eq!(config["metadata"]["labels"]["grafana"], "yes");
    // Without labels, this alert could never fire.
    let alert = "LeaseholdLabelOutOfSync";
    assert!(rule.to_string().contains(alert));
    let unlabelled = Objects::of("unlabelled", &[]);
    let alerts = unlabelled.one("PrometheusRule").to_string();
    assert!(!alerts.contains(alert), "{alerts}");
}
