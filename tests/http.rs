//! Goal: every HTTP response is true at the instant of the request (I4), and no client can exhaust
//! the daemon.
//! Method: a real listener on a loopback port, addressed with raw bytes.

#![allow(
    clippy::unwrap_used,
    reason = "a fixture that fails should end its test"
)]
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::thread;
use std::time::Duration;

use leasehold::admin::{Admin, AdminState, BODY_BYTES_MAX, CONNECTIONS_MAX, ReadyWhen};
use leasehold::clock::boot_now;
use leasehold::election::{
    Authority, HolderView, Identity, LeaseName, Role, Session, Status, Token,
};
use leasehold::publish::StoreInfo;
use leasehold::publish::metrics::Metrics;
use leasehold::publish::render::Identification;
use leasehold_testbed::{assert_contains, skip};
use tokio::sync::{mpsc, oneshot, watch};

/// An admin endpoint, served by an event loop in a thread of its own.
struct Served {
    address: SocketAddr,
    status: watch::Sender<Status>,
    stepped_down: mpsc::Receiver<Token>,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<thread::JoinHandle<()>>,
}

impl Drop for Served {
    fn drop(&mut self) {
        self.stop.take();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn token(n: i64) -> Token {
    Token::new(n).unwrap()
}

fn status(role: Role) -> Status {
    Status {
        role,
        store_reached: true,
        token_highest: token(7),
        ..Status::initial(Session::from_bytes([1; 16]), boot_now())
    }
}

fn held_by(identity: &str, left: Duration) -> Option<HolderView> {
    Some(HolderView {
        identity: Identity::new(identity).unwrap(),
        token: token(7),
        until: boot_now() + left,
    })
}

fn leader(left: Duration) -> Status {
    Status {
        authority: Some(Authority {
            token: token(7),
            valid_until: boot_now() + left,
        }),
        holder: held_by("me", left),
        ..status(Role::Leader)
    }
}

fn serve(first: Status, ready_when: ReadyWhen) -> Served {
    serve_on(([127, 0, 0, 1], 0).into(), first, ready_when)
}

fn serve_on(address: SocketAddr, first: Status, ready_when: ReadyWhen) -> Served {
    let who = Identification {
        lease: LeaseName::new("orders").unwrap(),
        identity: Identity::new("me").unwrap(),
        boot_id: Some("b1".to_owned()),
    };
    let (sender, status) = watch::channel(first);
    let (_, store) = watch::channel(Some(StoreInfo {
        set: Some("rs0".to_owned()),
        database: "leasehold".to_owned(),
        collection: "leases".to_owned(),
    }));
    let metrics = Metrics::new(&who, status.clone(), store.clone()).unwrap();
    let (confirm, stepped_down) = mpsc::channel(1);
    let state = AdminState {
        who,
        status,
        store,
        store_error: watch::channel(None).1,
        metrics,
        ready_when: watch::channel(ready_when).1,
        stepped_down: confirm,
    };
    let bound = Admin::bind(address).unwrap();
    let address = bound.address();
    let (stop, stopped) = oneshot::channel();
    let thread = thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        runtime.block_on(async {
            tokio::select! {
                served = bound.serve(state) => panic!("{served:?}"),
                _ = stopped => {}
            }
        });
    });
    Served {
        address,
        status: sender,
        stepped_down,
        stop: Some(stop),
        thread: Some(thread),
    }
}

/// Sends bytes and reads until the server closes the connection.
fn raw(address: SocketAddr, request: &[u8]) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    stream
        .set_read_timeout(Some(Duration::from_secs(20)))
        .unwrap();
    // A server that refuses early may close before all bytes are sent.
    let _ = stream.write_all(request);
    let mut answer = Vec::new();
    match stream.read_to_end(&mut answer) {
        Ok(_) => {}
        Err(error) if error.kind() == ErrorKind::ConnectionReset => {}
        Err(error) => panic!("{error}"),
    }
    String::from_utf8(answer).unwrap()
}

