//! A stand-in for a daemon, which a test can kill and freeze. The stand-in is a second process of
//! this test binary, which runs one workload and records its progress.

use std::ffi::OsString;
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::Path;
use std::time::Duration;

use leasehold::clock::boot_now;
use leasehold::election::BootTime;
use leasehold::workload::claim_share::{Child, ClaimPlace, ClaimShare, children};
use leasehold::workload::{CommandProgress, GuardedCommand, Orphans, Terms};
use leasehold_testbed::pid::{self, is_alive, state};
use leasehold_testbed::process::{Launch, Process};
use rustix::fs::FlockOperation;
use rustix::process::Signal;

use crate::fixture::{Fixture, LONG, eventually, millis};

/// If set, the process is a starter: it starts the stand-in and adopts its orphans. The test
/// process must not adopt these orphans, because a test that loses a guard kills all adopted
/// processes, including the guards of other tests.
const STARTER: &str = "STAND_IN_STARTER";
const SCRIPT: &str = "STAND_IN_SCRIPT";
const DIRECTORY: &str = "STAND_IN_DIRECTORY";
const VALID_MS: &str = "STAND_IN_VALID_MS";
const GRACE_MS: &str = "STAND_IN_GRACE_MS";
const RENEW: &str = "STAND_IN_RENEW";
/// File in which the stand-in records its newest deadlines.
const NEWEST: &str = "deadlines";
/// File in which the stand-in records the deadlines that it has certainly sent.
const SENT: &str = "sent";
const RENEW_INTERVAL: Duration = Duration::from_millis(50);

/// With these arguments, this binary runs only the test that acts as the stand-in.
const ARGUMENTS: [&str; 4] = [
    "--exact",
    "stand_in::acts_as_a_daemon_if_the_environment_says_so",
    "--nocapture",
    "--test-threads=1",
];

pub(crate) struct StandIn<'a> {
    fixture: &'a Fixture,
    _starter: Process,
}

impl StandIn<'_> {
    /// Sends a signal to the stand-in, which must have recorded its [`guard`].
    pub(crate) fn signal(&self, signal: Signal) {
        pid::signal(self.pid(), signal);
    }

    pub(crate) async fn kill(&self) {
        let pid = self.pid();
        self.signal(Signal::KILL);
        eventually("the stand-in has exited", || !is_alive(pid)).await;
    }

    /// Freezes the stand-in and waits until all its threads have stopped, because a thread may run
    /// briefly after the signal.
    pub(crate) async fn freeze(&self) {
        let tasks = format!("/proc/{}/task", self.pid());
        self.signal(Signal::STOP);
        eventually("all threads of the stand-in have stopped", || {
            let tasks = std::fs::read_dir(&tasks).unwrap();
            let ids = tasks.map(|task| task.unwrap().file_name().into_string().unwrap());
            ids.map(|id| state(id.parse().unwrap()))
                .all(|state| state == Some('T'))
        })
        .await;
    }

    fn pid(&self) -> u32 {
        self.fixture.lines("stand-in")[0].parse().unwrap()
    }
}

pub(crate) struct Plan {
    script: &'static str,
    valid: Duration,
    grace: Duration,
    renews: bool,
}

impl Plan {
    /// Returns a plan that renews, with deadlines later than the end of any test.
    pub(crate) fn of(script: &'static str) -> Self {
        Self {
            script,
            valid: LONG,
            grace: LONG,
            renews: true,
        }
    }

    pub(crate) fn lasting(self, valid: Duration, grace: Duration) -> Self {
        Self {
            valid,
            grace,
            ..self
        }
    }

    pub(crate) fn once(self) -> Self {
        Self {
            renews: false,
            ..self
        }
    }

    pub(crate) fn environment(&self, fixture: &Fixture) -> Vec<(&'static str, OsString)> {
        let mut environment = vec![
            (SCRIPT, self.script.into()),
            (DIRECTORY, fixture.path("").into()),
            (VALID_MS, self.valid.as_millis().to_string().into()),
            (GRACE_MS, self.grace.as_millis().to_string().into()),
        ];
        if self.renews {
            environment.push((RENEW, "yes".into()));
        }
        environment
    }

    pub(crate) fn start<'a>(&self, fixture: &'a Fixture) -> StandIn<'a> {
        self.start_with(fixture, &[])
    }

    pub(crate) fn start_with<'a>(
        &self,
        fixture: &'a Fixture,
        more: &[(&str, &str)],
    ) -> StandIn<'a> {
        let more = more
            .iter()
            .map(|(name, value)| (*name, OsString::from(value)));
        let starter = itself(&fixture.path("")).env(STARTER, "yes");
        let starter = starter.envs(self.environment(fixture)).envs(more);
        StandIn {
            fixture,
            _starter: starter.start().unwrap(),
        }
    }
}

/// Returns this binary's command line. The process becomes a starter if STARTER is set, and
/// otherwise the stand-in.
fn itself(directory: &Path) -> Launch {
    Launch::new(std::env::current_exe().unwrap())
        .arguments(ARGUMENTS)
        .stderr(directory.join("stderr"))
}

/// Returns a command line for a shell that has the stand-in's environment.
pub(crate) fn command_line() -> String {
    let binary = std::env::current_exe().unwrap();
    format!("{} {}", binary.display(), ARGUMENTS.join(" "))
}

