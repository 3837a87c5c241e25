//! Measures the operators' commands. Compares a requested step-down with a handoff by SIGTERM, and
//! measures what a live view of many leases costs, on a terminal and in many browsers.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use futures_util::future::join_all;
use leasehold_testbed::daemon::boottime_ns;
use leasehold_testbed::{ReplicaSet, Scratch};
use mongodb::bson::{Bson, Document, doc};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;
use tokio::process::{Child, Command};
use tokio::sync::mpsc;

use crate::handoff;
use crate::launch::{Setup, directories, seconds, watching};
use crate::profile;
use crate::report::{Bound, Row, Statistic, Unit};
use crate::usage::{Memory, Work};

const LEADS_MAX: Duration = Duration::from_secs(60);
/// Pause between rounds. The other daemons write their files during the pause.
const SETTLE: Duration = Duration::from_millis(250);
/// Number of leases in the live view, each renewed at the default renew_interval.
const LEASES: usize = 1_000;
const RENEWAL: Duration = Duration::from_secs(3);
const NAME_OF_WATCH: &str = "live-view";
/// Number of browsers, fewer than the server accepts.
const BROWSERS: usize = 50;
/// Maximum time until a browser gets its first state.
const LISTED_MAX: Duration = Duration::from_secs(60);

/// Measures the time from a request to the next leader, as the command reports it. Compares this
/// time with a handoff by SIGTERM on a similar replica set in the same run.
pub(crate) async fn step_down(setup: Setup) -> Vec<Row> {
    let count = setup.count(100, 20);
    let handoffs = handoff::rounds(&setup, 3, count).await.durations;
    let requests = requests(&setup, count).await;
    let ratio = median(&requests) / median(&handoffs);
    let bounds = [Bound::AtMost(Statistic::Median, 1.5)];
    vec![
        Row::new(
            "step_down",
            "`step-down` → another leads, as reported",
            Unit::Time,
            &requests,
            &[],
        ),
        Row::new(
            "step_down",
            "SIGTERM → another leads, in the same run",
            Unit::Time,
            &handoffs,
            &[],
        ),
        Row::new(
            "step_down",
            "ratio of the medians",
            Unit::Count,
            &[ratio],
            &bounds,
        ),
    ]
}

async fn requests(setup: &Setup, rounds: usize) -> Vec<f64> {
    let set = setup.set().await;
    let scratch = Scratch::new();
    let paths = directories(scratch.path(), 3);
    let start = |(index, path): (usize, &std::path::PathBuf)| {
        setup
            .daemon("handoff", &format!("d{index}"), &set.uri())
            .status_directory(path)
            .handoff_delay("0s")
            .start()
    };
    let daemons: Vec<_> = paths.iter().enumerate().map(start).collect();
    join_all(daemons.iter().map(watching)).await;
    let stored = handoff::stored(&set);
    let mut series = Vec::new();
    for _ in 0..rounds {
        tokio::time::sleep(SETTLE).await;
        handoff::standby(&stored).await;
        let mut command = command(&setup.binary, &set.uri());
        command.args(["step-down", "handoff", "--output", "json"]);
        let output = tokio::time::timeout(LEADS_MAX, command.output()).await;
        let output = output.expect("it ends").expect("the binary starts");
        let answer: serde_json::Value = serde_json::from_slice(&output.stdout)
            .unwrap_or_else(|error| panic!("{error}: {output:?}"));
        assert_eq!(answer["result"], "done", "{answer}");
        series.push(answer["took_ms"].as_f64().expect("a number") / 1e3);
    }
    series
}

