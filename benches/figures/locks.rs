//! Measures locks around a command: the time until the command runs, the time until the next
//! command runs, and how evenly twenty contenders share a lock. The command line of each locking
//! program ends with the command to run, so all programs are measured in the same way. Figures with
//! "exec" in their names include starting the programs. The command is this benchmark program,
//! which records when it begins and ends.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use futures_util::future::join_all;
use leasehold_testbed::daemon::boottime_ns;
use leasehold_testbed::{ReplicaSet, Scratch};

use crate::client::Order;
use crate::contender::Warm;
use crate::designs::{Design, FindAndModify, HandMade, Terms};
use crate::launch::{Executed, Line, Setup, nanos, seconds};
use crate::peers::etcdctl::Etcdctl;
use crate::peers::{BY_HAND, LEASEHOLD, LOCK};
use crate::profile;
use crate::report::{Bound, Row, Statistic, Unit};

/// First argument of this program when it acts as the command under a lock.
pub(crate) const ACT: &str = "--act";

/// etcdctl's default TTL, which the hand-made lock also uses. `leasehold lock` is measured with
/// this TTL and with its own default.
const LIFE: Duration = Duration::from_secs(10);
/// Maximum wait, so long that no contender gives up.
const WAIT: Duration = Duration::from_secs(3600);
/// Duration of a command, longer than a contender needs to join the queue.
const HOLD: Duration = Duration::from_millis(400);
/// Time that the stores need to remove the sessions and cursors of the previous round.
const SETTLE: Duration = Duration::from_millis(100);
const CONTENDERS: usize = 20;
/// Application names of the locking programs in MongoDB's profile.
const BY_HAND_APP: &str = "by-hand";
const LEASEHOLD_APP: &str = "leasehold-lock";
const WRITES: [&str; 4] = ["findAndModify", "insert", "update", "delete"];

pub(crate) const CONNECTED: &str = "acquire + release alone, in a connected client";
pub(crate) const EXEC: &str = "exec → CMD runs";
const EXIT: &str = "CMD has ended → the program has ended";
pub(crate) const HAND_OVER: &str = "CMD has ended → the next CMD runs";
pub(crate) const RATE: &str = "20 contenders: acquisitions per second";
pub(crate) const SHARE: &str =
    "20 contenders: largest / smallest share when the first has finished";
pub(crate) const COMMANDS: &str = "commands per acquisition, without getMore";
pub(crate) const COMMANDS_TO_WRITE: &str = "of which writes";
/// Names of the figures, in the order of the report.
pub(crate) const FIGURES: [&str; 8] = [
    CONNECTED,
    EXEC,
    EXIT,
    HAND_OVER,
    RATE,
    SHARE,
    COMMANDS,
    COMMANDS_TO_WRITE,
];

struct Means<'a> {
    system: &'static str,
    /// Builds a command line from a lock, an owner and a command.
    line: &'a dyn Fn(&str, &str, Vec<String>) -> Line,
    /// `None` if this program's MongoDB commands are not counted.
    app_name: Option<&'static str>,
    /// True for leasehold, whose values have targets.
    ours: bool,
}

impl Means<'_> {
    /// Returns the bound for leasehold. Other programs have no bounds, because they have no
    /// targets.
    fn bounds(&self, statistic: Statistic, limit: f64) -> Vec<Bound> {
        let ours = self.ours.then_some(Bound::AtMost(statistic, limit));
        ours.into_iter().collect()
    }
}

/// The stores, each with three members.
struct Stage {
    set: ReplicaSet,
    etcdctl: Result<Etcdctl, String>,
    leasehold: PathBuf,
    scratch: Scratch,
}

impl Stage {
    async fn new(setup: &Setup) -> Self {
        let (set, etcdctl) = tokio::join!(setup.set(), Etcdctl::start(setup));
        Self {
            set,
            etcdctl,
            leasehold: setup.binary.clone(),
            scratch: Scratch::new(),
        }
    }

