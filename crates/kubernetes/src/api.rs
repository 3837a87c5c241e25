use std::error::Error;
use std::sync::Arc;
use std::time::Duration;
use std::{fmt, io};

use http_body_util::{BodyExt, Limited};
use hyper::body::Bytes;
use hyper::header::RETRY_AFTER;
use hyper::{HeaderMap, Request, StatusCode};
use kube::Client;
use kube::client::Body;
use rustls::CertificateError;
use serde_json::Value;
use tokio::sync::Semaphore;

use super::access::{Access, Unusable};
use super::reconciler::REQUEST_TIME_MAX;
use leasehold_host::cause::cause;

/// Large enough for the metadata of 20 pods with many labels, annotations and managed fields.
const ANSWER_BYTES_MAX: usize = 2 * 1024 * 1024;

/// The API server, accessed with the rights of this pod.
pub struct Api {
    connect: Arc<dyn Fn() -> Result<Client, Unusable> + Send + Sync>,
    server: String,
    /// Held while the credentials are read, so that at most one thread waits for a hanging disk.
    reading: Arc<Semaphore>,
}

/// A failed request. Omits the server's text, which may contain anything.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ApiError {
    pub(super) what: &'static str,
    pub(super) detail: Option<String>,
    pub(super) status: Option<u16>,
    /// True if the request may have taken effect, or may still do so.
    pub(super) may_land: bool,
    pub(super) retry: ApiRetry,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ApiRetry {
    Again,
    /// Retry after this wait, as the API server requested.
    After(Duration),
    /// An administrator must grant a right or change a policy.
    Person,
    /// No retry, because the pod no longer exists.
    NewPod,
}

impl ApiError {
    pub(super) const NO_ANSWER: Self = Self {
        what: "no answer in time",
        detail: None,
        status: None,
        may_land: true,
        retry: ApiRetry::Again,
    };

    const fn unsent(what: &'static str, detail: Option<String>) -> Self {
        Self {
            what,
            detail,
            status: None,
            may_land: false,
            retry: ApiRetry::Again,
        }
    }
}

impl fmt::Display for ApiError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.what)?;
        if let Some(detail) = &self.detail {
            write!(f, ": {detail}")?;
        }
        match self.status {
            Some(status) => write!(f, " (HTTP {status})"),
            None => Ok(()),
        }
    }
}

impl Api {
    /// Creates a client for the server in `access`. Each request opens its own connection.
    pub fn new(access: Access) -> Self {
        let server = access.server.clone();
        Self::over(server, move || access.client())
    }

    /// Creates a client for `server`; `connect` builds the HTTP client of each request.
    pub fn over(
        server: String,
        connect: impl Fn() -> Result<Client, Unusable> + Send + Sync + 'static,
    ) -> Self {
        Self {
            connect: Arc::new(connect),
            server,
            reading: Arc::new(Semaphore::new(1)),
        }
    }

    pub(super) fn server(&self) -> &str {
        &self.server
    }

    /// Builds a client outside the event loop, because a hanging disk would block it.
    async fn client(&self) -> Result<Client, ApiError> {
        const SHUT_DOWN: ApiError = ApiError::unsent("the daemon is shutting down", None);
        let reading = Arc::clone(&self.reading).acquire_owned().await;
        let reading = reading.map_err(|_| SHUT_DOWN)?;
        let connect = Arc::clone(&self.connect);
        #[allow(
            clippy::disallowed_methods,
            reason = "the thread ends when the client is ready"
        )]
        let made = tokio::task::spawn_blocking(move || {
            let _reading = reading;
            connect()
        });
        match made.await {
            Ok(made) => made.map_err(|Unusable { what, why }| ApiError::unsent(what, Some(why))),
            Err(error) => match error.try_into_panic() {
                Ok(panic) => std::panic::resume_unwind(panic),
                Err(_) => Err(SHUT_DOWN),
            },
        }
    }

    pub(super) async fn send_in_time(&self, request: Request<Vec<u8>>) -> Result<Bytes, ApiError> {
        let answer = tokio::time::timeout(REQUEST_TIME_MAX, self.send(request)).await;
        answer.unwrap_or(Err(ApiError::NO_ANSWER))
    }

    /// Sends a request. Dropping the future cancels the request and closes its connection.
    pub(super) async fn send(&self, request: Request<Vec<u8>>) -> Result<Bytes, ApiError> {
        let client = self.client().await?;
        let sending = client.send(request.map(Body::from));
        let answer = sending.await.map_err(|e| unanswered(&e))?;
        let (head, body) = answer.into_parts();
        let body = Limited::new(body, ANSWER_BYTES_MAX).collect().await;
        if !head.status.is_success() {
            let body = body.map(|body| body.to_bytes()).unwrap_or_default();
            return Err(refused(head.status, &head.headers, &body));
        }
        // A truncated body is ignored, because the status already reports success.
        Ok(body.map(|body| body.to_bytes()).unwrap_or_default())
    }
}