/// Measures the load that `leases --watch` causes on MongoDB, and its own CPU time and memory,
/// while a thousand leases renew.
pub(crate) async fn watch(setup: Setup) -> Vec<Row> {
    let set = setup.set().await;
    let primary = set.primary().await;
    create(&set).await;
    let mut watching = command(&setup.binary, &set.uri())
        .args(["leases", "--watch", "--output", "json"])
        .stdout(Stdio::null())
        .spawn()
        .expect("the binary starts");
    let pid = watching.id().expect("it runs");
    let minutes = if setup.quick { 1.0 / 3.0 } else { 1.0 };
    // The first listing is not measured.
    renew(&set, RENEWAL).await;
    profile::record(&set, primary, true).await;
    let (began, before) = (boottime_ns(), Work::of(pid));
    renew(&set, Duration::from_secs_f64(60.0 * minutes)).await;
    let (minutes, after) = (seconds(began, boottime_ns()) / 60.0, Work::of(pid));
    profile::record(&set, primary, false).await;
    let client = profile::direct(&set, primary).await;
    let commands = profile::commands(&client, &format!("leasehold/{NAME_OF_WATCH}")).await;
    let a_minute = |name: &str| commands.get(name).copied().unwrap_or(0.0) / minutes;
    let memory = Memory::of(pid);
    watching.kill().await.expect("wait for the child");
    let row = |what: &str, unit, value: f64, bounds: &[Bound]| {
        let what = format!("{what}, {LEASES} leases that renew every 3 s");
        Row::new("leases_watch", what, unit, &[value], bounds)
    };
    let none = [Bound::AtMost(Statistic::Max, 0.0)];
    vec![
        row("reads a minute", Unit::Count, a_minute("find"), &none),
        row("getMore a minute", Unit::Count, a_minute("getMore"), &[]),
        row(
            "CPU of the command a minute",
            Unit::Time,
            (after.cpu - before.cpu) / minutes,
            &[],
        ),
        row("RSS of the command", Unit::Bytes, memory.rss, &[]),
    ]
}

/// Measures the memory of `web` while a thousand leases renew: without browsers, and with plain
/// HTTP clients that have received the whole collection and keep reading its events.
pub(crate) async fn web(setup: Setup) -> Vec<Row> {
    let set = setup.set().await;
    create(&set).await;
    let (serving, address) = serve(&setup.binary, &set.uri()).await;
    let pid = serving.id().expect("it runs");
    // Once the first browser has received its state, the server has read the whole collection.
    let (listed, mut lists) = mpsc::channel(BROWSERS);
    let mut browsers = vec![tokio::spawn(browse(address.clone(), listed.clone()))];
    received(&mut lists).await;
    renew(&set, RENEWAL).await;
    let one = Memory::of(pid);
    for _ in 1..BROWSERS {
        browsers.push(tokio::spawn(browse(address.clone(), listed.clone())));
    }
    for _ in 1..BROWSERS {
        received(&mut lists).await;
    }
    let minutes = if setup.quick { 1.0 / 6.0 } else { 1.0 };
    let (began, before) = (boottime_ns(), Work::of(pid));
    renew(&set, Duration::from_secs_f64(60.0 * minutes)).await;
    let (minutes, after) = (seconds(began, boottime_ns()) / 60.0, Work::of(pid));
    let many = Memory::of(pid);
    let ended = browsers.iter().any(tokio::task::JoinHandle::is_finished);
    assert!(!ended, "no browser's stream ends early");
    drop(serving);
    let row = |what: &str, browsers: usize, unit, value: f64| {
        let what = format!(
            "{what}, {LEASES} leases that renew every 3 s, browsers (HTTP clients that read /events): {browsers}"
        );
        Row::new("web_memory", what, unit, &[value], &[])
    };
    let mut rows = Vec::new();
    for (browsers, memory) in [(1, one), (BROWSERS, many)] {
        rows.push(row("RSS of `web`", browsers, Unit::Bytes, memory.rss));
        rows.push(row("its Pss", browsers, Unit::Bytes, memory.pss));
        let private = row("its private memory", browsers, Unit::Bytes, memory.private);
        rows.push(private);
    }
    let cpu = (after.cpu - before.cpu) / minutes;
    rows.push(row("its CPU a minute", BROWSERS, Unit::Time, cpu));
    rows
}

