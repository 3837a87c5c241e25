//! Sends one HTTP/1.1 request to a loopback port, without redirects or keep-alive, so that a test
//! sees the exact response on one connection.

use std::net::SocketAddr;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::Failure;

/// Maximum wait for a response. A local server responds in less than a millisecond, but a frozen
/// daemon responds only when the test resumes it.
const ANSWER_MAX: Duration = Duration::from_secs(30);
/// Maximum length of a response, far above the daemon's longest page, /metrics.
const BODY_MAX_BYTES: u64 = 4 * 1024 * 1024;

pub(crate) async fn request(
    address: SocketAddr,
    method: &str,
    path: &str,
    headers: &[(&str, &str)],
) -> Result<(u16, String), Failure> {
    let mut text = format!("{method} {path} HTTP/1.1\r\nHost: {address}\r\n");
    for (name, value) in headers {
        text += &format!("{name}: {value}\r\n");
    }
    if method == "POST" {
        text += "Content-Length: 0\r\n";
    }
    text += "Connection: close\r\n\r\n";
    let exchange = async {
        let mut stream = TcpStream::connect(address).await?;
        stream.write_all(text.as_bytes()).await?;
        let mut answer = Vec::new();
        stream.take(BODY_MAX_BYTES).read_to_end(&mut answer).await?;
        Ok::<_, std::io::Error>(answer)
    };
    let what = format!("{method} http://{address}{path}");
    let answer = timeout(ANSWER_MAX, exchange)
        .await
        .map_err(|_| Failure::new(format!("{what}: no response within {ANSWER_MAX:?}")))?
        .map_err(|error| Failure::new(format!("{what}: {error}")))?;
    parse(&answer).ok_or_else(|| {
        Failure::new(format!(
            "{what}: not an HTTP response: {}",
            String::from_utf8_lossy(&answer)
        ))
    })
}

fn parse(answer: &[u8]) -> Option<(u16, String)> {
    let split = answer.windows(4).position(|window| window == b"\r\n\r\n")?;
    let head = std::str::from_utf8(&answer[..split]).ok()?;
    let body = &answer[split + 4..];
    let status = head.split(' ').nth(1)?.parse().ok()?;
    let chunked = head
        .to_ascii_lowercase()
        .contains("transfer-encoding: chunked");
    let body = if chunked {
        unchunk(body)?
    } else {
        body.to_vec()
    };
    Some((status, String::from_utf8_lossy(&body).into_owned()))
}

fn unchunk(mut rest: &[u8]) -> Option<Vec<u8>> {
    let mut body = Vec::new();
    loop {
        let line = rest.windows(2).position(|window| window == b"\r\n")?;
        let size =
            usize::from_str_radix(std::str::from_utf8(&rest[..line]).ok()?.trim(), 16).ok()?;
        rest = &rest[line + 2..];
        if size == 0 {
            return Some(body);
        }
        body.extend_from_slice(rest.get(..size)?);
        rest = rest.get(size + 2..)?;
    }
}

#[cfg(test)]
mod tests {
    use super::parse;

    #[test]
    fn plain_and_chunked_answers_are_read() {
        let plain = b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 2\r\n\r\nno";
        assert_eq!(parse(plain), Some((503, "no".to_owned())));
        let chunked =
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n";
        assert_eq!(parse(chunked), Some((200, "abcde".to_owned())));
        assert_eq!(parse(b"nonsense"), None);
    }
}
