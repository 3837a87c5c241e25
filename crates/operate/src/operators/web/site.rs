//! The answers to requests of browsers.

use std::net::IpAddr;
use std::sync::Arc;

use http_body_util::{BodyExt, Limited};
use hyper::body::{Body, Incoming};
use hyper::header::{self, HeaderValue};
use hyper::{HeaderMap, Method, Request, StatusCode};
use serde::Deserialize;
use serde_json::json;
use tokio::sync::{Semaphore, watch};
use tracing::info;

use super::super::{
    Author, OperatorError, OperatorRequest, REASON_MAX, RequestArgs, Session, is_reason, request,
};
use super::access::{Refused, VisitorAccess, is_same};
use super::board::Snapshot;
use super::policy;
use super::{STREAMS_MAX, document, feed, page};
use leasehold_clock::boot_now;
use leasehold_core::election::{Identity, RESERVATION_DEFAULT, ResourceName, Token};
use leasehold_host::exit;
use leasehold_http::{
    Answer, Client, HTML, Site, TRANSFER_TIME_MAX, event_stream, full, is_misdirected, json,
    respond, retry_later, text,
};

/// Maximum length of a request's body: a name, an identity and a reason, each escaped.
const BODY_BYTES_MAX: usize = 8 * 1024;
/// Maximum number of actions in progress.
const ACTIONS_MAX: usize = 16;
/// Answer to a visitor whose address gives too many wrong tokens.
const BUSY: &str = "Too many wrong tokens from this address: try again in a few seconds.";
/// Request header with the value that only this server's page knows.
const PAGE_HEADER: &str = "x-leasehold-page";

/// The page's server.
#[derive(Clone)]
pub(super) struct Web {
    shared: Arc<Shared>,
}

struct Shared {
    session: Session,
    board: watch::Receiver<Snapshot>,
    access: VisitorAccess,
    actions: Option<Actions>,
}

/// The author of actions, and their limits.
struct Actions {
    by: Identity,
    /// The value that only this server's page knows.
    secret: String,
    running: Semaphore,
}

/// The body of a request for an action.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ActionRequest {
    name: String,
    action: String,
    /// The token that the visitor has seen.
    token: i64,
    to: Option<String>,
    reason: Option<String>,
}

impl Web {
    pub(super) fn new(
        session: Session,
        board: watch::Receiver<Snapshot>,
        access: VisitorAccess,
        actions_by: Option<Identity>,
    ) -> Self {
        let actions = actions_by.map(|by| Actions {
            by,
            secret: policy::nonce(),
            running: Semaphore::new(ACTIONS_MAX),
        });
        Self {
            shared: Arc::new(Shared {
                session,
                board,
                access,
                actions,
            }),
        }
    }
}

impl Site for Web {
    async fn answer(&self, request: Request<Incoming>, client: &Client) -> Answer {
        if is_misdirected(&request, client) {
            let why = "the host in the request is not this machine: use localhost or 127.0.0.1";
            return text(StatusCode::MISDIRECTED_REQUEST, why);
        }
        let shared = &self.shared;
        let is_read = matches!(*request.method(), Method::GET | Method::HEAD);
        let is_post = *request.method() == Method::POST;
        let (path, peer) = (request.uri().path(), client.peer.ip());
        match path {
            "/livez" if is_read => return text(StatusCode::OK, "ok"),
            "/readyz" if is_read => return shared.ready(),
            "/login" if is_read => return page::login(StatusCode::OK, ""),
            "/login" if is_post => return shared.log_in(request, peer).await,
            _ => {}
        }
        let permitted = shared.access.permit(request.headers(), peer).await;
        match permitted {
            Ok(()) => {}
            Err(Refused::Busy) => return retry_later(text(StatusCode::TOO_MANY_REQUESTS, BUSY)),
            Err(Refused::Wrong) if path == "/" => return redirect("/login"),
            Err(Refused::Wrong) => {
                return text(StatusCode::UNAUTHORIZED, "the visitors' token is required");
            }
        }
        match path {
            "/" if is_read => shared.page(),
            "/events" if is_read => self.events(&request, client),
            "/document" if is_read => shared.details(request.uri().query().unwrap_or_default()),
            "/actions" if is_post => self.act(request, client).await,
            "/logout" if is_post => shared.log_out(request.headers()),
            "/" | "/events" | "/document" | "/actions" | "/login" | "/logout" | "/livez"
            | "/readyz" => text(StatusCode::METHOD_NOT_ALLOWED, "the method is not allowed"),
            _ => text(StatusCode::NOT_FOUND, "not found"),
        }
    }

