//! Measures an idle daemon: its memory, its CPU time, and the load that it causes on MongoDB.

use std::collections::BTreeMap;
use std::time::Duration;

use leasehold_testbed::{Daemon, ReplicaSet};

use crate::launch::{Setup, seconds, watching};
use crate::profile;
use crate::report::{Bound, Row, Statistic, Unit};
use crate::usage::{Memory, Work};

const LEADS_MAX: Duration = Duration::from_secs(60);
const SETTLE: Duration = Duration::from_secs(30);
/// With the default renew_interval of 3 s, a minute has 20 renewals, or 21 if it begins just before
/// a renewal.
const WRITES_MAX: f64 = 21.0;

struct Trio {
    heartbeat: &'static str,
    daemons: Vec<Daemon>,
}

impl Trio {
    async fn start(setup: &Setup, set: &ReplicaSet, heartbeat: &'static str) -> Self {
        let lease = if heartbeat == "10s" { "steady" } else { "busy" };
        let mut daemons = Vec::new();
        for index in 0..3 {
            let daemon = setup
                .daemon(lease, &format!("{lease}-{index}"), &set.uri())
                .flag(&format!("--mongodb-heartbeat={heartbeat}"))
                .start();
            if index == 0 {
                daemon.wait_leads(LEADS_MAX).await;
            }
            watching(&daemon).await;
            daemons.push(daemon);
        }
        Self { heartbeat, daemons }
    }

    fn work(&self) -> Vec<Work> {
        self.daemons.iter().map(|d| Work::of(d.pid())).collect()
    }
}

pub(crate) async fn measure(setup: Setup) -> Vec<Row> {
    let set = setup.set().await;
    let minutes = if setup.quick { 1.0 / 3.0 } else { 2.0 };
    let trios = [
        Trio::start(&setup, &set, "10s").await,
        Trio::start(&setup, &set, "2s").await,
    ];
    tokio::time::sleep(SETTLE).await;
    let primary = set.primary().await;
    profile::record(&set, primary, true).await;
    let began_ns = leasehold_testbed::daemon::boottime_ns();
    let before: Vec<_> = trios.iter().map(Trio::work).collect();
    tokio::time::sleep(Duration::from_secs_f64(60.0 * minutes)).await;
    let after: Vec<_> = trios.iter().map(Trio::work).collect();
    let minutes = seconds(began_ns, leasehold_testbed::daemon::boottime_ns()) / 60.0;
    profile::record(&set, primary, false).await;

    let mut rows = memory(&trios[0]);
    for ((trio, before), after) in trios.iter().zip(&before).zip(&after) {
        rows.extend(cpu(trio, before, after, minutes));
    }
    rows.extend(store_load(&set, primary, &trios[0], minutes).await);
    rows
}

fn memory(trio: &Trio) -> Vec<Row> {
    let all: Vec<_> = trio.daemons.iter().map(|d| Memory::of(d.pid())).collect();
    let mut rows = Vec::new();
    for (role, members) in [("leader", &all[..1]), ("follower", &all[1..])] {
        let mut row = |what: &str, unit, value: fn(&Memory) -> f64, bounds: &[Bound]| {
            let series: Vec<_> = members.iter().map(value).collect();
            let what = format!("{role}: {what}");
            rows.push(Row::new("memory", what, unit, &series, bounds));
        };
        let most = |limit| [Bound::AtMost(Statistic::Max, limit)];
        row("RSS", Unit::Bytes, |m| m.rss, &most(9e6));
        row("RssAnon", Unit::Bytes, |m| m.rss_anon, &most(2e6));
        row("Pss, of six daemons", Unit::Bytes, |m| m.pss, &[]);
        row("threads", Unit::Count, |m| m.threads, &most(3.0));
    }
    rows
}

fn cpu(trio: &Trio, before: &[Work], after: &[Work], minutes: f64) -> Vec<Row> {
    let spent = |index: usize| (after[index].cpu - before[index].cpu) / minutes;
    let woken = |index: usize| ((after[index].wakeups - before[index].wakeups) / minutes).round();
    let mut rows = Vec::new();
    for (role, members, limit) in [("leader", 0..1, 0.025), ("follower", 1..3, 0.020)] {
        let heartbeat = trio.heartbeat;
        let cpu: Vec<_> = members.clone().map(spent).collect();
        let bounds = [Bound::AtMost(Statistic::Max, limit)];
        let bounds: &[_] = if heartbeat == "10s" { &bounds } else { &[] };
        let what = format!("{role}: CPU a minute, heartbeat {heartbeat}");
        rows.push(Row::new("cpu", what, Unit::Time, &cpu, bounds));
        let wakeups: Vec<_> = members.map(woken).collect();
        let what = format!("{role}: wake-ups a minute, heartbeat {heartbeat}");
        rows.push(Row::new("cpu", what, Unit::Count, &wakeups, &[]));
    }
    rows
}

/// Returns the rate of commands that each daemon of `trio` sent to the primary. Each daemon has its
/// own application name. A command that no daemon sends also has a row.
async fn store_load(set: &ReplicaSet, primary: usize, trio: &Trio, minutes: f64) -> Vec<Row> {
    let client = profile::direct(set, primary).await;
    let mut counts = Vec::new();
    for daemon in &trio.daemons {
        let name = format!("leasehold/{}", daemon.identity());
        counts.push(profile::commands(&client, &name).await);
    }
    let writes: &[&str] = &["findAndModify", "insert", "update", "delete"];
    let reads: &[&str] = &["find", "aggregate", "count", "distinct"];
    let streams: &[&str] = &["getMore"];
    let known = [writes, reads, streams].concat();
    let mut rows = Vec::new();
    for (role, members) in [("leader", &counts[..1]), ("follower", &counts[1..])] {
        let mut row = |what: &str, bound: Option<f64>, matches: &dyn Fn(&str) -> bool| {
            let of = |counts: &BTreeMap<String, f64>| -> f64 {
                let matching = counts.iter().filter(|(command, _)| matches(command));
                // `sum` would return -0 for an empty series.
                matching.fold(0.0, |sum, (_, count)| sum + count)
            };
            let series: Vec<_> = members.iter().map(|counts| of(counts) / minutes).collect();
            let bounds: Vec<_> = bound
                .map(|limit| Bound::AtMost(Statistic::Max, limit))
                .into_iter()
                .collect();
            let what = format!("{role}: {what} a minute");
            rows.push(Row::new("store_load", what, Unit::Count, &series, &bounds));
        };
        let writes_max = if role == "leader" { WRITES_MAX } else { 0.0 };
        row("writes", Some(writes_max), &|name| writes.contains(&name));
        row("reads", Some(0.0), &|name| reads.contains(&name));
        row("getMore", None, &|name| streams.contains(&name));
        row("other commands", Some(0.0), &|name| !known.contains(&name));
    }
    rows
}
