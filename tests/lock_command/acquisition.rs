//! Goal: a job receives its token and exit code, and a job that does not get the lock reports why.

use leasehold_testbed::run;

use crate::job::{Job, Place, crowd, eventually};

#[test]
fn the_commands_exit_code_is_the_answer() {
    let place = run(Place::new());
    let done = place.run(&["lock", "codes", "--", "sh", "-c", "exit 7"]);
    assert_eq!(
        (done.code, done.stderr.as_str()),
        (7, ""),
        "silent as flock is"
    );
    assert_eq!(place.run(&["lock", "codes", "--", "true"]).code, 0);
    let killed = place.run(&["lock", "codes", "--", "sh", "-c", "kill -9 $$"]);
    assert_eq!(killed.code, 128 + 9);
    let missing = place.run(&["lock", "codes", "--", "/nowhere/at-all"]);
    assert_eq!(missing.code, 127);
    assert!(missing.stderr.contains("/nowhere/at-all"), "{missing:?}");
    assert_eq!(place.run(&["lock", "codes", "--", "/etc/passwd"]).code, 126);
}

#[test]
fn a_command_knows_its_lock_and_tokens_grow() {
    let place = run(Place::new());
    let show = ["lock", "tokens", "--identity=me", "--", "sh", "-c"];
    let script = "echo $LEASEHOLD_LOCK $LEASEHOLD_TOKEN $LEASEHOLD_IDENTITY; env | grep -c URI";
    let first = place.run(&[&show[..], &[script]].concat());
    assert_eq!(first.stdout, "tokens 1 me\n0\n");
    let second = place.run(&[&show[..], &[script]].concat());
    assert_eq!(second.stdout, "tokens 2 me\n0\n");
}

#[test]
fn who_does_not_wait_is_told_on_whom_it_would() {
    let place = run(Place::new());
    let holds = place.note("holds");
    let holder = place.start(&[
        "lock",
        "busy",
        "--identity=holder",
        "--",
        "sh",
        "-c",
        &format!("{holds}; exec sleep 1000"),
    ]);
    place.wait_noted("holds");
    let refused = place.run(&["lock", "busy", "--no-wait", "--", "true"]);
    assert_eq!(refused.code, 75);
    assert!(
        refused
            .stderr
            .contains("held by holder (exclusive) since 20"),
        "{refused:?}"
    );
    let custom = place.run(&["lock", "busy", "-n", "-E", "9", "--", "true"]);
    assert_eq!(custom.code, 9);
    let waited = place.run(&["lock", "busy", "--wait=3s", "--", "true"]);
    assert_eq!(waited.code, 75);
    assert!(
        waited
            .stderr
            .contains("not acquired within 3s: held by holder"),
        "{waited:?}"
    );
    // A contender that gave up is no longer in the queue.
    let listed = place.run(&["locks", "--output=json"]);
    assert!(!listed.stdout.contains("\"waits\""), "{listed:?}");
    drop(holder);
}

#[test]
fn of_many_who_hold_or_wait_the_first_are_named_and_the_others_counted() {
    let place = run(Place::new());
    place.store_document("crowded", crowd(20, 30));
    for (flag, rest) in [
        ("--no-wait", "17 others; 30 wait"),
        ("--wait=1s", "17 others; behind 30 others in the queue"),
    ] {
        let refused = place.run(&["lock", "crowded", "--slots=20", flag, "--", "true"]);
        assert_eq!(refused.code, 75, "{refused:?}");
        let expected =
            format!("held by holder-0 (slot), holder-1 (slot), holder-2 (slot) and {rest}\n");
        assert!(refused.stderr.contains(&expected), "{refused:?}");
    }
}

#[test]
fn slots_that_differ_from_those_of_the_last_use_are_warned_of() {
    let place = run(Place::new());
    for (flag, expected) in [
        ("--slots=3", None),
        ("--slots=3", None),
        ("--slots=2", Some("last used with --slots 3")),
        ("--exclusive", Some("last used with --slots 2")),
        ("--shared", None),
        ("--slots=3", Some("last used without --slots")),
    ] {
        let done = place.run(&["lock", "modes", flag, "--", "true"]);
        assert_eq!(done.code, 0, "{flag}: {done:?}");
        match expected {
            Some(expected) => assert!(done.stderr.contains(expected), "{flag}: {done:?}"),
            None => assert_eq!(done.stderr, "", "{flag}"),
        }
    }
}

