//! Measures the renewals and the memory of a leader, with and without hostile clients of its HTTP
//! server.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::net::Ipv4Addr;
use std::path::Path;
use std::sync::atomic::Ordering;
use std::time::Duration;

use leasehold_testbed::daemon::boottime_ns;
use leasehold_testbed::hostile::{Attack, Hostile};
use leasehold_testbed::{Daemon, DaemonTimings, Scratch, eventually};
use serde_json::Value;

use crate::launch::{Setup, seconds, watching};
use crate::report::{Bound, Row, Statistic, Unit};

const LEADS_MAX: Duration = Duration::from_secs(60);
/// The renew interval is short, so each window contains many renewals.
const TIMINGS: DaemonTimings = DaemonTimings {
    renew_interval: Duration::from_millis(100),
    ..DaemonTimings::DEMO
};
const WINDOW: Duration = Duration::from_secs(20);
const CONNECTIONS: usize = 10_000;
const CONDITIONS: [(&str, Option<Attack>); 4] = [
    ("no clients", None),
    (
        "500 clients that send heads byte by byte",
        Some(Attack::ByteByByte(500)),
    ),
    (
        "10,000 open connections, 1,000 a second replaced",
        Some(Attack::Connections(CONNECTIONS)),
    ),
    (
        "20 clients that send bodies of a GiB or without an end",
        Some(Attack::Bodies(20)),
    ),
];

pub(crate) async fn measure(setup: Setup) -> Vec<Row> {
    let set = setup.set().await;
    let scratch = Scratch::new();
    let trace = scratch.path().join("trace");
    let daemon = setup
        .daemon("hostile", "a", &set.uri())
        .timings(TIMINGS)
        .env("LEASEHOLD_TRACE", &trace)
        .start();
    let token = daemon.wait_leads(LEADS_MAX).await["token"].clone();
    watching(&daemon).await;
    let window = setup.pause(WINDOW);
    let mut windows = [const { Vec::new() }; CONDITIONS.len()];
    let mut peaks = [const { Vec::new() }; CONDITIONS.len()];
    // Alternate the cases, so that a change in the machine's speed affects every case.
    for _ in 0..setup.count(3, 1) {
        for (index, (_, attack)) in CONDITIONS.iter().enumerate() {
            forget_peak(daemon.pid());
            let clients = attack.map(|attack| start(&daemon, attack));
            if let (Some(clients), Some(Attack::Connections(count))) = (&clients, attack) {
                eventually("all connections are open", async || {
                    clients.counts().connections.load(Ordering::Relaxed) >= *count as u64
                })
                .await;
            }
            let began = boottime_ns();
            tokio::time::sleep(window).await;
            windows[index].push(began..boottime_ns());
            peaks[index].push(peak(daemon.pid()));
        }
    }
    let renewals = renewals(&trace);
    let mut rows = Vec::new();
    for (index, (what, _)) in CONDITIONS.iter().enumerate() {
        let within = |sent: &u64| windows[index].iter().any(|window| window.contains(sent));
        let series: Vec<_> = renewals.iter().filter(|(sent, _)| within(sent)).collect();
        let series: Vec<_> = series.iter().map(|(_, took)| *took).collect();
        let renewal = format!("renewal, sent → answered: {what}");
        rows.push(Row::new("hostile", renewal, Unit::Time, &series, &[]));
        let memory = format!("highest RSS: {what}");
        rows.push(Row::new("hostile", memory, Unit::Bytes, &peaks[index], &[]));
    }
    let lost = f64::from(u8::from(daemon.status()["token"] != token));
    let none = [Bound::AtMost(Statistic::Max, 0.0)];
    let what = "leaderships lost";
    rows.push(Row::new("hostile", what, Unit::Count, &[lost], &none));
    rows
}

fn start(daemon: &Daemon, attack: Attack) -> Hostile {
    let server = (Ipv4Addr::LOCALHOST, daemon.port()).into();
    let started = Hostile::start(attack, server);
    started.unwrap_or_else(|failure| panic!("{failure}"))
}

/// Returns the start of each renewal in a trace, and the seconds until its answer.
fn renewals(trace: &Path) -> Vec<(u64, f64)> {
    let text = fs::read_to_string(trace).expect("a trace");
    let lines = text
        .lines()
        .map_while(|line| serde_json::from_str::<Value>(line).ok());
    let (mut asked, mut sent, mut renewals) = (BTreeSet::new(), BTreeMap::new(), Vec::new());
    for line in lines {
        let effects = line["turn"]["effects"].as_array();
        for effect in effects.into_iter().flatten() {
            if effect["Call"]["operation"].get("Renew").is_some() {
                asked.insert(effect["Call"]["id"].to_string());
            }
        }
        if let Some(at) = line["sent"]["at"].as_u64() {
            sent.insert(line["sent"]["call"].to_string(), at);
        }
        if let Some(at) = line["answered"]["at"].as_u64() {
            let call = line["answered"]["call"].to_string();
            // Ignore an answer that follows a timeout.
            if let Some(sent) = sent.remove(&call).filter(|_| asked.contains(&call)) {
                renewals.push((sent, seconds(sent, at)));
            }
        }
    }
    renewals
}

fn forget_peak(pid: u32) {
    fs::write(format!("/proc/{pid}/clear_refs"), "5").expect("the process runs");
}

/// Returns the peak resident memory since [`forget_peak`], in bytes.
fn peak(pid: u32) -> f64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).expect("the process runs");
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let number = line.unwrap_or_default().trim().trim_end_matches(" kB");
    number.parse::<f64>().expect("a number") * 1024.0
}
