//! Goal: a nested `leasehold lock` neither acquires the lock twice nor deadlocks.

use crate::job::{Job, PROGRAM, Place};

fn inner(place: &Place, flags: &str, then: &str) -> String {
    let store = place.store().join(" ");
    format!("{PROGRAM} lock {store} {flags} -- {then}")
}

#[test]
fn an_inner_lock_of_the_same_name_runs_immediately_with_the_same_token() {
    let place = Place::new();
    let show = "sh -c 'echo $LEASEHOLD_TOKEN; exit 3'";
    let within = inner(&place, "again --wait=5s", show);
    let done = place.run_under("again", &[], &format!("echo $LEASEHOLD_TOKEN; {within}"));
    assert_eq!((done.stdout.as_str(), done.code), ("1\n1\n", 3), "{done:?}");
    // The inner command also works without the MongoDB flags, although it does not inherit the
    // configuration variables of the outer command.
    let bare = format!("{PROGRAM} lock again -- echo inner");
    let done = place.run_under("again", &[], &bare);
    assert_eq!(done.stdout, "inner\n", "{done:?}");
    let third = place.run_under("again", &[], "echo $LEASEHOLD_TOKEN");
    assert_eq!(third.stdout, "3\n");
}

#[test]
fn shared_cannot_become_exclusive() {
    let place = Place::new();
    let done = place.run_under("upgrade", &["--shared"], &inner(&place, "upgrade", "true"));
    done.says(75, "cannot also be held as exclusive");
    let script = inner(&place, "downgrade --shared", "true");
    let down = place.run_under("downgrade", &[], &script);
    assert_eq!(down.code, 0, "{down:?}");
}

#[test]
fn an_inner_lock_of_another_name_is_acquired_and_both_are_held() {
    let place = Place::new();
    let innermost = inner(&place, "outer-lock --no-wait", "echo innermost");
    let script = inner(&place, "inner-lock", &format!("sh -c '{innermost}'"));
    let done = place.run_under("outer-lock", &[], &script);
    assert_eq!(done.stdout, "innermost\n", "{done:?}");
}

#[test]
fn an_inner_lock_without_a_connection_string_reports_why() {
    let place = Place::new();
    let bare = format!("{PROGRAM} lock inside -- true");
    let done = place.run_under("outside", &[], &bare);
    let why = "the outer `leasehold` does not pass its configuration on";
    done.says(78, why);
    // Without an outer lock, the error does not mention an outer `leasehold`.
    let mut alone = std::process::Command::new(PROGRAM);
    alone.args(["lock", "inside", "--", "true"]).env_clear();
    let alone = String::from_utf8(alone.output().unwrap().stderr).unwrap();
    assert!(alone.contains("mongodb.uri"), "{alone}");
    assert!(!alone.contains(why), "{alone}");
}

#[test]
fn a_variable_without_its_holder_is_not_trusted() {
    let place = Place::new();
    let out = place.path("env");
    let script = format!(
        "printf %s \"$LEASEHOLD_LOCKS\" > {}; {}; exec sleep 1000",
        out.display(),
        place.note("holds")
    );
    let holder = place.start_under("stolen", &[], &script);
    place.wait_noted("holds");
    let mut stranger = place.command(&["lock", "stolen", "--no-wait", "--", "true"]);
    stranger.env("LEASEHOLD_LOCKS", std::fs::read_to_string(out).unwrap());
    // The holder is not an ancestor of this process.
    let refused = Job::start(stranger).output();
    assert_eq!(refused.code, 75, "{refused:?}");
    drop(holder);
}

#[test]
fn the_innermost_command_has_the_token_of_its_own_lock() {
    let place = Place::new();
    assert_eq!(place.run_empty("deep", &[]).code, 0);
    let innermost = place.path("innermost");
    let show = "sh -c 'echo $LEASEHOLD_LOCK $LEASEHOLD_TOKEN $LEASEHOLD_LOCK_TOKEN'";
    std::fs::write(&innermost, inner(&place, "deep", show)).unwrap();
    let script = inner(&place, "between", &format!("sh {}", innermost.display()));
    let done = place.run_under("deep", &[], &script);
    assert_eq!(done.stdout, "deep 2 2\n", "{done:?}");
}

#[test]
fn a_lock_inside_a_lease_hides_neither_token() {
    let place = Place::new();
    let show = "sh -c 'echo $LEASEHOLD_LEASE_TOKEN $LEASEHOLD_LOCK_TOKEN $LEASEHOLD_TOKEN'";
    // Sets the variables that `leasehold run` sets for its command.
    let lease = "export LEASEHOLD_LEASE=orders LEASEHOLD_TOKEN=7 LEASEHOLD_LEASE_TOKEN=7";
    let script = format!("{lease}; {}", inner(&place, "within", show));
    let done = place.run_under("around", &[], &script);
    assert_eq!(done.stdout, "7 1 1\n", "{done:?}");
}

#[test]
fn i12_an_inner_command_does_not_get_the_connection_string() {
    let place = Place::new();
    let uri = place.path("uri");
    let script = format!(
        "LEASEHOLD_MONGODB__URI=$(cat {}) {PROGRAM} lock scrubbed -- sh -c 'echo ${{LEASEHOLD_MONGODB__URI-none}}'",
        uri.display()
    );
    let done = place.run_under("scrubbed", &[], &script);
    assert_eq!(done.stdout, "none\n", "{done:?}");
}

#[test]
fn an_inner_lock_reports_that_standard_output_cannot_be_written() {
    let place = Place::new();
    let input = place.path("input");
    let input = input.display();
    let bare = format!("{PROGRAM} lock full");
    // The shell keeps the input open, so the inner command does not exit because of end of file.
    let script = format!("mkfifo {input}; exec 4<> {input}; {bare} <&4 > /dev/full; echo $?");
    let done = place.run_under("full", &[], &script);
    assert_eq!(done.stdout, "2\n", "{done:?}");
    done.says(
        0,
        "standard output cannot be written; the outer command still holds",
    );
}
