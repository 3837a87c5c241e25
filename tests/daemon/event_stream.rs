//! Goal: the event streams of both daemons show a handoff and a shutdown in order. The stream of a
//! frozen daemon grants authority only until its last deadline (I4).

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use leasehold_testbed::daemon::{boottime_ns, nanos, valid_until_ns};
use leasehold_testbed::events::{End, Event};
use leasehold_testbed::{Daemon, DaemonTimings, EventStream};
use rustix::process::Signal;
use serde_json::Value;

use crate::contest::{Contest, LONG, eventually, token};

async fn events_of(daemon: &Daemon) -> EventStream {
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, daemon.port()));
    let stream = EventStream::open(address, &[]).await;
    assert_eq!(stream.code(), 200);
    stream
}

fn written(event: &Event) -> u64 {
    event.data["written_boottime_ns"].as_u64().unwrap()
}

fn leads(data: &Value) -> bool {
    data["leader"] == true
}

#[tokio::test]
async fn i4_the_streams_of_both_daemons_show_a_handoff_in_order() {
    let contest = Contest::new("events-handoff").await;
    let old = contest.candidate("old").leading(LONG).await;
    let new = contest.candidate("new").following("old", LONG).await;
    let mut of_old = events_of(&old).await;
    let mut of_new = events_of(&new).await;
    let led = of_old.event().await;
    assert!(leads(&led.data));
    let followed = of_new.event().await;
    assert_eq!(followed.data["holder"]["identity"], "old");

    old.signal(Signal::TERM);
    let (of_old, end) = of_old.rest().await;
    assert_eq!(end, End::Complete);
    let leading = of_new.events_until(leads).await;
    assert_eq!(old.wait_exit(LONG).await, 0);

    let gone: Vec<_> = of_old
        .iter()
        .skip_while(|event| leads(&event.data))
        .collect();
    assert!(!gone.iter().any(|event| leads(&event.data)), "{gone:?}");
    assert_eq!(gone[0].data["role"], "stopping");
    assert_eq!(gone[0].data["reason"], "shutdown");
    assert_eq!(gone.last().unwrap().data["stopped"], true);
    let leading = leading.last().unwrap();
    assert_eq!(leading.data["identity"], "new");
    assert_eq!(token(&leading.data), token(&led.data) + 1);
    assert!(
        written(gone[0]) < written(leading),
        "the old leader's loss comes first"
    );
    for event in of_old.iter().chain([leading]) {
        assert_eq!(event.data["missed"], 0, "{event:?}");
    }
}

#[tokio::test]
async fn i4_the_stream_of_a_frozen_daemon_grants_authority_until_its_deadline_only() {
    let contest = Contest::new("events-frozen").await;
    let daemon = contest
        .candidate_at("a", DaemonTimings::SHORT)
        .leading(LONG)
        .await;
    let mut stream = events_of(&daemon).await;
    assert!(leads(&stream.event().await.data));
    daemon.stop();
    let frozen = daemon.status();
    // The daemon may have renewed once more than its file shows.
    let lost = boottime_ns() + nanos(DaemonTimings::SHORT.renew_deadline);
    eventually("the deadline passed", async || boottime_ns() > lost).await;
    daemon.cont();
    let again = |data: &Value| leads(data) && token(data) > token(&frozen);
    for event in stream.events_until(again).await {
        let until = valid_until_ns(&event.data).unwrap_or(0);
        assert!(until <= lost || again(&event.data), "{event:?}");
        assert!(written(&event) < until || !leads(&event.data), "{event:?}");
    }
}

#[tokio::test]
async fn a_daemon_that_exits_without_a_release_closes_its_streams() {
    let contest = Contest::new("events-impatient").await;
    let daemon = contest
        .candidate_with("a", DaemonTimings::DEFAULT, "60s")
        .leading(LONG)
        .await;
    let mut stream = events_of(&daemon).await;
    assert!(leads(&stream.event().await.data));
    daemon.term();
    stream.events_until(|data| data["role"] == "stopping").await;
    // A second signal within one second would count as a repetition of the first signal.
    tokio::time::sleep(Duration::from_secs(1)).await;
    daemon.term();
    let (events, end) = stream.rest().await;
    assert_eq!(end, End::Complete);
    assert!(!events.iter().any(|event| leads(&event.data)), "{events:?}");
    assert_eq!(events.last().unwrap().data["stopped"], true);
    assert_eq!(daemon.wait_exit(LONG).await, 1);
}

#[tokio::test]
async fn a_wait_returns_when_the_candidate_leads() {
    let contest = Contest::new("events-wait").await;
    let old = contest.candidate("old").leading(LONG).await;
    let new = contest.candidate("new").following("old", LONG).await;
    let hand_over = async { old.signal(Signal::TERM) };
    let (answer, ()) = tokio::join!(new.http("/leader?wait=5m"), hand_over);
    let (code, body) = answer.unwrap();
    assert_eq!(code, 200, "{body}");
    assert_eq!(old.wait_exit(LONG).await, 0);
}
