//! Goal: `helm test` queries every replica, and passes if exactly one replica leads and all
//! replicas use one MongoDB collection. Method: checks the rendered test, runs its command against
//! real daemons on a real replica set, and runs `helm test` on a real API server. There is no
//! kubelet, so the Rust test marks the pod as finished.

use std::process::{Command, Output, Stdio};

use k8s_openapi::api::core::v1::{Pod, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::ResourceExt;
use kube::api::{Api, ListParams, Patch, PatchParams};
use leasehold_testbed::wait::found;
use leasehold_testbed::{Daemon, DaemonTimings, ReplicaSet, SharedSet, run};
use serde_json::json;

use crate::helm::{
    KUBERNETES, NAMESPACE, Objects, assert_selects, chart, refused, text, tool, values,
};
use crate::release::Place;

/// Name of the Service and the pod of `helm test` for the release `orders`.
pub(crate) const TEST: &str = "test-orders-1c168adb00d208e42f93314529f1fa9c0427eb63233ceda95a5";

static SET: SharedSet = SharedSet::new(ReplicaSet::builder);

#[test]
fn the_test_queries_all_replicas_through_its_own_headless_service() {
    let objects = Objects::of("minimal", &[]);
    let service = objects.named("Service", TEST);
    assert_eq!(service["spec"]["clusterIP"], "None");
    assert_eq!(service["spec"]["publishNotReadyAddresses"], true);
    let labels = &objects.template()["metadata"]["labels"];
    assert_selects(&service["spec"]["selector"], labels);
    let pod = objects.named("Pod", TEST);
    for object in [service, pod] {
        let annotations = &object["metadata"]["annotations"];
        assert_eq!(annotations["helm.sh/hook"], "test");
        let policy = annotations["helm.sh/hook-delete-policy"].as_str().unwrap();
        assert!(policy.contains("hook-succeeded"), "{policy}");
        assert!(policy.contains("before-hook-creation"), "{policy}");
    }
    // Helm creates the Service before the pod, because the Service has a lower weight.
    assert_eq!(
        service["metadata"]["annotations"]["helm.sh/hook-weight"],
        "-1"
    );
    let container = &pod["spec"]["containers"][0];
    assert_eq!(
        container["args"],
        json!([
            "replicas",
            format!("{TEST}:9402"),
            "--lease=shop.orders",
            "--expect=2",
            "--wait=1m"
        ])
    );
    assert_eq!(container["image"], objects.sidecar()["image"]);
    assert_eq!(
        container["securityContext"],
        objects.sidecar()["securityContext"]
    );
    assert_eq!(pod["spec"]["automountServiceAccountToken"], false);
    // Selectors of the workload's pods must not match the test's pod.
    let selected = &objects.maker()["spec"]["selector"]["matchLabels"]["app.kubernetes.io/name"];
    assert_ne!(
        pod["metadata"]["labels"]["app.kubernetes.io/name"],
        *selected
    );

    let other = Objects::of("everything", &[]);
    let args = &other.one("Pod")["spec"]["containers"][0]["args"];
    assert_eq!(args[1], format!("{TEST}:9500"));
    assert_eq!(args[2], "--lease=orders.main");
    assert_eq!(args[3], "--expect=3");
    assert_eq!(
        other.one("Pod")["spec"]["nodeSelector"],
        other.pod()["nodeSelector"]
    );
    // The workload's NetworkPolicy admits the test's pod.
    let from = other.named("NetworkPolicy", "orders")["spec"]["ingress"][0]["from"].clone();
    assert_eq!(from.as_array().unwrap().len(), 2, "{from}");
    let let_in = from[1]["podSelector"]["matchLabels"].as_object().unwrap();
    let labels = &other.one("Pod")["metadata"]["labels"];
    assert!(
        let_in.iter().all(|(key, value)| labels[key] == *value),
        "{from}"
    );
}

#[test]
fn a_release_without_replicas_has_no_test() {
    for (installation, change) in [
        ("minimal", "test.enabled=false"),
        ("minimal", "deployment.replicas=0"),
        ("injector", "inject.enabled=true"),
        ("job", "job.suspend=true"),
        ("cron-job", "cronJob.suspend=true"),
    ] {
        let objects = Objects::of(installation, &[change]);
        assert!(objects.find("Pod").is_none(), "{installation}: {change}");
    }
    let closed = Objects::of("everything", &["test.enabled=false"]);
    let from = &closed.named("NetworkPolicy", "orders")["spec"]["ingress"][0]["from"];
    assert_eq!(from.as_array().unwrap().len(), 1, "{from}");
    refused("minimal: test.wait=\"soon\"\n/test/wait");
}

#[test]
fn a_name_that_is_invalid_for_a_service_is_replaced_for_the_test() {
    for (name, service) in [("2orders", "test-2orders"), ("orders.v2", "test-")] {
        let rendered = tool("helm")
            .args(["template", name, "--values"])
            .args([values("minimal"), chart()])
            .args(["--kube-version", KUBERNETES])
            .output()
            .unwrap();
        let objects = Objects::parse(&String::from_utf8(rendered.stdout).unwrap());
        let found = objects.one("Service")["metadata"]["name"].as_str().unwrap();
        assert!(
            found.starts_with(service) && !found.contains('.'),
            "{found}"
        );
        assert!(found.len() <= 63, "{found}");
    }
}

/// Before each test, helm deletes the objects with these names, so other objects must not have any
/// of these names. No name collides, because release names have at most 53 characters, and the
/// suffixes of other objects are not hashes.
#[test]
fn the_name_of_the_test_differs_from_the_names_of_other_releases() {
    let objects = Objects::of("everything", &[]);
    let names = |kind: &str| {
        let of_kind = objects.iter().filter(|object| object["kind"] == kind);
        of_kind
            .map(|object| object["metadata"]["name"].as_str().unwrap().to_owned())
            .collect::<Vec<_>>()
    };
    assert!(names("Service").contains(&"orders".to_owned()));
    for name in [names("Pod"), names("Service")].concat() {
        if name != "orders" {
            assert_eq!(name, TEST);
        }
    }
    assert_eq!(TEST.len(), 63);
    let end = TEST.rsplit('-').next().unwrap();
    assert!(end.len() > 40 && end.bytes().all(|byte| byte.is_ascii_hexdigit()));
}

fn test(daemons: &[&Daemon]) -> Output {
    let objects = Objects::of("minimal", &[r#"test.wait="30s""#]);
    let args = objects.one("Pod")["spec"]["containers"][0]["args"].clone();
    let mut words: Vec<String> = serde_json::from_value(args).unwrap();
    let places = daemons
        .iter()
        .map(|daemon| format!("127.0.0.1:{}", daemon.port()));
    words.splice(1..2, places);
    let mut command = Command::new(env!("CARGO_BIN_EXE_leasehold"));
    command.args(words).env_clear();
    command.output().unwrap()
}

#[test]
fn the_command_of_the_test_finds_the_leader_among_real_daemons() {
    run(async {
        let set = SET.get().await;
        let daemon = |identity: &str| {
            Daemon::builder(env!("CARGO_BIN_EXE_leasehold"))
                .lease(&format!("{NAMESPACE}.orders"))
                .identity(identity)
                .uri(&set.uri())
                .timings(DaemonTimings::SHORT)
                .start()
        };
        let (a, b) = (daemon("a"), daemon("b"));
        let passed = test(&[&a, &b]);
        assert_eq!(passed.status.code(), Some(0), "{passed:?}");
        let text = String::from_utf8(passed.stdout).unwrap();
        assert!(text.contains("ok: 2 replicas, one leader: "), "{text}");
        let failed = test(&[&a]);
        assert_eq!(failed.status.code(), Some(1), "{failed:?}");
    });
}

#[test]
fn helm_deletes_the_service_and_the_pod_after_the_test() {
    run(async {
        let place = Place::new().await;
        place.chart("install", "orders", &[]).unwrap();
        let services: Api<Service> = place.kubernetes.objects(&place.namespace);
        let pods: Api<Pod> = place.kubernetes.objects(&place.namespace);
        assert!(services.get(TEST).await.is_err(), "only during the test");
        let test = place.command(&["test", "orders", "--timeout", "2m"]);
        let mut test = tokio::process::Command::from(test);
        test.stdout(Stdio::piped()).stderr(Stdio::piped());
        let test = test.kill_on_drop(true).spawn().unwrap();
        found("the test's pod exists", async || pods.get(TEST).await.ok()).await;
        let service = services.get(TEST).await.unwrap();
        let selector = service.spec.unwrap().selector.unwrap();
        assert_eq!(selector["app.kubernetes.io/instance"], "orders");
        // The Service must also route to replicas that are not ready.
        let parameters = PatchParams::default();
        let replicas = ListParams::default().labels("app.kubernetes.io/name=leasehold");
        let replicas = found("both replicas exist", async || {
            let pods = pods.list(&replicas).await.ok()?.items;
            (pods.len() == 2).then_some(pods)
        })
        .await;
        let mut expected = Vec::new();
        for (index, pod) in replicas.iter().enumerate() {
            let address = format!("10.9.1.{}", index + 1);
            let status = json!({"status": {"podIP": &address, "podIPs": [{"ip": &address}]}});
            let (name, status) = (pod.name_any(), Patch::Merge(status));
            let patched = pods.patch_status(&name, &parameters, &status).await;
            patched.unwrap();
            expected.push(address);
        }
        let slices: Api<EndpointSlice> = place.kubernetes.objects(&place.namespace);
        let of_the_test =
            ListParams::default().labels(&format!("kubernetes.io/service-name={TEST}"));
        found("the Service has both addresses", async || {
            let slices = slices.list(&of_the_test).await.ok()?.items.into_iter();
            let endpoints = slices.flat_map(|slice| slice.endpoints);
            let mut addresses: Vec<_> = endpoints.flat_map(|endpoint| endpoint.addresses).collect();
            addresses.sort();
            (addresses == expected).then_some(())
        })
        .await;
        let ended = Patch::Merge(json!({"status": {"phase": "Succeeded"}}));
        let patched = pods.patch_status(TEST, &parameters, &ended);
        patched.await.unwrap();
        let ended = test.wait_with_output().await.unwrap();
        assert!(ended.status.success(), "{}", text(&ended));
        assert!(text(&ended).contains("Succeeded"), "{}", text(&ended));
        found("helm has deleted the test's objects", async || {
            let gone = services.get(TEST).await.is_err();
            // Without a kubelet, the pod is only marked for deletion, and never removed.
            let pod = pods.get(TEST).await;
            let ending = pod.map_or(true, |pod| pod.metadata.deletion_timestamp.is_some());
            (gone && ending).then_some(())
        })
        .await;
    });
}
