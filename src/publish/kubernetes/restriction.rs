//! Verifies once, at the start, that an admission policy restricts the token of this pod.

use std::future::pending;
use std::io;
use std::time::Duration;

use tokio::time::timeout;
use tracing::{debug, error};

use super::examination::{Examiner, Refusal};
use super::reconciler::REQUEST_TIME_MAX;

/// Attempts before the policy counts as missing. helm creates policies after the pods, and an API
/// server applies a new policy some seconds after it was stored.
const ATTEMPTS: u32 = 4;

/// Interval between attempts.
const INTERVAL: Duration = Duration::from_secs(10);

/// Logs an error if no policy restricts the token. Then waits indefinitely, because the end of a
/// task is a fault.
pub(super) async fn verify(examiner: Examiner, lease: String) -> io::Result<()> {
    match restricted(&examiner, INTERVAL, REQUEST_TIME_MAX).await {
        Some(true) => debug!(%lease, "an admission policy restricts the token of this pod"),
        Some(false) => error!(
            %lease,
            "no admission policy restricts the token of this pod: it may change the status of every pod in the \
             namespace; install the ValidatingAdmissionPolicy of the chart (leasehold check shows details)"
        ),
        None => debug!(%lease, "admission policy not verified"),
    }
    pending().await
}

/// Tries, as a dry run, a change that a policy must refuse. Returns false if the last attempt was
/// accepted, and `None` if it was not answered within `answer_max`.
async fn restricted(examiner: &Examiner, interval: Duration, answer_max: Duration) -> Option<bool> {
    let mut answer = None;
    for attempt in 0..ATTEMPTS {
        if attempt > 0 {
            tokio::time::sleep(interval).await;
        }
        answer = match timeout(answer_max, examiner.try_more_than_the_label()).await {
            Ok(Err(Refusal::Policy)) => return Some(true),
            Ok(Err(Refusal::Failed(_))) | Err(_) => None,
            Ok(Ok(())) => Some(false),
        };
    }
    answer
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use hyper::{Request, Response};
    use kube::Client;
    use kube::client::Body;
    use tower::BoxError;
    use tower::util::service_fn;

    use super::super::api::Api;
    use super::super::request::Pod;
    use super::*;
    use crate::publish::fixture;

    const LONG: Duration = Duration::from_secs(30);

    async fn answered(statuses: &'static [u16]) -> Option<bool> {
        let asked = std::sync::Arc::new(AtomicUsize::new(0));
        let api = Api::over("https://api".to_owned(), move || {
            let status = statuses[asked.fetch_add(1, Ordering::SeqCst).min(statuses.len() - 1)];
            let service = service_fn(move |_: Request<Body>| async move {
                let answer = Response::builder().status(status);
                Ok::<_, BoxError>(answer.body(Body::empty()).unwrap())
            });
            Ok(Client::new(service, "shop"))
        });
        let pod = Pod::new("a", "shop", "1").unwrap();
        let examiner = Examiner::over(api, pod, "leasehold.dev", &fixture::who("me"));
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
        let examiner = Examiner::over(api, pod, "leasehold.dev", &fixture::who("me"));
        let moment = Duration::from_millis(1);
        let verified = timeout(LONG, restricted(&examiner, moment, moment)).await;
        assert_eq!(verified, Ok(None));
    }

    #[tokio::test]
    async fn a_policy_that_is_late_is_awaited_and_one_that_never_comes_is_missing() {
        assert_eq!(answered(&[403]).await, Some(true));
        assert_eq!(answered(&[200, 200, 422]).await, Some(true));
        assert_eq!(answered(&[200]).await, Some(false));
        assert_eq!(answered(&[500]).await, None);
    }
}
