//! Goal: `--once-per` skips a command only if it succeeded within the period.

use leasehold_testbed::pid::is_alive;

use crate::job::{Job, Output, Place, eventually};

const ONCE: &[&str] = &["--once-per=1h"];

#[test]
fn a_command_that_succeeded_is_skipped() {
    let place = Place::new();
    let script = place.note("ran");
    assert_eq!(place.run_under("done", ONCE, &script).code, 0);
    let skipped = place.run_under("done", ONCE, &script);
    skipped.says(77, "skipped: it succeeded ");
    let quiet = place.run_under("done", &[ONCE, &["--quiet"]].concat(), &script);
    assert_eq!((quiet.code, quiet.stderr.as_str()), (77, ""), "{quiet:?}");
    let custom = [ONCE, &["--skipped-exit-code=0"]].concat();
    assert_eq!(place.run_under("done", &custom, &script).code, 0);
    assert_eq!(place.noted(), ["ran"]);
    // The lock is free, and a command without the flag runs.
    assert_eq!(place.run_under("done", &["--no-wait"], &script).code, 0);
    assert_eq!(place.noted(), ["ran", "ran"]);
}

#[test]
fn a_quiet_wait_that_ends_without_a_success_is_reported() {
    let place = Place::new();
    let _holder = place.holder("hangs", &[]);
    let quiet = |wait| place.run_empty("hangs", &[ONCE, &["-q", wait]].concat());
    quiet("--wait=1s").says(75, "not acquired within 1s: held by ");
    let refused = quiet("--no-wait");
    assert_eq!((refused.code, refused.stderr.as_str()), (75, ""));
}

#[test]
fn a_command_that_failed_runs_again() {
    let place = Place::new();
    let fails = format!("{}; exit 3", place.note("failed"));
    assert_eq!(place.run_under("failing", ONCE, &fails).code, 3);
    let script = place.note("ran");
    assert_eq!(place.run_under("failing", ONCE, &script).code, 0);
    assert_eq!(place.run_under("failing", ONCE, &script).code, 77);
    assert_eq!(place.noted(), ["failed", "ran"]);
}

#[test]
fn a_command_that_was_stopped_runs_again() {
    let place = Place::new();
    let began = place.note("began");
    let script = format!("trap 'exit 0' TERM; {began}; while :; do sleep 0.05; done");
    let stopped = place.start_under("stopped", ONCE, &script);
    place.wait_noted("began");
    stopped.signal(rustix::process::Signal::TERM);
    assert_eq!(stopped.output().code, 0, "the command exited cleanly");
    assert_eq!(place.run_empty("stopped", ONCE).code, 0);
}

/// Runs a command that leaves a filter running, as `exec > >(gzip > file)` does.
fn with_filter(place: &Place, lock: &str, linger: &str, filter: &str) -> Output {
    let script = format!(
        "{}; ({filter}) > /dev/null 2>&1 & exit 0",
        place.note("ran")
    );
    let words = ["--log-level=error", "--", "sh", "-c", &script];
    let mut job = place.command(&[&["lock", lock, ONCE[0]], &words[..]].concat());
    job.env("LEASEHOLD_WORKLOAD__LINGER", linger);
    Job::start(job).output()
}

#[test]
fn a_command_whose_filter_was_stopped_runs_again() {
    let place = Place::new();
    let cut_off = with_filter(&place, "filter", "300ms", "sleep 1000");
    cut_off.says(76, "its leftover processes were stopped");
    let complete = with_filter(&place, "filter", "60s", "sleep 0.1");
    assert_eq!(complete.code, 0, "{complete:?}");
    assert_eq!(with_filter(&place, "filter", "60s", ":").code, 77);
    assert_eq!(place.noted(), ["ran", "ran"]);
}

