//! Goal: verify that the fixture's Kubernetes is real: it authorizes, admits, reconciles and cleans
//! up. Method: all tests share one control plane, and each has its own namespaces.

#![allow(clippy::unwrap_used)] // A failed unwrap fails the test.
#![allow(clippy::disallowed_methods)] // The test measures with its own clocks.
#![allow(clippy::print_stdout)] // The test prints its measurements.

use std::collections::BTreeMap;
use std::time::Instant;

use k8s_openapi::api::authentication::v1::{SelfSubjectReview, UserInfo};
use k8s_openapi::api::core::v1::{ConfigMap, Endpoints, Pod};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::api::{Api, ListParams, Patch, PatchParams, PostParams};
use kube::{Client, Error, ResourceExt};
use leasehold_testbed::pid::exists;
use leasehold_testbed::wait::found;
use leasehold_testbed::{Kubernetes, run};
use serde_json::json;

fn in_namespace(test: impl AsyncFnOnce(&Kubernetes, &str)) {
    run(async {
        let kubernetes = Kubernetes::shared().await;
        let namespace = kubernetes.namespace().await;
        test(&kubernetes, &namespace).await;
    });
}

fn code(error: &Error) -> u16 {
    match error {
        Error::Api(status) => status.code,
        other => panic!("not an error from the API server: {other}"),
    }
}

async fn whoami(client: &Client) -> Result<UserInfo, Error> {
    let reviews: Api<SelfSubjectReview> = Api::all(client.clone());
    let question = SelfSubjectReview::default();
    let answer = reviews.create(&PostParams::default(), &question).await?;
    Ok(answer.status.unwrap().user_info.unwrap())
}

#[tokio::test]
async fn a_control_plane_starts_soon_and_leaves_nothing_behind() {
    let begin = Instant::now();
    let kubernetes = Kubernetes::start().await;
    println!("started in {:?}", begin.elapsed());
    let version = kubernetes.client().apiserver_version().await.unwrap();
    println!("version {}", version.git_version);
    assert_ne!(kubernetes.namespace().await, kubernetes.namespace().await);
    println!("two namespaces after {:?}", begin.elapsed());
    let pids = kubernetes.pids();
    let directory = kubernetes.directory().to_owned();
    let exist = || pids.iter().filter(|pid| exists(**pid)).count();
    assert_eq!(exist(), 3);
    let begin = Instant::now();
    drop(kubernetes);
    println!("ended in {:?}", begin.elapsed());
    assert_eq!(exist(), 0);
    assert!(!directory.exists());
}

#[test]
fn rights_are_denied_until_a_role_grants_them() {
    in_namespace(async |kubernetes, namespace| {
        let other = kubernetes.namespace().await;
        let account = "{kind: ServiceAccount, apiVersion: v1, metadata: {name: orders}}";
        kubernetes.apply(namespace, account).await;
        let pod = kubernetes.pod(namespace, "a", &[], "orders").await;
        let credentials = kubernetes.credentials(&pod).await;
        let client = kubernetes.client_as(&credentials);
        let list = async |namespace: &str| {
            let maps: Api<ConfigMap> = Api::namespaced(client.clone(), namespace);
            maps.list(&ListParams::default()).await.map(|_| ())
        };
        assert_eq!(code(&list(namespace).await.unwrap_err()), 403);
        let rights = "
kind: Role
apiVersion: rbac.authorization.k8s.io/v1
metadata: {name: reader}
rules: [{apiGroups: [''], resources: [configmaps], verbs: [list]}]
---
kind: RoleBinding
apiVersion: rbac.authorization.k8s.io/v1
metadata: {name: reader}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: reader}
subjects: [{kind: ServiceAccount, name: orders}]
";
        // A dry run stores nothing, so a dry run of a grant grants nothing.
        let tried = kubernetes.dry_run(namespace, rights).await;
        assert_eq!(tried.unwrap().len(), 2);
        assert_eq!(code(&list(namespace).await.unwrap_err()), 403);
        kubernetes.apply(namespace, rights).await;
        found("granted", async || list(namespace).await.ok()).await;
        assert_eq!(code(&list(&other).await.unwrap_err()), 403);
    });
}

#[test]
fn a_pods_token_names_the_pod_and_expires_with_it() {
    in_namespace(async |kubernetes, namespace| {
        let pod = kubernetes.pod(namespace, "orders-0", &[], "default").await;
        let mut credentials = kubernetes.credentials(&pod).await;
        let client = kubernetes.client_as(&credentials);
        let user = whoami(&client).await.unwrap();
        let account = format!("system:serviceaccount:{namespace}:default");
        assert_eq!(user.username.as_deref(), Some(&*account));
        let extra: BTreeMap<_, _> = user.extra.unwrap_or_default();
        let named = |key: &str| extra[&format!("authentication.kubernetes.io/{key}")].clone();
        assert_eq!(named("pod-name"), ["orders-0"]);
        assert_eq!(named("pod-uid"), [pod.uid().unwrap()]);
        assert_eq!(named("node-name"), ["node-1"]);
        // This token is first used after the pod is deleted, so no cache of the API server contains
        // it.
        credentials.rotate().await;
        let unused = kubernetes.client_as(&credentials);
        kubernetes.delete_pod(namespace, "orders-0").await;
        for (what, client) in [("unused token", unused), ("used token", client)] {
            let refusal = found(what, async || whoami(&client).await.err()).await;
            assert_eq!(code(&refusal), 401);
        }
    });
}

