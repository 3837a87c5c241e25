//! Answers the requests of browsers.

use std::net::IpAddr;
use std::sync::Arc;

use http_body_util::{BodyExt, Limited};
use hyper::body::{Body, Incoming};
use hyper::header::{self, HeaderValue};
use hyper::{HeaderMap, Method, Request, StatusCode};
use serde::Deserialize;
use serde_json::json;
use tokio::sync::{Semaphore, watch};
use tracing::{info, warn};

use super::super::arguments::reason as reason_of;
use super::super::request::PendingRequest;
use super::super::roll_call::{ANSWER_MAX, Roll, roll};
use super::super::{OperatorError, RequestArgs, Session, action};
use super::STREAMS_MAX;
use super::access::{Refused, VisitorAccess, is_same};
use super::board::{Link, Snapshot};
use super::feed::{Events, details};
use super::metrics::Exporter;
use super::page::{self, nonce};
use leasehold_clock::boot_now;
use leasehold_core::election::{BootTime, Identity, RESERVATION_DEFAULT, ResourceName, Token};
use leasehold_host::exit;
use leasehold_http::{
    Answer, Client, HTML, Site, TRANSFER_TIME_MAX, event_body, event_stream, full, is_misdirected,
    json, respond, retry_later, text,
};
use leasehold_mongodb::store::mongo::operators::{ActionKind, LastAnswer};
use leasehold_status::render::ClockPair;

/// Maximum length of a request's body, which contains a name, an identity and a reason, all
/// escaped.
const BODY_BYTES_MAX: usize = 8 * 1024;
const ACTIONS_MAX: usize = 16;
const BUSY: &str = "Too many wrong tokens from this address: try again in a few seconds.";
/// Request header with the secret that only this server's page knows.
const PAGE_HEADER: &str = "x-leasehold-page";

type Refusal = (StatusCode, String);

fn refused<T>(code: StatusCode, why: impl Into<String>) -> Result<T, Refusal> {
    Err((code, why.into()))
}

#[derive(Clone)]
pub(super) struct Web(pub(super) Arc<Shared>);

pub(super) struct Shared {
    pub(super) session: Session,
    pub(super) board: Arc<watch::Sender<Snapshot>>,
    pub(super) last_answer: LastAnswer,
    pub(super) access: VisitorAccess,
    pub(super) exporter: Exporter,
    pub(super) offer: Offer,
}

pub(super) enum Offer {
    Metrics,
    Page,
    Actions(Actions),
}

impl Offer {
    pub(super) fn actions(by: Identity) -> Self {
        Self::Actions(Actions {
            by,
            secret: nonce(),
            running: Arc::new(Semaphore::new(ACTIONS_MAX)),
        })
    }
}

pub(super) struct Actions {
    by: Identity,
    secret: String,
    running: Arc<Semaphore>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ActionRequest {
    name: String,
    action: String,
    token: i64,
    to: Option<String>,
    reason: Option<String>,
}

enum PageAction {
    Ask(ResourceName),
    Request(RequestArgs),
}

impl Site for Web {
    async fn answer(&self, request: Request<Incoming>, client: &Client) -> Answer {
        let answered = self.0.answer(request, client).await;
        answered.unwrap_or_else(|(code, why)| text(code, &why))
    }

    fn failed(&self) {}

