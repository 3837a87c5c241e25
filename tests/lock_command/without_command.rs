//! Goal: scripts in other languages hold a lock over a pipe.

use std::io::{BufRead, BufReader};
use std::process::Stdio;

use leasehold_testbed::run;
use rustix::process::Signal;

use crate::job::{Job, Place};

fn holder(place: &Place, name: &str) -> (Job, serde_json::Value, impl std::io::Write + use<>) {
    let mut command = place.command(&["lock", name]);
    command.stdin(Stdio::piped());
    let mut job = Job::start(command);
    let mut line = String::new();
    BufReader::new(job.standard_output())
        .read_line(&mut line)
        .unwrap();
    let input = job.input();
    (job, serde_json::from_str(&line).unwrap(), input)
}

#[test]
fn one_line_when_it_is_held_and_free_when_standard_input_closes() {
    let place = run(Place::new());
    let (job, line, input) = holder(&place, "piped");
    assert_eq!(line, serde_json::json!({ "lock": "piped", "token": 1 }));
    assert_eq!(
        place
            .run(&["lock", "piped", "--no-wait", "--", "true"])
            .code,
        75
    );
    drop(input);
    assert_eq!(job.output().code, 0);
    assert_eq!(
        place
            .run(&["lock", "piped", "--no-wait", "--", "true"])
            .code,
        0
    );
}

#[test]
fn a_signal_gives_it_back_too() {
    let place = run(Place::new());
    let (job, _, input) = holder(&place, "signalled");
    job.signal(Signal::TERM);
    assert_eq!(job.output().code, 128 + 15);
    assert_eq!(
        place
            .run(&["lock", "signalled", "--no-wait", "--", "true"])
            .code,
        0
    );
    drop(input);
}

#[test]
fn a_lost_lock_ends_it_with_76() {
    let place = run(Place::new());
    let (job, _, input) = holder(&place, "broken-away");
    let broken = place.run(&["locks", "break", "broken-away", "--force", "--yes"]);
    assert_eq!(broken.code, 0, "{broken:?}");
    assert_eq!(job.output().code, 76);
    drop(input);
}
