//! Examines the rights of this pod's token with access reviews and dry runs. At startup, verifies
//! that an admission policy restricts the token.

use std::future::pending;
use std::io;
use std::time::Duration;

use hyper::body::Bytes;
use serde_json::{Value, json};
use tokio::time::{sleep, timeout};
use tracing::{debug, error};

use super::api::{Api, ApiError, ApiRetry};
use super::reconciler::{Label, REQUEST_TIME_MAX};
use super::request::{Pod, Requests};
use leasehold_status::render::Identification;

/// Asks the API server about the token of one pod.
pub struct Examiner {
    requests: Requests,
}

/// A right that publishing needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Right {
    /// Setting the label of this pod.
    PatchPodStatus,
    /// Finding other pods with the leader label.
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
    /// A policy refused the request, the request was invalid, or the right is missing.
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
    pub fn new(api: Api, pod: Pod, label_prefix: &str, who: &Identification) -> Self {
        let requests = Requests::new(api, pod, label_prefix, who);
        Self { requests }
    }

    /// Returns the user that the token belongs to.
    pub async fn user(&self) -> Result<TokenUser, Refusal> {
        let request = self.requests.token_review();
        let user = self.review(request, "userInfo").await?;
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
        self.send(request).await.map(drop)
    }

    /// Tries to annotate the pod, as a dry run. Call [`Examiner::grants`] first, because a missing
    /// right and the chart's admission policy both cause [`Refusal::Policy`].
    pub async fn try_more_than_the_label(&self) -> Result<(), Refusal> {
        let request = self.requests.annotation_dry_run();
        self.send(request).await.map(drop)
    }

    async fn send(&self, request: hyper::Request<Vec<u8>>) -> Result<Bytes, Refusal> {
        self.requests.api.send(request).await.map_err(refusal)
    }

    async fn review(
        &self,
        request: hyper::Request<Vec<u8>>,
        field: &str,
    ) -> Result<Value, Refusal> {
        let answer = self.send(request).await?;
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

/// Maximum number of dry runs. Helm creates the policy after the pods, and an API server applies the
/// policy some seconds later, so the first dry runs may be accepted.
const ATTEMPTS: u32 = 4;
const INTERVAL: Duration = Duration::from_secs(10);
/// Longest interval while the Role is missing, as a multiple of [`INTERVAL`].
const UNGRANTED_FACTOR_MAX: u32 = 6;

/// Logs an error if no policy restricts the token. Never returns, because the end of a task counts
/// as a failure.
pub(super) async fn verify(examiner: Examiner, lease: String) -> io::Result<()> {
    match restricted(&examiner, INTERVAL, REQUEST_TIME_MAX).await {
        Some(true) => debug!(%lease, "an admission policy restricts the token of this pod"),
        Some(false) => error!(
            %lease,
            "no admission policy restricts the token of this pod; to fix: install the chart's \
             ValidatingAdmissionPolicy (leasehold check shows details)"
        ),
        None => debug!(%lease, "admission policy not verified"),
    }
    pending().await
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum GrantedChange {
    /// No change, because the Role or its binding is missing.
    Nothing,
    /// Changes to the status of pods, restricted by an admission policy.
    Restricted,
    /// Any change to the status of any pod in the namespace.
    Unrestricted,
}

/// Waits for the right to patch pods, then makes at most [`ATTEMPTS`] dry runs. Returns true once a
/// policy restricts the token, false if the last dry run was accepted, and `None` if the last dry
/// run failed.
async fn restricted(examiner: &Examiner, interval: Duration, answer_max: Duration) -> Option<bool> {
    let mut attempts = 0;
    let mut until_granted = interval;
    loop {
        let examined = timeout(answer_max, examine(examiner)).await;
        let granted = examined.ok().and_then(Result::ok);
        match granted {
            Some(GrantedChange::Restricted) => return Some(true),
            Some(GrantedChange::Nothing) => {
                debug!("admission policy not verified yet: patch pods/status is not granted");
                sleep(until_granted).await;
                until_granted = (2 * until_granted).min(UNGRANTED_FACTOR_MAX * interval);
                continue;
            }
            Some(GrantedChange::Unrestricted) | None => attempts += 1,
        }
        if attempts >= ATTEMPTS {
            return granted.map(|_| false);
        }
        sleep(interval).await;
    }
}

async fn examine(examiner: &Examiner) -> Result<GrantedChange, Refusal> {
    if !examiner.grants(Right::PatchPodStatus).await? {
        return Ok(GrantedChange::Nothing);
    }
    match examiner.try_more_than_the_label().await {
        Ok(()) => Ok(GrantedChange::Unrestricted),
        Err(Refusal::Policy) => Ok(GrantedChange::Restricted),
        Err(failed) => Err(failed),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use hyper::{Request, Response};
    use kube::Client;
    use kube::client::Body;
    use tower::BoxError;
    use tower::util::service_fn;

    use super::*;
    use leasehold_metrics::fixture;

    const LONG: Duration = Duration::from_secs(30);

    /// The API server answers each access review with the next element of `granted`, and each patch
    /// with the next element of `statuses`. After the last element of a list, every further answer
    /// repeats it.
    async fn answered(granted: &'static [bool], statuses: &'static [u16]) -> Option<bool> {
        let counters = Arc::new([AtomicUsize::new(0), AtomicUsize::new(0)]);
        let api = Api::over("https://api".to_owned(), move || {
            let counters = Arc::clone(&counters);
            let service = service_fn(move |request: Request<Body>| {
                let next = |counter: usize, length: usize| {
                    counters[counter]
                        .fetch_add(1, Ordering::SeqCst)
                        .min(length - 1)
                };
                let (status, body) = if request.uri().path().ends_with("accessreviews") {
                    let allowed = granted[next(0, granted.len())];
                    (201, json!({ "status": { "allowed": allowed } }).to_string())
                } else {
                    (statuses[next(1, statuses.len())], String::new())
                };
                let answer = Response::builder().status(status);
                let answer = answer.body(Body::from(body.into_bytes()));
                async move { Ok::<_, BoxError>(answer.unwrap()) }
            });
            Ok(Client::new(service, "shop"))
        });
        let pod = Pod::new("a", "shop", "1").unwrap();
        let examiner = Examiner::new(api, pod, "leasehold.dev", &fixture::who("me"));
        restricted(&examiner, Duration::from_millis(1), LONG).await
    }

    #[tokio::test]
    async fn a_server_that_never_answers_is_not_waited_for() {
        let api = Api::over("https://api".to_owned(), || {
            let service = service_fn(|_: Request<Body>| {
                std::future::pending::<Result<Response<Body>, BoxError>>()
            });
            Ok(Client::new(service, "shop"))
        });
        let pod = Pod::new("a", "shop", "1").unwrap();
        let examiner = Examiner::new(api, pod, "leasehold.dev", &fixture::who("me"));
        let moment = Duration::from_millis(1);
        let verified = timeout(LONG, restricted(&examiner, moment, moment)).await;
        assert_eq!(verified, Ok(None));
    }

    #[tokio::test]
    async fn a_policy_that_is_late_is_awaited_and_one_that_never_comes_is_missing() {
        let granted = &[true];
        assert_eq!(answered(granted, &[403]).await, Some(true));
        assert_eq!(answered(granted, &[200, 200, 422]).await, Some(true));
        assert_eq!(answered(granted, &[200]).await, Some(false));
        assert_eq!(answered(granted, &[500]).await, None);
    }

    #[tokio::test]
    async fn a_missing_right_is_not_taken_for_a_policy() {
        // More than `ATTEMPTS` access reviews find that the right is missing.
        let late = &[false, false, false, false, false, false, true];
        assert_eq!(answered(late, &[200]).await, Some(false));
        assert_eq!(answered(late, &[403]).await, Some(true));
        let never = timeout(Duration::from_millis(200), answered(&[false], &[403]));
        assert!(never.await.is_err(), "the right is awaited");
    }
}
