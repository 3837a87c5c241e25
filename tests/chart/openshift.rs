//! Goal: with the documented values, the pods follow the rules of OpenShift's SCC `restricted-v2`.
//! Method: no OpenShift runs here. The tests check each rule in helm's output, and create the pods
//! under the restricted Pod Security Standard of a real API server.

use leasehold_testbed::run;
use serde_json::{Value, json};

use crate::cluster::Installed;
use crate::documented::block;
use crate::helm::{INSTALLATIONS, Objects, chart, render_chart, root, values};

const PAGE: &str = "docs/openshift.md";

/// Volume types that `restricted-v2` permits.
const VOLUMES: [&str; 8] = [
    "configMap",
    "csi",
    "downwardAPI",
    "emptyDir",
    "ephemeral",
    "persistentVolumeClaim",
    "projected",
    "secret",
];

fn rendered(installation: &str, with: bool) -> Objects {
    let file = tempfile::NamedTempFile::with_suffix(".yaml").unwrap();
    std::fs::write(file.path(), block(PAGE, "openshift.yaml")).unwrap();
    let (base, more) = (values(installation), file.path().to_str().unwrap());
    let mut arguments = vec!["--values", base.to_str().unwrap()];
    arguments.extend(with.then_some(["--values", more]).into_iter().flatten());
    Objects::parse(&render_chart(&chart(), &arguments).unwrap())
}

#[test]
fn an_injected_sidecar_has_no_fixed_ids() {
    for (with, fixed) in [(true, false), (false, true)] {
        let objects = rendered("injector", with);
        let policy = objects.one("MutatingAdmissionPolicy").to_string();
        assert_eq!(policy.contains("runAsUser"), fixed);
    }
}

fn pods(objects: &Objects) -> Vec<Value> {
    let all = objects.iter().map(|object| match object["kind"].as_str() {
        Some("Pod") => object["spec"].clone(),
        Some("CronJob") => object["spec"]["jobTemplate"]["spec"]["template"]["spec"].clone(),
        _ => object["spec"]["template"]["spec"].clone(),
    });
    all.filter(|pod| pod["containers"].is_array()).collect()
}

fn problems(pod: &Value) -> Vec<String> {
    let mut problems = Vec::new();
    let text = pod.to_string();
    for field in [
        "runAsUser",
        "runAsGroup",
        "fsGroup",
        "supplementalGroups",
        "hostPort",
    ] {
        if text.contains(&format!("{field:?}")) {
            problems.push(field.to_owned());
        }
    }
    for volume in pod["volumes"].as_array().into_iter().flatten() {
        let kinds = volume
            .as_object()
            .unwrap()
            .keys()
            .filter(|key| *key != "name");
        let refused = kinds.filter(|kind| !VOLUMES.contains(&kind.as_str()));
        problems.extend(refused.cloned());
    }
    let lists = ["initContainers", "containers"];
    let containers = lists
        .iter()
        .flat_map(|list| pod[list].as_array().into_iter().flatten());
    for container in containers {
        let context = &container["securityContext"];
        let pod_context = &pod["securityContext"];
        let either = |field: &str| {
            if context[field].is_null() {
                &pod_context[field]
            } else {
                &context[field]
            }
        };
        for (fine, rule) in [
            (context["allowPrivilegeEscalation"] == false, "escalation"),
            (
                context["capabilities"]["drop"] == json!(["ALL"]),
                "capabilities",
            ),
            (*either("runAsNonRoot") == true, "root"),
            (
                either("seccompProfile")["type"] == "RuntimeDefault",
                "seccomp",
            ),
        ] {
            if !fine {
                problems.push(format!("{}: {rule}", container["name"]));
            }
        }
    }
    problems
}

#[test]
fn the_documented_values_follow_each_rule_of_restricted_v2() {
    // The first sets a user id of the workload itself, and the second has no pods.
    let others = ["everything", "injector"];
    for installation in INSTALLATIONS.into_iter().filter(|it| !others.contains(it)) {
        let objects = rendered(installation, true);
        for pod in pods(&objects) {
            assert_eq!(
                problems(&pod),
                Vec::<String>::new(),
                "{installation}: {pod}"
            );
        }
    }
    let problems: Vec<_> = pods(&rendered("web", false))
        .iter()
        .flat_map(problems)
        .collect();
    for found in ["runAsUser", "runAsGroup", "fsGroup"] {
        assert!(
            problems.iter().any(|it| it == found),
            "{found}: {problems:?}"
        );
    }
}

#[test]
fn the_policies_allow_the_port_of_the_dns_pods() {
    let objects = rendered("web", true);
    for name in ["orders", "orders-web"] {
        let policy = &objects.named("NetworkPolicy", name)["spec"]["egress"][0];
        let expected =
            json!([{"port": 5353, "protocol": "UDP"}, {"port": 5353, "protocol": "TCP"}]);
        assert_eq!(policy["ports"], expected, "{name}");
    }
}

#[test]
fn the_restricted_level_admits_the_pods_without_ids() {
    run(async {
        for installation in ["minimal", "supervisor", "same-container", "web"] {
            // The cluster has neither this priority class nor the kinds of Prometheus.
            let off =
                "web.priorityClassName=,prometheusRule.enabled=false,podMonitor.enabled=false";
            let installed = Installed::documented(PAGE, "openshift.yaml", installation, off).await;
            installed.pod("by-hand").await;
            for (index, spec) in pods(&installed.objects).into_iter().enumerate() {
                let name = format!("pod-{index}");
                let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec});
                let pod = pod.to_string();
                let admitted = installed.kubernetes.dry_run(&installed.namespace, &pod);
                admitted
                    .await
                    .unwrap_or_else(|refused| panic!("{installation}: {refused}"));
            }
        }
    });
}

/// The page must not claim more than the tests show.
#[test]
fn the_page_says_that_nothing_was_run_on_openshift() {
    let page = std::fs::read_to_string(root().join(PAGE)).unwrap();
    let page = page.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(page.contains("leasehold has not been run on OpenShift"));
}