    fn failed(&self) {}

    fn evicted(&self) {}
}

impl Web {
    fn events(&self, request: &Request<Incoming>, client: &Client) -> Answer {
        if !request.body().is_end_stream() {
            // The end of a connection is noticed only after its unread bytes.
            return text(StatusCode::PAYLOAD_TOO_LARGE, "/events takes no body");
        }
        let Some(place) = client.streams.admit(client, || ()) else {
            return full(StatusCode::SERVICE_UNAVAILABLE, STREAMS_MAX);
        };
        let (shared, headers) = (Arc::clone(&self.shared), request.headers().clone());
        let collection = shared.session.collection.clone();
        let body = feed::events(
            shared.board.clone(),
            move || collection.info().unwrap_or_default(),
            move || {
                let (shared, headers) = (Arc::clone(&shared), headers.clone());
                Box::pin(async move { shared.access.still_permits(&headers).await })
            },
            place,
        );
        event_stream(body)
    }

    /// Carries out an action of the page, also if the browser no longer waits for it.
    async fn act(&self, request: Request<Incoming>, client: &Client) -> Answer {
        let Some(actions) = &self.shared.actions else {
            let why = "this page is read-only: leasehold web --allow-actions";
            return text(StatusCode::FORBIDDEN, why);
        };
        if let Err(why) = from_the_page(request.headers(), &actions.secret) {
            return text(StatusCode::FORBIDDEN, why);
        }
        let body = match body(request).await {
            Ok(body) => body,
            Err(refused) => return refused,
        };
        let parsed =
            serde_json::from_slice::<ActionRequest>(&body).map_err(|error| error.to_string());
        let parsed = parsed.and_then(|action| action.parsed(&actions.by));
        let args = match parsed {
            Ok(args) => args,
            Err(why) => return text(StatusCode::BAD_REQUEST, &why),
        };
        let Ok(_running) = actions.running.try_acquire() else {
            let why = format!("{ACTIONS_MAX} actions are under way: try again");
            return text(StatusCode::TOO_MANY_REQUESTS, &why);
        };
        let _lasts = client.lasts();
        let (name, kind) = (args.name.clone(), request::action(&args.kind).as_str());
        info!(lease = %name, action = kind, peer = %client.peer, "action requested");
        let session = Session {
            deadline: boot_now() + self.shared.session.timeout,
            ..self.shared.session.clone()
        };
        let done = tokio::spawn(async move { request::perform(&session, args, &|_| ()).await });
        match done.await {
            Ok(Ok(outcome)) => {
                let code = match outcome.code {
                    exit::DONE => StatusCode::OK,
                    exit::UNDER_WAY => StatusCode::ACCEPTED,
                    _ => StatusCode::CONFLICT,
                };
                json(code, &outcome.object(&name, kind))
            }
            Ok(Err(error)) => {
                let code = match &error {
                    OperatorError::Missing { .. } => StatusCode::NOT_FOUND,
                    OperatorError::Lock(_) | OperatorError::Foreign { .. } => StatusCode::CONFLICT,
                    _ => StatusCode::BAD_GATEWAY,
                };
                json(
                    code,
                    &json!({ "result": "failed", "message": error.to_string() }),
                )
            }
            Err(error) => text(StatusCode::INTERNAL_SERVER_ERROR, &error.to_string()),
        }
    }
}

impl Shared {
    fn ready(&self) -> Answer {
        match self.board.borrow().is_listed() {
            true => text(StatusCode::OK, "ok"),
            false => text(
                StatusCode::SERVICE_UNAVAILABLE,
                "the collection has not been read yet",
            ),
        }
    }

    fn page(&self) -> Answer {
        let secret = self.actions.as_ref().map(|actions| actions.secret.as_str());
        page::page(secret, self.access.needs_token())
    }

    fn details(&self, query: &str) -> Answer {
        let name = query.strip_prefix("name=").and_then(decoded);
        let board = self.board.borrow();
        match name.as_deref().and_then(|name| board.get(name)) {
            Some((seen, roll_call)) => {
                let details = document::details(seen, roll_call, boot_now());
                json(StatusCode::OK, &details)
            }
            None => text(StatusCode::NOT_FOUND, "there is no such document"),
        }
    }

