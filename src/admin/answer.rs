//! Answers HTTP requests. Each answer is computed from the current deadline.

use http_body_util::{BodyExt, Limited};
use hyper::body::{Body, Incoming};
use hyper::header::{self, HeaderValue};
use hyper::{Method, Request, StatusCode};
use serde::Serialize;
use tokio::sync::mpsc::error::TrySendError;

use super::events::events;
use super::wait::{Wait, leader_after};
use super::{AdminState, BODY_BYTES_MAX, Client, ReadyWhen, STREAMS_MAX, TRANSFER_TIME_MAX};
use crate::clock;
use crate::election::{Input, Status, StoreAnswer, Token};
use crate::log::millis;
use crate::publish::Surface;
use crate::publish::metrics;
use crate::publish::render::{ClockPair, StatusDocument, authority_at, leader_name_at};
use crate::store::foreign_document;
use leasehold_http::{self as http, Answer, Site, full, is_misdirected, json, respond, text};

const LAST_EVENT_ID: &str = "last-event-id";
const STEPPED_DOWN: &str = "/stepped-down";

impl Site for AdminState {
    async fn answer(&self, request: Request<Incoming>, client: &Client) -> Answer {
        answer(request, client, self).await
    }

    fn failed(&self) {
        self.metrics.publish_failed(Surface::Http);
    }

    fn evicted(&self) {
        self.metrics.http_connection_evicted();
    }
}

#[derive(Serialize)]
struct LeaderAnswer {
    leader: bool,
    token: Option<i64>,
    valid_for_ms: Option<u64>,
}

#[derive(Serialize)]
struct StatusAndStore {
    #[serde(flatten)]
    document: StatusDocument,
    store: Option<StoreDocument>,
}

#[derive(Serialize)]
struct StoreDocument {
    kind: &'static str,
    set: Option<String>,
    set_id: Option<String>,
    database: String,
    collection: String,
}

async fn answer(request: Request<Incoming>, client: &Client, state: &AdminState) -> Answer {
    if is_misdirected(&request, client) {
        return text(
            StatusCode::MISDIRECTED_REQUEST,
            "the host in the request is not this machine: use localhost or 127.0.0.1, or set http.listen",
        );
    }
    let path = request.uri().path();
    let allowed = match path {
        "/" | "/livez" | "/readyz" | "/leader" | "/status" | "/events" | "/metrics" => {
            &[Method::GET, Method::HEAD][..]
        }
        STEPPED_DOWN => &[Method::POST][..],
        _ => {
            return text(
                StatusCode::NOT_FOUND,
                "not found; available: /, /livez, /readyz, /leader, /status, /events, /metrics and /stepped-down",
            );
        }
    };
    if !allowed.contains(request.method()) {
        let names: Vec<_> = allowed.iter().map(Method::as_str).collect();
        let mut refusal = text(
            StatusCode::METHOD_NOT_ALLOWED,
            &format!("{path} takes {}", names.join(" and ")),
        );
        if let Ok(allow) = HeaderValue::from_str(&names.join(", ")) {
            refusal.headers_mut().insert(header::ALLOW, allow);
        }
        return refusal;
    }
    if path == STEPPED_DOWN {
        return stepped_down(request, client, state).await;
    }
    // A request body is refused, because hyper detects a disconnect only after reading the whole
    // body.
    let body_refused = (!request.body().is_end_stream()).then(|| {
        let why = format!("a request for {path} must not have a body");
        text(StatusCode::PAYLOAD_TOO_LARGE, &why)
    });
    if path == "/leader" {
        return match Wait::parse(request.uri().query().unwrap_or_default()) {
            Ok(None) => leader(&state.status.borrow()),
            Ok(Some(wait)) => match body_refused {
                Some(refused) => refused,
                None => leader_after(wait, client, state).await,
            },
            Err(why) => text(StatusCode::BAD_REQUEST, &why),
        };
    }
    let status = state.status.borrow().clone();
    match path {
        // This answer proves that the event loop is running.
        "/livez" => text(StatusCode::OK, "ok"),
        "/readyz" => ready(&status, state),
        "/events" => body_refused.unwrap_or_else(|| event_stream(&request, client, state)),
        "/status" => full_status(&status, state),
        "/metrics" => metrics(state),
        _ => root(&status, state),
    }
}

fn ready(status: &Status, state: &AdminState) -> Answer {
    let now = ClockPair::now();
    let error = state.store_error.borrow();
    let connection = match (error.as_ref(), &status.store) {
        (Some(error), _) => {
            format!(
                "MongoDB has been failing since {}: {}",
                now.dated(error.since),
                error.message
            )
        }
        (None, StoreAnswer::Foreign(why)) => {
            format!("cannot lead: {}", foreign_document(why, "lease"))
        }
        (None, StoreAnswer::Usable) => "connected to MongoDB".to_owned(),
        (None, StoreAnswer::None) => "MongoDB has not answered yet".to_owned(),
    };
    let (code, state) = match *state.ready_when.borrow() {
        ReadyWhen::Connected if status.store == StoreAnswer::None => (
            StatusCode::SERVICE_UNAVAILABLE,
            "MongoDB has not been reached since the start",
        ),
        ReadyWhen::Leader if authority_at(status, now.boot).is_none() => (
            StatusCode::SERVICE_UNAVAILABLE,
            "this candidate does not lead, and http.ready_when is \"leader\"",
        ),
        ReadyWhen::Connected | ReadyWhen::Leader => (StatusCode::OK, "ok"),
    };
    text(code, &format!("{state}; {connection}"))
}

