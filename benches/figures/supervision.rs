//! Measures a supervised command: the time from the SIGTERM or SIGKILL of the leader until the next
//! command runs, the time from an acquisition until the command runs, and the guard's memory. The
//! command is this benchmark program, which records when it begins and ends, exits immediately on
//! SIGTERM, and holds a file lock while it exists.

use std::ffi::OsString;
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use futures_util::future::join_all;
use leasehold::signals::{self, Signals};
use leasehold_testbed::daemon::boottime_ns;
use leasehold_testbed::{Daemon, GuardContainer, Scratch, pid};
use rustix::process::Signal;

use crate::launch::{Setup, directories, nanos, seconds, watching};
use crate::observer::Observer;
use crate::report::{Bound, Row, Statistic, Unit};
use crate::usage::{Memory, children_of, guard_of};

/// First argument of this program when it acts as the supervised command.
pub(crate) const WORK: &str = "--work";

const COMMAND_MAX: Duration = Duration::from_secs(60);
const EXIT_MAX: Duration = Duration::from_secs(20);
/// Pause between rounds. The other daemons write their files during the pause.
const SETTLE: Duration = Duration::from_millis(250);
/// Time after which a new guard is idle.
const GUARD_SETTLE: Duration = Duration::from_secs(5);
const POLL: Duration = Duration::from_millis(2);
/// The default of `lease.renew_deadline`, which these daemons use.
const RENEW_DEADLINE: Duration = Duration::from_secs(18);

#[derive(Debug, Default)]
struct Life {
    began_ns: u64,
    /// True if no other process held the file lock when the command began.
    alone: bool,
    /// CLOCK_BOOTTIME right before the command exits.
    ended_ns: Option<u64>,
}

/// The times of the rounds. In each round, the leader's daemon ended.
#[derive(Debug, Default)]
struct Rounds {
    /// From the end of the daemon until the next command runs.
    handed: Vec<f64>,
    /// From the end of the daemon until its command has ended.
    stopped: Vec<f64>,
    /// From the acquisition until the next command runs.
    sent: Vec<f64>,
    /// From the status of the next leader until its command runs.
    said: Vec<f64>,
    beside: f64,
}

/// Sends SIGTERM to the leader's daemon, and measures the time until the next command runs.
pub(crate) async fn handoff(setup: Setup) -> Vec<Row> {
    let rounds = rounds(&setup, Daemon::term).await;
    let row = |what: &str, series: &[f64], bounds: &[Bound]| {
        Row::new("workload_handoff", what, Unit::Time, series, bounds)
    };
    let target = [Bound::AtMost(Statistic::Median, 0.025)];
    vec![
        row(
            "SIGTERM to the daemon → the next CMD runs, 3 daemons",
            &rounds.handed,
            &target,
        ),
        row(
            "of which SIGTERM → the old CMD has ended",
            &rounds.stopped,
            &[],
        ),
        row("acquisition is sent → CMD runs", &rounds.sent, &[]),
        row("status.json says leader → CMD runs", &rounds.said, &[]),
        rounds.overlaps("workload_handoff"),
    ]
}

/// Sends SIGKILL to the leader's daemon, whose guard ends the command and releases the lease.
pub(crate) async fn killed(setup: Setup) -> Vec<Row> {
    let rounds = rounds(&setup, Daemon::kill).await;
    let target = [
        Bound::AtMost(Statistic::Median, 0.05),
        Bound::AtMost(Statistic::P99, 0.15),
    ];
    let row = |what: &str, series: &[f64], bounds: &[Bound]| {
        Row::new("workload_killed", what, Unit::Time, series, bounds)
    };
    vec![
        row(
            "SIGKILL of the daemon → the next CMD runs, 3 daemons",
            &rounds.handed,
            &target,
        ),
        row(
            "of which SIGKILL → the old CMD has ended",
            &rounds.stopped,
            &[],
        ),
        row("acquisition is sent → CMD runs", &rounds.sent, &[]),
        rounds.overlaps("workload_killed"),
    ]
}