    async fn log_in(&self, request: Request<Incoming>, peer: IpAddr) -> Answer {
        if let Err(why) = same_origin(request.headers()) {
            return text(StatusCode::FORBIDDEN, why);
        }
        let body = match body(request).await {
            Ok(body) => body,
            Err(refused) => return refused,
        };
        let body = String::from_utf8_lossy(&body);
        let token = body
            .strip_prefix("token=")
            .map(|token| token.replace('+', " "));
        let token = token.as_deref().and_then(decoded).unwrap_or_default();
        match self.access.log_in(token.trim(), peer).await {
            Ok(Some(cookie)) => with_cookie(redirect("/"), cookie),
            Ok(None) | Err(Refused::Wrong) => page::login(StatusCode::UNAUTHORIZED, "Wrong token."),
            Err(Refused::Busy) => retry_later(page::login(StatusCode::TOO_MANY_REQUESTS, BUSY)),
        }
    }

    fn log_out(&self, headers: &HeaderMap) -> Answer {
        if let Err(why) = same_origin(headers) {
            return text(StatusCode::FORBIDDEN, why);
        }
        match self.access.log_out(headers) {
            Some(cookie) => with_cookie(redirect("/login"), cookie),
            None => redirect("/login"),
        }
    }
}

impl ActionRequest {
    fn parsed(self, by: &Identity) -> Result<RequestArgs, String> {
        let name = ResourceName::new(self.name).map_err(|error| format!("name {error}"))?;
        let kind = match (self.action.as_str(), self.to) {
            ("step_down", None) => OperatorRequest::StepDown,
            ("pause", None) => OperatorRequest::Pause,
            ("resume", None) => OperatorRequest::Resume,
            ("cancel", None) => OperatorRequest::Cancel,
            ("transfer", Some(to)) => OperatorRequest::Transfer {
                to: Identity::new(to).map_err(|error| format!("to {error}"))?,
                reserve: RESERVATION_DEFAULT,
                force: false,
            },
            _ => {
                let why = "expected step_down, transfer with to, pause, resume or cancel";
                return Err(why.to_owned());
            }
        };
        let reason = self.reason.filter(|reason| !reason.is_empty());
        if reason.as_deref().is_some_and(|reason| !is_reason(reason)) {
            let why = format!("reason: at most {REASON_MAX} bytes without control characters");
            return Err(why);
        }
        let seen = Token::new(self.token).ok_or("token: expected a token")?;
        Ok(RequestArgs {
            name,
            kind,
            seen: Some(seen),
            author: Author {
                by: by.clone(),
                reason,
            },
            wait: true,
        })
    }
}

/// Checks that a request comes from this server's page: browsers hide the value from other pages,
/// and report the origin of a request.
fn from_the_page(headers: &HeaderMap, secret: &str) -> Result<(), &'static str> {
    same_origin(headers)?;
    let given = headers.get(PAGE_HEADER).map(HeaderValue::as_bytes);
    // Without randomness there is no secret, so no request has it.
    if secret.is_empty() || !given.is_some_and(|given| is_same(given, secret.as_bytes())) {
        return Err("the request is not of this page: load the page again");
    }
    Ok(())
}

/// Checks that the page that sent a request was loaded from this server.
fn same_origin(headers: &HeaderMap) -> Result<(), &'static str> {
    const OTHER: &str = "the request is of a page from elsewhere";
    let value = |name| headers.get(name).map(HeaderValue::as_bytes);
    if value("sec-fetch-site").is_some_and(|site| site != b"same-origin") {
        return Err(OTHER);
    }
    let origin = value("origin").ok_or("the request has no Origin")?;
    // A proxy in front may speak TLS.
    let origin = origin
        .strip_prefix(b"http://")
        .or_else(|| origin.strip_prefix(b"https://"));
    match origin.zip(value("host")) {
        Some((origin, host)) if origin.eq_ignore_ascii_case(host) => Ok(()),
        _ => Err(OTHER),
    }
}

