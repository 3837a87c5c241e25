//! Goal: a workload that uses the API server itself gets exactly the permissions of the values, and
//! the policies still restrict its token. Method: renders the documented values, installs them on a
//! real API server, and sends requests with the pod's token.

use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use k8s_openapi::api::events::v1::Event;
use kube::Api;
use kube::api::PostParams;
use leasehold_testbed::run;
use leasehold_testbed::wait::found;
use serde_json::{Value, json};

use crate::cluster::{Installed, patch_status};
use crate::documented::documented;
use crate::helm::{Objects, refused};
use crate::policy::rights as rights_of;

const RULES: &str =
    r#"leasehold.rbac.extraRules=[{"apiGroups":[""],"resources":["configmaps"],"verbs":["get"]}]"#;
const TOKEN: &str = "/var/run/secrets/kubernetes.io/serviceaccount";

fn rules(objects: &Objects) -> Vec<Value> {
    let role = objects.find("Role");
    role.map_or(vec![], |role| role["rules"].as_array().unwrap().clone())
}

#[test]
fn additional_rules_follow_the_rules_of_leasehold_or_stand_alone() {
    let extra = [json!({"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get"]})];
    let own = rules(&Objects::of("minimal", &[]));
    let with = rules(&Objects::of("minimal", &[RULES]));
    assert_eq!(with, [&own[..], &extra].concat());
    // Without labels and with a lock, leasehold needs no permission.
    let unlabelled = ["leasehold.kubernetes.enabled=false", RULES];
    for objects in [
        Objects::of("minimal", &unlabelled),
        Objects::of("cron-job", &[RULES]),
    ] {
        assert_eq!(rules(&objects), extra);
        let account = &objects.pod()["serviceAccountName"];
        let binding = objects.one("RoleBinding");
        assert_eq!(binding["subjects"][0]["name"], *account);
    }
    for installation in ["cron-job", "unlabelled"] {
        let none = Objects::of(installation, &[]);
        assert_eq!(rules(&none), Vec::<Value>::new(), "{installation}");
    }
    let pod = Objects::of("minimal", &[]);
    assert_eq!(pod.pod()["automountServiceAccountToken"], false);
    refused(
        r#"
        minimal: leasehold.rbac={"create":false,"extraRules":[{"apiGroups":[""],"resources":["pods"],"verbs":["get"]}]}
            leasehold.rbac.extraRules: leasehold.rbac.create is false
            let the administrator put them into the Role

        minimal: leasehold.rbac.extraRules=[{"apiGroup":"","resources":["pods"],"verbs":["get"]}]
            '/leasehold/rbac/extraRules/0'

        minimal: leasehold.rbac.rules=[]
            'rules' not allowed

        minimal: leasehold.serviceAccount.automountServiceAccountToken="yes"
            '/leasehold/serviceAccount/automountServiceAccountToken'
        "#,
    );
}

#[test]
fn the_documented_cluster_role_is_bound_to_the_account_of_the_pods() {
    let objects = documented("operator.yaml", Some("minimal"));
    let subject = &objects.one("ClusterRoleBinding")["subjects"][0];
    assert_eq!(subject["name"], objects.pod()["serviceAccountName"]);
    assert_eq!(subject["namespace"], "shop");
    assert_eq!(objects.pod()["automountServiceAccountToken"], true);
}

fn mounted(pod: &Pod, container: &str) -> usize {
    let spec = pod.spec.as_ref().unwrap();
    let all = spec
        .containers
        .iter()
        .chain(spec.init_containers.iter().flatten());
    let container = all.into_iter().find(|it| it.name == container).unwrap();
    let mounts = container.volume_mounts.iter().flatten();
    mounts.filter(|mount| mount.mount_path == TOKEN).count()
}

#[test]
fn the_token_of_an_operator_has_its_rules_and_the_policies_restrict_it() {
    run(async {
        for rights in ["leasehold.rights=release", "leasehold.rights=cluster"] {
            let (page, file) = ("docs/kubernetes.md", "operator.yaml");
            let installed = Installed::documented(page, file, "minimal", rights).await;
            let pod = installed.pod("own").await;
            installed.pod("other").await;
            // The workload has the automatic token. The sidecar keeps its own.
            assert_eq!(mounted(&pod, "workload"), 1);
            assert_eq!(mounted(&pod, "leasehold"), 1);
            let client = installed.client_of(&pod).await;
            found("the permissions take effect", async || {
                let found = rights_of(client.clone(), &installed.namespace).await;
                let all = ["create configmaps", "list nodes", "patch pods/status"];
                let has = |right: &&str| found.iter().any(|it| it == right);
                all.iter().all(has).then_some(())
            })
            .await;
            let maps: Api<ConfigMap> = Api::namespaced(client.clone(), &installed.namespace);
            let map = json!({"metadata": {"name": "state"}});
            let map: ConfigMap = serde_json::from_value(map).unwrap();
            let map = maps.create(&PostParams::default(), &map).await.unwrap();

            let pods = installed.pods(client.clone());
            let annotated = json!({"metadata": {"annotations": {"a": "b"}}});
            found("the policy takes effect", async || {
                let refused = patch_status(&pods, "other", annotated.clone(), true).await;
                let refused = refused.err()?;
                refused.contains("ValidatingAdmissionPolicy").then_some(())
            })
            .await;

            let about = json!({
                "apiVersion": "v1", "kind": "ConfigMap", "name": map.metadata.name,
                "namespace": installed.namespace, "uid": map.metadata.uid,
            });
            let core = json!({
                "metadata": {"name": "state.1"}, "involvedObject": about, "reason": "Synced",
                "message": "synced", "type": "Normal", "source": {"component": "orders"},
            });
            let core: k8s_openapi::api::core::v1::Event = serde_json::from_value(core).unwrap();
            let events: Api<k8s_openapi::api::core::v1::Event> =
                Api::namespaced(client.clone(), &installed.namespace);
            events.create(&PostParams::default(), &core).await.unwrap();
            // The policy for Events applies to the group that leasehold uses.
            let new = json!({
                "metadata": {"name": "state.2"}, "regarding": about, "reason": "Synced",
                "action": "Sync", "type": "Normal", "reportingController": "orders",
                "reportingInstance": "own", "eventTime": "2026-01-01T00:00:00.000000Z",
            });
            let new: Event = serde_json::from_value(new).unwrap();
            let events: Api<Event> = Api::namespaced(client, &installed.namespace);
            found("the policy for Events takes effect", async || {
                let parameters = PostParams {
                    dry_run: true,
                    ..PostParams::default()
                };
                let refused = events.create(&parameters, &new).await.err()?;
                refused.to_string().contains("reports only").then_some(())
            })
            .await;
        }
    });
}
