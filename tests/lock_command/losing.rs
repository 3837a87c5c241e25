//! Goal: when a job loses its lock, its command exits before another contender gets the lock.

use std::time::Duration;

use leasehold_testbed::pid::{exists, is_alive, parent, signal};
use leasehold_testbed::{Scratch, assert_contains};
use rustix::process::Signal;

use crate::job::{Job, Output, PROGRAM, Place, eventually};

/// Approximate time between the two signals that timeout(1) sends.
const MILLISECONDS_APART: Duration = Duration::from_millis(3);

fn stubborn(place: &Place, what: &str) -> String {
    format!(
        "trap '' TERM; {}; while :; do sleep 0.02; done",
        place.note(what)
    )
}

fn trapping(place: &Place, reaction: &str, signal: &str) -> String {
    let holds = place.note("holds");
    format!("trap '{reaction}' {signal}; {holds}; while :; do sleep 0.02; done")
}

/// Returns a command that exits with code 4, `seconds` after SIGTERM.
fn tidy(place: &Place, seconds: &str) -> String {
    let stopped = place.note("stopped");
    trapping(
        place,
        &format!("sleep {seconds}; {stopped}; exit 4"),
        "TERM",
    )
}

/// Asserts that the log mentions the removal of `dead`, unless the program exited before MongoDB
/// answered the removal.
#[track_caller]
fn removal_is_logged(said: &str) {
    let unanswered = said.contains(" failed (attempt ");
    assert!(said.contains("identity=dead") || unanswered, "{said}");
}

#[test]
fn if_mongodb_is_unresponsive_the_command_is_stopped_with_76() {
    let place = Place::new();
    let proxy = place.set.proxy();
    let uri = place.set.proxied_uri(&proxy);
    let place = place.reached_by(uri);
    let script = stubborn(&place, "holds");
    let job = place.start_under("silent", &["--lease-duration=3s"], &script);
    let pid = place.wait_noted("holds")[2].parse().unwrap();
    proxy.stall();
    let output = job.output();
    assert!(!exists(pid));
    output.says(76, "lost the lock");
}

#[test]
fn a_loss_that_stops_a_lingering_filter_exits_76() {
    let place = Place::new();
    let proxy = place.set.proxy();
    let uri = place.set.proxied_uri(&proxy);
    let place = place.reached_by(uri);
    // Like a compressor, this filter writes its file only after the end of its input.
    let (backup, holds) = (place.path("backup"), place.note("holds"));
    let filter = format!("(cat; sleep 1000; : > {}) & exit 0", backup.display());
    let script = format!("{holds}; {filter}");
    let mut job = place.command(&[
        "lock",
        "lingers",
        "--lease-duration=3s",
        "--",
        "sh",
        "-c",
        &script,
    ]);
    job.env("LEASEHOLD_WORKLOAD__LINGER", "60s");
    let job = Job::start(job);
    let pid = place.wait_noted("holds")[2].parse().unwrap();
    eventually("the command has exited", || !is_alive(pid));
    proxy.stall();
    job.output().says(76, "lost the lock");
    assert!(!backup.exists(), "the filter was stopped");
}

#[test]
fn the_command_of_a_killed_holder_exits_before_the_next_command_starts() {
    let place = Place::new();
    let lease = "--lease-duration=3s";
    let script = stubborn(&place, "first");
    let job = place.start_under("killed", &[lease, "--identity=dead"], &script);
    let pid = place.wait_noted("first")[2].clone();
    let seen = format!("{}; test ! -e /proc/{pid}", place.note("second"));
    let next = place.start_under("killed", &[lease], &seen);
    place.wait_listed("waits");
    job.signal(Signal::KILL);
    let next = next.output();
    assert_eq!(next.code, 0, "the first command has exited: {next:?}");
    removal_is_logged(&next.stderr);
}

