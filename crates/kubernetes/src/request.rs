use std::fmt;

use hyper::header::{ACCEPT, CONTENT_TYPE};
use hyper::{Method, Request};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::api::Api;
use super::reconciler::Label;
use leasehold_status::render::Identification;

/// Maximum number of pods in one list. If more pods have a stale label, the task requests another
/// list.
pub(super) const PODS_MAX: usize = 20;
const NAME_LENGTH_MAX: usize = 253;
const FIELD_MANAGER: &str = "leasehold";
const JSON: &str = "application/json";
const MERGE_PATCH: &str = "application/merge-patch+json";
const DRY_RUN: &str = "&dryRun=All";
const METADATA_ONLY: &str = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1";
const METADATA_LIST_ONLY: &str = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1";

/// A name that is valid in the Kubernetes API, and thus safe as a part of a URL.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String")]
pub(super) struct Name(String);

impl TryFrom<String> for Name {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let alphanumeric = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
        let legal = |c: char| alphanumeric(c) || "-.".contains(c);
        if (1..=NAME_LENGTH_MAX).contains(&text.len())
            && text.chars().all(legal)
            && text.starts_with(alphanumeric)
            && text.ends_with(alphanumeric)
        {
            return Ok(Self(text));
        }
        let text: String = text.chars().take(NAME_LENGTH_MAX).collect();
        Err(format!(
            "{text:?} is not a valid Kubernetes name: expected lower-case letters, digits, \"-\" \
        and \".\", with a letter or digit at both ends"
        ))
    }
}

impl Name {
    pub(super) fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A pod.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Pod {
    name: Name,
    namespace: Name,
    uid: Name,
}

impl Pod {
    /// Creates a pod from the downward API's values. Rejects a name that would change the URL.
    pub fn new(name: &str, namespace: &str, uid: &str) -> Result<Self, String> {
        let checked = |what: &str, text: &str| {
            Name::try_from(text.to_owned()).map_err(|illegal| format!("{what} {illegal}"))
        };
        Ok(Self {
            name: checked("the pod's name", name)?,
            namespace: checked("the pod's namespace", namespace)?,
            uid: checked("the pod's uid", uid)?,
        })
    }
}

impl fmt::Display for Pod {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct OtherPod {
    pub(super) name: Name,
    uid: String,
    resource_version: String,
}

pub(super) struct Requests {
    pub(super) api: Api,
    pub(super) pod: Pod,
    pub(super) label_key: String,
    pub(super) identity: String,
}

impl Requests {
    pub(super) fn new(api: Api, pod: Pod, label_prefix: &str, who: &Identification) -> Self {
        Self {
            api,
            pod,
            label_key: format!("{label_prefix}/{}", who.lease),
            identity: who.identity.to_string(),
        }
    }

    pub(super) fn label(&self, label: Label) -> Request<Vec<u8>> {
        self.patch_own(self.labels(label), "")
    }

    pub(super) fn label_dry_run(&self, label: Label) -> Request<Vec<u8>> {
        self.patch_own(self.labels(label), DRY_RUN)
    }

    fn labels(&self, label: Label) -> Value {
        json!({ "labels": { &self.label_key: label.as_str() } })
    }

    /// Removes the leader label from another pod, unless the pod has changed since it was listed.
    pub(super) fn demotion(&self, other: &OtherPod) -> Request<Vec<u8>> {
        let mut metadata = self.labels(Label::Follower);
        metadata["resourceVersion"] = other.resource_version.as_str().into();
        self.patch_status(&other.name, &other.uid, metadata, "")
    }

    pub(super) fn leaders(&self) -> Request<Vec<u8>> {
        let (namespace, key) = (&self.pod.namespace, self.label_key.replace('/', "%2F"));
        let selector = format!("{key}%3D{}", Label::Leader.as_str());
        let query = format!("limit={PODS_MAX}&labelSelector={selector}");
        let uri = format!("/api/v1/namespaces/{namespace}/pods?{query}");
        Request::get(uri)
            .header(ACCEPT, METADATA_LIST_ONLY)
            .body(Vec::new())
            .expect("names were checked")
    }