#[test]
fn a_command_whose_filter_was_stopped_by_a_signal_runs_again() {
    let place = Place::new();
    let filter = "sleep 1000 > /dev/null 2>&1 & exit 0";
    let script = format!("{}; {filter}", place.note("ran"));
    let job = place.start_under("stopped-filter", ONCE, &script);
    let pid = place.wait_noted("ran")[2].parse().unwrap();
    eventually("the command has exited", || !is_alive(pid));
    job.signal(rustix::process::Signal::TERM);
    job.output().says(76, "its leftover processes were stopped");
    assert_eq!(place.run_empty("stopped-filter", ONCE).code, 0);
}

#[test]
fn each_key_has_its_own_period() {
    let place = Place::new();
    let run = |flags: &[&str]| place.run_empty("keys", flags).code;
    assert_eq!(run(&["--once-per=1h", "--key=$orders"]), 0);
    assert_eq!(run(&["--once-per=1h", "--key=$orders"]), 77);
    assert_eq!(run(&["--once-per=1h", "--key=bills"]), 0);
    assert_eq!(run(&["--once-per=1h"]), 0);
    let listed = place.run(&["locks", "--output=json"]).stdout;
    assert!(listed.contains("\"key\": \"$orders\""), "{listed}");
    eventually("the period of a second is over", || {
        run(&["--once-per=1s", "--key=bills"]) == 0
    });
}

/// A waiter learns only after it gets the lock that the holder has already done the work.
#[test]
fn a_waiter_skips_what_the_holder_has_done() {
    let place = Place::new();
    let release = place.path("release");
    let waits = format!("until [ -e {} ]; do sleep 0.02; done", release.display());
    let script = format!("{}; {waits}", place.note("ran"));
    let holder = place.start_under("waiting", ONCE, &script);
    place.wait_noted("ran");
    let waiters: Vec<_> = (0..3)
        .map(|number| {
            let name = format!("--identity=waiter-{number}");
            let flags = [ONCE, &[name.as_str()]].concat();
            let waiter = place.start_under("waiting", &flags, &place.note("again"));
            place.wait_listed(&format!("waiter-{number}"));
            waiter
        })
        .collect();
    std::fs::write(release, "").unwrap();
    assert_eq!(holder.output().code, 0);
    for waiter in waiters {
        waiter.output().says(77, "skipped: it succeeded ");
    }
    assert_eq!(place.noted(), ["ran"]);
}

#[test]
fn once_per_and_a_minimum_hold_can_be_combined() {
    let place = Place::new();
    let flags = ["--once-per=1h", "--at-least=1h"];
    assert_eq!(place.run_empty("both", &flags).code, 0);
    // The lock is held, but the work is done, so the job does not wait.
    assert_eq!(place.run_empty("both", &flags).code, 77);
    assert_eq!(place.run_empty("both", &["--no-wait"]).code, 75);
}

#[test]
fn a_prune_removes_recorded_successes() {
    let place = Place::new();
    assert_eq!(place.run_empty("pruned", ONCE).code, 0);
    let pruned = place.run(&["locks", "prune", "--unused-for=0s"]);
    assert_eq!(pruned.code, 0, "{pruned:?}");
    assert_eq!(place.run_empty("pruned", ONCE).code, 0);
}

#[test]
fn flags_that_contradict_once_per_are_refused() {
    let place = Place::new();
    let refused = |flags: &[&str], why: &str| {
        place.run_empty("refused", flags).says(64, why);
    };
    refused(&["--once-per=1h", "--shared"], "--shared");
    refused(&["--once-per=1h", "--slots=2"], "--slots");
    refused(
        &["--once-per=soon"],
        "invalid value 'soon' for '--once-per <DURATION>'",
    );
    refused(&["--key=x"], "--once-per");
    refused(
        &["--once-per=1h", "--key="],
        "for '--key <KEY>': expected 1 to 128 bytes",
    );
    let held = place.run(&["lock", "refused", "--once-per=1h"]);
    held.says(64, "not provided:\n  <CMD>...");
}