pub(super) fn leader(status: &Status) -> Answer {
    let now = clock::boot_now();
    let authority = authority_at(status, now);
    let left = authority.map(|a| a.valid_until.since(now));
    let code = match authority {
        Some(_) => StatusCode::OK,
        None => StatusCode::SERVICE_UNAVAILABLE,
    };
    let body = LeaderAnswer {
        leader: authority.is_some(),
        token: authority.map(|a| a.token.get()),
        valid_for_ms: left.map(millis),
    };
    json(code, &body)
}

fn event_stream(request: &Request<Incoming>, client: &Client, state: &AdminState) -> Answer {
    let refused = || state.metrics.http_stream_refused();
    let Some(place) = client.streams.admit(client, refused) else {
        return full(StatusCode::SERVICE_UNAVAILABLE, STREAMS_MAX);
    };
    let last_id = request.headers().get(LAST_EVENT_ID);
    let last_id = last_id.and_then(|id| id.to_str().ok()?.parse().ok());
    http::event_stream(events(state.clone(), place, last_id))
}

fn full_status(status: &Status, state: &AdminState) -> Answer {
    let (store, now) = (state.store.borrow().clone(), ClockPair::now());
    let document = StatusDocument::new(status, &state.who, now);
    let body = StatusAndStore {
        document: document.with_store_error(state.store_error.borrow().as_ref(), now),
        store: store.map(|s| StoreDocument {
            kind: s.kind.as_str(),
            set: s.set,
            set_id: s.set_id,
            database: s.database,
            collection: s.collection,
        }),
    };
    json(StatusCode::OK, &body)
}

fn metrics(state: &AdminState) -> Answer {
    match state.metrics.text() {
        Ok(metrics) => respond(StatusCode::OK, metrics::CONTENT_TYPE, metrics),
        Err(error) => {
            state.metrics.publish_failed(Surface::Http);
            text(StatusCode::INTERNAL_SERVER_ERROR, &error.to_string())
        }
    }
}

fn root(status: &Status, state: &AdminState) -> Answer {
    let name = leader_name_at(status, &state.who.identity, clock::boot_now());
    json(
        StatusCode::OK,
        &serde_json::json!({ "name": name.unwrap_or_default() }),
    )
}

async fn stepped_down(request: Request<Incoming>, client: &Client, state: &AdminState) -> Answer {
    // A browser on this machine is a loopback peer too, but unlike a workload, it sends an `Origin`
    // header.
    let local = client.peer.ip().to_canonical().is_loopback();
    if !local || request.headers().contains_key(header::ORIGIN) {
        return text(
            StatusCode::FORBIDDEN,
            "only accepted from the workload on this host: POST over the loopback address",
        );
    }
    let token = request.uri().query().and_then(token_of);
    let body = Limited::new(request.into_body(), BODY_BYTES_MAX).collect();
    match tokio::time::timeout(TRANSFER_TIME_MAX, body).await {
        Ok(Ok(_)) => {}
        Ok(Err(_)) => {
            let limit = format!("the body is longer than {BODY_BYTES_MAX} bytes; it may be empty");
            return text(StatusCode::PAYLOAD_TOO_LARGE, &limit);
        }
        Err(_) => {
            return text(
                StatusCode::REQUEST_TIMEOUT,
                "timed out waiting for the request body",
            );
        }
    }
    let Some(token) = token else {
        return text(
            StatusCode::BAD_REQUEST,
            "name the token of the leadership that has ended: POST /stepped-down?token=7",
        );
    };
    let refused = conflict(&state.status.borrow(), token);
    if let Some(refused) = refused {
        return text(StatusCode::CONFLICT, &refused);
    }
    match state.inputs.try_send(Input::WorkloadDone { token }) {
        Ok(()) => text(StatusCode::ACCEPTED, "ok"),
        Err(TrySendError::Full(_)) => text(StatusCode::SERVICE_UNAVAILABLE, "busy, try again"),
        Err(TrySendError::Closed(_)) => text(StatusCode::SERVICE_UNAVAILABLE, "shutting down"),
    }
}

/// Returns why a confirmation does not match the current state, or `None` if it does.
fn conflict(status: &Status, token: Token) -> Option<String> {
    let now = status.at(clock::boot_now());
    // The workload may notice the deadline before this process does.
    let expired = status.authority.filter(|_| now.authority.is_none());
    let expired = expired.map(|authority| authority.token);
    match now.stepping_down.or(now.unnoticed).or(expired) {
        Some(stopping) if stopping == token => None,
        Some(stopping) => Some(format!("token {stopping} is stepping down, not {token}")),
        None => Some(format!(
            "nothing is stepping down: this candidate is {}",
            now.role
        )),
    }
}

fn token_of(query: &str) -> Option<Token> {
    let mut pairs = query.split('&');
    let value = pairs.find_map(|pair| pair.strip_prefix("token="))?;
    Token::new(value.parse().ok()?)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn any_query_has_one_token_or_none(
            query in prop_oneof!["\\PC{0,40}", "(token|=|&|-|\\+|%|[0-9]{1,20}){0,9}"],
        ) {
            if let Some(token) = token_of(&query) {
                prop_assert!(token >= Token::ZERO);
                prop_assert!(query.contains("token="), "{}", query);
            }
        }
    }

    #[test]
    fn tokens_are_read_from_the_query() {
        assert_eq!(token_of("token=7"), Token::new(7));
        assert_eq!(token_of("a=b&token=7&c"), Token::new(7));
        let too_large = "token=99999999999999999999";
        for bad in ["", "token=", "token=-1", "token=x", "tok=7", too_large] {
            assert_eq!(token_of(bad), None, "{bad}");
        }
    }
}