    /// Parses a list of pods and omits this pod. Returns `None` if the list is invalid.
    pub(super) fn others(&self, list: &[u8]) -> Option<Vec<OtherPod>> {
        #[derive(Deserialize)]
        struct Item {
            metadata: OtherPod,
        }
        let mut list: Value = serde_json::from_slice(list).ok()?;
        let items = list.get_mut("items")?.take();
        // The API server writes an empty list as null.
        let items: Option<Vec<Item>> = serde_json::from_value(items).ok()?;
        let pods = items.into_iter().flatten().map(|item| item.metadata);
        let others = pods.filter(|pod| pod.uid != self.pod.uid.as_str());
        Some(others.collect())
    }

    pub(super) fn event(&self, object: &Value) -> Request<Vec<u8>> {
        let uri = self.events("");
        with_body(Method::POST, &uri, [METADATA_ONLY, JSON], object)
    }

    pub(super) fn event_again(&self, name: &str, series: &Value) -> Request<Vec<u8>> {
        let body = json!({ "series": series });
        let uri = self.events(&format!("/{name}"));
        with_body(Method::PATCH, &uri, [METADATA_ONLY, MERGE_PATCH], &body)
    }

    pub(super) fn regarding(&self) -> Value {
        let mut reference = json!(self.pod);
        reference["apiVersion"] = "v1".into();
        reference["kind"] = "Pod".into();
        reference
    }

    pub(super) fn event_metadata(&self, random: u64) -> Value {
        // Leave room for a dot and 16 digits.
        let name = self.pod.name.as_str().chars();
        let name: String = name.take(NAME_LENGTH_MAX - 17).collect();
        // Each part between dots must end with a letter or a digit.
        let name = name.trim_end_matches(['.', '-']);
        json!({ "name": format!("{name}.{random:016x}"), "namespace": self.pod.namespace })
    }

    pub(super) fn token_review(&self) -> Request<Vec<u8>> {
        review("authentication.k8s.io/v1/selfsubjectreviews", &json!({}))
    }

    pub(super) fn access_review(&self, mut access: Value) -> Request<Vec<u8>> {
        access["namespace"] = json!(self.pod.namespace);
        let body = json!({ "spec": { "resourceAttributes": access } });
        review("authorization.k8s.io/v1/selfsubjectaccessreviews", &body)
    }

    pub(super) fn annotation_dry_run(&self) -> Request<Vec<u8>> {
        let annotations = json!({ "annotations": { "leasehold.dev/check": "dry run" } });
        self.patch_own(annotations, DRY_RUN)
    }

    fn events(&self, rest: &str) -> String {
        let namespace = &self.pod.namespace;
        let events = format!("/apis/events.k8s.io/v1/namespaces/{namespace}/events");
        format!("{events}{rest}?fieldManager={FIELD_MANAGER}")
    }

    fn patch_own(&self, metadata: Value, option: &str) -> Request<Vec<u8>> {
        let Pod { name, uid, .. } = &self.pod;
        self.patch_status(name, uid.as_str(), metadata, option)
    }

    /// Patches `pods/status`, because the right to do so permits setting labels but not changing
    /// images. The uid keeps the patch from changing a later pod with the same name.
    fn patch_status(
        &self,
        name: &Name,
        uid: &str,
        mut metadata: Value,
        option: &str,
    ) -> Request<Vec<u8>> {
        metadata["uid"] = uid.into();
        let namespace = &self.pod.namespace;
        let status = format!("/api/v1/namespaces/{namespace}/pods/{name}/status");
        let uri = format!("{status}?fieldManager={FIELD_MANAGER}{option}");
        let body = json!({ "metadata": metadata });
        with_body(Method::PATCH, &uri, [METADATA_ONLY, MERGE_PATCH], &body)
    }
}

fn with_body(
    method: Method,
    uri: &str,
    [accept, content_type]: [&str; 2],
    body: &Value,
) -> Request<Vec<u8>> {
    Request::builder()
        .method(method)
        .uri(uri)
        .header(ACCEPT, accept)
        .header(CONTENT_TYPE, content_type)
        .body(body.to_string().into_bytes())
        .expect("names were checked")
}

fn review(resource: &str, body: &Value) -> Request<Vec<u8>> {
    let uri = format!("/apis/{resource}");
    with_body(Method::POST, &uri, [JSON, JSON], body)
}

#[cfg(test)]
mod tests;
