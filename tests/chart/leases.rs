//! Goal: one pod can have several leases, each with its own sidecar, port, status directory, label
//! and alerts. The chart refuses conflicting names, ports and directories. The policy covers the
//! labels of all leases. Method: parses helm's output, and tests the policy on a real API server.

use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use kube::api::Api;
use leasehold_testbed::run;
use leasehold_testbed::wait::found;
use serde_json::{Value, json};

use crate::cluster::{Installed, RIGHTS, patch_status};
use crate::helm::{Objects, refused};

fn names(list: &Value) -> Vec<&str> {
    let items = list.as_array().unwrap().iter();
    items.map(|item| item["name"].as_str().unwrap()).collect()
}

#[test]
fn each_lease_has_a_sidecar_a_port_and_a_directory() {
    let objects = Objects::of("leases", &[]);
    let pod = objects.pod();
    let sidecars = &pod["initContainers"];
    assert_eq!(
        names(sidecars),
        ["leasehold", "leasehold-bill-ing", "leasehold-reports"]
    );
    for (sidecar, lease, port, volume) in [
        (0, "shop.orders", 9402, "leasehold-status"),
        (1, "billing", 9404, "leasehold-status-bill-ing"),
        (2, "shop.orders-reports", 9403, "leasehold-status-reports"),
    ] {
        let sidecar = &sidecars[sidecar];
        let arguments = sidecar["args"].as_array().unwrap();
        for flag in [
            format!("--lease-name={lease}"),
            format!("--http-listen=0.0.0.0:{port}"),
            "--lease-handoff-delay=1s".to_owned(),
        ] {
            assert!(arguments.contains(&json!(flag)), "{flag}: {arguments:?}");
        }
        assert_eq!(sidecar["ports"][0]["containerPort"], port);
        assert_eq!(sidecar["livenessProbe"]["httpGet"]["port"], port);
        assert_eq!(sidecar["volumeMounts"][0]["name"], volume);
        assert!(names(&pod["volumes"]).contains(&volume));
    }
    let own = sidecars[1]["args"].to_string();
    assert!(own.contains("--lease-duration=15s"), "{own}");
    assert!(!sidecars[2]["args"].to_string().contains("--lease-duration"));
    let mounts: Vec<_> = objects.workload()["volumeMounts"]
        .as_array()
        .unwrap()
        .iter()
        .collect();
    for (mount, path) in mounts
        .iter()
        .zip(["/run/leasehold", "/billing", "/run/leasehold-reports"])
    {
        assert_eq!(mount["mountPath"], path);
        assert_eq!(mount["readOnly"], true);
    }
    let variables: Vec<_> = objects.workload()["env"]
        .as_array()
        .unwrap()
        .iter()
        .map(|v| (v["name"].as_str().unwrap(), v["value"].as_str().unwrap()))
        .collect();
    assert_eq!(
        variables,
        [
            ("LEASEHOLD_STATUS_FILE", "/run/leasehold/status.json"),
            ("LEASEHOLD_STATUS_FILE_BILL_ING", "/billing/status.json"),
            (
                "LEASEHOLD_STATUS_FILE_REPORTS",
                "/run/leasehold-reports/status.json"
            ),
        ]
    );
}

#[test]
fn scrapes_alerts_and_the_network_policy_cover_all_leases() {
    let objects = Objects::of("leases", &[]);
    let endpoints = objects.one("PodMonitor")["spec"]["podMetricsEndpoints"]
        .as_array()
        .unwrap();
    let scraped: Vec<_> = endpoints
        .iter()
        .map(|e| e["port"].as_str().unwrap())
        .collect();
    assert_eq!(scraped, ["leasehold", "lh-bill-ing", "lh-reports"]);
    // Kubernetes limits port names to 15 characters.
    assert!(scraped.iter().all(|name| name.len() <= 15));
    let groups = objects.one("PrometheusRule")["spec"]["groups"]
        .as_array()
        .unwrap();
    for (group, lease) in groups
        .iter()
        .zip(["shop.orders", "billing", "shop.orders-reports"])
    {
        for rule in group["rules"].as_array().unwrap() {
            let expression = rule["expr"].as_str().unwrap();
            assert!(
                expression.contains(&format!("lease=\"{lease}\"")),
                "{expression}"
            );
        }
    }
    assert_eq!(groups.len(), 3);
    // The limits are two thirds of `renew_deadline` - `renew_interval`: 18 s - 3 s for one lease,
    // and 10 s - 2 s for the other.
    let nearly = |group: &Value| {
        let mut rules = group["rules"].as_array().unwrap().iter();
        let rule = rules
            .find(|rule| rule["alert"] == "LeaseholdAuthorityNearlyGone")
            .unwrap();
        rule["expr"]
            .as_str()
            .unwrap()
            .rsplit_once("< ")
            .unwrap()
            .1
            .to_owned()
    };
    assert_eq!(nearly(&groups[0]), "10");
    assert_eq!(nearly(&groups[1]), "5.33");
    let ingress = &objects.one("NetworkPolicy")["spec"]["ingress"][0]["ports"];
    let ports: Vec<_> = ingress
        .as_array()
        .unwrap()
        .iter()
        .map(|p| p["port"].as_u64().unwrap())
        .collect();
    assert_eq!(ports, [9402, 9404, 9403]);
    let test = objects.one("Pod")["spec"]["containers"].clone();
    assert_eq!(
        names(&test),
        ["replicas", "replicas-bill-ing", "replicas-reports"]
    );
    assert_eq!(
        test[1]["args"][1],
        format!("{}:9404", crate::helm_test::TEST)
    );
    assert_eq!(test[1]["args"][2], "--lease=billing");
}