/// Kills the container of the leader's command, which is not the daemon's container.
pub(crate) async fn container_killed(setup: Setup) -> Vec<Row> {
    let set = setup.set().await;
    let scratch = Scratch::new();
    let paths = directories(scratch.path(), 3);
    let journal = scratch.path().join("journal");
    let mut observer = Observer::start(&paths);
    let socket = |path: &PathBuf| path.join("guard.sock");
    let start = |(index, path): (usize, &PathBuf)| {
        setup
            .daemon("attached", &format!("d{index}"), &set.uri())
            .status_directory(path)
            .guard_socket(&socket(path))
            .start()
    };
    let contain = |path: &PathBuf| {
        let log = path.with_extension("log");
        let program = Path::new(env!("CARGO_BIN_EXE_leasehold"));
        GuardContainer::start(program, &socket(path), &work(&journal), &log).expect("a container")
    };
    let mut daemons: Vec<Daemon> = paths.iter().enumerate().map(start).collect();
    let mut containers: Vec<_> = paths.iter().map(contain).collect();
    let leads = |seen: &crate::observer::Seen| seen.leads_until_ns().is_some();
    let mut leader = observer.find("one leads", COMMAND_MAX, leads).await.index;
    join_all(daemons.iter().map(watching)).await;
    begun(&journal, 1).await;
    let mut handed = Vec::new();
    for round in 1..=setup.count(100, 20) {
        tokio::time::sleep(SETTLE).await;
        observer.forget();
        let old = leader;
        let process_1 = containers[old].process_1().await;
        let killed_at = boottime_ns();
        pid::signal(process_1, Signal::KILL);
        let seen = observer
            .find("another leads", COMMAND_MAX, |seen| {
                seen.index != old && leads(seen)
            })
            .await;
        begun(&journal, round + 1).await;
        handed.push(seconds(killed_at, lives(&journal)[round].began_ns));
        leader = seen.index;
        containers[old].wait_exit(EXIT_MAX).await;
        containers[old] = contain(&paths[old]);
        // Otherwise the daemon would wait longer with each exit of its command.
        daemons[old].restart_same_directory();
        watching(&daemons[old]).await;
    }
    // A killed command records no end, but releases its file lock.
    let lives = lives(&journal);
    let alongside = lives.iter().filter(|life| !life.alone).count();
    let rounds = Rounds {
        handed,
        beside: f64::from(u32::try_from(alongside).expect("few hand-offs")),
        ..Rounds::default()
    };
    let target = [Bound::AtMost(Statistic::P99, 0.1)];
    vec![
        Row::new(
            "container_killed",
            "SIGKILL of the workload's container → the next CMD runs, 3 pods",
            Unit::Time,
            &rounds.handed,
            &target,
        ),
        rounds.overlaps("container_killed"),
    ]
}

impl Rounds {
    fn overlaps(&self, figure: &'static str) -> Row {
        let what = format!(
            "CMDs that began alongside another, in {} hand-offs",
            self.handed.len()
        );
        let none = [Bound::AtMost(Statistic::Max, 0.0)];
        Row::new(figure, what, Unit::Count, &[self.beside], &none)
    }
}

/// Ends the leader's daemon in each round, and restarts it once another daemon leads.
async fn rounds(setup: &Setup, end: impl Fn(&Daemon)) -> Rounds {
    let set = setup.set().await;
    let scratch = Scratch::new();
    let paths = directories(scratch.path(), 3);
    let journal = scratch.path().join("journal");
    let mut observer = Observer::start(&paths);
    let start = |(index, path): (usize, &PathBuf)| {
        setup
            .daemon("supervised", &format!("d{index}"), &set.uri())
            .status_directory(path)
            .workload(work(&journal))
            .start()
    };
    let mut daemons: Vec<Daemon> = paths.iter().enumerate().map(start).collect();
    let leads = |seen: &crate::observer::Seen| seen.leads_until_ns().is_some();
    let mut leader = observer.find("one leads", COMMAND_MAX, leads).await.index;
    join_all(daemons.iter().map(watching)).await;
    begun(&journal, 1).await;
    let mut times = Rounds::default();
    for round in 1..=setup.count(100, 20) {
        tokio::time::sleep(SETTLE).await;
        observer.forget();
        let old = leader;
        let ended_at = boottime_ns();
        end(&daemons[old]);
        let seen = observer
            .find("another leads", COMMAND_MAX, |seen| {
                seen.index != old && leads(seen)
            })
            .await;
        begun(&journal, round + 1).await;
        let lives = lives(&journal);
        let began_ns = lives[round].began_ns;
        times.handed.push(seconds(ended_at, began_ns));
        let command_ended = lives[round - 1].ended_ns;
        let command_ended = command_ended.expect("a command ends before the next");
        times.stopped.push(seconds(ended_at, command_ended));
        let until_ns = seen.leads_until_ns().expect("the search has ended");
        let sent = seconds(until_ns - nanos(RENEW_DEADLINE), began_ns);
        times.sent.push(sent);
        times.said.push(seconds(seen.at_ns, began_ns));
        leader = seen.index;
        daemons[old].wait_exit(EXIT_MAX).await;
        daemons[old].restart_same_directory();
        watching(&daemons[old]).await;
    }
    times.beside = beside(&lives(&journal));
    times
}

