//! Goal: a killed holder is evicted although no job ever waits or works as long as an entry takes
//! to expire.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rustix::process::Signal;

use crate::job::{Job, Place, eventually};

const LEASE: Duration = Duration::from_secs(6);
/// Machines, each of which remembers the observations of its own jobs.
const HOSTS: usize = 3;

/// Runs short jobs one after the other, on some machines, until `stop` is set.
fn traffic(place: &Place, flags: &[&str], stop: &AtomicBool) {
    std::thread::scope(|scope| {
        for host in 0..HOSTS {
            scope.spawn(move || {
                let directory = place.path(&format!("host-{host}"));
                std::fs::create_dir(&directory).unwrap();
                while !stop.load(Ordering::Relaxed) {
                    let words = [flags, &["--", "sleep", "0.15"]].concat();
                    let mut command = place.command(&words);
                    command.env("XDG_RUNTIME_DIR", &directory);
                    let done = Job::start(command).output();
                    assert_eq!(done.code, 0, "{done:?}");
                }
            });
        }
    });
}

/// Ends the traffic, even if the test fails.
struct StopWhenDropped<'a>(&'a AtomicBool);

impl Drop for StopWhenDropped<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

fn a_killed_holder_makes_room(name: &str, mode: &str) {
    let place = Place::new();
    let flags = ["lock", name, mode, "--lease-duration=6s"];
    let killed = place.holder(name, &[&flags[2..], &["--identity=killed"]].concat());
    let stop = AtomicBool::new(false);
    let gone_after = std::thread::scope(|scope| {
        scope.spawn(|| traffic(&place, &flags, &stop));
        killed.signal(Signal::KILL);
        let since = Instant::now();
        let listed = || place.run(&["locks"]).stdout.contains("killed");
        assert!(listed(), "it holds a place");
        let _stopped = StopWhenDropped(&stop);
        eventually("its place is free", || !listed());
        since.elapsed()
    });
    assert!(gone_after < 2 * LEASE, "{gone_after:?}");
}

#[test]
fn a_killed_holders_slot_is_free_again() {
    a_killed_holder_makes_room("brisk-slots", "--slots=2");
}

#[test]
fn a_killed_readers_place_is_free_again() {
    a_killed_holder_makes_room("brisk-readers", "--shared");
}

/// Each machine also runs jobs with the same lock name in another database. The observations of the
/// two locks do not overwrite each other.
#[test]
fn a_lock_of_the_same_name_in_another_database_does_not_keep_a_killed_holder() {
    let (place, other) = (Place::new(), Place::new());
    let name = "brisk-twice";
    let flags = ["lock", name, "--slots=2", "--lease-duration=6s"];
    let killed = place.holder(
        name,
        &["--slots=2", "--lease-duration=6s", "--identity=killed"],
    );
    let directory = place.path("host");
    std::fs::create_dir(&directory).unwrap();
    killed.signal(Signal::KILL);
    let since = Instant::now();
    let listed = || place.run(&["locks"]).stdout.contains("killed");
    assert!(listed(), "it holds a place");
    // Jobs run one after the other, so that each job starts with the record of the previous job.
    eventually("its place is free", || {
        for of in [&place, &other] {
            let mut command = of.command(&[&flags[..], &["--", "sleep", "0.15"]].concat());
            command.env("XDG_RUNTIME_DIR", &directory);
            let done = Job::start(command).output();
            assert_eq!(done.code, 0, "{done:?}");
        }
        !listed()
    });
    let gone_after = since.elapsed();
    assert!(gone_after < 2 * LEASE, "{gone_after:?}");
}
