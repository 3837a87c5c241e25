//! Goal: a lost lock ends its command in time, and only then is the lock granted to another
//! contender.

use std::time::Duration;

use leasehold_testbed::run;
use rustix::process::Signal;

use crate::job::{Place, eventually, runs};

/// Interval between the two signals that timeout(1) sends.
const MILLISECONDS_APART: Duration = Duration::from_millis(3);

/// A command that ignores SIGTERM.
fn stubborn(place: &Place, what: &str) -> String {
    format!(
        "trap '' TERM; {}; while :; do sleep 0.02; done",
        place.note(what)
    )
}

#[test]
fn a_store_that_falls_silent_ends_the_command_with_76() {
    let place = run(Place::new());
    let proxy = place.set.proxy();
    let uri = place.set.proxied_uri(&proxy);
    let place = place.reached_by(uri);
    let job = place.start(&[
        "lock",
        "silent",
        "--lease-duration=3s",
        "--",
        "sh",
        "-c",
        &stubborn(&place, "holds"),
    ]);
    let pid = place.wait_noted("holds")[2].clone();
    proxy.stall();
    let output = job.output();
    assert_eq!(output.code, 76, "{output:?}");
    assert!(!runs(&pid));
    assert!(output.stderr.contains("lost the lock"), "{output:?}");
}

#[test]
fn a_killed_holders_command_is_gone_before_the_next_one_begins() {
    let place = run(Place::new());
    let flags = ["lock", "killed", "--lease-duration=3s"];
    let job = place.start(
        &[
            &flags[..],
            &[
                "--identity=dead",
                "--",
                "sh",
                "-c",
                &stubborn(&place, "first"),
            ],
        ]
        .concat(),
    );
    let pid = place.wait_noted("first")[2].clone();
    let seen = format!("{}; test ! -e /proc/{pid}", place.note("second"));
    let next = place.start(&[&flags[..], &["--", "sh", "-c", &seen]].concat());
    eventually("it waits", || {
        place.run(&["locks"]).stdout.contains("waits")
    });
    job.signal(Signal::KILL);
    let next = next.output();
    assert_eq!(next.code, 0, "the first one's process is gone: {next:?}");
    // A removal is not logged if the program ends before a late answer to it.
    let unanswered = next.stderr.contains("outcome=\"unknown\"");
    assert!(
        next.stderr.contains("identity=dead") || unanswered,
        "{next:?}"
    );
}

#[test]
fn a_frozen_holders_command_is_gone_before_the_next_one_begins() {
    let place = run(Place::new());
    let flags = ["lock", "frozen", "--lease-duration=3s"];
    let job = place.start(&[&flags[..], &["--", "sh", "-c", &stubborn(&place, "first")]].concat());
    let pid = place.wait_noted("first")[2].clone();
    job.signal(Signal::STOP);
    let seen = format!("test ! -e /proc/{pid}");
    let next = place.run(&[&flags[..], &["--", "sh", "-c", &seen]].concat());
    assert_eq!(next.code, 0, "{next:?}");
    job.signal(Signal::CONT);
    assert_eq!(job.output().code, 76);
}

#[test]
fn a_signal_is_passed_on_and_the_lock_is_free_when_the_command_is_gone() {
    let place = run(Place::new());
    let script = format!(
        "trap 'sleep 0.3; {}; exit 4' TERM; {}; while :; do sleep 0.02; done",
        place.note("stopped"),
        place.note("holds")
    );
    let job = place.start(&["lock", "passed-on", "--", "sh", "-c", &script]);
    place.wait_noted("holds");
    job.signal(Signal::TERM);
    let next = place.run(&["lock", "passed-on", "--", "sh", "-c", &place.note("next")]);
    assert_eq!(next.code, 0);
    let order: Vec<_> = place.journal().iter().map(|line| line[0].clone()).collect();
    assert_eq!(order, ["holds", "stopped", "next"]);
    assert_eq!(job.output().code, 4);
}

/// A command that needs a moment to end after SIGTERM, and exits with 4.
fn tidy(place: &Place) -> String {
    format!(
        "trap 'sleep 0.2; {}; exit 4' TERM; {}; while :; do sleep 0.02; done",
        place.note("stopped"),
        place.note("holds")
    )
}

#[test]
fn two_signals_milliseconds_apart_are_one() {
    let place = run(Place::new());
    let job = place.start(&["lock", "as-one", "--", "sh", "-c", &tidy(&place)]);
    place.wait_noted("holds");
    job.signal(Signal::TERM);
    std::thread::sleep(MILLISECONDS_APART);
    job.signal(Signal::TERM);
    assert_eq!(job.output().code, 4, "it had its grace");
}