#[test]
fn the_command_of_a_frozen_holder_exits_before_the_next_command_starts() {
    let place = Place::new();
    let flags = ["--lease-duration=3s"];
    let job = place.start_under("frozen", &flags, &stubborn(&place, "first"));
    let pid = place.wait_noted("first")[2].clone();
    job.signal(Signal::STOP);
    let next = place.run_under("frozen", &flags, &format!("test ! -e /proc/{pid}"));
    assert_eq!(next.code, 0, "{next:?}");
    job.signal(Signal::CONT);
    assert_eq!(job.output().code, 76);
}

/// Maximum number of attempts to freeze a grantee before the grantee confirms its grant. On a busy
/// machine, an attempt may come too late.
const TRIES: usize = 5;

#[test]
fn the_command_of_a_frozen_grantee_exits_when_its_provisional_authority_ends() {
    let place = Place::new();
    // Provisional authority lasts an eighth of the renew deadline. With a lease duration of 60 s,
    // this is about 5.6 s: enough time to freeze the grantee, but much less than the lease
    // duration.
    let flags = ["--lease-duration=60s"];
    for attempt in 0..TRIES {
        let lock = format!("granted-{attempt}");
        let (first, second) = (format!("first-{attempt}"), format!("second-{attempt}"));
        let holds = format!("{}; exec sleep 1000", place.note(&first));
        let holder = place.start_under(&lock, &flags, &holds);
        place.wait_noted(&first);
        let job = place.start_under(&lock, &flags, &stubborn(&place, &second));
        place.wait_listed("waits");
        holder.signal(Signal::TERM);
        let pid = place.wait_noted(&second)[2].clone();
        job.signal(Signal::STOP);
        let flags = [flags[0], "--wait=25s"];
        let next = place.run_under(&lock, &flags, &format!("test ! -e /proc/{pid}"));
        holder.output();
        job.signal(Signal::CONT);
        // The attempt came too late, because the grantee had already confirmed its grant. The
        // grantee's authority then lasts for the whole lease.
        if next.code == 75 {
            continue;
        }
        assert_eq!(next.code, 0, "{next:?}");
        assert_eq!(job.output().code, 76);
        return;
    }
    panic!("every attempt came after the confirmation");
}

#[test]
fn a_signal_is_forwarded_and_the_lock_is_freed_after_the_command_exits() {
    let place = Place::new();
    let job = place.start_under("passed-on", &[], &tidy(&place, "0.3"));
    place.wait_noted("holds");
    job.signal(Signal::TERM);
    let next = place.run_under("passed-on", &[], &place.note("next"));
    assert_eq!(next.code, 0);
    assert_eq!(place.noted(), ["holds", "stopped", "next"]);
    assert_eq!(job.output().code, 4);
}

#[test]
fn two_signals_to_a_job_within_milliseconds_count_as_one() {
    let place = Place::new();
    let job = place.start_under("as-one", &[], &tidy(&place, "0.2"));
    place.wait_noted("holds");
    job.signal(Signal::TERM);
    std::thread::sleep(MILLISECONDS_APART);
    job.signal(Signal::TERM);
    assert_eq!(job.output().code, 4, "the command had its grace period");
}

#[test]
fn a_repeated_signal_after_one_second_kills_the_command() {
    let place = Place::new();
    let script = trapping(&place, &place.note("heard"), "TERM");
    let job = place.start_under("impatient", &[], &script);
    let pid = place.wait_noted("holds")[2].parse().unwrap();
    job.signal(Signal::TERM);
    // The command writes this note only after leasehold has handled the first signal.
    place.wait_noted("heard");
    // Further signals within the next second would count as a repetition of the first signal.
    std::thread::sleep(Duration::from_millis(1500));
    job.signal(Signal::TERM);
    assert_eq!(job.output().code, 128 + 9);
    assert!(!exists(pid));
}

