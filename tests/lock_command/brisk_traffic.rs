//! Goal: jobs evict a killed holder even if no single job waits or runs long enough to see an entry
//! expire.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rustix::process::Signal;

use crate::job::{Job, Place, eventually};

const LEASE: Duration = Duration::from_secs(6);
/// Number of hosts. The jobs of a host share their observations of locks.
const HOSTS: usize = 3;

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

struct StopWhenDropped<'a>(&'a AtomicBool);

impl Drop for StopWhenDropped<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

fn jobs_evict_a_killed_holder(name: &str, mode: &str) {
    let place = Place::new();
    let flags = ["lock", name, mode, "--lease-duration=6s"];
    let killed = place.holder(name, &[&flags[2..], &["--identity=killed"]].concat());
    let stop = AtomicBool::new(false);
    let gone_after = std::thread::scope(|scope| {
        scope.spawn(|| traffic(&place, &flags, &stop));
        killed.signal(Signal::KILL);
        let since = Instant::now();
        let listed = || place.run(&["locks"]).stdout.contains("killed");
        assert!(listed(), "the killed holder is listed");
        let _stopped = StopWhenDropped(&stop);
        eventually("the killed holder has been evicted", || !listed());
        since.elapsed()
    });
    assert!(gone_after < 2 * LEASE, "{gone_after:?}");
}

#[test]
fn the_slot_of_a_killed_holder_is_freed() {
    jobs_evict_a_killed_holder("brisk-slots", "--slots=2");
}

#[test]
fn a_killed_reader_is_evicted() {
    jobs_evict_a_killed_holder("brisk-readers", "--shared");
}

/// The host also runs jobs with the same lock name in another database. Observations of one lock
/// must not overwrite observations of the other lock.
#[test]
fn a_lock_of_the_same_name_in_another_database_does_not_delay_the_eviction() {
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
    assert!(listed(), "the killed holder is listed");
    // The jobs run in sequence, so each job starts with the observations of the previous job.
    eventually("the killed holder has been evicted", || {
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
