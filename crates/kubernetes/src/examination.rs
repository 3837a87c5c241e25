//! Examines what the token of this pod may do, without changing anything: by reviews of its own
//! access, and by patches that the API server evaluates and does not store.

use serde::Deserialize;
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
    /// The name, such as `system:serviceaccount:shop:orders`.
    pub name: String,
    /// The pod that the token is bound to, if any.
    pub pod: Option<String>,
}

/// A request that the API server did not grant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Refusal {
    /// Refused by an admission policy, as invalid, or because the right is missing.
    Policy,
    /// Not answered, or refused for another reason.
    Failed(String),
}

impl Right {
    /// Returns the rule of a Role, as verb and resource.
    pub const fn rule(self) -> &'static str {
        match self {
            Self::PatchPodStatus => "patch pods/status",
            Self::ListPods => "list pods",
            Self::CreateEvents => "create events.events.k8s.io",
            Self::PatchEvents => "patch events.events.k8s.io",
        }
    }

    fn attributes(self) -> Value {
        match self {
            Self::PatchPodStatus => {
                json!({ "verb": "patch", "resource": "pods", "subresource": "status" })
            }
            Self::ListPods => json!({ "verb": "list", "resource": "pods" }),
            Self::CreateEvents => {
                json!({ "verb": "create", "resource": "events", "group": "events.k8s.io" })
            }
            Self::PatchEvents => {
                json!({ "verb": "patch", "resource": "events", "group": "events.k8s.io" })
            }
        }
    }
}

impl Examiner {
    /// Creates an examiner for a pod. Each question uses a connection of its own, as publishing does.
    pub fn new(access: Access, pod: Pod, label_prefix: &str, who: &Identification) -> Self {
        Self::over(Api::new(access), pod, label_prefix, who)
    }

    /// Creates an examiner that uses this access.
    pub(super) fn over(api: Api, pod: Pod, label_prefix: &str, who: &Identification) -> Self {
        Self {
            api,
            requests: Requests::new(pod, label_prefix, who),
        }
    }

    /// Returns the user that the token belongs to.
    ///
    /// # Errors
    /// If the API server does not answer, or does not accept the token.
    pub async fn user(&self) -> Result<TokenUser, Refusal> {
        #[derive(Deserialize)]
        struct Review {
            status: Status,
        }
        #[derive(Deserialize)]
        struct Status {
            #[serde(rename = "userInfo")]
            user: Value,
        }
        let review: Review = parsed(&self.send(self.requests.token_review()).await?)?;
        let user = review.status.user;
        let pod = &user["extra"]["authentication.kubernetes.io/pod-name"][0];
        Ok(TokenUser {
            name: user["username"].as_str().unwrap_or_default().to_owned(),
            pod: pod.as_str().map(str::to_owned),
        })
    }

    /// Returns true if the token grants a right in the namespace of the pod.
    ///
    /// # Errors
    /// If the API server does not answer, or does not accept the token.
    pub async fn grants(&self, right: Right) -> Result<bool, Refusal> {
        #[derive(Deserialize)]
        struct Review {
            status: Status,
        }
        #[derive(Deserialize)]
        struct Status {
            allowed: bool,
        }
        let request = self.requests.access_review(&right.attributes());
        let review: Review = parsed(&self.send(request).await?)?;
        Ok(review.status.allowed)
    }

    /// Tries the patch of the pod's label.
    ///
    /// # Errors
    /// If the API server would refuse it.
    pub async fn try_label(&self) -> Result<(), Refusal> {
        let request = self.requests.label_dry_run(Label::Follower);
        self.send(request).await.map(drop)
    }

    /// Tries a patch of the pod that is not leasehold's to make. The token must have the right to
    /// patch the pod's status: without it, the API server refuses the patch in the same way.
    ///
    /// # Errors
    /// [`Refusal::Policy`] if an admission policy restricts the token, as it should.
    pub async fn try_more_than_the_label(&self) -> Result<(), Refusal> {
        let request = self.requests.annotation_dry_run();
        self.send(request).await.map(drop)
    }

    async fn send(&self, request: hyper::Request<Vec<u8>>) -> Result<Vec<u8>, Refusal> {
        let answer = self.api.send(request).await.map_err(|e| refusal(&e))?;
        Ok(answer.to_vec())
    }
}

/// Interprets a refusal. 403 is also the refusal of a token without the right: callers must ask
/// [`Examiner::grants`] first.
fn refusal(error: &ApiError) -> Refusal {
    match (error.status, error.retry) {
        (Some(403 | 422), ApiRetry::Person) => Refusal::Policy,
        _ => Refusal::Failed(error.to_string()),
    }
}

fn parsed<'a, T: Deserialize<'a>>(answer: &'a [u8]) -> Result<T, Refusal> {
    let unknown = |_| Refusal::Failed("the answer is not from an API server".to_owned());
    serde_json::from_slice(answer).map_err(unknown)
}
