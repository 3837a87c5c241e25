//! Goal: invalid input is refused with the flag, the value and the remedy.

use leasehold_testbed::{Daemon, DaemonTimings, run};

use crate::job::{LONG, PROGRAM, Place};

#[test]
fn a_wrong_command_line_exits_64_and_says_what_is_expected() {
    let place = run(Place::new());
    for (arguments, expected) in [
        (&["lock"][..], "<NAME>"),
        (&["lock", "a b", "--", "true"], "letters, digits"),
        (&["lock", "x", "--"], "a command is expected after --"),
        (&["lock", "x", "--slots=0", "--", "true"], "from 1 to 256"),
        (&["lock", "x", "--slots=two", "--", "true"], "from 1 to 256"),
        (
            &["lock", "x", "--shared", "--slots=2", "--", "true"],
            "cannot be used with",
        ),
        (
            &["lock", "x", "--wait=1s", "--no-wait", "--", "true"],
            "cannot be used with",
        ),
        (&["lock", "x", "--wait=soon", "--", "true"], "30s"),
        (
            &["lock", "x", "-s", "-x", "--", "true"],
            "cannot be used with",
        ),
        (&["lock", "x", "echo", "hi"], "put '--' before it: -- echo"),
        (&["lock", "-n", "3", "x", "true"], "--slots N"),
        (&["lock", "x", "-c", "true"], "-- sh -c 'COMMAND'"),
        // A flag that does not apply to a lock.
        (
            &["lock", "x", "--lease=y", "--", "true"],
            "unexpected argument '--lease'",
        ),
        (
            &["run", "./scheduler"],
            "put '--' before it: -- ./scheduler",
        ),
        (
            &["run", "--workload-on-exit=release"],
            "put -- and the command",
        ),
        (&["lock", "x", "--retries=3", "--", "true"], "needs --wait"),
        (
            &["lock", "x", "--conflict-exit-code=256", "--", "true"],
            "from 0 to 255",
        ),
        (&["locks", "break"], "<NAME>"),
        (&["locks", "prune"], "--unused-for"),
        (&["locks", "break", "x", "--yes"], "--force"),
    ] {
        let refused = place.run(arguments);
        assert_eq!(refused.code, 64, "{arguments:?}: {refused:?}");
        assert!(
            refused.stderr.contains(expected),
            "{arguments:?}: {refused:?}"
        );
    }
}

#[test]
fn durations_that_cannot_be_kept_exit_78() {
    let place = run(Place::new());
    let refused = place.run(&["lock", "x", "--lease-renew-interval=20s", "--", "true"]);
    assert_eq!(refused.code, 78, "{refused:?}");
    assert!(refused.stderr.contains("renew_interval"), "{refused:?}");
}

#[test]
fn a_leases_name_is_no_lock_and_a_locks_name_is_no_lease() {
    let place = run(Place::new());
    let [_, database] = place.store();
    let daemon = Daemon::builder(PROGRAM)
        .lease("a-lease")
        .uri(&place.set.uri())
        .flag(&database)
        .timings(DaemonTimings::SHORT)
        .start();
    run(daemon.wait_leads(LONG));
    let refused = place.run(&["lock", "a-lease", "--", "true"]);
    assert_eq!(refused.code, 78);
    let why = "a-lease: the document of this name is not a lock: a lease has this name";
    assert!(refused.stderr.contains(why), "{refused:?}");
    for more in [&[][..], &["--force", "--yes"]] {
        let refused = place.run(&[&["locks", "break", "a-lease"], more].concat());
        assert_eq!(refused.code, 78, "{refused:?}");
        assert!(refused.stderr.contains(why), "{refused:?}");
    }

    assert_eq!(place.run(&["lock", "a-lock", "--", "true"]).code, 0);
    let daemon = Daemon::builder(PROGRAM)
        .lease("a-lock")
        .uri(&place.set.uri())
        .flag(&database)
        .timings(DaemonTimings::SHORT)
        .start();
    crate::job::eventually("it says why", || {
        daemon.logs().contains("a lock has this name, not a lease")
    });
    assert!(!daemon.leads());
}
