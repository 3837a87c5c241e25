//! Goal: leasehold refuses invalid input, and names the flag, the value and the remedy.

use leasehold_testbed::trace::VARIABLE;
use leasehold_testbed::{Daemon, DaemonTimings, run};

use crate::job::{LONG, PROGRAM, Place};

#[test]
fn an_invalid_command_line_exits_64_and_names_the_expected_input() {
    let place = Place::new();
    place
        .run(&["lock", "a b", "--", "true"])
        .says(64, "letters, digits");
    for (arguments, expected) in [
        ("lock", "<NAME>"),
        ("lock x --", "a command is expected after --"),
        ("lock x --slots=0 -- true", "from 1 to 256"),
        ("lock x --slots=two -- true", "from 1 to 256"),
        ("lock x --shared --slots=2 -- true", "cannot be used with"),
        ("lock x --wait=1s --no-wait -- true", "cannot be used with"),
        ("lock x --wait=soon -- true", "30s"),
        ("lock x -s -x -- true", "cannot be used with"),
        ("lock x echo hi", "put '--' before it: -- echo"),
        ("lock -n 3 x true", "--slots N"),
        ("lock x -c true", "-- sh -c 'COMMAND'"),
        // `--lease` is a flag of `leasehold run`, so `leasehold lock` must refuse it.
        ("lock x --lease=y -- true", "unexpected argument '--lease'"),
        ("run ./scheduler", "put '--' before it: -- ./scheduler"),
        ("run --workload-on-exit=release", "put -- and the command"),
        ("lock x --retries=3 -- true", "--wait <DURATION>|--no-wait"),
        ("lock x --conflict-exit-code=256 -- true", "from 0 to 255"),
        ("locks break", "<NAME>"),
        ("locks prune", "--unused-for"),
        ("locks break x --yes", "--force"),
    ] {
        let words: Vec<_> = arguments.split(' ').collect();
        let refused = place.run(&words);
        assert_eq!(refused.code, 64, "{arguments}: {refused:?}");
        assert!(
            refused.stderr.contains(expected),
            "{arguments}: {refused:?}"
        );
    }
}

#[test]
fn durations_that_contradict_each_other_exit_78() {
    let place = Place::new();
    let refused = place.run_empty("x", &["--lease-renew-interval=20s"]);
    refused.says(78, "renew_interval");
}

#[test]
fn leases_and_locks_refuse_each_others_documents() {
    let place = Place::new();
    let [_, database] = place.store();
    let candidate = |lease: &str| {
        Daemon::builder(PROGRAM)
            .lease(lease)
            .uri(&place.set.uri())
            .flag(&database)
            .timings(DaemonTimings::SHORT)
            .env(VARIABLE, place.trace())
    };
    let _leader = run(candidate("a-lease").leading(LONG));
    let why = "lock a-lease: a-lease is a lease; choose another lock name";
    place.run_empty("a-lease", &[]).says(78, why);
    for more in [&[][..], &["--force", "--yes"]] {
        let refused = place.run(&[&["locks", "break", "a-lease"], more].concat());
        refused.says(
            78,
            "a-lease is a lease, not a lock: leasehold describe a-lease",
        );
    }

    assert_eq!(place.run_empty("a-lock", &[]).code, 0);
    let daemon = candidate("a-lock").start();
    assert_eq!(run(daemon.wait_exit(LONG)), 78);
    assert_eq!(
        daemon.logged("a-lock is a lock; choose another lease name"),
        1
    );
}
