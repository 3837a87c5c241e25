//! Reads the daemon's server-sent events, as a client on this machine does.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::wait::LONG;

/// An open stream of `GET /events`, or the server's refusal.
#[derive(Debug)]
pub struct EventStream {
    stream: TcpStream,
    head: String,
    /// The received bytes, including the framing of a chunked body.
    received: Vec<u8>,
    text: String,
    end: Option<End>,
}

/// How a stream ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// The server completed the response.
    Complete,
    /// The connection closed before the end of the response.
    Broken,
}

/// A part of a stream.
#[derive(Debug, Clone, PartialEq)]
pub enum Item {
    /// An event of the daemon.
    Event(Event),
    /// A comment that keeps the connection alive.
    Comment,
}

/// An event of the daemon, as parsed from the stream.
#[derive(Debug, Clone, PartialEq)]
pub struct Event {
    /// The id that a client sends to resume the stream after this event.
    pub id: String,
    /// The reconnection delay in milliseconds, if the event sets one.
    pub retry: Option<u64>,
    /// The status in the event.
    pub data: Value,
}

impl EventStream {
    /// Opens a stream with additional header lines.
    ///
    /// # Panics
    /// If there is no response.
    pub async fn open(address: SocketAddr, headers: &[&str]) -> Self {
        let headers: String = headers.iter().map(|line| format!("{line}\r\n")).collect();
        let request = format!("GET /events HTTP/1.1\r\nHost: {address}\r\n{headers}\r\n");
        Self::request(address, &request).await
    }

    /// Sends `request` unchanged, and receives the head of the response.
    ///
    /// # Panics
    /// If there is no response.
    pub async fn request(address: SocketAddr, request: &str) -> Self {
        let mut stream = TcpStream::connect(address).await.unwrap();
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut opened = Self {
            stream,
            head: String::new(),
            received: Vec::new(),
            text: String::new(),
            end: None,
        };
        loop {
            if let Some(end) = opened.received.windows(4).position(|w| w == b"\r\n\r\n") {
                let head = opened.received.drain(..end + 4).collect();
                opened.head = String::from_utf8(head).unwrap().to_ascii_lowercase();
                opened.decode();
                return opened;
            }
            assert!(opened.receive().await, "no response to {request}");
        }
    }

    /// Returns the status code.
    ///
    /// # Panics
    /// If the response has no status code.
    pub fn code(&self) -> u16 {
        self.head[9..12].parse().unwrap()
    }

    /// Returns the head of the response, in lower case.
    pub fn head(&self) -> &str {
        &self.head
    }

    /// Receives the next event or comment, or `None` at the end of the stream.
    ///
    /// # Panics
    /// If nothing arrives, or if the received text is neither an event nor a comment.
    pub async fn next(&mut self) -> Option<Item> {
        loop {
            if let Some((block, rest)) = self.text.split_once("\n\n") {
                let item = parse(block);
                self.text = rest.to_owned();
                return Some(item);
            }
            if self.end.is_some() {
                return None;
            }
            self.receive().await;
            self.decode();
        }
    }

    /// Receives the next event.
    ///
    /// # Panics
    /// If the stream ends before the event, or after [`LONG`].
    pub async fn event(&mut self) -> Event {
        self.event_within(LONG).await
    }

    async fn event_within(&mut self, limit: Duration) -> Event {
        let event = timeout(limit, self.next_event()).await;
        event.unwrap_or_else(|_| panic!("no event within {limit:?}"))
    }

    async fn next_event(&mut self) -> Event {
        loop {
            match self.next().await {
                Some(Item::Event(event)) => return event,
                Some(Item::Comment) => {}
                None => panic!("the stream has ended: {:?}", self.end),
            }
        }
    }

    /// Receives events until `has` returns true for the status of an event. Returns all received
    /// events.
    ///
    /// # Panics
    /// If the stream ends before that event, or after [`LONG`].
    pub async fn events_until(&mut self, has: impl Fn(&Value) -> bool) -> Vec<Event> {
        let mut events: Vec<Event> = Vec::new();
        let received = async {
            while !events.last().is_some_and(|event| has(&event.data)) {
                events.push(self.next_event().await);
            }
        };
        if timeout(LONG, received).await.is_err() {
            panic!("the event did not arrive within {LONG:?}: {events:?}");
        }
        events
    }

    /// Receives the rest of the stream.
    ///
    /// # Panics
    /// If the stream does not end within [`LONG`].
    pub async fn rest(&mut self) -> (Vec<Event>, End) {
        let mut events = Vec::new();
        let received = async {
            while let Some(item) = self.next().await {
                if let Item::Event(event) = item {
                    events.push(event);
                }
            }
        };
        if timeout(LONG, received).await.is_err() {
            panic!("the stream did not end within {LONG:?}: {events:?}");
        }
        (events, self.end.unwrap())
    }

    /// Returns false if the connection has ended.
    async fn receive(&mut self) -> bool {
        let received = timeout(LONG, self.stream.read_buf(&mut self.received)).await;
        match received.expect("something arrives") {
            Ok(0) => self.end = self.end.or(Some(End::Broken)),
            Ok(_) => return true,
            Err(error) => {
                assert_eq!(error.kind(), io::ErrorKind::ConnectionReset);
                self.end = self.end.or(Some(End::Broken));
            }
        }
        false
    }

    fn decode(&mut self) {
        if !self.head.contains("transfer-encoding: chunked") {
            let text = std::mem::take(&mut self.received);
            self.text += std::str::from_utf8(&text).unwrap();
            // Without chunks or a length, closing the connection completes the response.
            self.end = self.end.and(Some(End::Complete));
            return;
        }
        while let Some(line) = self.received.windows(2).position(|w| w == b"\r\n") {
            let size = std::str::from_utf8(&self.received[..line]).unwrap();
            let size = usize::from_str_radix(size, 16).unwrap();
            let end = line + 2 + size;
            if self.received.len() < end + 2 {
                return;
            }
            let chunk = &self.received[line + 2..end];
            self.text += std::str::from_utf8(chunk).unwrap();
            self.received.drain(..end + 2);
            if size == 0 {
                self.end = Some(End::Complete);
                return;
            }
        }
    }
}

fn parse(block: &str) -> Item {
    let (mut id, mut retry, mut data) = (None, None, None);
    for line in block.lines() {
        match line.split_once(':') {
            Some(("", _)) => {}
            Some(("id", value)) => id = Some(value.trim_start().to_owned()),
            Some(("retry", value)) => retry = Some(value.trim().parse().unwrap()),
            Some(("data", value)) => data = Some(serde_json::from_str(value).unwrap()),
            _ => panic!("not a field: {line:?} in {block:?}"),
        }
    }
    match (id, data) {
        (Some(id), Some(data)) => Item::Event(Event { id, retry, data }),
        (None, None) => Item::Comment,
        _ => panic!("neither an event nor a comment: {block:?}"),
    }
}

#[cfg(test)]
mod tests {
    use tokio::net::TcpListener;

    use super::*;

    /// A stream that sends only comments.
    async fn commenting() -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(async move {
            let (mut stream, _) = listener.accept().await.unwrap();
            let head = b"HTTP/1.1 200 OK\r\n\r\n";
            stream.write_all(head).await.unwrap();
            while stream.write_all(b":\n\n").await.is_ok() {
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        });
        address
    }

    #[tokio::test]
    #[should_panic(expected = "no event within")]
    async fn a_wait_for_an_event_ends_although_comments_arrive() {
        let mut stream = EventStream::open(commenting().await, &[]).await;
        stream.event_within(Duration::from_millis(500)).await;
    }
}