pub(crate) async fn guard(fixture: &Fixture) -> u32 {
    fixture.wait_pid("guard").await
}

/// Returns the newest deadlines, which a killed stand-in may not have sent.
pub(crate) fn deadlines(fixture: &Fixture) -> Terms {
    recorded(fixture, NEWEST)
}

/// Returns deadlines that the stand-in, which must have recorded its [`guard`], has certainly sent.
pub(crate) fn sent(fixture: &Fixture) -> Terms {
    recorded(fixture, SENT)
}

fn recorded(fixture: &Fixture, name: &str) -> Terms {
    let text = std::fs::read_to_string(fixture.path(name)).unwrap();
    let mut numbers = text
        .split_whitespace()
        .map(|number| BootTime::from_nanos(number.parse().unwrap()));
    Terms {
        valid_until: numbers.next().unwrap(),
        kill_at: numbers.next().unwrap(),
    }
}

/// Waits until the stand-in has recorded that its command has ended. Returns the recorded event.
pub(crate) async fn wait_for_gone(fixture: &Fixture) -> String {
    let told = || fixture.lines("told").pop().unwrap_or_default();
    eventually("the daemon records that CMD has ended", || {
        told().starts_with("Gone")
    })
    .await;
    told()
}

pub(crate) fn lock_is_free(fixture: &Fixture) -> bool {
    let file = File::open(fixture.path("claim")).unwrap();
    rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive).is_ok()
}

pub(crate) fn recorded_child(fixture: &Fixture) -> Child {
    let file = File::open(fixture.path("claim")).unwrap();
    children(&file).unwrap()[0]
}

fn append(path: &Path, line: &str) {
    let file = OpenOptions::new().create(true).append(true).open(path);
    file.unwrap().write_all(line.as_bytes()).unwrap();
}

fn replace(path: &Path, text: &str) {
    let new = path.with_extension("new");
    std::fs::write(&new, text).unwrap();
    std::fs::rename(new, path).unwrap();
}

/// Starts the stand-in and reaps its orphans until this process is killed.
async fn start_and_adopt(directory: &Path) {
    let mut orphans = Orphans::adopt().unwrap();
    let environment = std::env::vars_os().map(|(name, value)| (name.into_string().unwrap(), value));
    let environment = environment.filter(|(name, _)| name != STARTER);
    let _stand_in = itself(directory).envs(environment).start().unwrap();
    panic!("{:?}", orphans.reap().await);
}

async fn keep(directory: &Path, script: &str) {
    append(
        &directory.join("stand-in"),
        &format!("{}\n", std::process::id()),
    );
    let number = |name| {
        let value = std::env::var(name).unwrap();
        millis(value.parse().unwrap())
    };
    let (valid, grace) = (number(VALID_MS), number(GRACE_MS));
    let renews = std::env::var_os(RENEW).is_some();
    let lock = File::create(directory.join("claim")).unwrap();
    rustix::fs::flock(&lock, FlockOperation::NonBlockingLockExclusive).unwrap();
    let record = |name: &str, terms: Terms| {
        let (valid_until, kill_at) = (terms.valid_until.as_nanos(), terms.kill_at.as_nanos());
        replace(&directory.join(name), &format!("{valid_until} {kill_at}"));
    };
    let now_terms = || {
        let terms = crate::fixture::terms(valid, grace);
        record(NEWEST, terms);
        terms
    };
    let mut orphans = Orphans::adopt().unwrap();
    let command = crate::fixture::shell(&format!("cd {}\n{script}", directory.display()));
    let claim = ClaimShare::new(lock.try_clone().unwrap().into(), ClaimPlace::Command);
    let mut newest = now_terms();
    let mut workload = GuardedCommand::start(&command, newest, Some(claim)).unwrap();
    record(SENT, newest);
    append(&directory.join("guard"), &format!("{}\n", workload.guard()));
    let began = boot_now();
    loop {
        tokio::select! {
            progress = workload.changed() => {
                append(&directory.join("told"), &format!("{progress:?}\n"));
                if let CommandProgress::Gone(ended) = progress {
                    // A separate thread records the end in the claim file.
                    let record = File::open(directory.join("claim")).unwrap();
                    while ended.guard_lost
                        && children(&record).unwrap()[0] != Child::Gone
                        && boot_now() < began + 3 * LONG
                    {
                        tokio::time::sleep(millis(1)).await;
                    }
                    return;
                }
            }
            () = tokio::time::sleep(RENEW_INTERVAL), if renews => {
                // The workload has sent the previous deadlines while this loop slept.
                record(SENT, newest);
                newest = now_terms();
                workload.extend(newest);
            }
            failed = orphans.reap() => panic!("{failed:?}"),
            () = tokio::time::sleep(3 * LONG) => panic!("since {began}"),
        }
    }
}

/// Runs the stand-in or the starter if the variables are set. In an ordinary run, asserts that the
/// variables are not set.
#[test]
fn acts_as_a_daemon_if_the_environment_says_so() {
    let (Ok(script), Some(directory)) = (std::env::var(SCRIPT), std::env::var_os(DIRECTORY)) else {
        assert!(std::env::var_os(VALID_MS).is_none());
        return;
    };
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    let directory = Path::new(&directory);
    runtime.unwrap().block_on(async {
        match std::env::var_os(STARTER) {
            Some(_) => start_and_adopt(directory).await,
            None => keep(directory, &script).await,
        }
    });
}
