//! Tests `GET /events`: each event is true at the time of writing, and contains its deadline.

use std::time::Duration;

use leasehold::admin::ReadyWhen;
use leasehold::clock::boot_now;
use leasehold::election::{Role, Session, Status};
use leasehold::publish::StoreError;
use leasehold_testbed::EventStream;
use leasehold_testbed::events::{End, Event, Item};
use serde_json::Value;

use crate::{Served, held_by, leader, serve, status};

const HOUR: Duration = Duration::from_secs(3600);

impl Served {
    pub(crate) async fn events(&self) -> EventStream {
        EventStream::open(self.address, &[]).await
    }

    async fn events_after(&self, id: &str) -> Event {
        let header = format!("Last-Event-ID: {id}");
        EventStream::open(self.address, &[&header])
            .await
            .event()
            .await
    }
}

fn leads(data: &Value) -> bool {
    data["leader"] == true
}

fn assert_grants(event: &Event, deadline: u64) {
    let data = &event.data;
    assert_eq!((&data["leader"], &data["token"]), (&true.into(), &7.into()));
    assert_eq!(data["valid_until_boottime_ns"], deadline);
    assert_eq!(data["boot_id"], "b1");
    let written = data["written_boottime_ns"].as_u64().unwrap();
    assert!(written < deadline && written <= boot_now().as_nanos());
    assert_eq!(data["valid_for_ms"], (deadline - written) / 1_000_000);
}

fn written(event: &Event) -> u64 {
    event.data["written_boottime_ns"].as_u64().unwrap()
}

fn renew(served: &Served) {
    served.status.send_modify(|status| {
        let authority = status.authority.as_mut().unwrap();
        authority.valid_until = boot_now() + HOUR;
    });
}

fn assert_grants_nothing(event: &Event) {
    let data = &event.data;
    assert_eq!(data["leader"], false, "{data}");
    for field in [
        "token",
        "valid_for_ms",
        "valid_until",
        "valid_until_boottime_ns",
    ] {
        assert_eq!(data[field], Value::Null, "{field} of {data}");
    }
}

#[tokio::test]
async fn the_first_event_is_the_current_state() {
    let served = serve(leader(HOUR), ReadyWhen::Connected);
    let mut stream = served.events().await;
    assert_eq!(stream.code(), 200);
    for header in [
        "content-type: text/event-stream\r\n",
        "cache-control: no-store\r\n",
        "x-accel-buffering: no\r\n",
    ] {
        assert!(stream.head().contains(header), "{}", stream.head());
    }
    let event = stream.event().await;
    let deadline = served.status.borrow().authority.unwrap().valid_until;
    assert_grants(&event, deadline.as_nanos());
    assert_eq!(event.retry, Some(1000));
    assert_eq!(event.data["missed"], Value::Null);
    assert_eq!(event.data["holder"]["identity"], "me");
    // The values of an event equal the values of /status.
    let status: Value = serde_json::from_str(&served.get("/status").1).unwrap();
    for (field, value) in status.as_object().unwrap() {
        if !["store", "updated_at", "valid_until", "since"].contains(&field.as_str()) {
            assert_eq!(&event.data[field], value, "{field}");
        }
    }
}

#[tokio::test]
async fn each_change_of_role_and_of_the_holder_is_an_event() {
    let served = serve(status(Role::Follower), ReadyWhen::Connected);
    let mut stream = served.events().await;
    assert_eq!(stream.event().await.data["holder"], Value::Null);
    served.status.send_replace(Status {
        holder: held_by("other", HOUR),
        ..status(Role::Follower)
    });
    let event = stream.event().await;
    assert_eq!(event.data["holder"]["identity"], "other");
    served.status.send_replace(Status {
        transitions: 1,
        ..leader(HOUR)
    });
    let event = stream.event().await;
    let deadline = served.status.borrow().authority.unwrap().valid_until;
    assert_grants(&event, deadline.as_nanos());
    assert_eq!((&event.data["missed"], event.retry), (&0.into(), None));
    served.status.send_replace(Status {
        transitions: 2,
        ..status(Role::Stopping)
    });
    let event = stream.event().await;
    assert_grants_nothing(&event);
    assert_eq!(event.data["role"], "stopping");
}

#[tokio::test]
async fn extensions_are_sent_at_most_once_per_second() {
    let served = serve(leader(HOUR), ReadyWhen::Connected);
    let mut stream = served.events().await;
    let first = stream.event().await;
    for _ in 0..5 {
        renew(&served);
    }
    let newest = served.status.borrow().authority.unwrap().valid_until;
    let second = stream.event().await;
    assert_grants(&second, newest.as_nanos());
    assert!(written(&second) - written(&first) >= 1_000_000_000);
    // A change of role is sent immediately.
    renew(&served);
    served.status.send_replace(status(Role::Stopping));
    let third = stream.event().await;
    assert_eq!(third.data["role"], "stopping");
    assert_eq!(second.id, first.id, "the role did not change");
}

