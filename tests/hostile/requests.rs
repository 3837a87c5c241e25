//! Sends arbitrary bytes as HTTP requests. The server must answer or refuse each request without
//! leaking a descriptor.

use std::fs::File;
use std::io::ErrorKind;
use std::net::SocketAddr;
use std::time::Duration;

use futures_util::StreamExt;
use leasehold_testbed::wait::found;
use leasehold_testbed::{Mutator, Scratch, corpus, run};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::target::{LONG, assert_unharmed, descriptors, eventually, loopback, stage};

/// Number of inputs of each kind: random bytes, requests for random targets, and mutated requests.
const RANDOM: usize = 50;
const TARGETS: usize = 150;
const MUTATED: usize = 400;
const OTHERS: usize = RANDOM + TARGETS;
const BYTES_MAX: usize = 400;
const CLIENTS: usize = 16;
/// Time that a client waits for an answer before it closes its sending side. Longer answers, such
/// as event streams, are cut off.
const ANSWERED_IN: Duration = Duration::from_millis(200);
/// Texts that identify requests that the server may answer late. If further bytes follow such requests,
/// the server notices a closed connection only at its next write.
const LASTING: [&[u8]; 2] = [b"/events", b"wait="];
/// Status codes of server errors. No request may cause a server error other than 503.
const FAILURES: std::ops::RangeInclusive<u16> = 500..=599;

const TOKENS: &[&[u8]] = &[
    b"\r\n",
    b"\r\n\r\n",
    b"\n",
    b"\r",
    b"\0",
    b" ",
    b":",
    b"/leader?wait=20s&role=follower",
    b"/events",
    b"/document?name=%",
    b"/\xc3\xbc",
    b"?wait=1\xc2\xb5s",
    b"&role=",
    b"HTTP/1.0",
    b"HTTP/9.9",
    b"HEAD ",
    b"POST ",
    b"Host: evil.test\r\n",
    b"Host: localhost\r\n",
    b"Content-Length: 4\r\n",
    b"Content-Length: 18446744073709551615\r\n",
    b"Transfer-Encoding: chunked\r\n",
    b"Transfer-Encoding: chunked, gzip\r\n",
    b"Connection: close\r\n",
    b"Connection: keep-alive, upgrade\r\n",
    b"Expect: 100-continue\r\n",
    b"Last-Event-ID: :18446744073709551616\r\n",
    b"Accept: */*;q=inf\r\n",
    b"0\r\n\r\n",
    b"ffffffffffffffff\r\n",
];

/// Returns a request for a path that may exist, with a random query.
fn target(mutator: &mut Mutator) -> Vec<u8> {
    const METHODS: [&str; 4] = ["GET", "HEAD", "POST", "X"];
    const PATHS: [&str; 9] = [
        "/",
        "/leader",
        "/events",
        "/status",
        "/metrics",
        "/stepped-down",
        "/document",
        "/login",
        "/x",
    ];
    const PARTS: [&str; 19] = [
        "wait=",
        "role=",
        "token=",
        "name=",
        "wait=1ms",
        "20s",
        "0s",
        "leader",
        "follower",
        "&",
        "=",
        "%",
        "%zz",
        "%c3%bc",
        "99999999999",
        "?",
        "-1",
        "+",
        "",
    ];
    let (method, path) = (*mutator.pick(&METHODS), *mutator.pick(&PATHS));
    let query: String = (0..mutator.below(7))
        .map(|_| *mutator.pick(&PARTS))
        .collect();
    format!("{method} {path}?{query} HTTP/1.1\r\nHost: localhost\r\n\r\n").into_bytes()
}

/// Sends an input in parts, and returns the answers until the server closes the connection. If
/// `end` is true, the client closes its sending side after the first answer or a timeout. The
/// client does not close earlier, because a server may ignore a client that has closed its sending
/// side.
async fn answers(server: SocketAddr, parts: &[&[u8]], end: bool) -> std::io::Result<Vec<u8>> {
    let mut stream = TcpStream::connect(server).await?;
    stream.set_nodelay(true)?;
    for part in parts {
        // The server may refuse the first parts and close the connection.
        if stream.write_all(part).await.is_err() {
            break;
        }
        tokio::task::yield_now().await;
    }
    let mut answers = Vec::new();
    if end {
        let _ = timeout(ANSWERED_IN, stream.read_buf(&mut answers)).await;
        let _ = stream.shutdown().await;
    }
    let lasts = end && LASTING.iter().any(|part| contains(&parts.concat(), part));
    let most = if lasts { ANSWERED_IN } else { LONG };
    match timeout(most, stream.read_to_end(&mut answers)).await {
        Err(_) if lasts => Ok(answers),
        Err(_) => Err(ErrorKind::TimedOut.into()),
        Ok(Err(error)) if error.kind() != ErrorKind::ConnectionReset => Err(error),
        Ok(_) => Ok(answers),
    }
}