#[test]
fn the_habits_of_flock_work() {
    let place = run(Place::new());
    let holds = format!("{}; exec sleep 1000", place.note("holds"));
    let reader = place.start(&["lock", "habits", "-s", "--", "sh", "-c", &holds]);
    place.wait_noted("holds");
    assert_eq!(
        place
            .run(&["lock", "-s", "-n", "habits", "--", "true"])
            .code,
        0
    );
    for flags in [&["-x", "-w", "0.3"][..], &["--timeout", "1"], &["-e", "-n"]] {
        let refused = place.run(&[&["lock"], flags, &["habits", "--", "true"]].concat());
        assert_eq!(refused.code, 75, "{flags:?}: {refused:?}");
    }
    let told = place.run(&["lock", "-v", "habits-free", "--", "true"]);
    assert!(told.stderr.contains("lock acquired after "), "{told:?}");
    drop(reader);
}

#[test]
fn who_said_that_it_waits_says_that_it_has_done_waiting() {
    let place = run(Place::new());
    let holds = format!("{}; sleep 1", place.note("holds"));
    let holder = place.start(&["lock", "awaited", "--", "sh", "-c", &holds]);
    place.wait_noted("holds");
    let waiter = place.run(&["lock", "awaited", "--", "true"]);
    assert_eq!(waiter.code, 0, "{waiter:?}");
    let order =
        ["waiting for the lock", "lock acquired after "].map(|line| waiter.stderr.find(line));
    assert!(order[0].is_some() && order[0] < order[1], "{waiter:?}");
    assert_eq!(holder.output().code, 0);
}

#[test]
fn retries_are_further_tries() {
    let place = run(Place::new());
    let holds = place.note("holds");
    let holder = place.start(&[
        "lock",
        "retried",
        "--",
        "sh",
        "-c",
        // Long enough for several tries, even on a busy machine.
        &format!("{holds}; sleep 5"),
    ]);
    place.wait_noted("holds");
    let tried = place.run(&[
        "lock",
        "retried",
        "--no-wait",
        "--retries=100",
        "--lease-retry-interval=200ms",
        "--",
        "true",
    ]);
    assert_eq!(tried.code, 0, "{tried:?}");
    assert!(
        tried.stderr.matches("not acquired").count() > 1,
        "{tried:?}"
    );
    assert_eq!(holder.output().code, 0);
}

#[test]
fn a_store_that_is_down_is_not_a_lock_that_is_taken() {
    let place = run(Place::new()).reached_by("mongodb://127.0.0.1:1/?replicaSet=x".to_owned());
    for wait in ["--wait=500ms", "--no-wait"] {
        let refused = place.run(&["lock", "down", wait, "--lease-duration=2s", "--", "true"]);
        assert_eq!(refused.code, 69, "{refused:?}");
        assert!(
            refused.stderr.contains("lock down: gave up after ")
                && refused.stderr.contains("connection refused"),
            "{refused:?}"
        );
    }
    assert_eq!(
        place
            .run(&["locks", "--mongodb-operation-timeout=500ms"])
            .code,
        69
    );
}

#[test]
fn a_signal_during_the_wait_leaves_the_queue() {
    let place = run(Place::new());
    let holds = place.note("holds");
    let holder = place.start(&[
        "lock",
        "left",
        "--",
        "sh",
        "-c",
        &format!("{holds}; exec sleep 1000"),
    ]);
    place.wait_noted("holds");
    let waiter = place.start(&["lock", "left", "--identity=waiter", "--", "true"]);
    let queue = || place.run(&["locks"]).stdout;
    eventually("it waits", || queue().contains("waiter"));
    waiter.signal(rustix::process::Signal::INT);
    assert_eq!(waiter.output().code, 130);
    assert!(!queue().contains("waiter"));
    drop(holder);
}

#[test]
fn where_descriptors_run_out_the_command_runs_under_the_lock_or_not_at_all() {
    let place = run(Place::new());
    let (mut ran, mut failed) = (0, 0);
    for limit in (28..76).step_by(3) {
        let what = format!("under-{limit}");
        let job = place.command(&[
            "lock",
            &what,
            "--wait=1s",
            "--",
            "sh",
            "-c",
            &place.note(&what),
        ]);
        let mut shell = std::process::Command::new("sh");
        shell.args(["-c", "ulimit -n $0; exec \"$@\"", &limit.to_string()]);
        shell.arg(job.get_program()).args(job.get_args());
        let set = job.get_envs();
        shell.envs(set.filter_map(|(name, value)| Some((name, value?))));
        shell.stdin(std::process::Stdio::null());
        shell.stdout(std::process::Stdio::piped());
        shell.stderr(std::process::Stdio::piped());
        let output = Job::start(shell).output();
        let noted = place.journal().iter().any(|line| line[0] == what);
        assert_eq!(noted, output.code == 0, "{limit}: {output:?}");
        ran += u32::from(noted);
        failed += u32::from(!noted);
    }
    assert!(
        ran > 0 && failed > 0,
        "{ran} ran, {failed} failed: other limits are needed"
    );
}