fn unanswered(error: &kube::Error) -> ApiError {
    use hyper_util::client::legacy::Error as ClientError;

    match error {
        kube::Error::Service(error)
            if error.downcast_ref().is_some_and(ClientError::is_connect) =>
        {
            if let Some(error) = source::<rustls::Error>(&**error) {
                return ApiError::unsent(untrusted(error), None);
            }
            let why = source::<io::Error>(&**error).map(cause);
            ApiError::unsent("the API server cannot be reached", why)
        }
        _ => ApiError {
            what: "the connection to the API server was lost",
            ..ApiError::NO_ANSWER
        },
    }
}

/// Returns the innermost error of this type among the causes of `error`.
fn source<'a, E: Error + 'static>(error: &'a (dyn Error + 'static)) -> Option<&'a E> {
    let mut found = None;
    let mut next = Some(error);
    while let Some(error) = next {
        found = error.downcast_ref().or(found);
        next = match error.downcast_ref::<io::Error>() {
            // `io::Error::source` skips the inner error.
            Some(error) => error.get_ref().map(|held| held as _),
            None => error.source(),
        };
    }
    found
}

fn untrusted(error: &rustls::Error) -> &'static str {
    let rustls::Error::InvalidCertificate(error) = error else {
        return "the TLS handshake with the API server failed";
    };
    match error {
        CertificateError::UnknownIssuer | CertificateError::BadSignature => {
            "the certificate of the API server is not signed by an authority in ca.crt"
        }
        CertificateError::Expired | CertificateError::ExpiredContext { .. } => {
            "the certificate of the API server has expired, or this machine's clock is wrong"
        }
        CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => {
            "the certificate of the API server is not valid yet, or this machine's clock is wrong"
        }
        CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => {
            "the certificate of the API server is for another name"
        }
        _ => "the certificate of the API server is not accepted",
    }
}

fn refused(status: StatusCode, headers: &HeaderMap, body: &[u8]) -> ApiError {
    let retry_after = headers
        .get(RETRY_AFTER)
        .and_then(|value| value.to_str().ok()?.trim().parse().ok())
        .map(Duration::from_secs);
    let wait = retry_after.map_or(ApiRetry::Again, ApiRetry::After);
    let (what, retry) = match status {
        StatusCode::UNAUTHORIZED => ("the API server does not accept the token", ApiRetry::Again),
        StatusCode::FORBIDDEN => ("forbidden", ApiRetry::Person),
        StatusCode::NOT_FOUND => ("the pod does not exist", ApiRetry::NewPod),
        StatusCode::CONFLICT => ("the object has since changed (conflict)", ApiRetry::Again),
        StatusCode::UNPROCESSABLE_ENTITY if names_uid(body) => {
            ("a newer pod has this name", ApiRetry::NewPod)
        }
        StatusCode::TOO_MANY_REQUESTS => ("the API server is throttling requests", wait),
        status if status.is_server_error() => ("the API server failed", wait),
        _ => (
            "refused, most likely by an admission policy",
            ApiRetry::Person,
        ),
    };
    ApiError {
        what,
        detail: None,
        status: Some(status.as_u16()),
        // After a 504, the write may still be in progress.
        may_land: status.is_server_error(),
        retry,
    }
}

/// Returns true if the answer rejects `metadata.uid`.
fn names_uid(body: &[u8]) -> bool {
    let answer: Value = serde_json::from_slice(body).unwrap_or_default();
    let causes = answer["details"]["causes"].as_array();
    causes.is_some_and(|causes| causes.iter().any(|cause| cause["field"] == "metadata.uid"))
}

#[cfg(test)]
mod tests;