    fn evicted(&self) {}
}

impl Shared {
    async fn answer(
        self: &Arc<Self>,
        request: Request<Incoming>,
        client: &Client,
    ) -> Result<Answer, Refusal> {
        if is_misdirected(&request, client) {
            let why = "the host in the request is not this machine: use localhost or 127.0.0.1";
            return refused(StatusCode::MISDIRECTED_REQUEST, why);
        }
        let is_read = matches!(*request.method(), Method::GET | Method::HEAD);
        let is_post = *request.method() == Method::POST;
        let (path, peer) = (request.uri().path(), client.peer.ip());
        match path {
            "/livez" if is_read => return Ok(text(StatusCode::OK, "ok")),
            "/readyz" if is_read => return self.ready(),
            "/metrics" | "/livez" | "/readyz" => {}
            _ if matches!(self.offer, Offer::Metrics) => {
                let why =
                    "with --metrics-only, this server offers only /metrics, /livez and /readyz";
                return refused(StatusCode::NOT_FOUND, why);
            }
            "/login" if is_read => return Ok(page::login(StatusCode::OK, "")),
            "/login" if is_post => return self.log_in(request, peer).await,
            _ => {}
        }
        match self.access.permit(request.headers(), peer).await {
            Ok(()) => {}
            Err(Refused::Busy) => {
                return Ok(retry_later(text(StatusCode::TOO_MANY_REQUESTS, BUSY)));
            }
            Err(Refused::Wrong) if path == "/" => return Ok(redirect("/login", None)),
            Err(Refused::Wrong) => {
                return refused(StatusCode::UNAUTHORIZED, "the visitors' token is required");
            }
        }
        match path {
            "/" if is_read => {
                let secret = self.actions().map(|actions| actions.secret.as_str());
                Ok(page::page(secret, self.access.needs_token()))
            }
            "/metrics" if is_read => Ok(self.metrics()),
            "/events" if is_read => self.events(&request, client),
            "/document" if is_read => self.details(request.uri().query().unwrap_or_default()),
            "/actions" if is_post => self.act(request, client).await,
            "/logout" if is_post => self.log_out(request.headers()),
            "/" | "/events" | "/document" | "/actions" | "/login" | "/logout" | "/metrics"
            | "/livez" | "/readyz" => {
                refused(StatusCode::METHOD_NOT_ALLOWED, "the method is not allowed")
            }
            _ => refused(StatusCode::NOT_FOUND, "not found"),
        }
    }

    fn actions(&self) -> Option<&Actions> {
        match &self.offer {
            Offer::Actions(actions) => Some(actions),
            Offer::Metrics | Offer::Page => None,
        }
    }

    fn metrics(&self) -> Answer {
        let info = self.session.collection.info();
        let board = self.board.borrow();
        self.exporter.answer(&board, info, boot_now())
    }

    pub(super) fn link(&self, board: &Snapshot, now: BootTime) -> Link {
        let within = self.session.collection.answers_within();
        board.link_at(self.last_answer.at(), within, now)
    }

    fn ready(&self) -> Result<Answer, Refusal> {
        let (board, now) = (self.board.borrow(), ClockPair::now());
        let connection = self.link(&board, now.boot).description(now);
        match board.is_listed() {
            true => Ok(text(StatusCode::OK, &format!("ok; {connection}"))),
            false => refused(
                StatusCode::SERVICE_UNAVAILABLE,
                format!("the collection has not been read yet; {connection}"),
            ),
        }
    }

    fn events(
        self: &Arc<Self>,
        request: &Request<Incoming>,
        client: &Client,
    ) -> Result<Answer, Refusal> {
        if !request.body().is_end_stream() {
            // A stream never reads the request's body. While received bytes are unread, hyper does
            // not detect a closed connection.
            return refused(StatusCode::PAYLOAD_TOO_LARGE, "/events takes no body");
        }
        let Some(place) = client.streams.admit(client, || ()) else {
            return Ok(full(StatusCode::SERVICE_UNAVAILABLE, STREAMS_MAX));
        };
        let events = Events::new(Arc::clone(self), request.headers().clone(), place);
        Ok(event_stream(event_body(events)))
    }

    fn details(&self, query: &str) -> Result<Answer, Refusal> {
        let (board, now) = (self.board.borrow(), boot_now());
        let name = field(query.as_bytes(), "name");
        let Some(seen) = name.and_then(|name| board.get(&name)) else {
            return refused(StatusCode::NOT_FOUND, "there is no such document");
        };
        let shown = self.link(&board, now).shown_at(now);
        Ok(json(StatusCode::OK, &details(&board, seen, shown)))
    }