impl Served {
    /// Status code, head and body of the response.
    fn ask_with(&self, line: &str, headers: &str, body: &str) -> (u16, String, String) {
        let length = body.len();
        let answer = raw(
            self.address,
            format!(
                "{line} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ncontent-length: {length}\r\n{headers}\r\n{body}"
            )
            .as_bytes(),
        );
        let (head, body) = answer.split_once("\r\n\r\n").unwrap_or((&answer, ""));
        let code = head[9..12].parse().unwrap();
        (code, head.to_owned(), body.to_owned())
    }

    fn get(&self, path: &str) -> (u16, String) {
        let (code, _, body) = self.ask_with(&format!("GET {path}"), "", "");
        (code, body)
    }

    fn confirm(&self, query: &str) -> u16 {
        self.ask_with(&format!("POST /stepped-down{query}"), "", "")
            .0
    }
}

#[test]
fn i4_leader_turns_to_503_at_the_deadline_without_any_event() {
    let served = serve(leader(Duration::from_secs(3)), ReadyWhen::Connected);
    let (code, body) = served.get("/leader");
    assert_eq!(code, 200, "{body}");
    let value: serde_json::Value = serde_json::from_str(&body).unwrap();
    assert_eq!(
        (&value["leader"], &value["token"]),
        (&true.into(), &7.into())
    );
    assert!(value["valid_for_ms"].as_u64().unwrap() <= 3000);
    assert_eq!(served.get("/").1, "{\"name\":\"me\"}\n");

    let deadline = served.status.borrow().authority.unwrap().valid_until;
    while boot_now() < deadline {
        thread::sleep(Duration::from_millis(20));
    }
    let (code, body) = served.get("/leader");
    assert_eq!(code, 503);
    assert_eq!(
        body,
        "{\"leader\":false,\"token\":null,\"valid_for_ms\":null}\n"
    );
    assert_eq!(served.get("/").1, "{\"name\":\"\"}\n");
    let value: serde_json::Value = serde_json::from_str(&served.get("/status").1).unwrap();
    assert_eq!(
        (&value["role"], &value["leader"]),
        (&"follower".into(), &false.into())
    );
    let (code, metrics) = served.get("/metrics");
    assert_eq!(code, 200);
    assert_contains(&metrics, "leasehold_leader{lease=\"orders\"} 0\n");
}

#[test]
fn status_tells_the_store() {
    let served = serve(leader(Duration::from_secs(60)), ReadyWhen::Connected);
    let (code, head, body) = served.ask_with("GET /status", "", "");
    assert_eq!(code, 200);
    assert!(head.contains("content-type: application/json"), "{head}");
    assert!(head.contains("cache-control: no-store"), "{head}");
    let value: serde_json::Value = serde_json::from_str(&body).unwrap();
    assert_eq!(value["store"]["set"], "rs0");
    assert_eq!(value["store"]["database"], "leasehold");
    assert_eq!(value["store"]["collection"], "leases");
    assert_eq!(
        (&value["token"], &value["boot_id"]),
        (&7.into(), &"b1".into())
    );
}

#[test]
fn probes_answer_by_what_they_ask() {
    let served = serve(
        Status::initial(Session::from_bytes([1; 16]), boot_now()),
        ReadyWhen::Connected,
    );
    assert_eq!(served.get("/livez").0, 200);
    assert_eq!(served.get("/readyz").0, 503);
    served.status.send_replace(status(Role::Follower));
    assert_eq!(served.get("/readyz").0, 200);

    let served = serve(status(Role::Follower), ReadyWhen::Leader);
    assert_eq!(served.get("/readyz").0, 503);
    served.status.send_replace(leader(Duration::from_secs(60)));
    assert_eq!(served.get("/readyz").0, 200);
}

