//! Goal: every pod with the annotation gets the chart's sidecar, and the sidecar is admitted under
//! the Pod Security level "restricted". Method: installs the policy on a real API server, and
//! creates various pods.

use k8s_openapi::api::core::v1::Pod;
use kube::api::PostParams;
use leasehold_testbed::run;
use leasehold_testbed::wait::found;
use serde_json::{Value, json};

use crate::cluster::{Installed, foreign_pod};
use crate::helm::Objects;

fn restricted() -> Value {
    json!({
        "runAsNonRoot": true,
        "runAsUser": 1000,
        "allowPrivilegeEscalation": false,
        "capabilities": {"drop": ["ALL"]},
        "seccompProfile": {"type": "RuntimeDefault"},
    })
}

pub(crate) fn container(name: &str) -> Value {
    json!({"name": name, "image": "registry.example/a:1", "securityContext": restricted()})
}

pub(crate) fn asking(name: &str, spec: &Value) -> Pod {
    let mut pod = foreign_pod(name, spec);
    let annotation = ("leasehold.dev/inject".to_owned(), "orders".to_owned());
    pod.metadata.annotations = Some([annotation].into());
    pod
}

pub(crate) async fn create(
    installed: &Installed,
    pod: &Pod,
    dry_run: bool,
) -> Result<Value, String> {
    let pods = installed.pods(installed.kubernetes.client());
    let parameters = PostParams {
        dry_run,
        ..PostParams::default()
    };
    let created = pods.create(&parameters, pod).await;
    let created = created.map_err(|error| error.to_string())?;
    Ok(serde_json::to_value(created).unwrap())
}

/// Drops the fields of `container` that `expected` does not have, because the API server adds
/// defaults.
pub(crate) fn fields_of(container: &Value, expected: &Value) -> Value {
    match (container, expected) {
        (Value::Object(found), Value::Object(wanted)) => wanted
            .iter()
            .map(|(key, value)| {
                let found = found.get(key).unwrap_or(&Value::Null);
                (key.clone(), fields_of(found, value))
            })
            .collect(),
        (Value::Array(found), Value::Array(wanted)) if found.len() >= wanted.len() => wanted
            .iter()
            .zip(found)
            .map(|(value, item)| fields_of(item, value))
            .collect(),
        _ => container.clone(),
    }
}

pub(crate) async fn wait_for_injection(installed: &Installed, plain: &Value) {
    found("pods are injected", async || {
        let tried = create(installed, &asking("trial", plain), true)
            .await
            .ok()?;
        tried["spec"]["initContainers"].is_array().then_some(())
    })
    .await;
}

#[test]
fn annotated_pods_get_the_sidecar_and_are_admitted_under_the_restricted_level() {
    run(async {
        let installed = Installed::new("injector", &[]).await;
        let plain = json!({"containers": [container("app")]});
        wait_for_injection(&installed, &plain).await;

        let pod = create(&installed, &asking("plain", &plain), false)
            .await
            .unwrap();
        let sidecar = &pod["spec"]["initContainers"][0];
        let of_the_chart = Objects::of("unlabelled", &["leasehold.mongodb.secretName=\"mongodb\""]);
        let mut expected = of_the_chart.sidecar().clone();
        expected["args"][1] = json!(format!("--lease-name={}.orders", installed.namespace));
        // An injected sidecar does not have this flag, because its lease name contains the pod's
        // namespace.
        let arguments = expected["args"].as_array_mut().unwrap();
        arguments.retain(|argument| !argument.as_str().unwrap().contains("rendered-for"));
        assert_eq!(fields_of(sidecar, &expected), expected);
        assert_eq!(sidecar["args"], expected["args"]);
        let file =
            json!([{"name": "LEASEHOLD_STATUS_FILE", "value": "/run/leasehold/status.json"}]);
        assert_eq!(pod["spec"]["containers"][0]["env"], file);
        let by = &pod["metadata"]["labels"]["leasehold.dev/injected-by"];
        assert!(by.as_str().unwrap().starts_with("orders."), "{by}");
        let volumes = &pod["spec"]["volumes"];
        for volume in of_the_chart.pod()["volumes"].as_array().unwrap() {
            let mut volumes = volumes.as_array().unwrap().iter();
            let found = volumes.find(|v| v["name"] == volume["name"]);
            assert_eq!(fields_of(found.unwrap(), volume), *volume);
        }
    });
}