    /// Performs an action of the page, even if the browser closes the connection.
    async fn act(&self, request: Request<Incoming>, client: &Client) -> Result<Answer, Refusal> {
        let Some(actions) = self.actions() else {
            let why = "this page is read-only: use leasehold in a terminal instead";
            return refused(StatusCode::FORBIDDEN, why);
        };
        from_the_page(request.headers(), &actions.secret)?;
        let asked = parsed(&body(request).await?, &actions.by);
        let asked = asked.map_err(|why| (StatusCode::BAD_REQUEST, why))?;
        let Ok(running) = Arc::clone(&actions.running).try_acquire_owned() else {
            let why = format!("{ACTIONS_MAX} actions are under way: try again");
            return refused(StatusCode::TOO_MANY_REQUESTS, why);
        };
        let _lasts = client.lasts();
        let args = match asked {
            PageAction::Ask(name) => return Ok(self.ask(&name).await),
            PageAction::Request(args) => args,
        };
        let (name, kind) = (args.name.clone(), args.action.kind.as_str());
        info!(lease = %name, action = kind, peer = %client.peer, "action requested");
        let session = Session {
            deadline: boot_now() + self.session.timeout,
            ..self.session.clone()
        };
        let perform = async move {
            let _running = running;
            PendingRequest::new(&session, &args, |_| ()).perform().await
        };
        match tokio::spawn(perform).await {
            Ok(Ok(outcome)) => {
                let code = match outcome.code() {
                    exit::DONE => StatusCode::OK,
                    exit::UNDER_WAY => StatusCode::ACCEPTED,
                    _ => StatusCode::CONFLICT,
                };
                Ok(json(code, &outcome.object(&name, kind)))
            }
            Ok(Err(error)) => {
                warn!(lease = %name, action = kind, %error, "action failed");
                let code = match &error {
                    OperatorError::Missing { .. } => StatusCode::NOT_FOUND,
                    OperatorError::OtherKind { .. } | OperatorError::Foreign { .. } => {
                        StatusCode::CONFLICT
                    }
                    _ => StatusCode::BAD_GATEWAY,
                };
                let failed = json!({ "result": "failed", "message": error.to_string() });
                Ok(json(code, &failed))
            }
            Err(error) => refused(StatusCode::INTERNAL_SERVER_ERROR, error.to_string()),
        }
    }

    /// Asks the candidates of a lease to report. Their answers are also sent to all browsers.
    async fn ask(&self, name: &ResourceName) -> Answer {
        let revision = self.board.borrow().revision(name.as_str());
        let roll = roll(&self.session, name, ANSWER_MAX).await;
        if let (Some(revision), Roll::Answered(_)) = (revision, &roll) {
            self.board.send_modify(|board| {
                board.called(name.as_str(), revision, roll.clone(), boot_now())
            });
        }
        let (code, result) = match &roll {
            Roll::Answered(present) if present.is_empty() => (StatusCode::OK, "unanswered"),
            Roll::Answered(_) | Roll::Earlier(..) => (StatusCode::OK, "done"),
            Roll::NotCalled(_) | Roll::Unclaimed(_) => (StatusCode::BAD_GATEWAY, "failed"),
        };
        json(code, &json!({ "result": result, "message": roll.words() }))
    }

    async fn log_in(&self, request: Request<Incoming>, peer: IpAddr) -> Result<Answer, Refusal> {
        same_origin(request.headers())?;
        let token = field(&body(request).await?, "token").unwrap_or_default();
        Ok(match self.access.log_in(token.trim(), peer).await {
            Ok(Some(cookie)) => redirect("/", Some(cookie)),
            Ok(None) | Err(Refused::Wrong) => page::login(StatusCode::UNAUTHORIZED, "Wrong token."),
            Err(Refused::Busy) => retry_later(page::login(StatusCode::TOO_MANY_REQUESTS, BUSY)),
        })
    }