#[test]
fn the_leader_name_is_never_ours_without_authority() {
    let stopping = Status {
        holder: held_by("me", Duration::from_secs(60)),
        ..status(Role::Stopping)
    };
    let served = serve(stopping, ReadyWhen::Connected);
    assert_eq!(served.get("/").1, "{\"name\":\"\"}\n");
    assert!(!served.get("/metrics").1.contains("leasehold_holder_info{"));
    let follower = Status {
        holder: held_by("other", Duration::from_secs(60)),
        ..status(Role::Follower)
    };
    served.status.send_replace(follower);
    assert_eq!(served.get("/").1, "{\"name\":\"other\"}\n");
    let metrics = served.get("/metrics").1;
    let info = "leasehold_holder_info{identity=\"other\",lease=\"orders\"} 1\n";
    assert!(metrics.contains(info), "{metrics}");
}

#[test]
fn people_get_a_page() {
    let served = serve(leader(Duration::from_secs(60)), ReadyWhen::Connected);
    let accept = "accept: text/html,application/xml;q=0.9,*/*;q=0.8\r\n";
    let (code, head, body) = served.ask_with("GET /", accept, "");
    assert_eq!(code, 200);
    assert_contains(&head, "content-type: text/html; charset=utf-8");
    assert_contains(&head, "content-security-policy: default-src 'none'");
    assert!(body.contains("<p class=\"role\">Leader</p>"), "{body}");
    assert!(body.contains("<dt>Token</dt><dd>7</dd>"), "{body}");
    assert!(body.contains("rs0, leasehold.leases"), "{body}");
}

#[test]
fn a_confirmation_reaches_the_runner_only_for_the_token_that_steps_down() {
    let stopping = Status {
        stepping_down: Some(token(7)),
        ..status(Role::Stopping)
    };
    let mut served = serve(leader(Duration::from_secs(60)), ReadyWhen::Connected);
    assert_eq!(served.confirm("?token=7"), 409, "it still leads");
    served.status.send_replace(stopping);
    for bad in ["", "?token=", "?token=-7", "?token=seven"] {
        assert_eq!(served.confirm(bad), 400, "{bad}");
    }
    assert_eq!(served.confirm("?token=6"), 409);
    assert_eq!(served.confirm("?token=8"), 409);
    assert!(served.stepped_down.try_recv().is_err());
    assert_eq!(served.confirm("?token=7"), 202);
    assert_eq!(served.confirm("?token=7"), 503, "the queue of one is full");
    assert_eq!(served.stepped_down.try_recv(), Ok(token(7)));
    let (code, _, _) = served.ask_with(
        "POST /stepped-down?token=7",
        "origin: http://evil.example\r\n",
        "",
    );
    assert_eq!(code, 403, "a page in a browser");
    let long = "x".repeat(BODY_BYTES_MAX + 1);
    let (code, _, _) = served.ask_with("POST /stepped-down?token=7", "", &long);
    assert_eq!(code, 413);
}

#[test]
fn a_confirmation_from_elsewhere_is_forbidden() {
    // Any address of this machine other than loopback counts as a remote peer.
    let probe = std::net::UdpSocket::bind("0.0.0.0:0").unwrap();
    let routed = probe.connect("192.0.2.1:9");
    let outer = routed.and_then(|()| probe.local_addr());
    let outer = outer.map(|a| a.ip()).ok().filter(|ip| !ip.is_loopback());
    let Some(outer) = outer else {
        skip("this machine has no address besides loopback");
        return;
    };
    let served = serve_on(
        SocketAddr::new(outer, 0),
        status(Role::Stopping),
        ReadyWhen::Connected,
    );
    assert_eq!(served.confirm("?token=7"), 403);
    assert_eq!(served.get("/livez").0, 200);
}