#[test]
fn leases_of_one_pod_with_the_same_port_name_or_directory_are_refused() {
    refused(
        r#"
        minimal: leasehold.extraLeases={"reports":{}}
            set leasehold.extraLeases.reports.port

        minimal: leasehold.extraLeases={"reports":{"port":9402}}
            two leases of one pod have the same port, 9402
            set leasehold.extraLeases.reports.port

        minimal: leasehold.extraLeases={"reports":{"port":9403,"leaseName":"shop.orders"}}
            two leases of one pod have the same leaseName, shop.orders
            set leasehold.extraLeases.reports.leaseName

        minimal: leasehold.extraLeases={"reports":{"port":9403,"statusDirectory":"/run/leasehold"}}
            two leases of one pod have the same statusDirectory

        minimal: leasehold.extraLeases={"reports":{"port":9403,"statusDirectory":"/run/leasehold/reports/"}}
            leasehold.extraLeases.reports.statusDirectory is /run/leasehold/reports, in leasehold.statusDirectory
            set it to another directory

        minimal: leasehold.extraLeases={"Reports":{"port":9403}}
            at most 12 lower-case letters

        minimal: leasehold.extraLeases={"reports-of-day":{"port":9403}}
            at most 12 lower-case letters

        minimal: leasehold.extraLeases={"reports":{"port":9403,"leaseName":"a b"}}
            letter or digit at both ends

        minimal: leasehold.extraLeases={"reports":{"port":9403,"config":{"lease":{"lease_duration":"4s"}}}}
            leasehold.extraLeases.reports.config.lease.lease_duration could end

        minimal: leasehold.extraLeases={"reports":{"port":9403,"config":{"lease":{"name":"x"}}}}
            leave out leasehold.extraLeases.reports.config.lease.name

        minimal: leasehold.extraLeases={"reports":{"port":9403,"colour":"red"}}
            'colour' not allowed

        leases: workload.ports=[{"containerPort":9403}]
            set leasehold.extraLeases.reports.port

        leases: workload.ports=[{"name":"lh-reports","containerPort":80}]
            the name lh-reports

        supervisor: leasehold.extraLeases={"reports":{"port":9403}}
            leave out leasehold.extraLeases (reports)
            set mode to sidecar

        injector: leasehold.extraLeases={"reports":{"port":9403}}
            leave out leasehold.extraLeases (reports)
            the lease that its annotation names
        "#,
    );
}

fn label(key: &str, value: impl Into<Value>) -> Value {
    json!({"metadata": {"labels": {key: value.into()}}})
}

async fn refusal(pods: &Api<Pod>, name: &str, patch: Value) -> String {
    let patched = patch_status(pods, name, patch.clone(), false).await;
    patched.expect_err(&patch.to_string())
}

#[test]
fn the_policy_covers_the_labels_of_all_leases_and_no_others() {
    run(async {
        let both = RIGHTS.map(|rights| [(rights, true), (rights, false)]);
        for (rights, demoting) in both.concat() {
            let demotes = format!("leasehold.kubernetes.demoteOthers={demoting}");
            let plain = [
                "podMonitor.enabled=false",
                "prometheusRule.enabled=false",
                rights,
                &demotes,
            ];
            let installed = Installed::new("leases", &plain).await;
            let own = installed.pod("own").await;
            installed.pod("other").await;
            let pods = installed.pods(installed.client_of(&own).await);
            found("the policy takes effect", async || {
                let annotated = json!({"metadata": {"annotations": {"a": "b"}}});
                let refused = patch_status(&pods, "own", annotated, true).await.err()?;
                refused.contains("no annotation").then_some(())
            })
            .await;
            let first = installed.label();
            let reports = format!("{first}-reports");
            for key in [&first, &reports] {
                for value in ["leader", "follower", "leader"] {
                    let patched = patch_status(&pods, "own", label(key, value), false).await;
                    assert_eq!(patched.unwrap().labels()[key], value);
                }
            }
            let refused = refusal(&pods, "own", label(&reports, "king")).await;
            assert!(refused.contains("is leader or follower"), "{refused}");
            let refused = refusal(&pods, "own", label(&reports, Value::Null)).await;
            assert!(refused.contains("changes no label but"), "{refused}");
            let refused = refusal(&pods, "own", label("leasehold.dev/else", "leader")).await;
            assert!(refused.contains("changes no label but"), "{refused}");

            let administrator = installed.pods(installed.kubernetes.client());
            let given = patch_status(&administrator, "other", label(&reports, "leader"), false);
            given.await.unwrap();
            if !demoting {
                let refused = refusal(&pods, "other", label(&reports, "follower")).await;
                assert!(refused.contains("only the pod that its token"), "{refused}");
                continue;
            }
            let mut both = label(&reports, "follower");
            both["metadata"]["labels"][&first] = json!("leader");
            let refused = refusal(&pods, "other", both).await;
            assert!(refused.contains("from leader to follower"), "{refused}");
            let refused = refusal(&pods, "other", label(&first, "follower")).await;
            assert!(refused.contains("from leader to follower"), "{refused}");
            let demoted = patch_status(&pods, "other", label(&reports, "follower"), false).await;
            assert_eq!(demoted.unwrap().labels()[&reports], "follower");
        }
    });
}
