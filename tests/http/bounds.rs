//! Tests that no client can exhaust the daemon or block other clients.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use leasehold::admin::{CONNECTIONS_MAX, ReadyWhen, bind};
use leasehold::clock::boot_now;

use crate::{leader, raw, serve};

#[test]
fn methods_and_paths_are_checked() {
    let served = serve(leader(Duration::from_secs(60)), ReadyWhen::Connected);
    for path in ["/nothing", "/leader/", "//", "/status.json", "/events/"] {
        assert_eq!(served.get(path).0, 404, "{path}");
    }
    let (code, head, _) = served.ask_with("POST /leader", "", "");
    assert_eq!(code, 405);
    assert!(head.contains("allow: GET, HEAD"), "{head}");
    let (code, _, _) = served.ask_with("POST /events", "", "");
    assert_eq!(code, 405);
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
fn invalid_and_oversized_request_heads_are_refused() {
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

pub(crate) fn connect_from(from: [u8; 4], to: SocketAddr) -> TcpStream {
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

/// Returns the status code, or `None` if the server has closed the connection.
pub(crate) fn ask_on(mut stream: &TcpStream) -> Option<u16> {
    let request = b"GET /livez HTTP/1.1\r\nhost: localhost\r\n\r\n";
    stream.write_all(request).ok()?;
    let mut answer = [0; 1024];
    let length = stream.read(&mut answer).ok().filter(|length| *length > 0)?;
    let head = std::str::from_utf8(&answer[..length]).unwrap();
    Some(head[9..12].parse().unwrap())
}

pub(crate) const ATTACKER: [u8; 4] = [127, 0, 0, 2];
pub(crate) const NEIGHBOUR: [u8; 4] = [127, 0, 0, 3];

#[test]
fn idle_connections_of_one_peer_do_not_block_others() {
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
    assert_eq!(
        ask_on(&neighbour),
        Some(200),
        "the neighbour's connection is still open"
    );
    // The attacker gets responses too, because the server evicts the attacker's own oldest
    // connections.
    assert_eq!(ask_on(&connect_from(ATTACKER, served.address)), Some(200));
    let metrics = served.get("/metrics").1;
    let failures = "leasehold_publish_failures_total{lease=\"orders\",surface=\"http\"} 0\n";
    assert!(
        metrics.contains(failures),
        "the server counted a failure: {metrics}"
    );
    let closed = metrics
        .lines()
        .find_map(|l| l.strip_prefix("leasehold_http_connections_evicted_total{lease=\"orders\"} "))
        .unwrap();
    assert!(closed.parse::<f64>().unwrap() > 0.0, "{metrics}");
    drop(silent);
}

#[test]
fn valid_connections_of_one_peer_do_not_block_others() {
    let served = serve(leader(Duration::from_secs(60)), ReadyWhen::Connected);
    let kept: Vec<_> = (0..CONNECTIONS_MAX)
        .map(|_| connect_from(ATTACKER, served.address))
        .collect();
    for stream in &kept {
        assert_eq!(ask_on(stream), Some(200));
    }
    for _ in 0..3 {
        assert_eq!(served.get("/livez").0, 200);
        // The server evicts the connections that have been idle longest.
        assert_eq!(ask_on(kept.last().unwrap()), Some(200));
    }
    assert_eq!(ask_on(&kept[0]), None, "the longest idle connection");
}

#[test]
fn requests_without_their_bodies_do_not_block_others() {
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
fn an_incomplete_request_head_times_out() {
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
fn a_web_page_on_another_host_name_cannot_read_a_loopback_server() {
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
fn the_error_about_a_port_in_use_contains_the_address() {
    let first = bind(([127, 0, 0, 1], 0).into()).unwrap();
    let error = bind(first.address()).unwrap_err();
    let text = error.to_string();
    assert!(text.contains(&first.address().to_string()), "{text}");
    assert!(text.contains("listens there"), "{text}");
    assert!(text.contains("http.listen"), "{text}");
}