/// Measures the memory of each guard, which adds to its daemon's memory.
pub(crate) async fn guard_memory(setup: Setup) -> Vec<Row> {
    let set = setup.set().await;
    let scratch = Scratch::new();
    let count = setup.count(5, 3);
    let paths = directories(scratch.path(), count);
    let mut observer = Observer::start(&paths);
    let start = |(index, path): (usize, &PathBuf)| {
        setup
            .daemon(&format!("guarded-{index}"), "a", &set.uri())
            .status_directory(path)
            .workload(work(&scratch.path().join(format!("journal-{index}"))))
            .start()
    };
    let daemons: Vec<Daemon> = paths.iter().enumerate().map(start).collect();
    let mut leading = vec![false; count];
    observer
        .find("all lead", COMMAND_MAX, |seen| {
            leading[seen.index] |= seen.leads_until_ns().is_some();
            leading.iter().all(|leads| *leads)
        })
        .await;
    for index in 0..count {
        begun(&scratch.path().join(format!("journal-{index}")), 1).await;
    }
    // On a replica that does not lead, the guard and the shim wait for authority.
    let waiting: Vec<Daemon> = (0..count)
        .map(|index| {
            setup
                .daemon(&format!("guarded-{index}"), "b", &set.uri())
                .workload(work(&scratch.path().join(format!("journal-{index}"))))
                .start()
        })
        .collect();
    join_all(waiting.iter().map(watching)).await;
    tokio::time::sleep(GUARD_SETTLE).await;
    let guard = |daemon: &Daemon| guard_of(daemon.pid());
    let memory: Vec<_> = daemons.iter().map(guard).map(Memory::of).collect();
    let pairs: Vec<_> = waiting
        .iter()
        .map(|daemon| {
            let guard = guard_of(daemon.pid());
            let shims = children_of(guard);
            assert_eq!(shims.len(), 1, "one shim waits");
            Memory::of(guard).private + Memory::of(shims[0]).private
        })
        .collect();
    let row = |what: &str, of: fn(&Memory) -> f64, unit: Unit, bounds: &[Bound]| {
        let series: Vec<_> = memory.iter().map(of).collect();
        Row::new("guard_memory", what, unit, &series, bounds)
    };
    let target = [Bound::AtMost(Statistic::Max, 1.5e6)];
    vec![
        row(
            "guard: private memory",
            |memory| memory.private,
            Unit::Bytes,
            &target,
        ),
        row("guard: RssAnon", |memory| memory.rss_anon, Unit::Bytes, &[]),
        row("guard: RSS", |memory| memory.rss, Unit::Bytes, &[]),
        row("guard: threads", |memory| memory.threads, Unit::Count, &[]),
        Row::new(
            "guard_memory",
            "on a replica that waits, guard and shim together: private memory",
            Unit::Bytes,
            &pairs,
            &target,
        ),
    ]
}

fn work(journal: &Path) -> [String; 3] {
    let this = std::env::current_exe().expect("the path of this program");
    let journal = journal.display().to_string();
    [this.display().to_string(), WORK.to_owned(), journal]
}

pub(crate) fn carry_out(mut arguments: impl Iterator<Item = OsString>) -> ExitCode {
    let began_ns = boottime_ns();
    let journal = PathBuf::from(arguments.next().expect("a journal"));
    // The kernel releases this lock only when the process is gone, which may be after the recorded
    // end.
    let there = File::create(journal.with_extension("there")).expect("create a file");
    let alone = there.try_lock().is_ok();
    let mut journal = OpenOptions::new()
        .create(true)
        .append(true)
        .open(journal)
        .expect("write the journal");
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("create an event loop");
    runtime.block_on(async {
        let mut signals = Signals::register().expect("register signal handlers");
        let line = format!("began {began_ns} {alone}\n");
        journal.write_all(line.as_bytes()).expect("as before");
        while !matches!(signals.next().await, signals::Signal::Stop(_)) {}
        let line = format!("ended {}\n", boottime_ns());
        journal.write_all(line.as_bytes()).expect("as before");
    });
    ExitCode::SUCCESS
}

/// Returns all records, in the order in which the commands began.
fn lives(journal: &Path) -> Vec<Life> {
    let text = std::fs::read_to_string(journal).unwrap_or_default();
    let mut lives: Vec<Life> = Vec::new();
    for line in text.lines() {
        let words: Vec<_> = line.split(' ').collect();
        match words.as_slice() {
            ["began", at, alone] => lives.push(Life {
                began_ns: at.parse().expect("an instant"),
                alone: *alone == "true",
                ended_ns: None,
            }),
            ["ended", at] => {
                let life = lives.iter_mut().find(|life| life.ended_ns.is_none());
                let life = life.expect("a command that ends has begun");
                life.ended_ns = Some(at.parse().expect("an instant"));
            }
            _ => panic!("an incomplete line: {line}"),
        }
    }
    lives
}

/// Counts the commands that began while the previous command still existed.
fn beside(lives: &[Life]) -> f64 {
    let over = |life: &Life, next: &Life| life.ended_ns.is_some_and(|at| at <= next.began_ns);
    let pairs = lives.windows(2);
    let violations = pairs.filter(|pair| !over(&pair[0], &pair[1]) || !pair[1].alone);
    f64::from(u32::try_from(violations.count()).expect("few hand-offs"))
}

async fn begun(journal: &Path, wanted: usize) {
    let end = boottime_ns() + nanos(COMMAND_MAX);
    loop {
        let text = std::fs::read_to_string(journal).unwrap_or_default();
        if text.matches("began").count() >= wanted {
            return;
        }
        assert!(boottime_ns() < end, "only {text}");
        tokio::time::sleep(POLL).await;
    }
}