fn contains(bytes: &[u8], part: &[u8]) -> bool {
    bytes.windows(part.len()).any(|window| window == part)
}

struct Input {
    bytes: Vec<u8>,
    name: String,
    cuts: [usize; 2],
}

impl Input {
    fn new(bytes: Vec<u8>, name: String, mutator: &mut Mutator) -> Self {
        let mut cuts = [(); 2].map(|()| mutator.below(bytes.len() + 1));
        cuts.sort_unstable();
        Self { bytes, name, cuts }
    }

    /// Sends the input whole and in parts. Asserts that the server closes each connection and never
    /// reports a server error. Returns the status code of the first answer in each case.
    async fn survived(&self, server: SocketAddr) -> [u16; 2] {
        let Self { bytes, name, cuts } = self;
        let (start, end) = (cuts[0], cuts[1]);
        let parts = [&bytes[..start], &bytes[start..end], &bytes[end..]];
        let mut first = [0; 2];
        for (parts, first) in [&[&bytes[..]][..], &parts[..]].into_iter().zip(&mut first) {
            let shown = bytes.escape_ascii();
            let answers = answers(server, parts, true).await;
            let answers = answers.unwrap_or_else(|error| panic!("{name}: {error}: {shown}"));
            *first = codes(&answers).first().copied().unwrap_or_default();
            assert!(
                answers.is_empty() || *first != 0 && (*first == 503 || !FAILURES.contains(first)),
                "{name}: {shown}: {}",
                answers.escape_ascii()
            );
        }
        first
    }
}

fn codes(mut answers: &[u8]) -> Vec<u16> {
    let mut codes = Vec::new();
    while let Some(rest) = answers.strip_prefix(b"HTTP/1.") {
        let head = rest.windows(4).position(|window| window == b"\r\n\r\n");
        let head = head.map_or(rest.len(), |end| end + 4);
        let text = String::from_utf8_lossy(&rest[..head]).into_owned();
        let code = text.get(2..5).and_then(|code| code.parse::<u16>().ok());
        codes.extend(code);
        let length = text.lines().find_map(|line| {
            let (name, value) = line.split_once(": ")?;
            let is_length = name.eq_ignore_ascii_case("content-length");
            is_length.then(|| value.parse::<usize>().ok())?
        });
        let body = length.unwrap_or_default().min(rest.len() - head);
        answers = &rest[head + body..];
    }
    codes
}

/// Sends the corpus, random bytes and mutations of the corpus. Asserts that the server leaks no
/// descriptors.
async fn any_bytes(server: SocketAddr, pid: u32) {
    let seed = Mutator::seed();
    let mut mutator = Mutator::new(seed);
    let corpus = corpus::inputs("http");
    let mut inputs = Vec::new();
    for (number, bytes) in corpus.iter().enumerate() {
        let name = format!("corpus {number}");
        inputs.push(Input::new(bytes.clone(), name, &mut mutator));
    }
    for number in 0..OTHERS + MUTATED {
        let bytes = match number {
            ..RANDOM => mutator.bytes(BYTES_MAX),
            RANDOM..OTHERS => target(&mut mutator),
            _ => mutator.mutated(&corpus, TOKENS),
        };
        let name = format!("HOSTILE_SEED={seed}, input {number}");
        inputs.push(Input::new(bytes, name, &mut mutator));
    }
    // The server opens some permanent descriptors at its first answer.
    inputs[0].survived(server).await;
    let before = descriptors(pid, server);
    let codes = futures_util::stream::iter(&inputs);
    let codes = codes.map(|input| input.survived(server));
    let codes: Vec<_> = codes.buffer_unordered(CLIENTS).collect().await;
    let codes = codes.concat();
    let count = |code| codes.iter().filter(|found| **found == code).count();
    let counts = [200, 400, 404].map(count);
    assert!(counts.iter().all(|count| *count > 20), "{counts:?}");
    eventually("no descriptor leaks", async || {
        descriptors(pid, server) <= before
    })
    .await;
}