    fn by_hand(&self, lock: &str, owner: &str, command: Vec<String>) -> Line {
        let order = Order {
            design: Design::FindAndModify,
            uri: format!("{}&appName={BY_HAND_APP}", self.set.uri()),
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

    fn leasehold(&self, lock: &str, owner: &str, command: Vec<String>) -> Line {
        let begin = [
            "lock".to_owned(),
            lock.to_owned(),
            format!("--identity={owner}"),
            format!("--mongodb-uri={}&appName={LEASEHOLD_APP}", self.set.uri()),
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

    async fn each(
        &self,
        figure: &'static str,
        measure: impl AsyncFn(&Means<'_>, &Path) -> Vec<Row>,
    ) -> Vec<Row> {
        let ours = Means {
            system: LEASEHOLD,
            line: &|lock, owner, command| self.leasehold(lock, owner, command),
            app_name: Some(LEASEHOLD_APP),
            ours: true,
        };
        let mut rows = measure(&ours, &self.scratch.path().join("journal-0")).await;
        let by_hand = Means {
            system: BY_HAND,
            line: &|lock, owner, command| self.by_hand(lock, owner, command),
            app_name: Some(BY_HAND_APP),
            ours: false,
        };
        rows.extend(measure(&by_hand, &self.scratch.path().join("journal-1")).await);
        match &self.etcdctl {
            Ok(etcdctl) => {
                let means = Means {
                    system: LOCK,
                    line: &|lock, _, command| etcdctl.lock(lock, LIFE, command),
                    app_name: None,
                    ours: false,
                };
                rows.extend(measure(&means, &self.scratch.path().join("journal-2")).await);
            }
            Err(why) => rows.push(Row::skipped(figure, LOCK, why.clone())),
        }
        rows
    }
}

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
            Row::new("lock_uncontended", what, Unit::Time, series, &[]).of(means.system)
        };
        vec![row(EXEC, &before), row(EXIT, &after)]
    };
    let mut rows = stage.each("lock_uncontended", measure).await;
    let count = setup.count(500, 100);
    let row = |system, series: &[f64], bounds: &[Bound]| {
        Row::new("lock_uncontended", CONNECTED, Unit::Time, series, bounds).of(system)
    };
    let by_hand = row(BY_HAND, &warm(&stage, count).await, &[]);
    let contender = Warm::new(stage.set.uri(), "warm-contender");
    // The first round also creates the connection and the document.
    contender.round().await;
    let mut series = Vec::new();
    for _ in 0..count {
        series.push(contender.round().await);
    }
    let target = [Bound::AtMost(Statistic::Median, 0.008)];
    let ours = row(LEASEHOLD, &series, &target);
    rows.splice(0..0, [ours, by_hand]);
    rows
}

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
        assert!(acquired && released, "refused without other contenders");
        series.push(seconds(began_ns, boottime_ns()));
    }
    series
}

/// Measures how long a waiting contender takes to get a released lock.
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
        let bounds = means.bounds(Statistic::Median, 0.015);
        let row = Row::new("lock_handover", HAND_OVER, Unit::Time, &series, &bounds);
        vec![row.of(means.system)]
    };
    stage.each("lock_handover", measure).await
}

pub(crate) async fn contended(setup: Setup) -> Vec<Row> {
    let stage = Stage::new(&setup).await;
    let rounds = setup.count(50, 10);
    let primary = stage.set.primary().await;
    let stage = &stage;
    let measure = async |means: &Means<'_>, journal: &Path| {
        let raced = race(means, journal, rounds).await;
        let mut rows = shared_out(means.system, &raced);
        // The profile slows down the server, so the commands are counted in a further race.
        if let Some(app_name) = means.app_name {
            let client = profile::direct(&stage.set, primary).await;
            profile::record(&stage.set, primary, true).await;
            let aggregations = profile::aggregations(&client).await;
            let counted = race(means, &journal.with_extension("counted"), rounds / 5).await;
            profile::record(&stage.set, primary, false).await;
            let opened = profile::aggregations(&client).await - aggregations;
            let mut commands = profile::commands(&client, app_name).await;
            commands.insert("aggregate, to open a change stream".to_owned(), opened);
            rows.extend(commands_each(means, counted.total, &commands));
        }
        rows
    };
    stage.each("lock_contended", measure).await
}

struct Race {
    seconds: f64,
    /// Number of acquisitions.
    total: usize,
    /// Number of acquisitions of each contender when the first contender finished.
    shares: [usize; CONTENDERS],
}

/// Lets each contender acquire the lock in `rounds` rounds, as fast as it can.
async fn race(means: &Means<'_>, journal: &Path, rounds: usize) -> Race {
    let counts = RefCell::new([0_usize; CONTENDERS]);
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
    let seconds = seconds(began_ns, boottime_ns());
    let total = acts(journal).len();
    assert_eq!(
        total,
        CONTENDERS * rounds,
        "each contender ran as often as intended"
    );
    Race {
        seconds,
        total,
        shares: at_first.get().expect("all have ended"),
    }
}

