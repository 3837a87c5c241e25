//! One request to the API server, and what its failure means.

use std::error::Error;
use std::time::Duration;
use std::{fmt, io};

use http_body_util::{BodyExt, Limited};
use hyper::body::Bytes;
use hyper::header::RETRY_AFTER;
use hyper::{HeaderMap, Request, StatusCode};
use kube::Client;
use kube::client::Body;
use rustls::CertificateError;
use serde::Deserialize;

use super::access::{Access, Unusable};

/// The longest answer that is read: the metadata of [`PODS_MAX`] pods with
/// many labels, annotations and managed fields.
///
/// [`PODS_MAX`]: super::request::PODS_MAX
const ANSWER_BYTES_MAX: usize = 2 * 1024 * 1024;

/// The API server as this pod may use it.
pub struct Api {
    /// Makes a client for one request, of the token and the certificate that
    /// the files hold at that moment. At a request a minute there is nothing
    /// that keeping it would save.
    connect: Box<dyn Fn() -> Result<Client, Unusable> + Send + Sync>,
}

/// Why a request failed, in words of our own: the server's may hold anything.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Trouble {
    pub(super) what: &'static str,
    pub(super) status: Option<u16>,
    /// Whether the request may take effect all the same, now or later.
    pub(super) may_land: bool,
    pub(super) remedy: Remedy,
}

/// What a failed request needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Remedy {
    /// Another attempt soon.
    Again,
    /// Another attempt when the API server wants it.
    After(Duration),
    /// Somebody who grants a right or changes a policy.
    Person,
    /// Nothing: the pod is gone.
    NewPod,
}

impl Trouble {
    /// A request without an answer in the time it had.
    pub(super) const NO_ANSWER: Self = Self {
        what: "no answer in time",
        status: None,
        may_land: true,
        remedy: Remedy::Again,
    };

    const fn unsent(what: &'static str) -> Self {
        Self {
            what,
            status: None,
            may_land: false,
            remedy: Remedy::Again,
        }
    }
}

impl fmt::Display for Trouble {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.what)?;
        match self.status {
            Some(status) => write!(f, " (HTTP {status})"),
            None => Ok(()),
        }
    }
}

impl Api {
    /// Reached from inside the cluster. Nothing is opened before the first request.
    pub fn new(access: Access) -> Self {
        Self::over(move || access.client())
    }

    /// Reached by whatever `connect` makes.
    pub fn over(connect: impl Fn() -> Result<Client, Unusable> + Send + Sync + 'static) -> Self {
        Self {
            connect: Box::new(connect),
        }
    }

    /// Sends a request and returns the answer's body. To give it up, drop the
    /// future: its connection is closed.
    pub(super) async fn send(&self, request: Request<Vec<u8>>) -> Result<Bytes, Trouble> {
        let client = (self.connect)().map_err(unconnected)?;
        let sending = client.send(request.map(Body::from));
        let answer = sending.await.map_err(|e| unanswered(&e))?;
        let (head, body) = answer.into_parts();
        let body = Limited::new(body, ANSWER_BYTES_MAX).collect().await;
        if !head.status.is_success() {
            let body = body.map(|body| body.to_bytes()).unwrap_or_default();
            return Err(refused(head.status, &head.headers, &body));
        }
        // The head says that it was done; what came after it is only needed
        // by who lists pods, and an empty body is no list.
        Ok(body.map(|body| body.to_bytes()).unwrap_or_default())
    }
}

impl fmt::Debug for Api {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Api").finish_non_exhaustive()
    }
}

/// A client that could not be made.
fn unconnected(unusable: Unusable) -> Trouble {
    Trouble::unsent(match unusable {
        Unusable::Token => "the token file cannot be read",
        Unusable::Certificate => "the certificate of the API server, ca.crt, cannot be used",
    })
}

/// A request that no answer came to.
fn unanswered(error: &kube::Error) -> Trouble {
    use hyper_util::client::legacy::Error as ClientError;

    match error {
        kube::Error::Service(error)
            if error
                .downcast_ref::<ClientError>()
                .is_some_and(ClientError::is_connect) =>
        {
            Trouble::unsent(match tls_error(&**error) {
                Some(error) => untrusted(error),
                None => "the API server cannot be reached",
            })
        }
        _ => Trouble {
            what: "the connection to the API server was lost",
            ..Trouble::NO_ANSWER
        },
    }
}

/// The error of TLS among the causes of another one, if there is one.
fn tls_error<'a>(error: &'a (dyn Error + 'static)) -> Option<&'a rustls::Error> {
    let mut next = Some(error);
    while let Some(error) = next {
        if let Some(tls) = error.downcast_ref() {
            return Some(tls);
        }
        next = match error.downcast_ref::<io::Error>() {
            // Its source is the source of the error that it holds.
            Some(error) => error.get_ref().map(|held| held as _),
            None => error.source(),
        };
    }
    None
}

/// A server that does not prove that it is the API server.
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

/// A request that was answered by something else than success.
fn refused(status: StatusCode, headers: &HeaderMap, body: &[u8]) -> Trouble {
    let retry_after = headers
        .get(RETRY_AFTER)
        .and_then(|value| value.to_str().ok()?.trim().parse().ok())
        .map(Duration::from_secs);
    let (what, remedy) = match status {
        StatusCode::UNAUTHORIZED => ("the API server does not accept the token", Remedy::Again),
        StatusCode::FORBIDDEN => ("forbidden", Remedy::Person),
        StatusCode::NOT_FOUND => ("the pod does not exist", Remedy::NewPod),
        StatusCode::CONFLICT => ("the object was changed meanwhile", Remedy::Again),
        StatusCode::UNPROCESSABLE_ENTITY if names_uid(body) => {
            ("another pod has the name by now", Remedy::NewPod)
        }
        StatusCode::TOO_MANY_REQUESTS => (
            "the API server asks for fewer requests",
            retry_after.map_or(Remedy::Again, Remedy::After),
        ),
        status if status.is_server_error() => (
            "the API server failed",
            retry_after.map_or(Remedy::Again, Remedy::After),
        ),
        _ => (
            "refused, most likely by an admission policy",
            Remedy::Person,
        ),
    };
    Trouble {
        what,
        status: Some(status.as_u16()),
        // A 504 is sent while the write may still be under way.
        may_land: status.is_server_error(),
        remedy,
    }
}

/// Whether the answer says that `metadata.uid` is not the object's.
fn names_uid(body: &[u8]) -> bool {
    #[derive(Deserialize)]
    struct Answer {
        details: Option<Details>,
    }
    #[derive(Deserialize)]
    struct Details {
        causes: Option<Vec<Cause>>,
    }
    #[derive(Deserialize)]
    struct Cause {
        field: Option<String>,
    }
    let answer = serde_json::from_slice::<Answer>(body).ok();
    let details = answer.and_then(|answer| answer.details);
    let causes = details.and_then(|details| details.causes);
    causes
        .unwrap_or_default()
        .iter()
        .any(|cause| cause.field.as_deref() == Some("metadata.uid"))
}

#[cfg(test)]
mod tests;
