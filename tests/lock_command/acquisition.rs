//! Goal: a job receives its token and its command's exit code, and a job that does not get the lock
//! reports why.

use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::Signal;

use crate::job::{Job, Place, crowd, eventually, through};

#[test]
fn the_exit_code_is_the_exit_code_of_the_command() {
    let place = Place::new();
    let done = place.run_under("codes", &[], "exit 7");
    assert_eq!(done.code, 7);
    assert_eq!(done.stderr, "", "no output, like flock");
    assert_eq!(place.run_empty("codes", &[]).code, 0);
    let killed = place.run_under("codes", &[], "kill -9 $$");
    assert_eq!(killed.code, 128 + 9);
    let missing = place.run(&["lock", "codes", "--", "/nowhere/at-all"]);
    missing.says(127, "/nowhere/at-all");
    assert_eq!(place.run(&["lock", "codes", "--", "/etc/passwd"]).code, 126);
}

/// With flock(1) too, a program is looked up only once the lock is held.
#[test]
fn a_program_may_be_installed_during_the_wait() {
    let place = Place::new();
    let holder = place.holder("install", &[]);
    let program = place.path("installed");
    let program = program.to_str().unwrap();
    let refused = place.run(&["lock", "install", "--no-wait", "--", program]);
    refused.says(75, "not acquired: held by ");
    let mut waiter = place.start(&["lock", "install", "--", program]);
    waiter.wait_logged("no such file or directory; waiting anyway, because");
    std::fs::copy("/bin/true", program).unwrap();
    holder.signal(Signal::TERM);
    assert_eq!(waiter.output().code, 0);
}

#[test]
fn a_command_gets_its_lock_and_tokens_grow() {
    let place = Place::new();
    let script = "echo $LEASEHOLD_LOCK $LEASEHOLD_TOKEN $LEASEHOLD_IDENTITY; env | grep -c URI";
    for expected in ["tokens 1 me\n0\n", "tokens 2 me\n0\n"] {
        let shown = place.run_under("tokens", &["--identity=me"], script);
        assert_eq!(shown.stdout, expected);
    }
}

#[test]
fn a_non_blocking_contender_reports_the_entries_ahead() {
    let place = Place::new();
    let holder = place.holder("busy", &["--identity=holder"]);
    let refused = place.run_empty("busy", &["--no-wait"]);
    refused.says(75, "held by holder (exclusive) since 20");
    let custom = place.run_empty("busy", &["-n", "-E", "9"]);
    assert_eq!(custom.code, 9);
    let waited = place.run_empty("busy", &["--wait=5s"]);
    waited.says(75, "not acquired within 5s: held by holder");
    // A contender that times out leaves the queue.
    let listed = place.run(&["locks", "--output=json"]);
    assert!(!listed.stdout.contains("\"waits\""), "{listed:?}");
    drop(holder);
}

#[test]
fn the_error_names_the_first_entries_and_counts_the_others() {
    let place = Place::new();
    place.store_document("crowded", crowd(20, 30));
    for (flag, rest) in [
        ("--no-wait", "17 others; 30 wait"),
        ("--wait=5s", "17 others; behind 30 others in the queue"),
    ] {
        let first = "held by holder-0 (slot), holder-1 (slot), holder-2 (slot)";
        let refused = place.run_empty("crowded", &["--slots=20", flag]);
        refused.says(75, &format!("{first} and {rest}\n"));
    }
}

#[test]
fn a_changed_number_of_slots_causes_a_warning() {
    let place = Place::new();
    for (flag, expected) in [
        ("--slots=3", None),
        ("--slots=3", None),
        ("--slots=2", Some("last used with --slots 3")),
        ("--exclusive", Some("last used with --slots 2")),
        ("--shared", None),
        ("--slots=3", Some("last used without --slots")),
    ] {
        let done = place.run_empty("modes", &[flag]);
        done.says(0, expected.unwrap_or_default());
        assert_eq!(
            done.stderr.is_empty(),
            expected.is_none(),
            "{flag}: {done:?}"
        );
    }
}

#[test]
fn arguments_in_the_style_of_flock_work() {
    let place = Place::new();
    let reader = place.holder("habits", &["-s"]);
    let beside = place.run(&["lock", "-s", "-n", "habits", "--", "true"]);
    assert_eq!(beside.code, 0);
    for flags in [&["-x", "-w", "5.3"][..], &["--timeout", "5"], &["-e", "-n"]] {
        let refused = place.run(&[&["lock"], flags, &["habits", "--", "true"]].concat());
        assert_eq!(refused.code, 75, "{flags:?}: {refused:?}");
    }
    let told = place.run(&["lock", "-v", "habits-free", "--", "true"]);
    assert!(told.stderr.contains("lock acquired after "), "{told:?}");
    drop(reader);
}

#[test]
fn the_end_of_an_announced_wait_is_logged() {
    let place = Place::new();
    let holder = place.holder("awaited", &[]);
    let mut waiter = place.start_empty("awaited", &[]);
    waiter.wait_logged("waiting for the lock");
    holder.signal(Signal::TERM);
    waiter.output().says(0, "lock acquired after ");
    assert_eq!(holder.output().code, 128 + 15);
}

