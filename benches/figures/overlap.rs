//! Measures the time between the old and the new leadership under two faults: the leader's own
//! connection stalls, or the leader is frozen. In other electors, these faults caused two
//! simultaneous leaders. The old leader counts as leading until the deadline in its file, unless
//! the file shows an earlier end. It also counts as leading whenever its /leader answers 200. The
//! new leader counts as leading from just before it sends its acquisition, although it considers
//! itself the leader only later. The measured margin is therefore a lower bound.

use std::time::Duration;

use futures_util::future::join_all;
use leasehold_testbed::daemon::boottime_ns;
use leasehold_testbed::{Daemon, DaemonTimings, Proxy, ReplicaSet, Scratch};

use crate::launch::{Setup, directories, nanos, seconds, watching};
use crate::observer::Observer;
use crate::report::{Bound, Row, Statistic, Unit};

const TIMINGS: DaemonTimings = DaemonTimings::KUBERNETES;
const LEADS_MAX: Duration = Duration::from_secs(60);
const FAULT: Duration = Duration::from_secs(40);
/// Time after the fault during which the old leader is observed. With client-go, the old leader led
/// for another 10 s.
const AFTERWARDS: Duration = Duration::from_secs(12);
const HTTP_POLL: Duration = Duration::from_millis(50);
/// Delay between the faults on two leases.
const STAGGER: Duration = Duration::from_millis(173);
const LEASES: usize = 10;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fault {
    Stall,
    Stop,
}

pub(crate) async fn stall(setup: Setup) -> Vec<Row> {
    let margins = repeat(&setup, Fault::Stall).await;
    let what = "the leader's connection stalls for 40 s, 15/10/2";
    rows("overlap_stall", what, &margins)
}

pub(crate) async fn stop(setup: Setup) -> Vec<Row> {
    let margins = repeat(&setup, Fault::Stop).await;
    let what = "SIGSTOP of the leader for 40 s, then SIGCONT, 15/10/2";
    rows("overlap_stop", what, &margins)
}

fn rows(figure: &'static str, what: &str, margins: &[f64]) -> Vec<Row> {
    let overlaps = margins.iter().filter(|margin| **margin < 0.0).count();
    let overlaps = f64::from(u32::try_from(overlaps).expect("few leases"));
    let margin = format!("{what}: old says leader last → new leads");
    let count = format!("overlaps, of {}", margins.len());
    let bounds = [Bound::AtLeast(Statistic::Min, 0.0)];
    let none = [Bound::AtMost(Statistic::Max, 0.0)];
    vec![
        Row::new(figure, margin, Unit::Time, margins, &bounds),
        Row::new(figure, count, Unit::Count, &[overlaps], &none),
    ]
}

async fn repeat(setup: &Setup, fault: Fault) -> Vec<f64> {
    let set = setup.set().await;
    let mut margins = Vec::new();
    for round in 0..setup.count(2, 1) {
        margins.extend(faults(setup, &set, fault, round).await);
    }
    margins
}

/// Two daemons that contend for one lease. The leader uses the proxy.
struct Pair {
    old: Daemon,
    _new: Daemon,
    proxy: Proxy,
    token: i64,
}

/// The end of the old leadership and the start of the new leadership, as clients see them.
#[derive(Debug, Default, Clone, Copy)]
struct Said {
    old_until_ns: u64,
    new_from_ns: Option<u64>,
}

async fn faults(setup: &Setup, set: &ReplicaSet, fault: Fault, round: usize) -> Vec<f64> {
    let scratch = Scratch::new();
    let paths = directories(scratch.path(), 2 * LEASES);
    let mut observer = Observer::start(&paths);
    let pairs = join_all((0..LEASES).map(async |index| {
        let lease = format!("r{round}-l{index}");
        let proxy = set.proxy();
        let start = |place: usize, uri: &str| {
            setup
                .daemon(&lease, &format!("d{place}"), uri)
                .status_directory(&paths[place])
                .timings(TIMINGS)
                .start()
        };
        let old = start(2 * index, &set.proxied_uri(&proxy));
        let token = old.wait_leads(LEADS_MAX).await["token"].as_i64();
        let new = start(2 * index + 1, &set.uri());
        watching(&new).await;
        Pair {
            old,
            _new: new,
            proxy,
            token: token.expect("a leader has a token"),
        }
    }))
    .await;
    let end = boottime_ns() + nanos(FAULT + AFTERWARDS + STAGGER * 10);
    let injected = join_all(pairs.iter().enumerate().map(async |(index, pair)| {
        tokio::time::sleep(STAGGER * u32::try_from(index).expect("few leases")).await;
        inject(pair, fault).await;
    }));
    let polled = join_all(pairs.iter().map(async |pair| poll(pair, end).await));
    let tokens: Vec<_> = pairs.iter().map(|pair| pair.token).collect();
    let ((), polled, mut said) = tokio::join!(
        async {
            injected.await;
        },
        polled,
        files(&mut observer, &tokens, end),
    );
    for (said, http_ns) in said.iter_mut().zip(polled) {
        said.old_until_ns = said.old_until_ns.max(http_ns);
    }
    let margin = |said: &Said| {
        let from = said.new_from_ns.expect("the other daemon took over");
        seconds(said.old_until_ns, from)
    };
    said.iter().map(margin).collect()
}

async fn inject(pair: &Pair, fault: Fault) {
    match fault {
        Fault::Stall => pair.proxy.stall(),
        Fault::Stop => pair.old.stop(),
    }
    tokio::time::sleep(FAULT).await;
    match fault {
        Fault::Stall => pair.proxy.resume(),
        Fault::Stop => pair.old.cont(),
    }
}

/// Returns the last time at which the old leader's /leader showed leadership with the old token.
async fn poll(pair: &Pair, end_ns: u64) -> u64 {
    let mut last_ns = 0;
    while boottime_ns() < end_ns {
        // A missing answer does not count as leading.
        if let Ok((200, body)) = pair.old.http("/leader").await {
            let answer: serde_json::Value = serde_json::from_str(&body).unwrap_or_default();
            if answer["token"] == pair.token {
                last_ns = boottime_ns();
            }
        }
        tokio::time::sleep(HTTP_POLL).await;
    }
    last_ns
}

/// Observes the files until `end_ns`. Returns the end of each lease's old leadership and the start
/// of its new leadership.
async fn files(observer: &mut Observer, tokens: &[i64], end_ns: u64) -> Vec<Said> {
    let mut said = vec![Said::default(); tokens.len()];
    while let Some(left) = end_ns.checked_sub(boottime_ns()) {
        let next = tokio::time::timeout(Duration::from_nanos(left), observer.next());
        let Ok(seen) = next.await else { break };
        let (lease, is_old) = (seen.index / 2, seen.index % 2 == 0);
        let (said, old_token) = (&mut said[lease], tokens[lease]);
        match (is_old, seen.leads_until_ns()) {
            (true, Some(until)) if seen.token() == Some(old_token) => said.old_until_ns = until,
            // If a file no longer says leader, the leadership ended before its deadline.
            (true, _) => said.old_until_ns = said.old_until_ns.min(seen.at_ns),
            (false, Some(until)) => {
                let sent = until - nanos(TIMINGS.renew_deadline);
                said.new_from_ns.get_or_insert(sent);
            }
            (false, None) => {}
        }
    }
    said
}