#[test]
fn a_rotation_replaces_all_files_at_once() {
    in_namespace(async |kubernetes, namespace| {
        let pod = kubernetes.pod(namespace, "a", &[], "default").await;
        let mut credentials = kubernetes.credentials(&pod).await;
        let file = |name: &str| credentials.directory().join(name);
        assert_eq!(
            std::fs::read_to_string(file("namespace")).unwrap(),
            namespace
        );
        let authority = std::fs::read(kubernetes.authority()).unwrap();
        assert_eq!(std::fs::read(file("ca.crt")).unwrap(), authority);
        let (first, generation) = (credentials.token(), file("..data").canonicalize().unwrap());
        credentials.rotate().await;
        assert_ne!(credentials.token(), first);
        assert!(!generation.exists());
        let names = std::fs::read_dir(credentials.directory()).unwrap();
        let mut names: Vec<_> = names.map(|entry| entry.unwrap().file_name()).collect();
        names.sort_unstable();
        assert_eq!(
            names,
            ["..data", "..generation-2", "ca.crt", "namespace", "token"]
        );
        whoami(&kubernetes.client_as(&credentials)).await.unwrap();
        credentials.publish("not a token");
        let refused = whoami(&kubernetes.client_as(&credentials)).await;
        assert_eq!(code(&refused.unwrap_err()), 401);
    });
}

#[test]
fn endpoints_follow_a_label_and_readiness() {
    in_namespace(async |kubernetes, namespace| {
        let service = "
kind: Service
apiVersion: v1
metadata: {name: leader}
spec: {selector: {role: leader}, ports: [{port: 80}]}
";
        kubernetes.apply(namespace, service).await;
        let pod = async |name: &str, role: &str| {
            let labels = [("role", role)];
            kubernetes.pod(namespace, name, &labels, "default").await
        };
        let (leader, follower) = (pod("a", "leader").await, pod("b", "follower").await);
        let address = |pod: &Pod| pod.status.clone().unwrap().pod_ip.unwrap();
        assert_ne!(address(&leader), address(&follower));
        let slices: Api<EndpointSlice> = kubernetes.objects(namespace);
        let routed = async || {
            let slices = slices.list(&ListParams::default()).await.unwrap();
            let endpoints = slices.items.into_iter().flat_map(|slice| slice.endpoints);
            let ready = endpoints.filter(|endpoint| {
                endpoint.conditions.as_ref().and_then(|c| c.ready) == Some(true)
            });
            ready
                .flat_map(|endpoint| endpoint.addresses)
                .collect::<Vec<_>>()
        };
        let only = async |pod: &Pod| (routed().await == [address(pod)]).then_some(());
        found("routed to a", async || only(&leader).await).await;
        let pods: Api<Pod> = kubernetes.objects(namespace);
        let relabel = async |name: &str, role: &str| {
            let labels = json!({ "metadata": { "labels": { "role": role } } });
            pods.patch(name, &PatchParams::default(), &Patch::Merge(labels))
                .await
                .unwrap();
        };
        relabel("a", "follower").await;
        relabel("b", "leader").await;
        found("routed to b", async || only(&follower).await).await;
        let endpoints: Api<Endpoints> = kubernetes.objects(namespace);
        found("endpoints too", async || {
            let endpoints = endpoints.get_opt("leader").await.unwrap()?;
            let subset = endpoints.subsets?.into_iter().next()?;
            (subset.addresses?.first()?.ip == address(&follower)).then_some(())
        })
        .await;
        let report =
            json!({ "status": { "conditions": [{ "type": "Ready", "status": "False" }] } });
        let report = Patch::Strategic(report);
        pods.patch_status("b", &PatchParams::default(), &report)
            .await
            .unwrap();
        found("routed nowhere", async || {
            routed().await.is_empty().then_some(())
        })
        .await;
    });
}

#[test]
fn owned_objects_are_deleted_with_their_owner() {
    in_namespace(async |kubernetes, namespace| {
        let maps: Api<ConfigMap> = kubernetes.objects(namespace);
        let pod = kubernetes.pod(namespace, "a", &[], "default").await;
        let owned = format!(
            "{{kind: ConfigMap, apiVersion: v1, metadata: {{name: owned, ownerReferences: \
             [{{apiVersion: v1, kind: Pod, name: a, uid: {}}}]}}}}",
            pod.uid().unwrap()
        );
        kubernetes.apply(namespace, &owned).await;
        kubernetes.delete_pod(namespace, "a").await;
        found("owned object deleted", async || {
            maps.get_opt("owned").await.unwrap().is_none().then_some(())
        })
        .await;
    });
}