#[tokio::test]
async fn i4_expired_authority_causes_an_event_although_nothing_is_published() {
    let served = serve(leader(Duration::from_secs(1)), ReadyWhen::Connected);
    let deadline = served.status.borrow().authority.unwrap().valid_until;
    let mut stream = served.events().await;
    let first = stream.event().await;
    assert_grants(&first, deadline.as_nanos());
    let event = stream.event().await;
    assert_grants_nothing(&event);
    // The event arrived before the next heartbeat, at which the server would also have noticed the
    // deadline.
    assert!(written(&event) < written(&first) + 5_000_000_000);
    assert_eq!(
        (&event.data["role"], &event.data["reason"]),
        (&"follower".into(), &"deadline".into())
    );
    assert_eq!(event.data["transitions"], 1);
    assert!(event.data["written_boottime_ns"].as_u64().unwrap() >= deadline.as_nanos());
}

#[tokio::test]
async fn the_expiry_of_another_holder_causes_an_event_too() {
    let held = Status {
        holder: held_by("other", Duration::from_secs(1)),
        ..status(Role::Follower)
    };
    let served = serve(held, ReadyWhen::Connected);
    let mut stream = served.events().await;
    assert_eq!(stream.event().await.data["holder"]["identity"], "other");
    assert_eq!(stream.event().await.data["holder"], Value::Null);
}

#[tokio::test]
async fn an_error_of_mongodb_is_shown_until_it_ends() {
    let served = serve(status(Role::Unknown), ReadyWhen::Connected);
    let mut stream = served.events().await;
    assert_eq!(stream.event().await.data["store_error"], Value::Null);
    served.store_error.send_replace(Some(StoreError {
        message: "no primary".to_owned(),
        since: boot_now(),
    }));
    let error = &stream.event().await.data["store_error"];
    assert_eq!(error["message"], "no primary");
    served.store_error.send_replace(None);
    assert_eq!(stream.event().await.data["store_error"], Value::Null);
}

#[tokio::test]
async fn a_resuming_reader_learns_how_many_changes_it_missed() {
    let at = |transitions| Status {
        transitions,
        ..status(Role::Follower)
    };
    let served = serve(at(5), ReadyWhen::Connected);
    let id = served.events().await.event().await.id;
    assert_eq!(served.events_after(&id).await.data["missed"], 0);
    served.status.send_replace(at(6));
    assert_eq!(
        served.events_after(&id).await.data["missed"],
        0,
        "the event is already known"
    );
    served.status.send_replace(at(9));
    assert_eq!(served.events_after(&id).await.data["missed"], 3);
    for other in ["", "x", "0:5", "\u{1F600}:5"] {
        let missed = &served.events_after(other).await.data["missed"];
        assert_eq!(missed, &Value::Null, "{other}");
    }
    served.status.send_replace(Status {
        session: Session::from_bytes([2; 16]),
        ..at(9)
    });
    assert_eq!(served.events_after(&id).await.data["missed"], Value::Null);
}

#[tokio::test]
async fn an_idle_stream_has_heartbeats() {
    let served = serve(status(Role::Follower), ReadyWhen::Connected);
    let mut stream = served.events().await;
    stream.event().await;
    for _ in 0..2 {
        assert_eq!(stream.next().await, Some(Item::Comment));
    }
}

#[tokio::test]
async fn clients_without_chunked_encoding_or_keep_alive_are_served() {
    let served = serve(leader(HOUR), ReadyWhen::Connected);
    // Opens one stream at a time, because every open stream receives all changes.
    for is_old in [true, false] {
        let mut stream = match is_old {
            true => EventStream::request(served.address, "GET /events HTTP/1.0\r\n\r\n").await,
            false => EventStream::open(served.address, &["Connection: close"]).await,
        };
        let is_chunked = stream.head().contains("transfer-encoding");
        assert!(!is_old || !is_chunked, "{}", stream.head());
        assert_eq!(stream.code(), 200);
        assert!(leads(&stream.event().await.data));
        served.status.send_replace(status(Role::Follower));
        assert_grants_nothing(&stream.event().await);
        served.status.send_replace(leader(HOUR));
        assert!(leads(&stream.event().await.data));
    }
}

#[tokio::test]
async fn a_head_request_gets_no_stream() {
    let served = serve(leader(HOUR), ReadyWhen::Connected);
    let (code, head, body) = served.ask_with("HEAD /events", "", "");
    assert_eq!((code, body.as_str()), (200, ""));
    assert!(head.contains("content-type: text/event-stream"), "{head}");
}

#[tokio::test]
async fn a_shutdown_sends_not_leader_and_closes_the_stream() {
    let served = serve(leader(HOUR), ReadyWhen::Connected);
    let mut streams = [served.events().await, served.events().await];
    for stream in &mut streams {
        assert!(leads(&stream.event().await.data));
    }
    served.streams.close().await;
    for stream in &mut streams {
        let (events, end) = stream.rest().await;
        let [last] = events.as_slice() else {
            panic!("{events:?}");
        };
        assert_grants_nothing(last);
        assert_eq!(
            (&last.data["role"], &last.data["stopped"]),
            (&"stopping".into(), &true.into())
        );
        assert_eq!(end, End::Complete);
    }
    assert_eq!(served.events().await.code(), 503);
}

#[tokio::test]
async fn a_stopped_election_closes_the_stream() {
    let mut served = serve(leader(HOUR), ReadyWhen::Connected);
    let mut stream = served.events().await;
    stream.event().await;
    let (unused, _) = tokio::sync::watch::channel(status(Role::Unknown));
    drop(std::mem::replace(&mut served.status, unused));
    let (events, end) = stream.rest().await;
    assert_grants_nothing(events.last().unwrap());
    assert_eq!(end, End::Complete);
}
