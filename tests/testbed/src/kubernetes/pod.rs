//! Creates pods, and reports their status like a kubelet.

use k8s_openapi::api::core::v1::{Container, Pod, PodSpec};
use kube::ResourceExt;
use kube::api::{Api, ObjectMeta, Patch, PatchParams};
use serde_json::json;

const CONTAINER: &str = "workload";
const IMAGE: &str = "registry.example/workload:1";
/// Number of hosts in a /24, without the network and broadcast addresses.
const ADDRESSES_IN_NETWORK: u32 = 254;

pub(super) fn on_node(
    node: &str,
    name: &str,
    labels: &[(&str, &str)],
    service_account: &str,
) -> Pod {
    let labels = labels
        .iter()
        .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()));
    Pod {
        metadata: ObjectMeta {
            name: Some(name.to_owned()),
            labels: Some(labels.collect()),
            ..ObjectMeta::default()
        },
        spec: Some(PodSpec {
            node_name: Some(node.to_owned()),
            service_account_name: Some(service_account.to_owned()),
            // No kubelet mounts the token; the test requests the credentials instead.
            automount_service_account_token: Some(false),
            containers: vec![Container {
                name: CONTAINER.to_owned(),
                image: Some(IMAGE.to_owned()),
                ..Container::default()
            }],
            ..PodSpec::default()
        }),
        ..Pod::default()
    }
}

pub(super) async fn report_running(
    pods: &Api<Pod>,
    pod: &Pod,
    address: &str,
) -> Result<Pod, kube::Error> {
    let conditions = ["PodScheduled", "Initialized", "ContainersReady", "Ready"]
        .map(|kind| json!({ "type": kind, "status": "True" }));
    let containers = pod.spec.iter().flat_map(|spec| &spec.containers);
    let statuses = containers.map(|container| {
        let image = container.image.as_deref().unwrap_or_default();
        json!({
            "name": container.name, "image": image, "imageID": image, "restartCount": 0,
            "ready": true, "started": true, "state": { "running": {} },
        })
    });
    let report = json!({ "status": {
        "phase": "Running",
        "conditions": conditions,
        "podIP": address,
        "podIPs": [{ "ip": address }],
        "containerStatuses": statuses.collect::<Vec<_>>(),
    }});
    let parameters = PatchParams::default();
    pods.patch_status(&pod.name_any(), &parameters, &Patch::Strategic(report))
        .await
}

pub(super) fn address(number: u32) -> String {
    let network = number / ADDRESSES_IN_NETWORK;
    let host = number % ADDRESSES_IN_NETWORK + 1;
    assert!(network < 256, "the pods' network is full");
    format!("10.244.{network}.{host}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_those_of_hosts_and_differ() {
        assert_eq!(address(0), "10.244.0.1");
        assert_eq!(address(253), "10.244.0.254");
        assert_eq!(address(254), "10.244.1.1");
    }
}
