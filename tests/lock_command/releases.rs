//! Goal: a job reports a release that MongoDB did not apply or confirm.

use crate::job::{Job, Place};

/// Starts a job that succeeds once the file `end` exists. The job renews so rarely that it notices
/// a loss only at the release.
fn starts(place: &Place, lock: &str) -> Job {
    let end = place.path("end");
    let waits = format!("until [ -e {} ]; do sleep 0.02; done", end.display());
    let script = format!("{}; {waits}", place.note("holds"));
    let flags = ["--once-per=1h", "--lease-duration=10m"];
    let job = place.start_under(lock, &flags, &script);
    place.wait_noted("holds");
    job
}

fn ends(place: &Place, job: Job) -> crate::job::Output {
    std::fs::write(place.path("end"), "").unwrap();
    job.output()
}

#[test]
fn if_a_lock_is_broken_while_its_command_runs_the_job_exits_76_without_a_success() {
    let place = Place::new();
    let job = starts(&place, "broken");
    let broken = place.run(&["locks", "break", "broken", "--force", "--yes"]);
    assert_eq!(broken.code, 0, "{broken:?}");
    let output = ends(&place, job);
    output.says(76, "another holder may have run at the same time");
    output.says(76, "its success is not recorded");
    let again = place.run_empty("broken", &["--once-per=1h"]);
    assert_eq!(again.code, 0, "the command runs again: {again:?}");
}

/// Runs a job whose release gets no answer.
fn unconfirmed(flags: &[&str], longest: &str) {
    let place = Place::new();
    let proxy = place.set.proxy();
    let uri = place.set.proxied_uri(&proxy);
    let place = place.reached_by(uri);
    let end = place.path("end");
    let waits = format!("until [ -e {} ]; do sleep 0.02; done", end.display());
    let script = format!("{}; {waits}; exit 7", place.note("holds"));
    let job = place.start_under("stalled", flags, &script);
    place.wait_noted("holds");
    proxy.stall();
    let output = ends(&place, job);
    let expected =
        format!("MongoDB did not confirm the release: the lock expires in up to {longest}");
    output.says(7, &expected);
}

#[test]
fn an_unconfirmed_release_is_reported_and_the_exit_code_stays() {
    unconfirmed(&["--lease-duration=10m"], "10m");
}

#[test]
fn an_unconfirmed_release_may_keep_the_lock_for_its_minimum_hold() {
    unconfirmed(&["--lease-duration=10m", "--at-least=1h"], "1h");
}