#[test]
fn a_signal_to_all_processes_of_nested_locks_ends_the_job_within_its_grace_period() {
    let place = Place::new();
    let inner = place.path("inner");
    let innermost = place.path("innermost");
    std::fs::write(&innermost, tidy(&place, "0.2")).unwrap();
    let script = format!(
        "{}; exec {} lock inside --mongodb-uri-file={} -- sh {}",
        place.note("outer"),
        PROGRAM,
        place.path("uri").display(),
        innermost.display()
    );
    std::fs::write(&inner, script).unwrap();
    let job = place.start(&["lock", "around", "--", "sh", inner.to_str().unwrap()]);
    let job_itself = place.wait_noted("holds")[2].clone();
    let within = place.wait_noted("outer")[2].clone();
    // Signals the outer leasehold, the inner leasehold and the job, as systemd does for all
    // processes of a unit.
    job.signal(Signal::TERM);
    for pid in [within, job_itself] {
        signal(pid.parse().unwrap(), Signal::TERM);
    }
    assert_eq!(job.output().code, 4);
    place.wait_noted("stopped");
}

#[test]
fn jobs_that_never_wait_also_evict_an_expired_holder() {
    let place = Place::new();
    // This lease duration is long enough that most calls do not time out on a busy machine.
    let lease = "--lease-duration=5s";
    let script = stubborn(&place, "first");
    let job = place.start_under("never-waits", &[lease, "--identity=dead"], &script);
    place.wait_noted("first");
    job.signal(Signal::KILL);
    let mut tries = 0;
    let mut said = String::new();
    eventually("a contender gets the lock", || {
        tries += 1;
        let next = place.run_empty("never-waits", &[lease, "--no-wait"]);
        said += &next.stderr;
        next.code == 0
    });
    removal_is_logged(&said);
    // The first contender cannot evict the holder, because the contender does not know how long the
    // holder has been unresponsive.
    assert!(tries > 1, "{said}");
}

/// Runs a job without a wait, in a directory of its own, like a job in a fresh container.
fn run_in_a_fresh_container(place: &Place, name: &str, lease: &str) -> Output {
    let directory = Scratch::new();
    let mut job = place.command(&["lock", name, lease, "--no-wait", "--", "true"]);
    job.env("XDG_RUNTIME_DIR", directory.path());
    Job::start(job).output()
}

#[test]
fn jobs_without_earlier_observations_also_evict_an_expired_holder() {
    let place = Place::new();
    let lease = "--lease-duration=5s";
    let script = stubborn(&place, "first");
    let job = place.start_under("fresh", &[lease, "--identity=dead"], &script);
    place.wait_noted("first");
    job.signal(Signal::KILL);
    let mut said = String::new();
    eventually("a contender gets the lock", || {
        let next = run_in_a_fresh_container(&place, "fresh", lease);
        said += &next.stderr;
        next.code == 0
    });
    assert!(
        said.contains("held by dead (exclusive)") && said.contains("watching until it expires"),
        "{said}"
    );
}

#[test]
fn a_minimum_hold_longer_than_the_lease_is_watched_to_its_end() {
    let place = Place::new();
    let flags = ["--lease-duration=3s", "--at-least=6s", "--identity=dead"];
    let job = place.start_under("keeps", &flags, &stubborn(&place, "first"));
    place.wait_noted("first");
    job.signal(Signal::KILL);
    eventually("a contender gets the lock", || {
        run_in_a_fresh_container(&place, "keeps", flags[0]).code == 0
    });
}

#[test]
fn a_job_that_watched_a_killed_holder_does_not_repeat_the_work_of_another_job() {
    let place = Place::new();
    let lease = "--lease-duration=10s";
    let job = place.start_under("repeats", &[lease], &stubborn(&place, "first"));
    place.wait_noted("first");
    job.signal(Signal::KILL);
    job.output();
    place.set_date("repeats", "holders.0.renewed_at");
    let directory = Scratch::new();
    let mut late = place.command(&["lock", "repeats", lease, "--no-wait", "--", "true"]);
    late.env("XDG_RUNTIME_DIR", directory.path());
    let mut late = Job::start(late);
    late.wait_logged("watching until it expires");
    let broken = place.run(&["locks", "break", "repeats", "--force", "--yes"]);
    assert_eq!(broken.code, 0, "{broken:?}");
    assert_eq!(place.run_empty("repeats", &[lease]).code, 0);
    late.output()
        .says(75, "another job held the lock during the watch");
}