fn shared_out(system: &'static str, raced: &Race) -> Vec<Row> {
    let Race {
        seconds,
        total,
        shares,
    } = raced;
    let row = |what: &str, value: f64| {
        Row::new("lock_contended", what, Unit::Count, &[value], &[]).of(system)
    };
    let (most, fewest) = (shares.iter().max(), shares.iter().min());
    // Count at least one acquisition for each contender, so that the ratio is defined.
    let ratio = most.zip(fewest).map(|(m, f)| count(*m) / count(*f.max(&1)));
    vec![
        row(RATE, count(*total) / seconds),
        row(SHARE, ratio.expect("there are contenders")),
    ]
}

/// Counts the commands per acquisition. Ignores getMore commands, because a contender repeats them
/// while it waits on a change stream, so their number only reflects the waiting time.
fn commands_each(means: &Means<'_>, total: usize, commands: &BTreeMap<String, f64>) -> Vec<Row> {
    let row = |what: String, each: f64, bounds: &[Bound]| {
        Row::new("lock_contended", what, Unit::Count, &[each], bounds).of(means.system)
    };
    let kinds = commands.iter().filter(|(kind, _)| *kind != "getMore");
    let kinds: Vec<_> = kinds
        .map(|(kind, number)| (kind, number / count(total)))
        .collect();
    let all = kinds.iter().map(|(_, each)| each).sum();
    let bounds = means.bounds(Statistic::Max, 3.1);
    let all = row(COMMANDS.into(), all, &bounds);
    let writes = kinds.iter().filter(|(kind, _)| WRITES.contains(&&***kind));
    // `sum` would return -0 for an empty series.
    let writes = writes.fold(0.0, |sum, (_, each)| sum + each);
    let writes = row(COMMANDS_TO_WRITE.into(), writes, &[]);
    let parts = kinds
        .iter()
        .map(|(kind, each)| row(format!("of which {kind}"), *each, &[]));
    [all, writes].into_iter().chain(parts).collect()
}

fn count(number: usize) -> f64 {
    f64::from(u32::try_from(number).expect("few acquisitions"))
}

fn this() -> PathBuf {
    std::env::current_exe().expect("the path of this program")
}

/// Returns the command to run under the lock. The command ends after `hold`.
pub(crate) fn act(journal: &Path, hold: Duration) -> Vec<String> {
    let this = this().display().to_string();
    let (journal, hold) = (journal.display().to_string(), nanos(hold).to_string());
    vec![this, ACT.to_owned(), journal, hold]
}

pub(crate) fn carry_out(mut arguments: impl Iterator<Item = OsString>) -> ExitCode {
    let began_ns = boottime_ns();
    let journal = arguments.next().expect("a journal");
    let hold = arguments.next().and_then(|text| text.into_string().ok());
    let hold = hold.and_then(|text| text.parse().ok()).expect("a time");
    let mut journal = std::fs::OpenOptions::new()
        .create(true)
        .append(true)
        .open(journal)
        .expect("write the journal");
    let mut tell = |what: &str, at_ns: u64| {
        let line = format!("{what} {at_ns}\n");
        journal.write_all(line.as_bytes()).expect("as before");
    };
    tell("began", began_ns);
    std::thread::sleep(Duration::from_nanos(hold));
    tell("ended", boottime_ns());
    ExitCode::SUCCESS
}

/// Returns the start and end times of each command. Panics if two commands ran at once, in
/// violation of mutual exclusion.
pub(crate) fn acts(journal: &Path) -> Vec<(u64, u64)> {
    let text = std::fs::read_to_string(journal).unwrap_or_default();
    let lines: Vec<_> = text.lines().collect();
    let at = |line: &str, what: &str| -> u64 {
        let at = line
            .strip_prefix(what)
            .and_then(|at| at.trim().parse().ok());
        at.unwrap_or_else(|| panic!("two commands at once: found {line}, expected {what}"))
    };
    let pairs = lines.chunks_exact(2);
    pairs
        .map(|pair| (at(pair[0], "began"), at(pair[1], "ended")))
        .collect()
}

pub(crate) async fn begun(journal: &Path, wanted: usize) {
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
