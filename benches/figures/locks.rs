//! Locks around a command: the delay until the command runs, the delay until the next one runs, and
//! the shares of twenty contenders.
//!
//! Each means of locking is a command line that ends with the command to run, so that all are
//! measured alike: every figure that says "exec" includes the start of the programs. The command is
//! this program, which records its begin and end.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use futures_util::future::join_all;
use leasehold_testbed::daemon::boottime_ns;
use leasehold_testbed::etcdctl_binary;
use leasehold_testbed::{Etcd, ReplicaSet, Scratch};

use crate::client::Order;
use crate::contender::Warm;
use crate::designs::{Design, FindAndModify, HandMade, Terms};
use crate::launch::{Executed, Line, Setup, nanos, seconds};
use crate::profile;
use crate::report::{Bound, Row, Statistic, Unit};

/// The first argument of the command under a lock.
pub(crate) const ACT: &str = "--act";

/// The lock TTL: the default of etcdctl, used for the other means too.
const LIFE: Duration = Duration::from_secs(10);
/// Long enough that no contender gives up.
const WAIT: Duration = Duration::from_secs(3600);
/// Longer than a contender takes to join the queue.
const HOLD: Duration = Duration::from_millis(400);
/// Time for the leftovers of the previous round to clear.
const SETTLE: Duration = Duration::from_millis(100);
const CONTENDERS: usize = 20;
/// Application names by which MongoDB's profiler distinguishes the means.
const BY_HAND: &str = "by-hand";
const LEASEHOLD: &str = "leasehold-lock";

/// A way to run a command under a lock.
struct Means<'a> {
    name: &'static str,
    /// Builds the command line for a lock, an owner and a command.
    line: &'a dyn Fn(&str, &str, Vec<String>) -> Line,
    /// The application name known to MongoDB, if the commands of this means are counted.
    app_name: Option<&'static str>,
    /// True if our targets apply to it.
    ours: bool,
}

impl Means<'_> {
    /// Returns the bounds of a figure; none unless our targets apply.
    fn bounds(&self, statistic: Statistic, limit: f64) -> Vec<Bound> {
        let ours = self.ours.then_some(Bound::AtMost(statistic, limit));
        ours.into_iter().collect()
    }
}

/// Both stores, with three members each.
struct Stage {
    set: ReplicaSet,
    etcd: Etcd,
    etcdctl: PathBuf,
    leasehold: PathBuf,
    scratch: Scratch,
}

impl Stage {
    async fn new(setup: &Setup) -> Self {
        let etcdctl = etcdctl_binary().unwrap_or_else(|failure| panic!("{failure}"));
        let (set, etcd) = tokio::join!(ReplicaSet::start(), Etcd::start(3));
        Self {
            set,
            etcd,
            etcdctl,
            leasehold: setup.binary.clone(),
            scratch: Scratch::new(),
        }
    }

    fn by_hand(&self, lock: &str, owner: &str, command: Vec<String>) -> Line {
        let order = Order {
            design: Design::FindAndModify,
            uri: format!("{}&appName={BY_HAND}", self.set.uri()),
            database: "leasehold".to_owned(),
            name: lock.to_owned(),
            owner: owner.to_owned(),
            life: LIFE,
            extend: true,
            wait: WAIT,
            command,
        };
        Line {
            program: this(),
            arguments: Vec::new(),
            environment: vec![order.variable()],
        }
    }

    fn etcdctl(&self, lock: &str, _owner: &str, command: Vec<String>) -> Line {
        let endpoints = format!("--endpoints={}", self.etcd.endpoints());
        let begin = [endpoints, "lock".into(), lock.into(), "--".into()];
        let arguments = begin.into_iter().chain(command);
        Line {
            program: self.etcdctl.clone(),
            arguments: arguments.map(OsString::from).collect(),
            environment: Vec::new(),
        }
    }

    fn leasehold(&self, lock: &str, owner: &str, command: Vec<String>) -> Line {
        let begin = [
            "lock".to_owned(),
            lock.to_owned(),
            format!("--identity={owner}"),
            format!("--mongodb-uri={}&appName={LEASEHOLD}", self.set.uri()),
            format!("--lease-duration={}s", LIFE.as_secs()),
            "--".to_owned(),
        ];
        let arguments = begin.into_iter().chain(command);
        Line {
            program: self.leasehold.clone(),
            arguments: arguments.map(OsString::from).collect(),
            environment: vec![(
                "XDG_RUNTIME_DIR".into(),
                self.set.directory().display().to_string(),
            )],
        }
    }