#[test]
fn a_job_that_never_waits_gets_the_lock_after_the_document_was_lost() {
    let place = Place::new();
    let lease = "--lease-duration=5s";
    assert_eq!(place.run_empty("lost", &[lease]).code, 0);
    place.delete_document("lost");
    let next = place.run_empty("lost", &[lease, "--no-wait"]);
    next.says(0, "lock document is older than last seen");
}

#[test]
fn jobs_with_a_short_wait_get_the_lock_after_the_document_was_lost() {
    let place = Place::new();
    let lease = "--lease-duration=5s";
    assert_eq!(place.run_empty("lost-short", &[lease]).code, 0);
    place.delete_document("lost-short");
    eventually("a contender gets the lock", || {
        place.run_empty("lost-short", &[lease, "--wait=2s"]).code == 0
    });
}

#[test]
fn a_holder_whose_clock_is_behind_keeps_the_lock_from_jobs_that_watch_it() {
    let place = Place::new();
    let lease = "--lease-duration=5s";
    let holder = place.holder("behind", &[lease]);
    let watched = || {
        place.set_date("behind", "holders.0.renewed_at");
        let next = run_in_a_fresh_container(&place, "behind", lease);
        assert_eq!(next.code, 75, "{next:?}");
        next.stderr.contains("watching until it expires")
    };
    // The holder may renew between the two steps.
    eventually("a contender watches the holder", watched);
    holder.signal(Signal::TERM);
    assert_eq!(holder.output().code, 143);
}

#[test]
fn after_a_loss_no_new_command_starts_under_the_lock() {
    let place = Place::new();
    let on_term = place.path("on-term");
    let (inner, refused) = (place.note("inner"), place.note("refused-$?"));
    let inner = format!("{PROGRAM} lock lost-inside -- sh -c '{inner}'\n{refused}\n");
    std::fs::write(&on_term, inner).unwrap();
    let script = trapping(&place, &format!("sh {}; exit 0", on_term.display()), "TERM");
    let job = place.start_under("lost-inside", &[], &script);
    place.wait_noted("holds");
    let broken = place.run(&["locks", "break", "lost-inside", "--force", "--yes"]);
    assert_eq!(broken.code, 0, "{broken:?}");
    job.output().says(76, "has lost the lock");
    assert_eq!(place.noted(), ["holds", "refused-76"]);
}

#[test]
fn signals_that_arrive_together_are_all_forwarded() {
    let place = Place::new();
    let traps = [("USR1", "one"), ("USR2", "two")].map(|(signal, what)| {
        let note = place.note(what);
        format!("trap '{note}' {signal}; ")
    });
    let holds = place.note("holds");
    let script = format!("{}{holds}; while :; do sleep 0.02; done", traps.concat());
    let job = place.start_under("together", &[], &script);
    place.wait_noted("holds");
    for signal in [Signal::STOP, Signal::USR1, Signal::USR2, Signal::CONT] {
        job.signal(signal);
    }
    place.wait_noted("one");
    place.wait_noted("two");
    job.signal(Signal::TERM);
    assert_eq!(job.output().code, 143);
}

#[test]
fn a_killed_guard_is_reported_and_user_signals_are_forwarded() {
    let place = Place::new();
    let script = trapping(&place, &place.note("usr1"), "USR1");
    let job = place.start_under("guarded", &[], &script);
    let pid = place.wait_noted("holds")[2].parse().unwrap();
    job.signal(Signal::USR1);
    place.wait_noted("usr1");
    let guard = parent(pid);
    let words = std::fs::read_to_string(format!("/proc/{guard}/cmdline")).unwrap();
    assert_contains(&words, "__guard");
    signal(guard, Signal::KILL);
    job.output().says(76, "lost the guard of the command");
    assert!(!exists(pid));
}
