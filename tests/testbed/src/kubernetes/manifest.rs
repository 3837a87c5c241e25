//! Applies YAML manifests with several documents, as users write them.

use kube::api::{Api, ApiResource, DynamicObject, Patch, PatchParams};
use kube::core::GroupVersionKind;
use kube::discovery::{self, Scope};
use kube::{Client, Error};
use serde_json::Value;

const FIELD_MANAGER: &str = "leasehold-testbed";

pub(super) async fn apply(
    client: &Client,
    namespace: &str,
    yaml: &str,
    dry_run: bool,
) -> Result<Vec<DynamicObject>, Error> {
    let mut parameters = PatchParams::apply(FIELD_MANAGER).force();
    parameters.dry_run = dry_run;
    let mut applied = Vec::new();
    for object in objects(yaml) {
        let types = object.types.as_ref().expect("a manifest names its kind");
        let kind = GroupVersionKind::try_from(types).expect("a manifest names its version");
        // Discover each kind separately, because an earlier document may define the kind of a later
        // document.
        let (resource, capabilities) = discovery::pinned_kind(client, &kind).await?;
        let namespace = match capabilities.scope {
            Scope::Cluster => None,
            Scope::Namespaced => Some(object.metadata.namespace.as_deref().unwrap_or(namespace)),
        };
        let api = api(client, namespace, &resource);
        let name = object.metadata.name.as_deref();
        let name = name.expect("a manifest names its object");
        let patch = Patch::Apply(&object);
        applied.push(api.patch(name, &parameters, &patch).await?);
    }
    Ok(applied)
}

fn api(client: &Client, namespace: Option<&str>, resource: &ApiResource) -> Api<DynamicObject> {
    match namespace {
        None => Api::all_with(client.clone(), resource),
        Some(namespace) => Api::namespaced_with(client.clone(), namespace, resource),
    }
}

/// Returns the documents, except those that contain only comments.
fn objects(yaml: &str) -> Vec<DynamicObject> {
    // Kubernetes reads YAML 1.1, where 0644 is octal.
    let options = serde_saphyr::options! { legacy_octal_numbers: true };
    let documents: Vec<Value> = serde_saphyr::from_multiple_with_options(yaml, options)
        .unwrap_or_else(|error| panic!("manifest: {error}\n{yaml}"));
    let objects = documents.into_iter().map(|document| {
        serde_json::from_value(document).unwrap_or_else(|error| panic!("manifest: {error}\n{yaml}"))
    });
    objects.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn empty_documents_are_skipped_and_modes_are_octal() {
        let yaml = "# a chart's first line\n---\n---\nkind: ConfigMap\napiVersion: v1\n\
                    metadata: {name: a}\nmode: 0644\n---\n# nothing\n---\n\
                    kind: Role\napiVersion: rbac.authorization.k8s.io/v1\nmetadata: {name: b}\n";
        let objects = objects(yaml);
        let names: Vec<_> = objects.iter().map(|o| o.metadata.name.clone()).collect();
        assert_eq!(names, [Some("a".to_owned()), Some("b".to_owned())]);
        assert_eq!(objects[0].data["mode"], 0o644);
    }
}