#[test]
fn methods_and_paths_are_checked() {
    let served = serve(leader(Duration::from_secs(60)), ReadyWhen::Connected);
    for path in ["/nothing", "/leader/", "//", "/status.json"] {
        assert_eq!(served.get(path).0, 404, "{path}");
    }
    let (code, head, _) = served.ask_with("POST /leader", "", "");
    assert_eq!(code, 405);
    assert!(head.contains("allow: GET, HEAD"), "{head}");
    let (code, head, _) = served.ask_with("GET /stepped-down?token=7", "", "");
    assert_eq!(code, 405);
    assert!(head.contains("allow: POST"), "{head}");
    for path in ["/", "/livez", "/readyz", "/leader", "/status", "/metrics"] {
        let (code, head, body) = served.ask_with(&format!("HEAD {path}"), "", "");
        assert_eq!((code, body.as_str()), (200, ""), "{path}");
        assert!(head.contains("content-length: "), "{head}");
    }
}

#[test]
fn heads_that_are_too_long_or_rubbish_are_refused() {
    let served = serve(leader(Duration::from_secs(60)), ReadyWhen::Connected);
    let long = format!("GET / HTTP/1.1\r\nx: {}\r\n\r\n", "x".repeat(64 * 1024));
    let answer = raw(served.address, long.as_bytes());
    assert!(
        answer.is_empty() || answer.starts_with("HTTP/1.1 431"),
        "{answer}"
    );
    let many = format!("GET / HTTP/1.1\r\n{}\r\n", "a: b\r\n".repeat(200));
    let answer = raw(served.address, many.as_bytes());
    assert!(answer.starts_with("HTTP/1.1 431"), "{answer}");
    let answer = raw(served.address, b"\x16\x03\x01\x02\x00\x01\x00\x01\r\n\r\n");
    assert!(
        answer.is_empty() || answer.starts_with("HTTP/1.1 400"),
        "{answer}"
    );
    assert_eq!(served.get("/livez").0, 200);
}

/// Connects to `to` from a loopback address of this machine.
fn connect_from(from: [u8; 4], to: SocketAddr) -> TcpStream {
    use rustix::net::{AddressFamily, SocketType, bind, connect, socket};

    let socket = socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
    bind(&socket, &SocketAddr::from((from, 0))).unwrap();
    connect(&socket, &to).unwrap();
    let stream = TcpStream::from(socket);
    stream
        .set_read_timeout(Some(Duration::from_secs(20)))
        .unwrap();
    stream
}

/// Sends a request on a kept connection. Returns `None` if it was closed.
fn ask_on(mut stream: &TcpStream) -> Option<u16> {
    let request = b"GET /livez HTTP/1.1\r\nhost: localhost\r\n\r\n";
    stream.write_all(request).ok()?;
    let mut answer = [0; 1024];
    let length = stream.read(&mut answer).ok().filter(|length| *length > 0)?;
    let head = std::str::from_utf8(&answer[..length]).unwrap();
    Some(head[9..12].parse().unwrap())
}

const ATTACKER: [u8; 4] = [127, 0, 0, 2];
const NEIGHBOUR: [u8; 4] = [127, 0, 0, 3];

#[test]
fn silent_connections_of_one_peer_shut_nobody_out() {
    let served = serve(leader(Duration::from_secs(60)), ReadyWhen::Connected);
    let neighbour = connect_from(NEIGHBOUR, served.address);
    assert_eq!(ask_on(&neighbour), Some(200));
    let silent: Vec<_> = (0..CONNECTIONS_MAX * 3)
        .map(|_| {
            let mut stream = connect_from(ATTACKER, served.address);
            let _ = stream.write_all(b"GET / HT");
            stream
        })
        .collect();
    for path in ["/livez", "/readyz", "/leader", "/metrics"] {
        assert_eq!(served.get(path).0, 200, "{path}");
    }
    assert_eq!(ask_on(&neighbour), Some(200), "its connection was kept");
    // The peer itself gets responses too, because its oldest connections were evicted.
    assert_eq!(ask_on(&connect_from(ATTACKER, served.address)), Some(200));
    let metrics = served.get("/metrics").1;
    let failures = "leasehold_publish_failures_total{lease=\"orders\",surface=\"http\"} 0\n";
    assert!(metrics.contains(failures), "no surface failed: {metrics}");
    let closed = metrics
        .lines()
        .find_map(|l| l.strip_prefix("leasehold_http_connections_evicted_total{lease=\"orders\"} "))
        .unwrap();
    assert!(closed.parse::<f64>().unwrap() > 0.0, "{metrics}");
    drop(silent);
}