/// Starts the page's server on a free port. Returns the server's address.
async fn serve(binary: &Path, uri: &str) -> (Child, String) {
    let mut serving = command(binary, uri)
        .args(["web", "--listen", "127.0.0.1:0"])
        .stdout(Stdio::piped())
        .spawn()
        .expect("the binary starts");
    let mut lines = BufReader::new(serving.stdout.take().expect("a pipe"));
    let mut line = String::new();
    lines.read_line(&mut line).await.expect("a line");
    let address = line.split_once("http://").and_then(|(_, rest)| {
        let (address, _) = rest.split_once('/')?;
        Some(address.to_owned())
    });
    (serving, address.expect("an address"))
}

async fn received(lists: &mut mpsc::Receiver<()>) {
    let list = tokio::time::timeout(LISTED_MAX, lists.recv()).await;
    list.expect("a browser gets the collection").expect("sent");
}

/// Reads events until the server ends. Sends a message once it has received the whole collection.
async fn browse(address: String, listed: mpsc::Sender<()>) {
    let mut stream = TcpStream::connect(&address).await.expect("connected");
    let request = format!("GET /events HTTP/1.1\r\nHost: {address}\r\n\r\n");
    stream.write_all(request.as_bytes()).await.expect("sent");
    let mut lines = BufReader::new(stream);
    let (mut line, mut is_listed) = (String::new(), false);
    let mut names = BTreeSet::new();
    while lines.read_line(&mut line).await.is_ok_and(|read| read > 0) {
        if let Some(event) = line.strip_prefix("data: ").filter(|_| !is_listed) {
            let event: serde_json::Value = serde_json::from_str(event).expect("an event");
            let documents = event["documents"].as_array().into_iter().flatten();
            names.extend(documents.map(|document| document["name"].to_string()));
            is_listed = event["complete"] == true && names.len() == LEASES;
            if is_listed {
                names.clear();
                listed.send(()).await.expect("received");
            }
        }
        line.clear();
    }
}

fn command(binary: &Path, uri: &str) -> Command {
    let mut command = Command::new(binary);
    command
        .env_clear()
        .env("LEASEHOLD_MONGODB__URI", uri)
        .env("LEASEHOLD_IDENTITY__NAME", NAME_OF_WATCH)
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        .kill_on_drop(true);
    command
}

fn leases(set: &ReplicaSet) -> mongodb::Collection<Document> {
    set.client().database("leasehold").collection("leases")
}

/// Creates the documents of held leases, as candidates write them.
async fn create(set: &ReplicaSet) {
    let id = || Bson::from(mongodb::bson::Uuid::new());
    let date = mongodb::bson::DateTime::now();
    let documents = (0..LEASES).map(|number| {
        doc! {
            "_id": format!("lease-{number}"), "schema": 1, "kind": "lease", "token": 1_i64,
            "revision": id(), "paused": false, "request": null, "reserved_for": null, "history": [],
            "holder": {
                "identity": format!("candidate-{number}"), "session": id(), "claim": id(),
                "token": 1_i64, "acquired_at": date, "renewed_at": date, "lease_duration_ms": 24_000_i64,
            },
        }
    });
    leases(set).insert_many(documents).await.expect("inserted");
}

async fn renew(set: &ReplicaSet, time: Duration) {
    let collection = leases(set);
    let mut due = tokio::time::interval(RENEWAL / u32::try_from(LEASES).expect("few leases"));
    let end = tokio::time::sleep(time);
    tokio::pin!(end);
    for number in (0..LEASES).cycle() {
        tokio::select! {
            _ = due.tick() => {}
            () = &mut end => return,
        }
        let renewal = doc! { "$set": {
            "revision": mongodb::bson::Uuid::new(), "holder.renewed_at": mongodb::bson::DateTime::now(),
        } };
        let filter = doc! { "_id": format!("lease-{number}") };
        collection
            .update_one(filter, renewal)
            .await
            .expect("renewed");
    }
}

fn median(series: &[f64]) -> f64 {
    let mut sorted = series.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted.get(sorted.len() / 2).copied().unwrap_or(f64::NAN)
}
