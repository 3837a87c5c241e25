//! Goal: no client can exhaust the server's connections and streams, and a client that does not
//! read never delays others.

use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;

use crate::server::{Events, LONG, Server, shared_stage};

const STREAMS_MAX: usize = 64;

#[tokio::test]
async fn streams_are_bounded_and_leave_room_for_requests() {
    let stage = shared_stage().await;
    let _a = stage.candidate("a").leading(LONG).await;
    let server = Server::start(&stage, &[]).await;
    server.wait_ready().await;
    let mut open = Vec::new();
    for _ in 0..STREAMS_MAX {
        open.push(server.events().await);
    }
    assert_eq!(Events::open(&server, "").await.code, 503);
    assert_eq!(server.get("/livez").await.code, 200);
    open.pop();
    crate::server::eventually("a connection is free", async || {
        Events::open(&server, "").await.code == 200
    })
    .await;
}

#[tokio::test]
async fn long_heads_and_bodies_are_refused() {
    let stage = shared_stage().await;
    let server = Server::start(&stage, &["--allow-actions"]).await;
    let long = "x".repeat(16 * 1024);
    let answer = server.request("GET", "/", &[("X-Long", &long)], "").await;
    assert_eq!(answer.code, 431, "{answer:?}");
    let (secret, origin) = (server.secret().await, server.origin());
    let headers = [("Origin", &*origin), ("X-Leasehold-Page", &*secret)];
    let answer = server.request("POST", "/actions", &headers, &long).await;
    assert_eq!(answer.code, 413, "{answer:?}");
    assert_eq!(server.get("/nowhere").await.code, 404);
    assert_eq!(server.request("PUT", "/events", &[], "").await.code, 405);
}

#[tokio::test]
async fn a_browser_that_does_not_read_delays_no_other() {
    let stage = shared_stage().await;
    let a = stage.candidate("a").leading(LONG).await;
    let b = stage.candidate("b").following("a", LONG).await;
    b.wait_stream().await;
    let lease = stage.lease();
    let server = Server::start(&stage, &[]).await;
    let mut deaf = TcpStream::connect(server.host()).await.unwrap();
    let request = format!("GET /events HTTP/1.1\r\nHost: {}\r\n\r\n", server.host());
    deaf.write_all(request.as_bytes()).await.unwrap();
    let mut events = server.events().await;
    events.until_holder(lease, "a").await;
    a.term();
    events.until_holder(lease, "b").await;
}