#[test]
fn a_daemon_survives_any_bytes() {
    run(async {
        let stage = stage().await;
        let daemon = stage.candidate("a").leading(LONG).await;
        let token = daemon.token().unwrap();
        any_bytes(loopback(daemon.port()), daemon.pid()).await;
        assert_unharmed(&daemon, token).await;
    });
}

#[test]
fn the_page_of_a_collection_survives_any_bytes() {
    run(async {
        let stage = stage().await;
        let _leader = stage.candidate("a").leading(LONG).await;
        let scratch = Scratch::new();
        let log = scratch.path().join("log");
        let arguments = ["web", "--listen", "127.0.0.1:0", "--allow-actions"];
        let mut command = stage.command(&stage.set().uri(), &arguments);
        command.stderr(File::create(&log).unwrap());
        let mut page = command.spawn().unwrap();
        let port = found("the page listens", async || {
            let logs = std::fs::read_to_string(&log).unwrap();
            let (_, rest) = logs.split_once("listening on http://127.0.0.1:")?;
            let (port, _) = rest.split_once('/')?;
            Some(port.parse().unwrap())
        })
        .await;
        any_bytes(loopback(port), page.id().unwrap()).await;
        let request = b"GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
        assert_eq!(codes_of(loopback(port), request).await, [200]);
        let logs = std::fs::read_to_string(&log).unwrap();
        assert!(!logs.contains("panicked"), "{logs}");
        assert_eq!(page.try_wait().unwrap(), None);
    });
}

async fn codes_of(server: SocketAddr, request: &[u8]) -> Vec<u16> {
    codes(&answers(server, &[request], false).await.unwrap())
}

/// Otherwise a client could smuggle a request in the body of another request.
#[test]
fn bodies_are_not_parsed_as_requests() {
    const INNER: &str = "GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n";
    const LAST: &str = "POST /leader HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
    run(async {
        let stage = stage().await;
        let daemon = stage.candidate("a").leading(LONG).await;
        let server = loopback(daemon.port());
        let length = INNER.len();
        for (line, headers, code) in [
            ("POST /nothing", "Host: localhost\r\n", 404),
            ("POST /leader", "Host: localhost\r\n", 405),
            (
                "POST /stepped-down?token=7",
                "Host: localhost\r\nOrigin: null\r\n",
                403,
            ),
            ("GET /status", "Host: evil.test\r\n", 421),
            ("GET /leader?wait=x", "Host: localhost\r\n", 400),
        ] {
            for body in [
                format!("Content-Length: {length}\r\n\r\n{INNER}"),
                format!("Transfer-Encoding: chunked\r\n\r\n{length:x}\r\n{INNER}\r\n0\r\n\r\n"),
            ] {
                let request = format!("{line} HTTP/1.1\r\n{headers}{body}{LAST}");
                let codes = codes_of(server, request.as_bytes()).await;
                // The server may close the connection instead of skipping the unread body.
                assert!(
                    codes == [code] || codes == [code, 405],
                    "{codes:?}: {request}"
                );
            }
        }
        // Without a declared length, the server must treat the bytes as the next request.
        let two = format!("GET /nothing HTTP/1.1\r\nHost: localhost\r\n\r\n{INNER}{LAST}");
        assert_eq!(codes_of(server, two.as_bytes()).await, [404, 200, 405]);
    });
}

/// If a request names two hosts, the server refuses the request unless both names are this
/// machine's.
#[test]
fn all_hosts_of_a_request_are_checked() {
    run(async {
        let stage = stage().await;
        let daemon = stage.candidate("a").leading(LONG).await;
        let server = loopback(daemon.port());
        for (target, hosts, code) in [
            ("/status", "Host: localhost\r\n", 200),
            ("http://localhost:1/status", "Host: localhost\r\n", 200),
            ("http://evil.test/status", "Host: localhost\r\n", 421),
            ("/status", "Host: localhost\r\nHost: evil.test\r\n", 421),
            ("/status", "Host: localhost:80@evil.test\r\n", 421),
            ("/status", "Host: [::1]evil.test\r\n", 421),
        ] {
            let request = format!("GET {target} HTTP/1.1\r\nConnection: close\r\n{hosts}\r\n");
            let codes = codes_of(server, request.as_bytes()).await;
            assert_eq!(codes, [code], "{request}");
        }
    });
}
