//! Goal: `GET /leader?wait=30s` answers as soon as the candidate has the role, and not before.

use std::time::Duration;

use leasehold::admin::ReadyWhen;
use leasehold::clock::boot_now;
use leasehold::election::Role;
use leasehold_testbed::EventStream;
use leasehold_testbed::daemon::sample;
use serde_json::Value;

use crate::{Served, leader, serve, status};

const HOUR: Duration = Duration::from_secs(3600);

impl Served {
    /// Sends a request that waits for a role, and calls `meanwhile` once the server holds the
    /// request. A held request has two receivers of the status: one in the connection and one in
    /// the wait.
    fn waited(&self, query: &str, meanwhile: impl FnOnce()) -> (u16, Value) {
        let (code, body) = std::thread::scope(|scope| {
            let waiting = scope.spawn(|| self.get(&format!("/leader?{query}")));
            while !waiting.is_finished() && self.status.receiver_count() < self.receivers + 2 {
                std::thread::sleep(Duration::from_millis(1));
            }
            meanwhile();
            waiting.join().unwrap()
        });
        (code, serde_json::from_str(&body).unwrap())
    }
}

#[test]
fn a_wait_for_the_current_role_returns_immediately() {
    let served = serve(leader(HOUR), ReadyWhen::Connected);
    let (code, body) = served.waited("wait=5m", || {});
    assert_eq!(
        (code, &body["leader"], &body["token"]),
        (200, &true.into(), &7.into())
    );
    assert!(body["valid_for_ms"].as_u64().unwrap() <= 3_600_000);
    served.status.send_replace(status(Role::Paused));
    let (code, body) = served.waited("wait=5m&role=follower", || {});
    assert_eq!(
        (code, &body["leader"]),
        (503, &false.into()),
        "every role except leader"
    );
}

#[test]
fn a_wait_returns_when_the_role_changes() {
    let served = serve(status(Role::Follower), ReadyWhen::Connected);
    let leads = || drop(served.status.send_replace(leader(HOUR)));
    assert_eq!(served.waited("wait=5m&role=leader", leads).0, 200);
    let steps_down = || drop(served.status.send_replace(status(Role::Stopping)));
    let (code, body) = served.waited("wait=5m&role=follower", steps_down);
    assert_eq!((code, &body["leader"]), (503, &false.into()));
}

#[test]
fn i4_a_wait_ends_at_the_deadline_although_nothing_is_published() {
    let served = serve(leader(Duration::from_secs(1)), ReadyWhen::Connected);
    let deadline = served.status.borrow().authority.unwrap().valid_until;
    let (code, body) = served.waited("wait=5m&role=follower", || {});
    assert_eq!((code, &body["leader"]), (503, &false.into()));
    assert!(boot_now() >= deadline);
}

#[test]
fn a_wait_that_times_out_returns_the_current_state() {
    let served = serve(status(Role::Follower), ReadyWhen::Connected);
    let begun = boot_now();
    assert_eq!(served.waited("wait=300ms", || {}).0, 503);
    assert!(boot_now().since(begun) >= Duration::from_millis(300));
    assert_eq!(served.waited("wait=0s", || {}).0, 503);
    served.status.send_replace(leader(HOUR));
    assert_eq!(served.waited("wait=300ms&role=follower", || {}).0, 200);
}

#[test]
fn a_shutdown_ends_a_wait() {
    let served = serve(status(Role::Follower), ReadyWhen::Connected);
    let close = || {
        let runtime = tokio::runtime::Builder::new_current_thread().build();
        runtime.unwrap().block_on(served.streams.close());
    };
    assert_eq!(served.waited("wait=5m", close).0, 503);
}

#[test]
fn invalid_parameters_are_refused_by_name() {
    let served = serve(leader(HOUR), ReadyWhen::Connected);
    for (query, parts) in [
        ("wait=30", ["\"wait\"", "\"30\"", "write \"30s\""]),
        ("wait=6m", ["\"wait\"", "\"6m\"", "between 0s and 5m"]),
        ("role=leader", ["\"role\"", "\"leader\"", "wait=30s"]),
        (
            "wait=1s&role=me",
            ["\"role\"", "\"me\"", "leader or follower"],
        ),
        ("timeout=1s", ["\"timeout\"", "\"1s\"", "wait and role"]),
    ] {
        let (code, body) = served.get(&format!("/leader?{query}"));
        assert_eq!(code, 400, "{query}");
        for part in parts {
            assert!(body.contains(part), "{query}: {body}");
        }
    }
    let (code, _, body) = served.ask_with("HEAD /leader?wait=5m", "", "");
    assert_eq!((code, body.as_str()), (200, ""));
    assert_eq!(served.ask_with("POST /leader?wait=5m", "", "").0, 405);
}

/// After a waiting client has disconnected, another client may wait.
#[tokio::test]
async fn a_client_that_disconnects_makes_room_for_another() {
    let served = serve(leader(HOUR), ReadyWhen::Connected);
    for _ in 0..2 {
        let mut waiting = Vec::new();
        for _ in 0..leasehold::admin::STREAMS_MAX {
            let mut stream = std::net::TcpStream::connect(served.address).unwrap();
            let request = "GET /leader?wait=5m&role=follower HTTP/1.1\r\nhost: localhost\r\n\r\n";
            std::io::Write::write_all(&mut stream, request.as_bytes()).unwrap();
            waiting.push(stream);
        }
        leasehold_testbed::eventually("the limit is reached", async || {
            EventStream::open(served.address, &[]).await.code() == 503
        })
        .await;
        drop(waiting);
        leasehold_testbed::eventually("another client may wait", async || {
            EventStream::open(served.address, &[]).await.code() == 200
        })
        .await;
    }
    let metrics = served.get("/metrics").1;
    let refused = sample(&metrics, "leasehold_http_streams_refused_total");
    assert!(refused.unwrap() >= 2.0, "{metrics}");
}

#[test]
fn streams_and_waits_refuse_a_request_body() {
    let served = serve(status(Role::Follower), ReadyWhen::Connected);
    for (line, code) in [
        ("GET /leader?wait=5m", 413),
        ("GET /events", 413),
        ("GET /leader", 503),
    ] {
        assert_eq!(served.ask_with(line, "", "body").0, code, "{line}");
    }
}
