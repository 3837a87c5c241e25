//! Starts contenders for one lock. Each holder appends its acts to a journal. The locking program
//! is a parameter, so that each scenario runs both with a hand-made lock and with leasehold.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use leasehold_testbed::process::exit_code;
use leasehold_testbed::{FakeClock, Launch, Process, ReplicaSet, Scratch, SharedSet};

use crate::client::Order;
use crate::designs::Design;
use crate::journal::Journal;

pub(crate) const LONG: Duration = Duration::from_secs(60);
/// Time until a hand-made lock expires. This time is short, but several times longer than the delay
/// of an extension on a busy machine.
pub(crate) const LIFE: Duration = Duration::from_secs(2);
/// A contender counts as excluded if it does not start its work within this time.
pub(crate) const KEPT_OUT: Duration = Duration::from_secs(6);
/// Number of acts in about half a second of work. A holder that stops a little late performs fewer
/// acts.
pub(crate) const AT_WORK: usize = 20;

const POLL: Duration = Duration::from_millis(5);

/// Appends acts to the journal until file $2 is removed or some minutes have passed. $0 is the
/// journal and $1 is the owner.
///
/// Only the client gets a faked clock (libfaketime, preloaded). With a faked clock, a command that
/// starts just after its client was killed would create its own shared memory. This memory would
/// leak when the command is killed.
const WORK: &str = r#"
unset LD_PRELOAD
i=0
while [ -e "$2" ] && [ "$i" -lt 6000 ]; do
    read -r now rest < /proc/uptime
    echo "$now $1" >> "$0"
    i=$((i + 1))
    sleep 0.02
done"#;

static SET: SharedSet = SharedSet::new(|| {
    // The TTL monitor runs every second instead of every minute.
    ReplicaSet::builder().parameter("ttlMonitorSleepSecs=1")
});

#[derive(Debug, Clone)]
pub(crate) struct Place {
    pub(crate) uri: String,
    pub(crate) database: String,
    pub(crate) lock: String,
    pub(crate) directory: PathBuf,
}

pub(crate) trait Means {
    fn launch(&self, place: &Place, owner: &str, command: Vec<String>) -> Launch;
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct ByHand {
    pub(crate) design: Design,
    pub(crate) extend: bool,
    pub(crate) life: Duration,
    pub(crate) wait: Duration,
}

impl ByHand {
    pub(crate) fn extended(design: Design) -> Self {
        Self {
            design,
            extend: true,
            life: LIFE,
            wait: LONG,
        }
    }

    pub(crate) fn not_extended(design: Design) -> Self {
        Self {
            extend: false,
            ..Self::extended(design)
        }
    }
}

impl Means for ByHand {
    fn launch(&self, place: &Place, owner: &str, command: Vec<String>) -> Launch {
        let order = Order {
            design: self.design,
            uri: place.uri.clone(),
            database: place.database.clone(),
            name: place.lock.clone(),
            owner: owner.to_owned(),
            life: self.life,
            extend: self.extend,
            wait: self.wait,
            command,
        };
        order.launch()
    }
}

pub(crate) struct Fixture<M> {
    means: M,
    place: Place,
    pub(crate) journal: Journal,
    scratch: Scratch,
    set: Arc<ReplicaSet>,
}

impl<M: Means> Fixture<M> {
    pub(crate) async fn new(means: M) -> Self {
        Self::on(SET.get().await, means)
    }

    pub(crate) fn on(set: Arc<ReplicaSet>, means: M) -> Self {
        static SCENES: AtomicUsize = AtomicUsize::new(1);
        let number = SCENES.fetch_add(1, Ordering::Relaxed);
        let scratch = Scratch::new();
        Self {
            means,
            place: Place {
                uri: set.uri(),
                database: format!("scene_{number}"),
                lock: "nightly-report".to_owned(),
                directory: scratch.path().to_owned(),
            },
            journal: Journal::new(scratch.path().join("journal")),
            scratch,
            set,
        }
    }

    pub(crate) fn set(&self) -> &ReplicaSet {
        &self.set
    }

    pub(crate) fn start(&self, owner: &str) -> Process {
        self.start_as(owner, owner, None)
    }

    /// The journal names the contender `actor`, and the lock names it `owner`.
    pub(crate) fn start_as(&self, owner: &str, actor: &str, clock: Option<&FakeClock>) -> Process {
        self.start_by(&self.means, owner, actor, clock)
    }

    pub(crate) fn start_by(
        &self,
        means: &impl Means,
        owner: &str,
        actor: &str,
        clock: Option<&FakeClock>,
    ) -> Process {
        let keeps_going = self.scratch.path().join(actor);
        std::fs::write(&keeps_going, "").expect("a file can be written");
        let journal = self.journal.path().display().to_string();
        let command = ["/bin/sh", "-c", WORK, &journal, actor].map(str::to_owned);
        let mut command = command.to_vec();
        command.push(keeps_going.display().to_string());
        let launch = means
            .launch(&self.place, owner, command)
            .stderr(self.scratch.path().join(format!("{actor}.log")))
            // `leasehold lock` keeps its observations between runs in this directory.
            .env("XDG_RUNTIME_DIR", self.scratch.path().display().to_string());
        let clock = clock.map_or(&[][..], FakeClock::variables);
        let launch = launch.envs(clock.iter().cloned());
        launch.start().unwrap_or_else(|failure| panic!("{failure}"))
    }

