//! Goal: in the scenarios that break hand-made locks, two commands under leasehold never act at
//! once, and the lock of a killed holder becomes free again. Method: runs the scenarios with
//! `leasehold run -- CMD` and `leasehold lock NAME -- CMD`. As in the tests of hand-made locks, the
//! command does not check its lock, and stops only on a signal.

use leasehold::exit::LOCK_LOST;
use leasehold_testbed::process::exit_code;
use leasehold_testbed::{DaemonTimings, Launch};
use rustix::process::Signal;

use crate::fixture::{AT_WORK, Fixture, KEPT_OUT, LIFE, LONG, Means, Place};
use crate::fixture::{kill_one_while_another_holds, outlast, pause, skew};

struct Run;

impl Means for Run {
    fn launch(&self, place: &Place, owner: &str, command: Vec<String>) -> Launch {
        let directory = place.directory.join(format!("status-{owner}"));
        Launch::new(env!("CARGO_BIN_EXE_leasehold"))
            .arguments(["run", "--lease", &place.lock, "--identity", owner])
            .argument(format!("--mongodb-uri={}", place.uri))
            .argument(format!("--mongodb-database={}", place.database))
            .argument(format!("--status-directory={}", directory.display()))
            .argument("--http-listen=")
            .arguments(DaemonTimings::SHORT.flags())
            .argument("--")
            .arguments(command)
    }
}

/// Runs a command under a lock that expires well within a scenario's duration.
struct Lock(&'static [&'static str]);

const EXCLUSIVE: Lock = Lock(&[]);
const SHARED: Lock = Lock(&["--shared"]);
const TWO_SLOTS: Lock = Lock(&["--slots=2"]);

impl Means for Lock {
    fn launch(&self, place: &Place, owner: &str, command: Vec<String>) -> Launch {
        let Self(mode) = self;
        Launch::new(env!("CARGO_BIN_EXE_leasehold"))
            .arguments(["lock", &place.lock, "--identity", owner])
            .arguments(mode.iter().copied())
            .argument(format!("--mongodb-uri={}", place.uri))
            .argument(format!("--mongodb-database={}", place.database))
            .argument("--lease-duration=3s")
            // The longest timeout that the lease duration allows, because calls are slow on a busy
            // machine.
            .argument("--mongodb-operation-timeout=500ms")
            .argument("--")
            .arguments(command)
    }
}

async fn ends_while_its_client_is_paused(means: impl Means) {
    let fixture = Fixture::new(means).await;
    let _contenders = pause(&fixture).await;
    fixture.acts_more("b", AT_WORK).await;
    fixture.assert_in_turn("a", "b");
}

async fn outlasts_its_life(means: impl Means) {
    let fixture = Fixture::new(means).await;
    assert!(!outlast(&fixture, KEPT_OUT).await, "{}", fixture.describe());
    assert!(at_work_to_the_end(&fixture), "{}", fixture.describe());
}

/// Returns true if the acts span more than 4 s. `a` must then have renewed, because its lock
/// expires 3 s after the last renewal. The scenario takes 6 s.
fn at_work_to_the_end<M: Means>(fixture: &Fixture<M>) -> bool {
    let acts = fixture.journal.acts();
    let instants = acts.first().zip(acts.last());
    instants.is_some_and(|(first, last)| last.at - first.at > (2 * LIFE).as_secs_f64())
}

/// Asserts that the holders never act at once, with these offsets of their wall clocks.
async fn holds(means: impl Means, clock_of_a: Option<&str>, clock_of_b: Option<&str>) {
    let fixture = Fixture::new(means).await;
    let came = skew(&fixture, clock_of_a, clock_of_b, KEPT_OUT).await;
    assert!(!came, "{}", fixture.describe());
    assert!(at_work_to_the_end(&fixture), "{}", fixture.describe());
}

#[tokio::test]
async fn while_its_daemon_is_paused_the_command_ends_before_the_next_one_begins() {
    ends_while_its_client_is_paused(Run).await;
}

