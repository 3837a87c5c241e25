//! Asks a daemon for its status over HTTP, on whatever host it runs.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use serde::de::DeserializeOwned;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// Time limit for an answer.
const ANSWER_MAX: Duration = Duration::from_secs(3);
/// Maximum length of an answer; a daemon's answer has about a kilobyte.
const ANSWER_BYTES_MAX: u64 = 64 * 1024;

/// Returns the fields of `GET /status` that `T` names.
///
/// # Errors
/// If no daemon answers in time.
pub(super) async fn status_of<T: DeserializeOwned>(address: SocketAddr) -> io::Result<T> {
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
