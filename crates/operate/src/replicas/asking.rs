//! Asks one address for the status of a daemon.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::ReplicaStatus;
use leasehold_host::cause::cause;

pub(super) const ANSWER_MAX: Duration = Duration::from_secs(3);
/// Maximum length of an answer. A daemon's answer takes about 1 KB.
const ANSWER_BYTES_MAX: u64 = 64 * 1024;
/// Maximum number of characters shown of another program's answer.
const SHOWN_MAX: usize = 40;

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum NoStatus {
    #[error("{0}")]
    NoAnswer(String),
    #[error("not a leasehold daemon: it answered {0}")]
    Foreign(String),
}

impl From<io::Error> for NoStatus {
    fn from(error: io::Error) -> Self {
        Self::NoAnswer(cause(&error))
    }
}

pub(crate) async fn status_of(address: SocketAddr) -> Result<ReplicaStatus, NoStatus> {
    let answer = tokio::time::timeout(ANSWER_MAX, get_status(address)).await;
    let answer = answer.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))?;
    let body = answer.split_once("\r\n\r\n").map(|(_, body)| body);
    let parsed = body.and_then(|body| serde_json::from_str(body).ok());
    parsed.ok_or_else(|| foreign(&answer))
}

pub(super) fn foreign(answer: &str) -> NoStatus {
    let first = answer.lines().next().unwrap_or_default();
    let shown: String = first.chars().take(SHOWN_MAX).collect();
    NoStatus::Foreign(match shown.as_str() {
        "" => "nothing".to_owned(),
        _ if answer.contains("MongoDB over HTTP") => "as a MongoDB server".to_owned(),
        shown => format!("{shown:?} to GET /status"),
    })
}

async fn get_status(address: SocketAddr) -> io::Result<String> {
    let mut stream = TcpStream::connect(address).await?;
    let request = format!("GET /status HTTP/1.0\r\nHost: {address}\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await?;
    let mut answer = Vec::new();
    let mut stream = stream.take(ANSWER_BYTES_MAX);
    stream.read_to_end(&mut answer).await?;
    Ok(String::from_utf8_lossy(&answer).into_owned())
}

/// Examples of addresses, for errors.
pub(super) const EXAMPLES: &str = "such as orders-headless:9402 or [::1]:9402";

/// Parses an address. `http://` and a path are dropped.
pub(super) fn host_and_port(text: &str) -> Result<String, String> {
    let text = text.strip_prefix("http://").unwrap_or(text);
    let (text, _) = text.split_once('/').unwrap_or((text, ""));
    let split = text.rsplit_once(':');
    let valid = split.is_some_and(|(host, port)| {
        let bracketed = host.starts_with('[') && host.ends_with(']');
        !host.is_empty()
            && (bracketed || !host.contains(':'))
            && port.parse::<u16>().is_ok_and(|port| port > 0)
    });
    match valid {
        true => Ok(text.to_owned()),
        false => Err(format!("expected HOST:PORT, {EXAMPLES}")),
    }
}