#[test]
fn injection_changes_no_other_field_of_a_pod() {
    run(async {
        let installed = Installed::new("injector", &[]).await;
        let mut with_mount = container("second");
        with_mount["volumeMounts"] = json!([{"name": "work", "mountPath": "/work"}]);
        with_mount["env"] = json!([{"name": "MODE", "value": "fast"}]);
        let mut decided = container("third");
        decided["env"] = json!([{"name": "LEASEHOLD_STATUS_FILE", "value": "/elsewhere"}]);
        let mut own = container("prepare");
        own["command"] = json!(["/prepare"]);
        let rich = json!({
            "initContainers": [own],
            "containers": [container("first"), with_mount, decided],
            "volumes": [{"name": "work", "emptyDir": {}}],
        });
        let pod = found("pods are injected", async || {
            let tried = create(&installed, &asking("rich", &rich), true)
                .await
                .ok()?;
            let containers = tried["spec"]["initContainers"].as_array().unwrap().len();
            (containers == 2).then_some(tried)
        })
        .await;
        // The sidecar starts after the pod's own init containers, so a replica never leads during
        // initialization.
        assert_eq!(pod["spec"]["initContainers"][0]["name"], "prepare");
        assert_eq!(pod["spec"]["initContainers"][1]["name"], "leasehold");
        assert_eq!(pod["spec"]["volumes"][0]["name"], "work");
        for (index, mounts) in [&["leasehold-status"][..], &["work", "leasehold-status"]]
            .iter()
            .enumerate()
        {
            let found = &pod["spec"]["containers"][index]["volumeMounts"];
            let found = found.as_array().unwrap();
            let names: Vec<_> = found
                .iter()
                .map(|mount| mount["name"].as_str().unwrap())
                .filter(|name| !name.starts_with("kube-api-access"))
                .collect();
            assert_eq!(names, *mounts);
            let mut found = found.iter();
            let status = found.find(|mount| mount["name"] == "leasehold-status");
            assert_eq!(status.unwrap()["readOnly"], true);
        }

        let file = "LEASEHOLD_STATUS_FILE=/run/leasehold/status.json";
        let elsewhere = "LEASEHOLD_STATUS_FILE=/elsewhere";
        let expected = [&[file][..], &["MODE=fast", file], &[elsewhere]];
        for (index, expected) in expected.iter().enumerate() {
            let variables = pod["spec"]["containers"][index]["env"].as_array().unwrap();
            let text = |name: &Value| name.as_str().unwrap().to_owned();
            let found: Vec<_> = variables
                .iter()
                .map(|set| format!("{}={}", text(&set["name"]), text(&set["value"])))
                .collect();
            assert_eq!(found, *expected);
        }

        let only_one = async |pod: Pod| {
            let pod = create(&installed, &pod, true).await.unwrap();
            let [container] = &pod["spec"]["initContainers"].as_array().unwrap()[..] else {
                panic!("one init container: {pod}")
            };
            container.clone()
        };
        only_one(foreign_pod("silent", &rich)).await;
        let mut ours = container("leasehold");
        ours["restartPolicy"] = json!("Always");
        ours["args"] = json!([
            "run",
            format!("--lease-name={}.orders", installed.namespace)
        ]);
        let has_one = json!({"initContainers": [ours], "containers": [container("first")]});
        let kept = only_one(asking("kept", &has_one)).await;
        assert_eq!(kept["image"], "registry.example/a:1");
    });
}

#[test]
fn an_annotation_that_is_an_invalid_lease_name_is_refused_with_the_reason() {
    run(async {
        let installed = Installed::new("injector", &[]).await;
        let spec = json!({"containers": [container("app")]});
        let with = |annotation: &str| {
            let mut pod = asking("named", &spec);
            let annotations = pod.metadata.annotations.as_mut().unwrap();
            annotations.insert("leasehold.dev/inject".to_owned(), annotation.to_owned());
            pod
        };
        let room = 63 - installed.namespace.len() - 1;
        let refused = found("the policy takes effect", async || {
            create(&installed, &with(""), true).await.err()
        })
        .await;
        let rule = "must be at most 63 letters, digits";
        assert!(refused.contains(rule), "{refused}");
        for wrong in ["a".repeat(room + 1), "orders-".to_owned(), "a b".to_owned()] {
            let refused = create(&installed, &with(&wrong), true).await.unwrap_err();
            assert!(refused.contains(rule), "{wrong}: {refused}");
        }
        found("a pod with the longest name is injected", async || {
            let longest = with(&"a".repeat(room));
            create(&installed, &longest, true).await.ok()
        })
        .await;
    });
}