    fn log_out(&self, headers: &HeaderMap) -> Result<Answer, Refusal> {
        same_origin(headers)?;
        Ok(redirect("/login", self.access.log_out(headers)))
    }
}

fn parsed(body: &[u8], by: &Identity) -> Result<PageAction, String> {
    let request: ActionRequest = serde_json::from_slice(body).map_err(|error| error.to_string())?;
    let name = ResourceName::new(request.name).map_err(|error| format!("name {error}"))?;
    let kind = match (request.action.as_str(), request.to) {
        ("step_down", None) => ActionKind::StepDown,
        ("pause", None) => ActionKind::Pause,
        ("resume", None) => ActionKind::Resume,
        ("cancel", None) => ActionKind::Cancel,
        ("ask_candidates", None) => return Ok(PageAction::Ask(name)),
        ("transfer", Some(to)) => ActionKind::Transfer {
            to: Identity::new(to).map_err(|error| format!("to {error}"))?,
            reserve: RESERVATION_DEFAULT,
        },
        _ => {
            return Err(
                "expected step_down, transfer (with to), pause, resume, cancel or ask_candidates"
                    .into(),
            );
        }
    };
    let reason = request.reason.filter(|reason| !reason.is_empty());
    let reason = reason.map(|text| reason_of(&text)).transpose();
    let reason = reason.map_err(|error| format!("reason: {error}"))?;
    let seen = Token::new(request.token).ok_or("token: expected a token")?;
    Ok(PageAction::Request(RequestArgs {
        name,
        action: action(kind, by, reason),
        force: false,
        seen: Some(seen),
        wait: true,
    }))
}

/// Checks that a request comes from this server's page. Browsers hide the secret from other pages,
/// and report the origin of the page with each request.
fn from_the_page(headers: &HeaderMap, secret: &str) -> Result<(), Refusal> {
    same_origin(headers)?;
    let given = headers.get(PAGE_HEADER).map(HeaderValue::as_bytes);
    // The secret is empty if no random bytes were available.
    if secret.is_empty() || !given.is_some_and(|given| is_same(given, secret.as_bytes())) {
        let why = "the request does not come from this page: reload the page";
        return refused(StatusCode::FORBIDDEN, why);
    }
    Ok(())
}

/// Checks that the page that sent the request was loaded from this server.
fn same_origin(headers: &HeaderMap) -> Result<(), Refusal> {
    const OTHER: &str = "the request comes from another site's page";
    let value = |name| headers.get(name).map(HeaderValue::as_bytes);
    if value("sec-fetch-site").is_some_and(|site| site != b"same-origin") {
        return refused(StatusCode::FORBIDDEN, OTHER);
    }
    let Some(origin) = value("origin") else {
        return refused(StatusCode::FORBIDDEN, "the request has no Origin");
    };
    // A proxy in front of this server may terminate TLS.
    let origin = origin
        .strip_prefix(b"http://")
        .or_else(|| origin.strip_prefix(b"https://"));
    match origin.zip(value("host")) {
        Some((origin, host)) if origin.eq_ignore_ascii_case(host) => Ok(()),
        _ => refused(StatusCode::FORBIDDEN, OTHER),
    }
}

async fn body(request: Request<Incoming>) -> Result<Vec<u8>, Refusal> {
    let body = Limited::new(request.into_body(), BODY_BYTES_MAX).collect();
    match tokio::time::timeout(TRANSFER_TIME_MAX, body).await {
        Ok(Ok(body)) => Ok(body.to_bytes().to_vec()),
        Ok(Err(_)) => {
            let why = format!("the body is longer than {BODY_BYTES_MAX} bytes");
            refused(StatusCode::PAYLOAD_TOO_LARGE, why)
        }
        Err(_) => refused(
            StatusCode::REQUEST_TIMEOUT,
            "timed out waiting for the request body",
        ),
    }
}

fn redirect(to: &'static str, cookie: Option<HeaderValue>) -> Answer {
    let mut answer = respond(StatusCode::SEE_OTHER, HTML, String::new());
    let headers = answer.headers_mut();
    headers.insert(header::LOCATION, HeaderValue::from_static(to));
    headers.extend(cookie.map(|cookie| (header::SET_COOKIE, cookie)));
    answer
}

fn field(text: &[u8], name: &str) -> Option<String> {
    let mut fields = form_urlencoded::parse(text);
    fields.find_map(|(key, value)| (key == name).then(|| value.into_owned()))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

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
}
