//! Goal: if change streams are late, a handoff takes at most a renewal interval and a few round
//! trips, and a takeover is not delayed. Method: the routers deliver events only every ten seconds.
//! The leader ends right after a delivery, so its release appears in the stream ten seconds later.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use leasehold_testbed::{DaemonTimings, LeaderMonitor};

use crate::fixture::{Cluster, LONG};

const LAG: Duration = Duration::from_secs(10);
/// Allowance for round trips, the acquisition, and a busy machine.
const MARGIN: Duration = Duration::from_secs(4);

async fn late_cluster(timings: DaemonTimings) -> Cluster {
    let mut cluster = Cluster::shared().await;
    cluster.stage = cluster.stage.timings(timings);
    for router in &cluster.routers {
        router.delay_streams(LAG);
    }
    cluster
}

/// Waits until just after a delivery; the routers deliver no event for the next nine seconds.
async fn after_a_tick() {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    let lag = LAG.as_nanos() as u64;
    let since = now.expect("later than 1970").as_nanos() as u64 % lag;
    let until = Duration::from_nanos(lag - since) + Duration::from_millis(500);
    tokio::time::sleep(until).await;
}

#[tokio::test]
async fn i10_a_handoff_takes_a_renewal_interval_at_most() {
    let cluster = late_cluster(DaemonTimings::DEFAULT).await;
    let (a, b) = cluster.pair().await;
    a.wait_stream().await;
    b.wait_stream().await;
    after_a_tick().await;
    let asked = Instant::now();
    a.term();
    b.wait_leads(LONG).await;
    let took = asked.elapsed();
    let most = DaemonTimings::DEFAULT.renew_interval + MARGIN;
    assert!(took <= most, "{took:?}: {}", b.logs());
}

#[tokio::test]
async fn i10_late_events_do_not_delay_a_takeover() {
    let timings = DaemonTimings::DEMO;
    let cluster = late_cluster(timings).await;
    let (a, b) = cluster.pair().await;
    a.wait_stream().await;
    b.wait_stream().await;
    let monitor = LeaderMonitor::of([&a, &b]);
    // While `b` waits for the lease to expire, it receives the events of earlier renewals.
    tokio::time::sleep(Duration::from_secs(3)).await;
    after_a_tick().await;
    tokio::time::sleep(LAG / 2).await;
    a.kill();
    let killed = Instant::now();
    b.wait_leads(LONG).await;
    let took = killed.elapsed();
    let most = timings.lease_duration + MARGIN;
    assert!(took <= most, "{took:?}: {}", b.logs());
    assert_eq!(monitor.leaders(), ["a", "b"]);
}

#[tokio::test]
async fn a_punctual_stream_makes_a_handoff_immediate() {
    let mut cluster = Cluster::shared().await;
    let slow = DaemonTimings {
        lease_duration: Duration::from_secs(120),
        renew_deadline: Duration::from_secs(100),
        renew_interval: Duration::from_secs(20),
        retry_interval: Duration::from_secs(15),
        operation_timeout: Duration::from_secs(2),
        loss_grace: Duration::from_secs(3),
    };
    cluster.stage = cluster.stage.timings(slow);
    let (a, b) = cluster.pair().await;
    a.wait_stream().await;
    b.wait_stream().await;
    let asked = Instant::now();
    a.term();
    b.wait_leads(LONG).await;
    let took = asked.elapsed();
    assert!(took < slow.renew_interval / 2, "{took:?}: {}", b.logs());
}

#[tokio::test]
async fn a_waiter_for_a_lock_gets_it_within_a_renewal_interval() {
    let cluster = late_cluster(DaemonTimings::DEFAULT).await;
    let uri = leasehold_testbed::Router::uri(&cluster.routers);
    let job = |command: &str| {
        let words = ["lock", "nightly", "--wait=30s", "--", "sh", "-c", command];
        let mut job = cluster.stage.command(&uri, &words);
        job.stdout(std::process::Stdio::piped());
        job
    };
    let directory = tempfile::tempdir().expect("a directory");
    let end = directory.path().join("end");
    let until_told = format!(
        "echo held; until [ -e {} ]; do sleep 0.05; done",
        end.display()
    );
    let mut first = job(&until_told).spawn().expect("it starts");
    let mut held = tokio::io::BufReader::new(first.stdout.take().expect("piped"));
    let mut line = String::new();
    let read = tokio::io::AsyncBufReadExt::read_line(&mut held, &mut line);
    read.await.expect("the first job holds the lock");
    let second = job("echo held").spawn().expect("it starts");
    after_a_tick().await;
    std::fs::write(&end, "").expect("written");
    let asked = Instant::now();
    let second = second.wait_with_output().await.expect("it ends");
    let took = asked.elapsed();
    assert!(second.status.success(), "{second:?}");
    assert!(first.wait().await.expect("it ends").success());
    let most = DaemonTimings::DEFAULT.renew_interval + MARGIN;
    assert!(took <= most, "{took:?}");
}
