//! Tests that the number of event streams and waits is limited, and that they never block ordinary
//! requests.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use leasehold::admin::{CONNECTIONS_MAX, ReadyWhen, STREAMS_MAX};
use leasehold::election::{Role, Status};
use leasehold_testbed::{EventStream, eventually};
use rustix::net::sockopt;

use crate::bounds::{ATTACKER, NEIGHBOUR, connect_from};
use crate::{Served, leader, serve, status};

const HOUR: Duration = Duration::from_secs(3600);

async fn all_places(served: &Served) -> Vec<EventStream> {
    let mut streams = Vec::new();
    for _ in 0..STREAMS_MAX {
        let mut stream = served.events().await;
        assert_eq!(stream.code(), 200);
        stream.event().await;
        streams.push(stream);
    }
    streams
}

fn refused(served: &Served) -> f64 {
    let name = "leasehold_http_streams_refused_total{lease=\"orders\"}";
    leasehold_testbed::daemon::sample(&served.get("/metrics").1, name).unwrap()
}

/// Opens an event stream from the address `from`. Returns the stream and the status code.
fn stream_from(from: [u8; 4], to: SocketAddr) -> (TcpStream, u16) {
    let mut stream = connect_from(from, to);
    let request = b"GET /events HTTP/1.1\r\nhost: localhost\r\n\r\n";
    stream.write_all(request).unwrap();
    let mut head = [0; 12];
    stream.read_exact(&mut head).unwrap();
    let code = std::str::from_utf8(&head[9..]).unwrap().parse().unwrap();
    (stream, code)
}

#[tokio::test]
async fn a_stream_beyond_the_limit_is_refused_with_retry_after() {
    let served = serve(leader(HOUR), ReadyWhen::Connected);
    let mut streams = all_places(&served).await;
    assert_eq!(refused(&served), 0.0);
    let full = served.events().await;
    assert_eq!(full.code(), 503);
    assert!(
        full.head().contains("retry-after: 5\r\n"),
        "{}",
        full.head()
    );
    // The status is not 503, because 503 would mean that this candidate does not lead.
    let (code, head, body) = served.ask_with("GET /leader?wait=1m&role=follower", "", "");
    assert_eq!(code, 429);
    assert!(head.contains("retry-after: 5"), "{head}");
    assert!(body.contains(&STREAMS_MAX.to_string()), "{body}");
    assert_eq!(
        served.get("/leader?wait=1m").0,
        200,
        "a leader answers without waiting"
    );
    assert_eq!(refused(&served), 2.0);
    // A client that disconnects makes room for another stream.
    streams.pop();
    eventually("a stream is accepted", async || {
        served.events().await.code() == 200
    })
    .await;
}

#[tokio::test]
async fn streams_and_ordinary_requests_do_not_displace_each_other() {
    let served = serve(leader(HOUR), ReadyWhen::Connected);
    let mut streams = all_places(&served).await;
    let kept: Vec<_> = (0..CONNECTIONS_MAX)
        .map(|_| connect_from([127, 0, 0, 1], served.address))
        .collect();
    for path in ["/livez", "/readyz", "/leader", "/metrics"] {
        assert_eq!(served.get(path).0, 200, "{path}");
    }
    served.status.send_replace(status(Role::Stopping));
    for stream in &mut streams {
        assert_eq!(stream.event().await.data["role"], "stopping");
    }
    drop(kept);
}

#[tokio::test]
async fn one_peer_cannot_take_all_streams() {
    let served = serve(leader(HOUR), ReadyWhen::Connected);
    let attackers: Vec<_> = (0..STREAMS_MAX)
        .map(|_| stream_from(ATTACKER, served.address))
        .collect();
    assert!(attackers.iter().all(|(_, code)| *code == 200));
    assert_eq!(stream_from(ATTACKER, served.address).1, 503);
    let (mut neighbour, code) = stream_from(NEIGHBOUR, served.address);
    assert_eq!(code, 200);
    // The server has closed the attacker's oldest stream to make room.
    let (mut oldest, _) = attackers.into_iter().next().unwrap();
    oldest.read_to_end(&mut Vec::new()).unwrap();
    let mut some = [0; 64];
    assert!(neighbour.read(&mut some).unwrap() > 0);
}

#[tokio::test]
async fn a_client_that_does_not_read_is_disconnected_and_delays_no_other() {
    let served = serve(leader(HOUR), ReadyWhen::Connected);
    let mut reader = served.events().await;
    reader.event().await;
    let (slow, code) = stream_from(ATTACKER, served.address);
    assert_eq!(code, 200);
    // With this small receive buffer, the events soon fill the client's TCP window.
    sockopt::set_socket_recv_buffer_size(&slow, 1).unwrap();
    let streams = || sockets_to(served.address, &slow);
    assert!(streams());
    let mut transitions = 0;
    eventually("the kernel closes the connection", async || {
        for role in [Role::Follower, Role::Stopping] {
            transitions += 1;
            served.status.send_replace(Status {
                transitions,
                ..status(role)
            });
            let newest = |data: &serde_json::Value| data["transitions"] == transitions;
            reader.events_until(newest).await;
        }
        !streams()
    })
    .await;
}

fn sockets_to(server: SocketAddr, client: &TcpStream) -> bool {
    let hex = |port: u16| format!(":{port:04X}");
    let client = hex(client.local_addr().unwrap().port());
    let table = std::fs::read_to_string("/proc/net/tcp").unwrap();
    table.lines().any(|line| {
        let mut fields = line.split_whitespace().skip(1);
        let (local, remote) = (fields.next().unwrap(), fields.next().unwrap());
        // State 01 is ESTABLISHED.
        let open = fields.next() == Some("01");
        open && local.ends_with(&hex(server.port())) && remote.ends_with(&client)
    })
}
