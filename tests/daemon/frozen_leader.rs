//! Goal: a leader that was frozen past its deadline never reports "leader" before it has reacquired
//! the lease (I4). This applies even to a request that waited in a socket during the freeze.

use std::sync::Arc;

use leasehold_testbed::daemon::{boottime_ns, nanos, valid_until_ns};
use leasehold_testbed::{Daemon, DaemonTimings, pid};
use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::contest::{Contest, LONG, eventually, token};
use crate::monitor::{Monitor, Observation, assert_one_after_the_other};

const TIMINGS: DaemonTimings = DaemonTimings::SHORT;

#[tokio::test]
async fn i4_a_leader_that_lost_the_lease_while_frozen_never_reports_leader_again() {
    let contest = Contest::new("frozen").await;
    let start = |identity| Arc::new(contest.candidate_at(identity, TIMINGS).start());
    let old = start("old");
    old.wait_leads(LONG).await;
    let new = start("new");
    new.wait_follows("old", LONG).await;

    let lookouts = [Monitor::on(&old), Monitor::on(&new)];
    lookouts[0].sees_leader().await;
    freeze(&old).await;
    let frozen_ns = boottime_ns();
    let waiting = Monitor::on(&old);
    let frozen = old.status();
    let leading = new.wait_leads(LONG).await;
    assert!(TIMINGS.sent_ns(&leading) >= TIMINGS.sent_ns(&frozen) + 3_000_000_000);
    let continued_ns = boottime_ns();
    old.cont();
    let after = old.wait_follows("new", LONG).await;
    assert_eq!(
        (&after["leader"], &after["token"]),
        (&false.into(), &().into())
    );
    // Probes continue for a few renewals, because a wrong answer might come late.
    for _ in 0..3 {
        new.wait_renewal(LONG).await;
    }
    let [old_seen, new_seen] = lookouts;
    let freeze = Freeze {
        frozen_ns,
        lost_ns: valid_until_ns(&frozen).unwrap(),
        continued_ns,
    };
    let waiting = waiting.end().await;
    freeze.assert_requests_waited(&waiting);
    freeze.assert_nothing_after(&waiting, |_| true);
    let (old_seen, new_seen) = (old_seen.end().await, new_seen.end().await);
    freeze.assert_nothing_after(&old_seen, |_| true);
    assert_one_after_the_other(&old_seen, &new_seen);
}

#[tokio::test]
async fn i4_a_frozen_leader_without_a_successor_leads_again_only_with_a_new_token() {
    let contest = Contest::new("frozen-alone").await;
    let daemon = Arc::new(contest.candidate_at("a", TIMINGS).start());
    daemon.wait_leads(LONG).await;
    freeze(&daemon).await;
    let frozen_ns = boottime_ns();
    let monitor = Monitor::on(&daemon);
    let frozen = daemon.status();
    let lost_ns = valid_until_ns(&frozen).unwrap();
    no_authority_left(frozen_ns).await;
    let continued_ns = boottime_ns();
    daemon.cont();
    let again = daemon
        .wait_until(
            |status| status["leader"] == true && token(status) > token(&frozen),
            LONG,
        )
        .await;
    let acquired = TIMINGS.sent_ns(&again);
    assert!(acquired > lost_ns, "acquired again (I2)");
    let freeze = Freeze {
        frozen_ns,
        lost_ns,
        continued_ns,
    };
    // The metric shows no token, so only its answers from before the new acquisition count.
    let seen = monitor.end().await;
    freeze.assert_requests_waited(&seen);
    freeze.assert_nothing_after(&seen, |look| {
        look.token == Some(token(&frozen)) || look.ended_ns < acquired
    });
    let reasons: Vec<_> = daemon
        .log_records()
        .into_iter()
        .filter(|line| line["message"] == "role changed" && line["from"] == "leader")
        .map(|line| line["reason"].clone())
        .collect();
    assert_eq!(reasons, ["deadline"]);
}