async fn body(request: Request<Incoming>) -> Result<Vec<u8>, Answer> {
    let body = Limited::new(request.into_body(), BODY_BYTES_MAX).collect();
    match tokio::time::timeout(TRANSFER_TIME_MAX, body).await {
        Ok(Ok(body)) => Ok(body.to_bytes().to_vec()),
        Ok(Err(_)) => {
            let why = format!("the body is longer than {BODY_BYTES_MAX} bytes");
            Err(text(StatusCode::PAYLOAD_TOO_LARGE, &why))
        }
        Err(_) => Err(text(StatusCode::REQUEST_TIMEOUT, "the body did not arrive")),
    }
}

fn redirect(to: &'static str) -> Answer {
    let mut answer = respond(StatusCode::SEE_OTHER, HTML, String::new());
    let headers = answer.headers_mut();
    headers.insert(header::LOCATION, HeaderValue::from_static(to));
    answer
}

fn with_cookie(mut answer: Answer, cookie: HeaderValue) -> Answer {
    answer.headers_mut().insert(header::SET_COOKIE, cookie);
    answer
}

/// Decodes a percent-encoded value; `None` if it is not valid.
fn decoded(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((first, after)) = rest.split_first() {
        rest = after;
        if *first != b'%' {
            bytes.push(*first);
            continue;
        }
        let (digits, after) = rest.split_at_checked(2)?;
        let digits = digits.iter().map(|digit| char::from(*digit).to_digit(16));
        let value = digits.reduce(|high, low| Some(16 * high? + low?))??;
        bytes.push(u8::try_from(value).ok()?);
        rest = after;
    }
    String::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn any_value_is_decoded_or_refused(text in "(\\PC|%|%[0-9a-fA-F+]{0,2}){0,12}", any in any::<String>()) {
            if let Some(decoded) = decoded(&text) {
                prop_assert!(decoded.len() <= text.len());
            }
            let encoded: String = any.bytes().map(|byte| format!("%{byte:02x}")).collect();
            prop_assert_eq!(decoded(&encoded), Some(any));
        }

        #[test]
        fn any_other_origin_is_refused(
            origin in "\\PC{0,20}|(https?://)?(localhost|evil\\.test|null)?(:[0-9]{0,5})?[@/#?.]?(localhost)?",
            host in "\\PC{0,20}|(localhost|evil\\.test)(:[0-9]{0,5})?",
        ) {
            let value = |text: &str| HeaderValue::from_str(text).ok();
            if let (Some(origin), Some(host)) = (value(&origin), value(&host)) {
                let expected = ["http://", "https://"].map(|scheme| [scheme.as_bytes(), host.as_bytes()].concat());
                let is_own = expected.iter().any(|own| own.eq_ignore_ascii_case(origin.as_bytes()));
                let headers = HeaderMap::from_iter([(header::ORIGIN, origin), (header::HOST, host)]);
                prop_assert!(is_own || same_origin(&headers).is_err(), "{:?}", headers);
            }
        }
    }

    fn headers(pairs: &[(&'static str, &'static str)]) -> HeaderMap {
        let pairs = pairs.iter().map(|(name, value)| {
            let name = header::HeaderName::from_static(name);
            (name, HeaderValue::from_static(value))
        });
        pairs.collect()
    }

    #[test]
    fn only_this_servers_page_may_act() {
        let own = ("origin", "http://localhost:9403");
        let host = ("host", "localhost:9403");
        let page = (PAGE_HEADER, "secret");
        let acts = |pairs: &[_]| from_the_page(&headers(pairs), "secret").is_ok();
        assert!(acts(&[own, host, page]));
        assert!(acts(&[own, host, page, ("sec-fetch-site", "same-origin")]));
        let refused: [&[_]; 7] = [
            &[host, page],
            &[own, page],
            &[own, host],
            &[own, host, (PAGE_HEADER, "secre")],
            &[own, host, page, ("sec-fetch-site", "same-site")],
            &[("origin", "http://localhost:9404"), host, page],
            &[("origin", "null"), host, page],
        ];
        for refused in refused {
            assert!(!acts(refused), "{refused:?}");
        }
        assert!(from_the_page(&headers(&[own, host, (PAGE_HEADER, "")]), "").is_err());
    }

    #[test]
    fn names_are_decoded() {
        assert_eq!(decoded("a%2Fb%C3%BC"), Some("a/bü".to_owned()));
        for bad in ["%", "%2", "%zz", "%ff", "%+1"] {
            assert_eq!(decoded(bad), None, "{bad}");
        }
    }
}
