//! Examines the rights of this pod's token, with access reviews and dry runs.

use serde_json::{Value, json};

use super::access::Access;
use super::api::{Api, ApiError, ApiRetry};
use super::reconciler::Label;
use super::request::{Pod, Requests};
use leasehold_status::render::Identification;

/// Asks the API server about the token of one pod.
pub struct Examiner {
    api: Api,
    requests: Requests,
}

/// A right that publishing needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Right {
    /// Setting the label of this pod.
    PatchPodStatus,
    /// Finding other pods that say leader.
    ListPods,
    /// Reporting Events.
    CreateEvents,
    /// Reporting repeated Events.
    PatchEvents,
}

/// The user that a token belongs to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TokenUser {
    /// Such as `system:serviceaccount:shop:orders`.
    pub name: String,
    /// The pod that the token is bound to, if any.
    pub pod: Option<String>,
}

/// A failed request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Refusal {
    /// Refused by an admission policy or as invalid, or the right is missing.
    Policy,
    /// Refused for another reason, or not answered.
    Failed(String),
}

impl Right {
    /// Returns the verb and resource in the rule of a Role.
    pub const fn rule(self) -> &'static str {
        match self {
            Self::PatchPodStatus => "patch pods/status",
            Self::ListPods => "list pods",
            Self::CreateEvents => "create events.events.k8s.io",
            Self::PatchEvents => "patch events.events.k8s.io",
        }
    }

    fn attributes(self) -> Value {
        let (verb, resource, subresource, group) = match self {
            Self::PatchPodStatus => ("patch", "pods", "status", ""),
            Self::ListPods => ("list", "pods", "", ""),
            Self::CreateEvents => ("create", "events", "", "events.k8s.io"),
            Self::PatchEvents => ("patch", "events", "", "events.k8s.io"),
        };
        json!({ "verb": verb, "resource": resource, "subresource": subresource, "group": group })
    }
}

impl Examiner {
    /// Creates an examiner for a pod.
    pub fn new(access: Access, pod: Pod, label_prefix: &str, who: &Identification) -> Self {
        Self::over(Api::new(access), pod, label_prefix, who)
    }

    pub(super) fn over(api: Api, pod: Pod, label_prefix: &str, who: &Identification) -> Self {
        Self {
            api,
            requests: Requests::new(pod, label_prefix, who),
        }
    }

    /// Returns the user that the token belongs to.
    pub async fn user(&self) -> Result<TokenUser, Refusal> {
        let user = self
            .review(self.requests.token_review(), "userInfo")
            .await?;
        let pod = &user["extra"]["authentication.kubernetes.io/pod-name"][0];
        Ok(TokenUser {
            name: user["username"].as_str().unwrap_or_default().to_owned(),
            pod: pod.as_str().map(str::to_owned),
        })
    }

    /// Returns true if the token grants a right in the namespace of the pod.
    pub async fn grants(&self, right: Right) -> Result<bool, Refusal> {
        let request = self.requests.access_review(right.attributes());
        let allowed = self.review(request, "allowed").await?;
        allowed.as_bool().ok_or_else(unknown)
    }

    /// Tries to patch the pod's label, as a dry run.
    pub async fn try_label(&self) -> Result<(), Refusal> {
        let request = self.requests.label_dry_run(Label::Follower);
        self.api.send(request).await.map(drop).map_err(refusal)
    }

    /// Tries to annotate the pod, as a dry run, which the chart's admission policy refuses
    /// ([`Refusal::Policy`]). The API server also refuses it if the right to patch the pod's status is
    /// missing, so ask [`Examiner::grants`] first.
    pub async fn try_more_than_the_label(&self) -> Result<(), Refusal> {
        let request = self.requests.annotation_dry_run();
        self.api.send(request).await.map(drop).map_err(refusal)
    }

    /// Returns a field of the status of a review.
    async fn review(
        &self,
        request: hyper::Request<Vec<u8>>,
        field: &str,
    ) -> Result<Value, Refusal> {
        let answer = self.api.send(request).await.map_err(refusal)?;
        let review: Value = serde_json::from_slice(&answer).unwrap_or_default();
        review["status"].get(field).cloned().ok_or_else(unknown)
    }
}

fn unknown() -> Refusal {
    Refusal::Failed("the answer is not from an API server".to_owned())
}

fn refusal(error: ApiError) -> Refusal {
    match (error.status, error.retry) {
        (Some(403 | 422), ApiRetry::Person) => Refusal::Policy,
        _ => Refusal::Failed(error.to_string()),
    }
}