#[test]
fn a_quiet_job_does_not_report_the_holder_it_waits_for() {
    let place = Place::new();
    let holder = place.holder("quiet", &[]);
    for flags in [&["-q", "--wait=2s"][..], &["-q", "--no-wait"]] {
        let refused = place.run_empty("quiet", flags);
        assert_eq!(
            (refused.code, refused.stderr.as_str()),
            (75, ""),
            "{flags:?}"
        );
    }
    let waiter = place.start_empty("quiet", &["-q"]);
    place.wait_listed("waits");
    holder.signal(Signal::TERM);
    let acquired = waiter.output();
    assert_eq!((acquired.code, acquired.stderr.as_str()), (0, ""));
    assert_eq!(holder.output().code, 128 + 15);
}

#[test]
fn retries_try_again_to_acquire_the_lock() {
    let place = Place::new();
    // Holds the lock long enough for the waiter to retry several times, even on a busy machine.
    let holds = format!("{}; sleep 5", place.note("holds"));
    let holder = place.start_under("retried", &[], &holds);
    place.wait_noted("holds");
    let retries = ["--no-wait", "--retries=100", "--lease-retry-interval=200ms"];
    let tried = place.run_empty("retried", &retries);
    assert_eq!(tried.code, 0, "{tried:?}");
    for attempt in [1, 2] {
        let refused = format!("not acquired (attempt {attempt} of 101): held by ");
        assert_eq!(tried.stderr.matches(&refused).count(), 1, "{tried:?}");
    }
    assert_eq!(holder.output().code, 0);
}

#[test]
fn an_unreachable_mongodb_is_not_reported_as_a_held_lock() {
    let place = Place::new().reached_by("mongodb://127.0.0.1:1/?replicaSet=x".to_owned());
    for wait in ["--wait=500ms", "--no-wait"] {
        let refused = place.run_empty("down", &[wait, "--lease-duration=2s"]);
        refused.says(69, "lock down: gave up after ");
        refused.says(69, "connection refused");
    }
    let listed = place.run(&["locks", "--timeout=1s"]);
    assert_eq!(listed.code, 69);
}

#[test]
fn an_unreachable_mongodb_is_named_after_a_second_with_the_time_limit() {
    let place = Place::new().reached_by("mongodb://127.0.0.1:1/?replicaSet=x".to_owned());
    let text = "connecting to 127.0.0.1:1 (1s of 4m)";
    let plain = format!("leasehold: lock away: {text}\n");
    let brief = "leasehold: lock away: connecting to 127.0.0.1:1 (1s of 18s)\n";
    for (flags, line) in [
        (&["--no-wait"][..], brief),
        (&[], &*plain),
        (&["--log-format=text"], text),
        (&["--log-format=json"], "\"limit_ms\":240000"),
    ] {
        let [uri, database] = place.store();
        let mut command = Command::new(env!("CARGO_BIN_EXE_leasehold"));
        command
            .args(["lock", "away", &uri, &database])
            .args(flags)
            .args(["--", "true"])
            .env_clear()
            .env("XDG_RUNTIME_DIR", place.path(""))
            .stdin(Stdio::null())
            .stderr(Stdio::piped());
        let mut job = Job::start(command);
        job.wait_logged(line);
        job.signal(Signal::TERM);
        let signalled = Instant::now();
        assert_eq!(job.output().code, 128 + 15);
        // Nothing was sent, so the job does not wait for the withdrawal of its entry.
        assert!(signalled.elapsed() < Duration::from_millis(1_500));
    }
}

#[test]
fn a_signal_during_the_wait_leaves_the_queue() {
    let place = Place::new();
    let holder = place.holder("left", &[]);
    let waiter = place.start_empty("left", &["--identity=waiter"]);
    place.wait_listed("waiter");
    waiter.signal(Signal::INT);
    assert_eq!(waiter.output().code, 130);
    assert!(!place.run(&["locks"]).stdout.contains("waiter"));
    drop(holder);
}

#[test]
fn a_job_that_has_waited_closes_its_cursor() {
    let place = Place::new();
    let holder = place.holder("cursors", &[]);
    let works = format!("{}; exec sleep 1000", place.note("works"));
    let waiter = place.start_under("cursors", &[], &works);
    eventually("the waiter has a cursor", || place.cursors() > 0);
    holder.signal(Signal::TERM);
    place.wait_noted("works");
    eventually("the cursor is closed", || place.cursors() == 0);
    drop(waiter);
}

#[test]
fn without_free_descriptors_the_command_runs_under_the_lock_or_not_at_all() {
    let place = Place::new();
    let (mut ran, mut failed) = (0, 0);
    for limit in (28..76).step_by(3) {
        let what = format!("under-{limit}");
        let note = place.note(&what);
        let job = place.command(&["lock", &what, "--wait=1s", "--", "sh", "-c", &note]);
        let mut shell = Command::new("sh");
        shell.args(["-c", "ulimit -n $0; exec \"$@\"", &limit.to_string()]);
        let output = Job::start(through(shell, &job)).output();
        let noted = place.noted().contains(&what);
        assert_eq!(noted, output.code == 0, "{limit}: {output:?}");
        ran += u32::from(noted);
        failed += u32::from(!noted);
    }
    assert!(
        ran > 0 && failed > 0,
        "{ran} ran, {failed} failed: adjust the limits"
    );
}
