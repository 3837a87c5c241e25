//! Goal: in the very scenes in which hand-made locks break, commands that
//! leasehold runs never act beside each other.
//! Method: `leasehold run -- CMD` as the means; the command keeps to nothing
//! but its signals, as with the hand-made locks.

use leasehold_testbed::{DaemonTimings, FakeClock, Launch, run};

use crate::scene::{AT_WORK, Means, Place, Scene, outlast, pause, skew};

/// Runs a command while this replica leads.
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

#[test]
fn while_its_daemon_is_paused_the_command_ends_before_the_next_one_begins() {
    run(async {
        let scene = Scene::new(Run).await;
        let _contenders = pause(&scene).await;
        scene.acts_more("b", AT_WORK).await;
        let beside = scene.journal.after_the_next_began("a", "b");
        assert_eq!(beside, 0, "{}", scene.tell());
    });
}

#[test]
fn work_that_outlasts_the_lease_keeps_it() {
    run(async {
        let scene = Scene::new(Run).await;
        assert!(!outlast(&scene).await, "{}", scene.tell());
    });
}

#[test]
fn a_contender_whose_clock_is_ahead_waits() {
    run(async {
        let ahead = FakeClock::offset("+1h").expect("libfaketime");
        let scene = Scene::new(Run).await;
        let came = skew(&scene, None, Some(&ahead)).await;
        assert!(!came, "{}", scene.tell());
    });
}

#[test]
fn a_holder_whose_clock_is_behind_keeps_what_it_has() {
    run(async {
        let behind = FakeClock::offset("-1h").expect("libfaketime");
        let scene = Scene::new(Run).await;
        let came = skew(&scene, Some(&behind), None).await;
        assert!(!came, "{}", scene.tell());
    });
}