#[test]
fn a_deployment_makes_pods() {
    in_namespace(async |kubernetes, namespace| {
        let deployment = "
kind: Deployment
apiVersion: apps/v1
metadata: {name: orders}
spec:
  replicas: 2
  selector: {matchLabels: {app: orders}}
  template:
    metadata: {labels: {app: orders}}
    spec: {containers: [{name: workload, image: registry.example/workload:1}]}
";
        kubernetes.apply(namespace, deployment).await;
        let pods: Api<Pod> = kubernetes.objects(namespace);
        let of_it = ListParams::default().labels("app=orders");
        found("two pods", async || {
            (pods.list(&of_it).await.unwrap().items.len() == 2).then_some(())
        })
        .await;
    });
}

#[test]
fn validating_policies_are_enforced() {
    in_namespace(async |kubernetes, namespace| {
        let name = format!("{namespace}-short-names");
        let policy = format!(
            "
kind: ValidatingAdmissionPolicy
apiVersion: admissionregistration.k8s.io/v1
metadata: {{name: {name}}}
spec:
  matchConstraints:
    resourceRules: [{{apiGroups: [''], apiVersions: [v1], operations: [CREATE], resources: [configmaps]}}]
  validations: [{{expression: 'object.metadata.name.size() < 9', message: too long}}]
---
kind: ValidatingAdmissionPolicyBinding
apiVersion: admissionregistration.k8s.io/v1
metadata: {{name: {name}}}
spec:
  policyName: {name}
  validationActions: [Deny]
  matchResources: {{namespaceSelector: {{matchLabels: {{kubernetes.io/metadata.name: {namespace}}}}}}}
"
        );
        kubernetes.apply(namespace, &policy).await;
        let map =
            |name: &str| format!("{{kind: ConfigMap, apiVersion: v1, metadata: {{name: {name}}}}}");
        let refusal = found("denied", async || {
            kubernetes.dry_run(namespace, &map("long-name")).await.err()
        })
        .await;
        assert_eq!(code(&refusal), 422);
        assert!(refusal.to_string().contains("too long"), "{refusal}");
        kubernetes.apply(namespace, &map("short")).await;
    });
}

#[test]
fn mutating_policies_are_applied() {
    run(async {
        let kubernetes = Kubernetes::shared().await;
        let version = kubernetes.client().apiserver_version().await.unwrap();
        let minor = version.minor.trim_end_matches('+');
        if minor.parse::<u32>().unwrap() < 36 {
            println!("{} has no such policies yet", version.git_version);
            return;
        }
        let namespace = kubernetes.namespace().await;
        let name = format!("{namespace}-label");
        let policy = format!(
            "
kind: MutatingAdmissionPolicy
apiVersion: admissionregistration.k8s.io/v1
metadata: {{name: {name}}}
spec:
  matchConstraints:
    resourceRules: [{{apiGroups: [''], apiVersions: [v1], operations: [CREATE], resources: [configmaps]}}]
  reinvocationPolicy: Never
  mutations:
  - patchType: ApplyConfiguration
    applyConfiguration: {{expression: 'Object{{metadata: Object.metadata{{labels: {{\"added\": \"yes\"}}}}}}'}}
---
kind: MutatingAdmissionPolicyBinding
apiVersion: admissionregistration.k8s.io/v1
metadata: {{name: {name}}}
spec:
  policyName: {name}
  matchResources: {{namespaceSelector: {{matchLabels: {{kubernetes.io/metadata.name: {namespace}}}}}}}
"
        );
        kubernetes.apply(&namespace, &policy).await;
        let map = "{kind: ConfigMap, apiVersion: v1, metadata: {name: a}}";
        let maps: Api<ConfigMap> = kubernetes.objects(&namespace);
        found("changed", async || {
            let tried = kubernetes.dry_run(&namespace, map).await.unwrap();
            (tried[0].labels().get("added")? == "yes").then_some(())
        })
        .await;
        assert!(maps.get_opt("a").await.unwrap().is_none());
    });
}

#[test]
fn a_proxy_may_stand_in_front_and_cut() {
    run(async {
        let kubernetes = Kubernetes::shared().await;
        let proxy = kubernetes.proxy();
        let [(_, host), (_, port)] = kubernetes.environment_through(&proxy);
        assert_ne!(port, kubernetes.port().to_string());
        let namespace = kubernetes.namespace().await;
        let pod = kubernetes.pod(&namespace, "a", &[], "default").await;
        let credentials = kubernetes.credentials(&pod).await;
        let mut config = kube::Config::new(format!("https://{host}:{port}").parse().unwrap());
        config.root_cert_file = Some(credentials.directory().join("ca.crt"));
        config.auth_info.token_file = Some(credentials.token_file().display().to_string());
        let client = Client::try_from(config).unwrap();
        whoami(&client).await.unwrap();
        proxy.cut();
        assert!(!matches!(whoami(&client).await, Ok(_) | Err(Error::Api(_))));
        proxy.resume();
        whoami(&client).await.unwrap();
    });
}
