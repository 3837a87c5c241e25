//! HTTP responses and their common headers.

use std::convert::Infallible;

use futures_util::stream::{BoxStream, StreamExt, unfold};
use http_body_util::{Either, Full, StreamBody};
use hyper::body::{Bytes, Frame};
use hyper::header::{self, HeaderValue};
use hyper::{Response, StatusCode};
use serde::Serialize;

/// A response whose body is text or an event stream.
pub type Answer = Response<Either<Full<Bytes>, EventBody>>;
/// The body of a stream of events.
pub type EventBody = StreamBody<BoxStream<'static, Result<Frame<Bytes>, Infallible>>>;

/// Content type of a page.
pub const HTML: &str = "text/html; charset=utf-8";
const TEXT: &str = "text/plain; charset=utf-8";
const JSON: &str = "application/json";
const EVENTS: &str = "text/event-stream";
/// Seconds after which a client of a busy server should retry.
const RETRY_AFTER: &str = "5";

/// Returns a response with one line of text.
pub fn text(code: StatusCode, message: &str) -> Answer {
    respond(code, TEXT, format!("{message}\n"))
}

/// Returns a response with one line of JSON.
pub fn json(code: StatusCode, body: &impl Serialize) -> Answer {
    match serde_json::to_string(body) {
        Ok(body) => respond(code, JSON, body + "\n"),
        Err(error) => text(StatusCode::INTERNAL_SERVER_ERROR, &error.to_string()),
    }
}

/// Returns a response with a body of this content type.
pub fn respond(code: StatusCode, content_type: &'static str, body: impl Into<Bytes>) -> Answer {
    let body = Full::new(body.into());
    with_body(code, content_type, Either::Left(body))
}

fn with_body(
    code: StatusCode,
    content_type: &'static str,
    body: Either<Full<Bytes>, EventBody>,
) -> Answer {
    let mut answer = Response::new(body);
    *answer.status_mut() = code;
    let headers = answer.headers_mut();
    for (name, value) in [
        (header::CONTENT_TYPE, content_type),
        // Otherwise, a proxy could serve a cached "leader" answer after the deadline.
        (header::CACHE_CONTROL, "no-store"),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    ] {
        headers.insert(name, HeaderValue::from_static(value));
    }
    answer
}

/// The source of the events for one client. The server requests the next event only when the
/// connection can send, so a slow client misses events.
pub trait Feed: Send + 'static {
    /// Waits for the next event and returns its text; `None` after the last event.
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

/// Returns a response that streams events.
pub fn event_stream(body: EventBody) -> Answer {
    let mut answer = with_body(StatusCode::OK, EVENTS, Either::Right(body));
    // By default, nginx buffers responses, which would delay events.
    let (name, value) = ("x-accel-buffering", HeaderValue::from_static("no"));
    answer.headers_mut().insert(name, value);
    answer
}

/// Returns the response that refuses an event stream or a long poll because all places are taken or
/// the server is stopping.
pub fn full(code: StatusCode, max: usize) -> Answer {
    let taken = format!("all {max} places for event streams and waits are taken");
    retry_later(text(code, &(taken + ", or the server is stopping")))
}

/// Adds a `Retry-After` header.
pub fn retry_later(mut answer: Answer) -> Answer {
    let headers = answer.headers_mut();
    headers.insert(header::RETRY_AFTER, HeaderValue::from_static(RETRY_AFTER));
    answer
}