    pub(crate) async fn first_at_work(&self, contenders: &[(&str, Process)]) -> usize {
        let end = Instant::now() + LONG;
        loop {
            let acts = |(name, _): &(&str, Process)| self.journal.count(name) > 0;
            if let Some(index) = contenders.iter().position(acts) {
                return index;
            }
            assert!(
                Instant::now() < end,
                "no contender acts: {}",
                self.describe()
            );
            tokio::time::sleep(POLL).await;
        }
    }

    pub(crate) fn finish(&self, actor: &str) {
        std::fs::remove_file(self.scratch.path().join(actor)).expect("the actor was working");
    }

    pub(crate) async fn acts_more(&self, actor: &str, more: usize) {
        let count = self.journal.count(actor) + more;
        let reached = self.journal.reaches(actor, count, LONG).await;
        assert!(reached, "{actor} stopped acting: {}", self.describe());
    }

    pub(crate) async fn at_work(&self, owner: &str) -> Process {
        let process = self.start(owner);
        self.acts_more(owner, AT_WORK).await;
        process
    }

    pub(crate) fn kill(&self, process: &Process, actor: &str) {
        process.kill();
        self.finish(actor);
    }

    pub(crate) async fn end(&self, process: &Process, actor: &str) -> i32 {
        self.finish(actor);
        exit_code(
            process
                .wait(LONG)
                .await
                .expect("the process exits after its work"),
        )
    }

    /// Returns true if the contender starts its work within `time`, while `other` still works.
    async fn acts_alongside(&self, contender: &str, other: &str, time: Duration) -> bool {
        let came = self.journal.reaches(contender, AT_WORK, time).await;
        if came {
            self.acts_more(other, AT_WORK).await;
        }
        came
    }

    pub(crate) async fn assert_kept_out(&self, contender: &str) {
        let came = self.journal.reaches(contender, 1, KEPT_OUT).await;
        assert!(!came, "{contender} started its work: {}", self.describe());
    }

    #[track_caller]
    pub(crate) fn assert_both_acted(&self, first: &str, second: &str) {
        let beside = self.journal.after_the_next_began(first, second);
        assert!(beside >= AT_WORK, "the lock held: {}", self.describe());
    }

    /// Asserts that the first contender never acted after the second had begun.
    #[track_caller]
    pub(crate) fn assert_in_turn(&self, first: &str, second: &str) {
        let beside = self.journal.after_the_next_began(first, second);
        assert_eq!(beside, 0, "{}", self.describe());
    }

    /// Returns the contenders' error output and a summary of the journal: one entry for each
    /// change of actor.
    pub(crate) fn describe(&self) -> String {
        let mut text = String::new();
        for act in self.journal.acts() {
            if !text.ends_with(&act.owner) {
                text += &format!(" {:.2}:{}", act.at, act.owner);
            }
        }
        for entry in std::fs::read_dir(self.scratch.path()).into_iter().flatten() {
            let path = entry.expect("the directory can be read").path();
            if path.extension().is_some_and(|extension| extension == "log") {
                let log = std::fs::read_to_string(&path).unwrap_or_default();
                text += &format!("\n{}:\n{log}", path.display());
            }
        }
        text
    }
}

/// Pauses the client of `a` while its work continues, starts `b`, and waits until `b` is at work.
pub(crate) async fn pause<M: Means>(fixture: &Fixture<M>) -> (Process, Process) {
    let a = fixture.at_work("a").await;
    a.stop();
    let b = fixture.at_work("b").await;
    (a, b)
}

/// `a` works for several times the lock's expiry while `b` contends. Returns true if `b` starts its
/// work within `time`, while `a` is working.
pub(crate) async fn outlast<M: Means>(fixture: &Fixture<M>, time: Duration) -> bool {
    skew(fixture, None, None, time).await
}

/// `a` holds the lock and `b` contends, each with the given offset of its wall clock. Returns true
/// if `b` starts its work within `time`, while `a` is working.
pub(crate) async fn skew<M: Means>(
    fixture: &Fixture<M>,
    clock_of_a: Option<&str>,
    clock_of_b: Option<&str>,
    time: Duration,
) -> bool {
    let clock = |offset| FakeClock::offset(offset).expect("libfaketime");
    let (clock_of_a, clock_of_b) = (clock_of_a.map(clock), clock_of_b.map(clock));
    let _a = fixture.start_as("a", "a", clock_of_a.as_ref());
    fixture.acts_more("a", AT_WORK).await;
    let _b = fixture.start_as("b", "b", clock_of_b.as_ref());
    fixture.acts_alongside("b", "a", time).await
}

/// The lock has two slots, which `a` and `b` hold. `a` is killed, `b` continues, and `c` contends.
/// Returns true if `c` starts its work within `time`, while `b` is working.
pub(crate) async fn kill_one_while_another_holds<M: Means>(
    fixture: &Fixture<M>,
    time: Duration,
) -> bool {
    let (a, _b) = (fixture.start("a"), fixture.start("b"));
    fixture.acts_more("a", AT_WORK).await;
    fixture.acts_more("b", AT_WORK).await;
    fixture.kill(&a, "a");
    let _c = fixture.start("c");
    fixture.acts_alongside("c", "b", time).await
}