#[tokio::test]
async fn while_its_lock_is_paused_the_command_ends_before_the_next_one_begins() {
    ends_while_its_client_is_paused(EXCLUSIVE).await;
}

#[tokio::test]
async fn work_that_outlasts_the_lease_keeps_it() {
    outlasts_its_life(Run).await;
}

#[tokio::test]
async fn work_that_outlasts_the_lock_keeps_it() {
    outlasts_its_life(EXCLUSIVE).await;
}

#[tokio::test]
async fn a_contender_whose_clock_is_ahead_waits() {
    holds(Run, None, Some("+1h")).await;
}

#[tokio::test]
async fn a_contender_whose_clock_is_ahead_waits_for_the_lock() {
    holds(EXCLUSIVE, None, Some("+1h")).await;
}

#[tokio::test]
async fn a_holder_whose_clock_is_behind_keeps_the_lease() {
    holds(Run, Some("-1h"), None).await;
}

#[tokio::test]
async fn a_holder_whose_clock_is_behind_keeps_the_lock() {
    holds(EXCLUSIVE, Some("-1h"), None).await;
}

#[tokio::test]
async fn the_slot_of_a_killed_holder_becomes_free_while_another_runs() {
    let fixture = Fixture::new(TWO_SLOTS).await;
    assert!(
        kill_one_while_another_holds(&fixture, LONG).await,
        "{}",
        fixture.describe()
    );
    let beside = |owner| fixture.journal.after_the_next_began(owner, "c");
    assert_eq!(beside("a"), 0, "{}", fixture.describe());
    assert!(
        beside("b") >= AT_WORK,
        "the live holder stopped: {}",
        fixture.describe()
    );
}

/// The writer waits until the killed reader has expired, and then waits for the live reader.
#[tokio::test]
async fn a_killed_reader_does_not_keep_a_writer_out() {
    let fixture = Fixture::new(SHARED).await;
    let (a, b) = (fixture.start("a"), fixture.start("b"));
    fixture.acts_more("a", AT_WORK).await;
    fixture.acts_more("b", AT_WORK).await;
    fixture.kill(&a, "a");
    let _writer = fixture.start_by(&EXCLUSIVE, "c", "c", None);
    fixture.assert_kept_out("c").await;
    assert_eq!(fixture.end(&b, "b").await, 0);
    fixture.acts_more("c", AT_WORK).await;
    for reader in ["a", "b"] {
        fixture.assert_in_turn(reader, "c");
    }
}

#[tokio::test]
async fn the_lock_of_a_killed_holder_becomes_free() {
    let fixture = Fixture::new(EXCLUSIVE).await;
    let a = fixture.at_work("a").await;
    fixture.kill(&a, "a");
    let _b = fixture.at_work("b").await;
    fixture.assert_in_turn("a", "b");
}

/// `a` loses the lock while paused, and tries to release it after `b` has acquired it.
#[tokio::test]
async fn a_late_release_does_not_free_the_lock_of_another_holder() {
    let fixture = Fixture::new(EXCLUSIVE).await;
    let (a, _b) = pause(&fixture).await;
    a.signal(Signal::CONT);
    let status = a
        .wait(LONG)
        .await
        .expect("a exits because it lost the lock");
    assert_eq!(
        exit_code(status),
        i32::from(LOCK_LOST),
        "{}",
        fixture.describe()
    );
    let _c = fixture.start("c");
    fixture.assert_kept_out("c").await;
    fixture.acts_more("b", AT_WORK).await;
}

#[tokio::test]
async fn two_processes_with_one_identity_do_not_hold_at_once() {
    let fixture = Fixture::new(EXCLUSIVE).await;
    let a = fixture.start_as("worker-1", "a", None);
    fixture.acts_more("a", AT_WORK).await;
    let _b = fixture.start_as("worker-1", "b", None);
    fixture.assert_kept_out("b").await;
    assert_eq!(fixture.end(&a, "a").await, 0);
    fixture.acts_more("b", AT_WORK).await;
    fixture.assert_in_turn("a", "b");
}
