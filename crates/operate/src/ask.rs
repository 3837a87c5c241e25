//! Asks a daemon for its status over HTTP, on whatever host it runs.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// Time limit for an answer.
const ANSWER_MAX: Duration = Duration::from_secs(3);
/// Maximum length of an answer; a daemon's answer has about a kilobyte.
const ANSWER_BYTES_MAX: u64 = 64 * 1024;

/// The deployment, database and collection that a replica contends on.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(super) struct ReplicaStore {
    pub(super) kind: String,
    /// The name of a replica set.
    pub(super) set: Option<String>,
    /// The id of a replica set, unknown to earlier versions.
    pub(super) set_id: Option<String>,
    pub(super) database: String,
    pub(super) collection: String,
}

/// The part of `GET /status` that operators' tools need.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct ReplicaStatus {
    pub(super) lease: String,
    pub(super) identity: String,
    /// The id of the process; `None` from daemons that do not report it.
    pub(super) session: Option<String>,
    pub(super) role: String,
    pub(super) leader: bool,
    pub(super) token: Option<i64>,
    pub(super) store: Option<ReplicaStore>,
}

/// Returns the answer of a daemon to `GET /status`.
///
/// # Errors
/// If no daemon answers in time.
pub(super) async fn status_of(address: SocketAddr) -> io::Result<ReplicaStatus> {
    let answer = tokio::time::timeout(ANSWER_MAX, get_status(address)).await;
    let answer = answer.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))?;
    let body = answer.split_once("\r\n\r\n").map(|(_, body)| body);
    let parsed = body.and_then(|body| serde_json::from_str(body).ok());
    parsed.ok_or_else(|| io::Error::other("unexpected response to GET /status"))
}

async fn get_status(address: SocketAddr) -> io::Result<String> {
    let mut stream = TcpStream::connect(address).await?;
    let request = format!("GET /status HTTP/1.0\r\nHost: {address}\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await?;
    let mut answer = String::new();
    stream
        .take(ANSWER_BYTES_MAX)
        .read_to_string(&mut answer)
        .await?;
    Ok(answer)
}