    /// Measures each means in turn.
    async fn each(&self, measure: impl AsyncFn(&Means<'_>, &Path) -> Vec<Row>) -> Vec<Row> {
        let means = [
            Means {
                name: "by hand, polling",
                line: &|lock, owner, command| self.by_hand(lock, owner, command),
                app_name: Some(BY_HAND),
                ours: false,
            },
            Means {
                name: "etcdctl lock",
                line: &|lock, owner, command| self.etcdctl(lock, owner, command),
                app_name: None,
                ours: false,
            },
            Means {
                name: "leasehold lock",
                line: &|lock, owner, command| self.leasehold(lock, owner, command),
                app_name: Some(LEASEHOLD),
                ours: true,
            },
        ];
        let mut rows = Vec::new();
        for (index, means) in means.iter().enumerate() {
            let journal = self.scratch.path().join(format!("journal-{index}"));
            rows.extend(measure(means, &journal).await);
        }
        rows
    }
}

/// Acquisitions one after the other, without contention.
pub(crate) async fn uncontended(setup: Setup) -> Vec<Row> {
    let stage = Stage::new(&setup).await;
    let rounds = setup.count(100, 20);
    let measure = async |means: &Means<'_>, journal: &Path| {
        let (mut before, mut after) = (Vec::new(), Vec::new());
        for round in 0..rounds {
            let line = (means.line)("uncontended", "a", act(journal, Duration::ZERO));
            let mut holder = Executed::line(&line);
            let gone_ns = holder.wait();
            let (began_ns, ended_ns) = acts(journal)[round];
            before.push(seconds(holder.at_ns, began_ns));
            after.push(seconds(ended_ns, gone_ns));
            tokio::time::sleep(SETTLE / 10).await;
        }
        let row = |what: &str, series: &[f64]| {
            let what = format!("{}: {what}", means.name);
            Row::new("lock_uncontended", what, Unit::Time, series, &[])
        };
        vec![
            row("exec → CMD runs", &before),
            row("CMD has ended → the program has", &after),
        ]
    };
    let mut rows = stage.each(measure).await;
    let count = setup.count(500, 100);
    let row = |name: &str, series: &[f64], bounds: &[Bound]| {
        let what = format!("{name}: acquire + release alone, in a warm client");
        Row::new("lock_uncontended", what, Unit::Time, series, bounds)
    };
    let by_hand = row("by hand", &warm(&stage, count).await, &[]);
    let contender = Warm::new(stage.set.uri(), "warm-contender");
    // The first round creates the connection and the document.
    contender.round().await;
    let mut series = Vec::new();
    for _ in 0..count {
        series.push(contender.round().await);
    }
    let target = [Bound::AtMost(Statistic::Median, 0.008)];
    let ours = row("leasehold's contender", &series, &target);
    rows.splice(0..0, [by_hand, ours]);
    rows
}

/// Measures the hand-made lock without the start of a program.
async fn warm(stage: &Stage, rounds: usize) -> Vec<f64> {
    let mut lock = FindAndModify(Terms {
        collection: stage.set.client().database("leasehold").collection("locks"),
        name: "warm".to_owned(),
        owner: "a".to_owned(),
        life: LIFE,
    });
    let mut series = Vec::new();
    for _ in 0..rounds {
        let began_ns = boottime_ns();
        let acquired = lock.acquire().await.expect("the set answers");
        let released = lock.release().await.expect("the set answers");
        assert!(acquired && released, "nobody else wants it");
        series.push(seconds(began_ns, boottime_ns()));
    }
    series
}

/// Handover to a contender that is already waiting when the lock is freed.
pub(crate) async fn hand_over(setup: Setup) -> Vec<Row> {
    let stage = Stage::new(&setup).await;
    let rounds = setup.count(50, 15);
    let measure = async |means: &Means<'_>, journal: &Path| {
        let start = |round: usize| {
            let owner = format!("o{round}");
            let line = (means.line)("hand-over", &owner, act(journal, HOLD));
            Executed::non_blocking(&line)
        };
        let mut holder = start(0);
        for round in 1..=rounds {
            begun(journal, round).await;
            let next = start(round);
            holder.ended().await;
            holder = next;
        }
        holder.ended().await;
        let acts = acts(journal);
        let pairs = acts.windows(2);
        let series: Vec<_> = pairs.map(|pair| seconds(pair[0].1, pair[1].0)).collect();
        let what = format!("{}: CMD has ended → the next CMD runs", means.name);
        let bounds = means.bounds(Statistic::Median, 0.015);
        vec![Row::new(
            "lock_handover",
            what,
            Unit::Time,
            &series,
            &bounds,
        )]
    };
    stage.each(measure).await
}

/// Twenty concurrent contenders, each of which acquires repeatedly.
pub(crate) async fn contended(setup: Setup) -> Vec<Row> {
    let stage = Stage::new(&setup).await;
    let rounds = setup.count(50, 10);
    let primary = stage.set.primary().await;
    let stage = &stage;
    let measure = async |means: &Means<'_>, journal: &Path| {
        let client = profile::direct(&stage.set, primary).await;
        if means.app_name.is_some() {
            profile::record(&stage.set, primary, true).await;
        }
        let aggregations = profile::aggregations(&client).await;
        let counts = RefCell::new([0_usize; CONTENDERS]);
        // The acquisitions of each contender at the instant when the first had finished all of its
        // own.
        let at_first = Cell::new(None);
        let began_ns = boottime_ns();
        join_all((0..CONTENDERS).map(async |index| {
            let owner = format!("o{index}");
            for _ in 0..rounds {
                let line = (means.line)("contended", &owner, act(journal, Duration::ZERO));
                Executed::non_blocking(&line).ended().await;
                counts.borrow_mut()[index] += 1;
            }
            at_first.set(at_first.get().or(Some(*counts.borrow())));
        }))
        .await;
        let took = seconds(began_ns, boottime_ns());
        let total = acts(journal).len();
        assert_eq!(total, CONTENDERS * rounds, "each ran as often as it was to");
        let shares = at_first.get().expect("all have ended");
        let mut rows = shared_out(means.name, took, total, &shares);
        if let Some(app_name) = means.app_name {
            profile::record(&stage.set, primary, false).await;
            let opened = profile::aggregations(&client).await - aggregations;
            let mut commands = profile::commands(&client, app_name).await;
            commands.insert("aggregate, to open a change stream".to_owned(), opened);
            rows.extend(commands_each(means, total, &commands));
        }
        rows
    };
    stage.each(measure).await
}