#[test]
fn a_second_signal_after_a_second_kills_the_command() {
    let place = run(Place::new());
    let script = stubborn(&place, "holds");
    let job = place.start(&["lock", "impatient", "--", "sh", "-c", &script]);
    let pid = place.wait_noted("holds")[2].clone();
    job.signal(Signal::TERM);
    // More than the second within which signals count as one request.
    std::thread::sleep(Duration::from_millis(1500));
    job.signal(Signal::TERM);
    assert_eq!(job.output().code, 128 + 9);
    assert!(!runs(&pid));
}

#[test]
fn a_signal_to_every_process_of_a_nest_ends_the_job_in_its_grace() {
    let place = run(Place::new());
    let inner = place.path("inner");
    let innermost = place.path("innermost");
    std::fs::write(&innermost, tidy(&place)).unwrap();
    let script = format!(
        "{}; exec {} lock inside --mongodb-uri-file={} -- sh {}",
        place.note("outer"),
        crate::job::PROGRAM,
        place.path("uri").display(),
        innermost.display()
    );
    std::fs::write(&inner, script).unwrap();
    let job = place.start(&["lock", "around", "--", "sh", inner.to_str().unwrap()]);
    let job_itself = place.wait_noted("holds")[2].clone();
    let within = place.wait_noted("outer")[2].clone();
    // Like systemd, which signals each process of a unit: leasehold, leasehold within, and the job.
    job.signal(Signal::TERM);
    for pid in [within, job_itself] {
        let pid = rustix::process::Pid::from_raw(pid.parse().unwrap()).unwrap();
        rustix::process::kill_process(pid, Signal::TERM).unwrap();
    }
    assert_eq!(job.output().code, 4);
    place.wait_noted("stopped");
}

#[test]
fn jobs_that_never_wait_get_past_a_dead_holder_too() {
    let place = run(Place::new());
    // Long enough that most calls are answered in time.
    let flags = ["lock", "never-waits", "--lease-duration=5s"];
    let job = place.start(
        &[
            &flags[..],
            &[
                "--identity=dead",
                "--",
                "sh",
                "-c",
                &stubborn(&place, "first"),
            ],
        ]
        .concat(),
    );
    place.wait_noted("first");
    job.signal(Signal::KILL);
    let mut tries = 0;
    let mut said = String::new();
    eventually("one of them gets it", || {
        tries += 1;
        let next = place.run(&[&flags[..], &["--no-wait", "--", "true"]].concat());
        said += &next.stderr;
        next.code == 0
    });
    // A removal is not logged if the program ends before a late answer to it.
    let unanswered = said.contains("outcome=\"unknown\"");
    assert!(said.contains("identity=dead") || unanswered, "{said}");
    assert!(
        tries > 1,
        "the first one cannot know since when it is silent"
    );
}

#[test]
fn after_a_loss_nothing_new_begins_under_the_lock() {
    let place = run(Place::new());
    let on_term = place.path("on-term");
    let inner = format!(
        "{} lock lost-inside -- sh -c '{}'\n{}\n",
        crate::job::PROGRAM,
        place.note("inner"),
        place.note("refused-$?")
    );
    std::fs::write(&on_term, inner).unwrap();
    let script = format!(
        "trap 'sh {}; exit 0' TERM; {}; while :; do sleep 0.02; done",
        on_term.display(),
        place.note("holds")
    );
    let job = place.start(&["lock", "lost-inside", "--", "sh", "-c", &script]);
    place.wait_noted("holds");
    let broken = place.run(&["locks", "break", "lost-inside", "--force", "--yes"]);
    assert_eq!(broken.code, 0, "{broken:?}");
    let output = job.output();
    assert_eq!(output.code, 76, "{output:?}");
    assert!(output.stderr.contains("has lost the lock"), "{output:?}");
    let told: Vec<_> = place.journal().iter().map(|line| line[0].clone()).collect();
    assert_eq!(told, ["holds", "refused-76"]);
}

#[test]
fn a_killed_guard_is_told_and_signals_of_the_users_are_passed_on() {
    let place = run(Place::new());
    let script = format!(
        "trap '{}' USR1; {}; while :; do sleep 0.02; done",
        place.note("usr1"),
        place.note("holds")
    );
    let job = place.start(&["lock", "guarded", "--", "sh", "-c", &script]);
    let pid = place.wait_noted("holds")[2].clone();
    job.signal(Signal::USR1);
    place.wait_noted("usr1");
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    let fields = stat.rsplit(')').next().unwrap();
    let guard: i32 = fields.split_whitespace().nth(1).unwrap().parse().unwrap();
    let words = std::fs::read_to_string(format!("/proc/{guard}/cmdline")).unwrap();
    assert!(words.contains("__guard"), "{stat}: {words}");
    let guard = rustix::process::Pid::from_raw(guard).unwrap();
    rustix::process::kill_process(guard, Signal::KILL).unwrap();
    let output = job.output();
    assert_eq!(output.code, 76, "{output:?}");
    assert!(
        output.stderr.contains("lost the guard of the command"),
        "{output:?}"
    );
    assert!(!runs(&pid));
}