/// The request arrives on an established connection before the deadline, so the daemon reads this
/// request first when it resumes.
#[tokio::test]
async fn i4_a_request_that_waits_in_a_frozen_leader_gets_the_current_role() {
    let contest = Contest::new("frozen-request").await;
    let daemon = contest.candidate_at("a", TIMINGS).leading(LONG).await;
    let mut connections = Vec::new();
    for _ in 0..4 {
        let mut connection = TcpStream::connect(("127.0.0.1", daemon.port()))
            .await
            .unwrap();
        let (leader, _) = ask(&mut connection, "/leader").await;
        assert!(leader.contains("200 OK"), "{leader}");
        connections.push(connection);
    }
    freeze(&daemon).await;
    let paths = ["/leader", "/status", "/", "/metrics"];
    for (connection, path) in connections.iter_mut().zip(paths) {
        send(connection, path).await;
    }
    let frozen_ns = boottime_ns();
    let frozen = daemon.status();
    no_authority_left(frozen_ns).await;
    daemon.cont();
    let mut answers = Vec::new();
    for connection in &mut connections {
        answers.push(receive(connection).await);
    }
    let json = |index: usize| -> Value {
        let (_, body): &(String, String) = &answers[index];
        serde_json::from_str(body).unwrap()
    };
    // The daemon may already have reacquired the lease, with a new token.
    let old = &frozen["token"];
    assert!(json(0)["token"] != *old, "{answers:?}");
    assert_eq!(json(0)["leader"], answers[0].0.contains("200 OK"));
    assert!(json(1)["token"] != *old, "{answers:?}");
    if json(1)["leader"] == false {
        assert_eq!(json(0)["leader"], false, "{answers:?}");
        assert_eq!(json(1)["role"], "follower", "{answers:?}");
    }
    let again = daemon.wait_leads(LONG).await;
    assert_eq!(token(&again), token(&frozen) + 1);
}

async fn ask(connection: &mut TcpStream, path: &str) -> (String, String) {
    send(connection, path).await;
    receive(connection).await
}

async fn send(connection: &mut TcpStream, path: &str) {
    let request = format!("GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n");
    connection.write_all(request.as_bytes()).await.unwrap();
}

async fn receive(connection: &mut TcpStream) -> (String, String) {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let byte = tokio::time::timeout(LONG, connection.read_u8()).await;
        head.push(byte.expect("the daemon answers").unwrap());
    }
    let head = String::from_utf8(head).unwrap();
    let length = head
        .lines()
        .find_map(|line| line.strip_prefix("content-length: "));
    let mut body = vec![0; length.unwrap().parse().unwrap()];
    connection.read_exact(&mut body).await.unwrap();
    (head, String::from_utf8(body).unwrap())
}

/// Waits until a daemon that was frozen at `frozen_ns` has lost its authority. The deadline in the
/// daemon's file does not suffice, because the daemon may have renewed once more than the file
/// shows.
async fn no_authority_left(frozen_ns: u64) {
    let end = frozen_ns + nanos(TIMINGS.renew_deadline);
    eventually("the deadline passed", async || boottime_ns() > end).await;
}

async fn freeze(daemon: &Daemon) {
    daemon.stop();
    eventually("the process is stopped", async || {
        pid::state(daemon.pid()) == Some('T')
    })
    .await;
}

struct Freeze {
    frozen_ns: u64,
    lost_ns: u64,
    continued_ns: u64,
}

impl Freeze {
    /// Asserts that no probe selected by `counts` got a reply of "leader" that was certainly
    /// computed after the deadline. Replies to requests from before the freeze are ignored, because
    /// the daemon may have computed them before the freeze.
    fn assert_nothing_after(&self, seen: &[Observation], counts: impl Fn(&Observation) -> bool) {
        let late = |look: &&Observation| {
            look.started_ns > self.lost_ns
                || (look.started_ns > self.frozen_ns && look.ended_ns > self.continued_ns)
        };
        let wrong = seen
            .iter()
            .filter(late)
            .find(|look| look.leader && counts(look));
        assert!(wrong.is_none(), "lost at {}: {wrong:?}", self.lost_ns);
    }

    fn assert_requests_waited(&self, seen: &[Observation]) {
        let waited = |look: &&Observation| {
            let asked = self.frozen_ns..self.continued_ns;
            asked.contains(&look.started_ns) && look.ended_ns > self.continued_ns
        };
        assert_eq!(seen.iter().filter(waited).count(), 2);
    }
}
