//! Goal: a replica with an unhealthy workload does not lead, whether or not the workload is
//! supervised.

use std::path::Path;

use leasehold_testbed::{Daemon, DaemonBuilder, assert_contains};
use mongodb::bson::Bson;
use rustix::process::Signal;

use crate::contest::{Contest, LONG, eventually};
use crate::journal::{Behaviour, Journal};

/// Adds a health check that succeeds while the file exists.
fn checked(daemon: DaemonBuilder, file: &Path) -> DaemonBuilder {
    let file = file.display();
    patient(daemon.flag(&format!("--workload-health-command=test,-f,{file}")))
}

/// Sets limits that no healthy workload exceeds, even on a busy machine.
fn patient(daemon: DaemonBuilder) -> DaemonBuilder {
    daemon
        .flag("--workload-health-period=1s")
        .flag("--workload-health-timeout=1s")
        .flag("--workload-health-failures=2")
}

async fn is_free(contest: &Contest) -> bool {
    contest.document().await["holder"] == Bson::Null
}

async fn wait_unhealthy(daemon: &Daemon) {
    daemon
        .wait_until(|status| status["reason"] == "unhealthy", LONG)
        .await;
}

#[tokio::test]
async fn an_unhealthy_leader_hands_off_and_does_not_contend_until_it_is_healthy() {
    let (contest, journal) = (Contest::new("ill").await, Journal::new());
    let (ill, well) = (journal.path("a"), journal.path("b"));
    std::fs::write(&ill, "").unwrap();
    std::fs::write(&well, "").unwrap();
    let a = checked(contest.candidate("a"), &ill).leading(LONG).await;
    let b = checked(contest.candidate("b"), &well)
        .following("a", LONG)
        .await;
    std::fs::remove_file(&ill).unwrap();
    b.wait_leads(LONG).await;
    assert_eq!(contest.last_ended().await.reason, "unhealthy");
    // Only `a` remains, and it is unhealthy.
    b.term_and_exit(LONG).await;
    eventually("the lease is free", async || is_free(&contest).await).await;
    // `a` must see that the lease is free, and still not acquire it.
    let free =
        |status: &serde_json::Value| status["role"] == "follower" && status["holder"].is_null();
    a.wait_until(free, LONG).await;
    assert!(is_free(&contest).await);
    std::fs::write(&ill, "").unwrap();
    a.wait_leads(LONG).await;
    assert_contains(&a.logs(), "workload unhealthy");
}

#[tokio::test]
async fn an_unhealthy_candidate_never_leads() {
    let (contest, journal) = (Contest::new("never-well").await, Journal::new());
    let ill = checked(contest.candidate("a"), &journal.path("absent")).start();
    ill.wait_role("follower", LONG).await;
    let _well = contest.candidate("b").leading(LONG).await;
    assert_eq!(ill.status()["transitions"], 1, "from unknown to follower");
}

#[tokio::test]
async fn an_unhealthy_command_is_stopped_and_another_replica_takes_its_turn() {
    let (contest, journal) = (Contest::new("ill-command").await, Journal::new());
    let file = journal.path("a");
    std::fs::write(&file, "").unwrap();
    let a = checked(contest.candidate("a"), &file);
    let a = journal.run_by(a, &Behaviour::Obedient).start();
    journal.wait("start", 1).await;
    let b = journal.run_by(contest.candidate("b"), &Behaviour::Obedient);
    let _b = b.following("a", LONG).await;
    std::fs::remove_file(&file).unwrap();
    let (end, start) = (journal.wait("end", 1).await, journal.wait("start", 2).await);
    assert_eq!((end.identity.as_str(), start.identity.as_str()), ("a", "b"));
    a.wait_follows("b", LONG).await;
    assert_eq!(
        a.exit_code(),
        None,
        "on_exit is for commands that end by themselves"
    );
    journal.assert_one_after_the_other();
}

#[tokio::test]
async fn a_command_that_stops_is_not_checked() {
    let (contest, journal) = (Contest::new("drains").await, Journal::new());
    let (check, stopping) = (journal.path("check"), journal.path("stopping"));
    // Without a command, the token is empty, and this check succeeds.
    let script = format!(
        "#!/bin/sh\n[ -z \"$LEASEHOLD_TOKEN\" ] || ! [ -e '{}' ]\n",
        stopping.display()
    );
    std::fs::write(&check, script).unwrap();
    let flag = format!("--workload-health-command=/bin/sh,{}", check.display());
    let a = patient(contest.candidate("a").flag(&flag));
    let a = journal.run_by(a, &Behaviour::Slow("4")).start();
    journal.wait("start", 1).await;
    std::fs::write(&stopping, "").unwrap();
    a.signal(Signal::USR1);
    journal.wait("end", 1).await;
    a.wait_role("follower", LONG).await;
    assert!(!a.logs().contains("workload unhealthy"), "{}", a.logs());
}

#[tokio::test]
async fn a_health_url_of_a_separate_workload_is_checked() {
    let (contest, workload) = (Contest::new("url").await, Responder::start().await);
    let url = format!("http://{}/healthz", workload.address());
    let a = contest.candidate("a");
    let a = patient(a.flag(&format!("--workload-health-url={url}")))
        .leading(LONG)
        .await;
    workload.say("503 Service Unavailable");
    wait_unhealthy(&a).await;
    workload.say("204 No Content");
    a.wait_leads(LONG).await;
    // A connection without an answer counts as unhealthy, like an error response.
    workload.say("");
    wait_unhealthy(&a).await;
}

#[tokio::test]
async fn a_command_that_does_not_run_yet_is_not_checked() {
    let (contest, journal) = (Contest::new("not-yet").await, Journal::new());
    let port = leasehold_testbed::ReservedPort::new();
    let url = format!("--workload-health-url=http://127.0.0.1:{}/", port.number());
    let a = contest.candidate("a").flags([
        url.as_str(),
        "--workload-health-period=100ms",
        "--workload-health-timeout=100ms",
        "--workload-health-failures=5",
    ]);
    let _a = journal.run_by(a, &Behaviour::Obedient).start();
    // The workload never listens, so the daemon starts it, finds it unhealthy, and stops it.
    journal.wait("start", 1).await;
    journal.wait("end", 1).await;
    eventually("the lease is released", async || {
        !contest.stored().history().await.is_empty()
    })
    .await;
    assert_eq!(contest.last_ended().await.reason, "unhealthy");
}

struct Responder {
    address: std::net::SocketAddr,
    answer: tokio::sync::watch::Sender<&'static str>,
}

impl Responder {
    async fn start() -> Self {
        use tokio::io::{AsyncReadExt, AsyncWriteExt};

        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (answer, answers) = tokio::sync::watch::channel("200 OK");
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                let answers = answers.clone();
                tokio::spawn(async move {
                    let mut request = [0; 1024];
                    let _ = stream.read(&mut request).await;
                    let status = *answers.borrow();
                    if status.is_empty() {
                        return std::future::pending().await;
                    }
                    let answer = format!("HTTP/1.1 {status}\r\ncontent-length: 0\r\n\r\n");
                    let _ = stream.write_all(answer.as_bytes()).await;
                });
            }
        });
        Self { address, answer }
    }

    fn address(&self) -> std::net::SocketAddr {
        self.address
    }

    fn say(&self, status: &'static str) {
        self.answer.send_replace(status);
    }
}
