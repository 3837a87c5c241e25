//! HTTP answers and their common headers.

use std::convert::Infallible;

use futures_util::stream::{BoxStream, StreamExt, unfold};
use http_body_util::{Either, Full, StreamBody};
use hyper::body::{Bytes, Frame};
use hyper::header::{self, HeaderName, HeaderValue};
use hyper::{Response, StatusCode};
use serde::Serialize;

/// An answer: a text, or a stream of events.
pub type Answer = Response<Either<Full<Bytes>, EventBody>>;
/// The body of a stream of events.
pub type EventBody = StreamBody<BoxStream<'static, Result<Frame<Bytes>, Infallible>>>;

/// The content type of a page.
pub const HTML: &str = "text/html; charset=utf-8";
const TEXT: &str = "text/plain; charset=utf-8";
const JSON: &str = "application/json";
const EVENTS: &str = "text/event-stream";
/// Time after which a client that found the server busy should retry, in seconds.
const RETRY_AFTER: &str = "5";

/// Answers with a line of text.
pub fn text(code: StatusCode, message: &str) -> Answer {
    respond(code, TEXT, format!("{message}\n"))
}

/// Answers with a line of JSON.
pub fn json(code: StatusCode, body: &impl Serialize) -> Answer {
    match serde_json::to_string(body) {
        Ok(body) => respond(code, JSON, body + "\n"),
        Err(error) => text(StatusCode::INTERNAL_SERVER_ERROR, &error.to_string()),
    }
}

/// Answers with a body of this type.
pub fn respond(code: StatusCode, content_type: &'static str, body: String) -> Answer {
    with_body(
        code,
        content_type,
        Either::Left(Full::new(Bytes::from(body))),
    )
}

fn with_body(
    code: StatusCode,
    content_type: &'static str,
    body: Either<Full<Bytes>, EventBody>,
) -> Answer {
    let mut answer = Response::new(body);
    *answer.status_mut() = code;
    let headers = answer.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(content_type));
    // An answer repeated by a caching proxy could outlive its deadline.
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(
        header::X_CONTENT_TYPE_OPTIONS,
        HeaderValue::from_static("nosniff"),
    );
    answer
}

/// The events for one client. A feed queues nothing: an event is made when the connection can take it,
/// so a slow client skips states.
pub trait Feed: Send + 'static {
    /// Waits for the next event, as it is sent; `None` after the last one.
    fn next(&mut self) -> impl Future<Output = Option<String>> + Send;
}

/// Returns a stream of the events of a feed.
pub fn event_body(feed: impl Feed) -> EventBody {
    let frames = unfold(feed, |mut feed| async {
        let text = feed.next().await?;
        Some((Ok(Frame::data(Bytes::from(text))), feed))
    });
    StreamBody::new(frames.boxed())
}

/// Answers with a stream of events.
pub fn event_stream(body: EventBody) -> Answer {
    let mut answer = with_body(StatusCode::OK, EVENTS, Either::Right(body));
    // nginx collects an answer before it passes it on, unless it is asked not to.
    answer.headers_mut().insert(
        HeaderName::from_static("x-accel-buffering"),
        HeaderValue::from_static("no"),
    );
    answer
}

/// Answers that all `max` places for long-lived answers are taken.
pub fn full(code: StatusCode, max: usize) -> Answer {
    let why = format!(
        "all {max} places for event streams and waits are taken, or the server is stopping"
    );
    retry_later(text(code, &why))
}

/// Adds to an answer when the client should retry.
pub fn retry_later(mut answer: Answer) -> Answer {
    let headers = answer.headers_mut();
    headers.insert(header::RETRY_AFTER, HeaderValue::from_static(RETRY_AFTER));
    answer
}