fn shared_out(name: &str, took: f64, total: usize, shares: &[usize]) -> Vec<Row> {
    let row = |what: &str, value: f64| {
        let what = format!("{name}, {CONTENDERS} contenders: {what}");
        Row::new("lock_contended", what, Unit::Count, &[value], &[])
    };
    let (most, fewest) = (shares.iter().max(), shares.iter().min());
    let ratio = most.zip(fewest).map(|(m, f)| count(*m) / count(*f));
    vec![
        row("acquisitions a second", count(total) / took),
        row(
            "largest / smallest share when the first has all its own",
            ratio.expect("there are contenders"),
        ),
    ]
}

/// Returns the commands per acquisition. A getMore only waits on a change stream, and the number of
/// getMores depends on the time waited, so they do not count.
fn commands_each(means: &Means<'_>, total: usize, commands: &BTreeMap<String, f64>) -> Vec<Row> {
    let row = |what: String, each: f64, bounds: &[Bound]| {
        let what = format!("{}: {what}", means.name);
        Row::new("lock_contended", what, Unit::Count, &[each], bounds)
    };
    let kinds = commands.iter().filter(|(kind, _)| *kind != "getMore");
    let kinds: Vec<_> = kinds
        .map(|(kind, number)| (kind, number / count(total)))
        .collect();
    let all = kinds.iter().map(|(_, each)| each).sum();
    let bounds = means.bounds(Statistic::Max, 3.1);
    let all = row(
        "commands an acquisition, no getMore".to_owned(),
        all,
        &bounds,
    );
    let parts = kinds
        .iter()
        .map(|(kind, each)| row(format!("of which {kind}"), *each, &[]));
    [all].into_iter().chain(parts).collect()
}

fn count(number: usize) -> f64 {
    f64::from(u32::try_from(number).expect("few acquisitions"))
}

fn this() -> PathBuf {
    std::env::current_exe().expect("the path of this program can be read")
}

/// Returns the command under a lock, which holds it for the given time.
fn act(journal: &Path, hold: Duration) -> Vec<String> {
    let this = this().display().to_string();
    let (journal, hold) = (journal.display().to_string(), nanos(hold).to_string());
    vec![this, ACT.to_owned(), journal, hold]
}

/// Runs the command: `--act JOURNAL NANOSECONDS`.
pub(crate) fn carry_out(mut arguments: impl Iterator<Item = OsString>) -> ExitCode {
    let began_ns = boottime_ns();
    let journal = arguments.next().expect("a journal");
    let hold = arguments.next().and_then(|text| text.into_string().ok());
    let hold = hold.and_then(|text| text.parse().ok()).expect("a time");
    let mut journal = std::fs::OpenOptions::new()
        .create(true)
        .append(true)
        .open(journal)
        .expect("the journal can be written");
    let mut tell = |what: &str, at_ns: u64| {
        let line = format!("{what} {at_ns}\n");
        journal.write_all(line.as_bytes()).expect("as before");
    };
    tell("began", began_ns);
    std::thread::sleep(Duration::from_nanos(hold));
    tell("ended", boottime_ns());
    ExitCode::SUCCESS
}

/// Returns the begin and end of each command.
///
/// # Panics
/// If a command began before the previous one had ended, which violates exclusion.
fn acts(journal: &Path) -> Vec<(u64, u64)> {
    let text = std::fs::read_to_string(journal).unwrap_or_default();
    let lines: Vec<_> = text.lines().collect();
    let at = |line: &str, what: &str| -> u64 {
        let at = line
            .strip_prefix(what)
            .and_then(|at| at.trim().parse().ok());
        at.unwrap_or_else(|| panic!("two at once: {line} where one {what}"))
    };
    let pairs = lines.chunks_exact(2);
    pairs
        .map(|pair| (at(pair[0], "began"), at(pair[1], "ended")))
        .collect()
}

/// Waits until the given number of commands has begun.
async fn begun(journal: &Path, wanted: usize) {
    let end = boottime_ns() + nanos(Duration::from_secs(60));
    loop {
        let text = std::fs::read_to_string(journal).unwrap_or_default();
        if text.matches("began").count() >= wanted {
            return;
        }
        assert!(boottime_ns() < end, "only {text}");
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}