/// Without the policy, each of these pods would run without the requested sidecar, or with a
/// sidecar that cannot listen.
#[test]
fn a_pod_that_would_run_without_its_sidecar_is_refused_with_the_reason() {
    run(async {
        let installed = Installed::new("injector", &[]).await;
        let plain = json!({"containers": [container("app")]});
        wait_for_injection(&installed, &plain).await;
        found("the validating policy takes effect", async || {
            let own = json!({"initContainers": [container("leasehold")], "containers": [container("app")]});
            create(&installed, &asking("trial", &own), true).await.err()
        })
        .await;
        let with_port = |mut container: Value, port: Value| {
            container["ports"] = json!([port]);
            container
        };
        let own = container("leasehold");
        let mut of_another = own.clone();
        of_another["restartPolicy"] = json!("Always");
        of_another["args"] = json!(["run", "--lease-name=else"]);
        let rename = "its own init container is called leasehold";
        let port = "has port 9402, on which the sidecar listens";
        let ours = json!({"containerPort": 9402});
        let mut proxy = with_port(container("proxy"), ours.clone());
        proxy["restartPolicy"] = json!("Always");
        for (spec, reason) in [
            (
                json!({"initContainers": [own], "containers": [container("app")]}),
                rename,
            ),
            (
                json!({"initContainers": [of_another], "containers": [container("app")]}),
                rename,
            ),
            (
                json!({"containers": [with_port(container("app"), ours.clone())]}),
                port,
            ),
            (
                json!({"initContainers": [proxy], "containers": [container("app")]}),
                port,
            ),
        ] {
            let refused = create(&installed, &asking("trial", &spec), true).await;
            let refused = refused.expect_err(&spec.to_string());
            assert!(refused.contains(reason), "{spec}: {refused}");
        }
        // These ports do not conflict. One is a UDP port, and the other belongs to an init
        // container that exits before the sidecar starts.
        let datagrams = json!({"containerPort": 9402, "protocol": "UDP"});
        for spec in [
            json!({"containers": [with_port(container("app"), datagrams)]}),
            json!({"initContainers": [with_port(container("first"), ours)], "containers": [container("app")]}),
        ] {
            create(&installed, &asking("trial", &spec), true)
                .await
                .unwrap();
        }
    });
}

#[test]
fn pods_of_jobs_and_of_stateful_sets_are_injected_too() {
    run(async {
        let installed = Installed::new("injector", &[]).await;
        for (kind, own) in [
            ("a Job", json!({"restartPolicy": "Never"})),
            ("a Job with retries", json!({"restartPolicy": "OnFailure"})),
            (
                "a StatefulSet",
                json!({"hostname": "orders-0", "subdomain": "orders-headless"}),
            ),
        ] {
            let mut spec = json!({"containers": [container("app")]});
            spec.as_object_mut()
                .unwrap()
                .extend(own.as_object().unwrap().clone());
            let pod = found(&format!("the pod of {kind} is injected"), async || {
                let tried = create(&installed, &asking("trial", &spec), true)
                    .await
                    .ok()?;
                tried["spec"]["initContainers"].is_array().then_some(tried)
            })
            .await;
            let sidecar = &pod["spec"]["initContainers"][0];
            // The sidecar has its own restart policy, so a Job completes as soon as its other
            // containers have exited.
            assert_eq!(sidecar["restartPolicy"], "Always", "{kind}");
            for (field, value) in own.as_object().unwrap() {
                assert_eq!(pod["spec"][field], *value, "{kind}");
            }
        }
    });
}

#[test]
fn injected_pods_get_the_pull_secrets_in_addition_to_their_own() {
    run(async {
        let secrets = r#"imagePullSecrets=["mirror",{"name":"mine"}]"#;
        let installed = Installed::new("injector", &[secrets]).await;
        let pulled = async |own: Value| {
            let mut spec = json!({"containers": [container("app")]});
            if !own.is_null() {
                spec["imagePullSecrets"] = own;
            }
            found("pods are injected", async || {
                let tried = create(&installed, &asking("trial", &spec), true)
                    .await
                    .ok()?;
                let injected = tried["spec"]["initContainers"].is_array();
                injected.then(|| tried["spec"]["imagePullSecrets"].clone())
            })
            .await
        };
        let both = json!([{"name": "mirror"}, {"name": "mine"}]);
        assert_eq!(pulled(Value::Null).await, both);
        let found = pulled(json!([{"name": "mine"}, {"name": "other"}])).await;
        assert_eq!(
            found,
            json!([{"name": "mine"}, {"name": "other"}, {"name": "mirror"}])
        );
    });
}