#[test]
fn polite_connections_of_one_peer_shut_nobody_out() {
    let served = serve(leader(Duration::from_secs(60)), ReadyWhen::Connected);
    let kept: Vec<_> = (0..CONNECTIONS_MAX)
        .map(|_| connect_from(ATTACKER, served.address))
        .collect();
    for stream in &kept {
        assert_eq!(ask_on(stream), Some(200));
    }
    for _ in 0..3 {
        assert_eq!(served.get("/livez").0, 200);
        // The connections that were idle for longest were evicted.
        assert_eq!(ask_on(kept.last().unwrap()), Some(200));
    }
    assert_eq!(ask_on(&kept[0]), None, "the one that was idle for longest");
}

#[test]
fn requests_without_their_bodies_shut_nobody_out() {
    let served = serve(leader(Duration::from_secs(60)), ReadyWhen::Connected);
    let waiting: Vec<_> = (0..CONNECTIONS_MAX)
        .map(|_| {
            let mut stream = connect_from(ATTACKER, served.address);
            let request = "POST /stepped-down?token=7 HTTP/1.1\r\nhost: localhost\r\n\
                           content-length: 9\r\n\r\n";
            stream.write_all(request.as_bytes()).unwrap();
            stream
        })
        .collect();
    assert_eq!(served.get("/livez").0, 200);
    drop(waiting);
}

#[test]
fn an_incomplete_head_has_its_time() {
    let served = serve(leader(Duration::from_secs(60)), ReadyWhen::Connected);
    let begun = boot_now();
    let answer = raw(served.address, b"GET / HT");
    let waited = boot_now().since(begun);
    assert!(
        answer.is_empty() || answer.starts_with("HTTP/1.1 408"),
        "{answer}"
    );
    assert!(waited < Duration::from_secs(15), "{waited:?}");
}

#[test]
fn a_page_of_another_name_cannot_read_what_listens_on_loopback() {
    let served = serve(leader(Duration::from_secs(60)), ReadyWhen::Connected);
    let ask = |host: &str| {
        let request = format!("GET /status HTTP/1.1\r\nconnection: close\r\n{host}\r\n");
        let answer = raw(served.address, request.as_bytes());
        answer[9..12].parse::<u16>().unwrap()
    };
    for host in [
        "evil.test",
        "evil.test:9402",
        "127.0.0.1.evil.test",
        "localhost.evil.test",
        "8.8.8.8",
    ] {
        assert_eq!(ask(&format!("host: {host}\r\n")), 421, "{host}");
    }
    for host in [
        "localhost",
        "LOCALHOST:80",
        "127.0.0.1:9402",
        "127.9.9.9",
        "[::1]:9402",
        "a.localhost",
    ] {
        assert_eq!(ask(&format!("host: {host}\r\n")), 200, "{host}");
    }
}

#[test]
fn a_port_that_is_taken_is_told_with_its_address() {
    let first = Admin::bind(([127, 0, 0, 1], 0).into()).unwrap();
    let error = Admin::bind(first.address()).unwrap_err();
    assert_eq!(error.source.kind(), ErrorKind::AddrInUse);
    let text = error.to_string();
    assert!(text.contains(&first.address().to_string()), "{text}");
    assert!(text.contains("http.listen"), "{text}");
}
