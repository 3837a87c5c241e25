//! Goal: a job that does not start because the lock is held prints no error. Otherwise cron would
//! mail the error from each host.

use std::ffi::OsStr;
use std::process::Command;

use crate::job::{Job, Output, PROGRAM, Place, through};

fn try_to_lock(place: &Place, flags: &[&str]) -> Output {
    let job = place.command(&[&["lock", "skipped", "-n"], flags, &["--", "true"]].concat());
    let json = job
        .get_args()
        .map(|word| match word == "--log-format=text" {
            true => OsStr::new("--log-format=json"),
            false => word,
        });
    let mut words = Command::new(PROGRAM);
    words.args(json).envs(
        job.get_envs()
            .filter_map(|(name, value)| Some((name, value?))),
    );
    Job::start(through(Command::new("env"), &words)).output()
}

#[test]
fn a_skip_is_logged_as_information_and_can_be_silenced() {
    let place = Place::new();
    let _holder = place.holder("skipped", &[]);
    let output = try_to_lock(&place, &[]);
    output.says(75, "not acquired: held by");
    output.says(75, "\"level\":\"INFO\"");
    assert!(!output.stderr.contains("ERROR"), "{output:?}");
    let output = try_to_lock(&place, &["-q"]);
    assert_eq!(
        (output.code, output.stderr.as_str()),
        (75, ""),
        "{output:?}"
    );
    // Other errors are still printed.
    let refused = place.run(&["lock", "quiet", "-q", "--", "/nowhere/command"]);
    refused.says(127, "cannot execute /nowhere/command");
}
