//! Goal: a command inherits the state that a shell would give it, and nothing from the daemon.
//! Method: run commands that inspect themselves.

use std::fs::File;
use std::io::{Read, Write};
use std::process::{Command as Process, Stdio};

use leasehold::workload::claim_share::{ClaimPlace, ClaimShare};
use leasehold::workload::{CommandEnd, GuardedCommand};

use crate::fixture::{Fixture, LONG, millis, terms};
use crate::stand_in::{Plan, command_line, wait_for_gone};

/// Runs a script as an ordinary child of this test, and returns the output.
fn plainly(script: &str) -> String {
    let output = Process::new("/bin/sh").args(["-c", script]).output();
    String::from_utf8(output.unwrap().stdout).unwrap()
}

#[tokio::test]
async fn no_descriptor_of_ours_reaches_cmd() {
    let fixture = Fixture::new();
    let lock = File::create(fixture.path("claim")).unwrap();
    // Compare with an ordinary child, because the caller of the tests may leave descriptors open.
    // The shell lists the descriptors itself, because starting another program could open a pipe.
    let list = "here=$PWD; cd /proc/$$/fd; set -- *; cd \"$here\"; echo \"$@\"";
    let script = fixture.script(&format!("{list} > list"));
    let claim = ClaimShare::new(lock.into(), ClaimPlace::Command);
    let mut workload = GuardedCommand::start(&script, terms(LONG, LONG), Some(claim)).unwrap();
    assert_eq!(workload.ended().await.end, CommandEnd::Exited(0));
    assert_eq!(fixture.lines("list"), [plainly(list).trim_end()]);
}

#[tokio::test]
async fn sigpipe_ends_cmd_as_it_ends_others() {
    let fixture = Fixture::new();
    let mut workload = fixture.start("kill -PIPE $$; exit 0");
    assert_eq!(workload.ended().await.end, CommandEnd::Signalled(13));
}

#[tokio::test]
async fn no_signal_is_blocked_or_ignored_in_cmd() {
    let fixture = Fixture::new();
    let list = "grep -E '^Sig(Blk|Ign):' /proc/self/status";
    let mut workload = fixture.start(&format!("{list} > signals"));
    assert_eq!(workload.ended().await.end, CommandEnd::Exited(0));
    let signals = fixture.lines("signals");
    assert_eq!(signals.len(), 2);
    // Signals 32 and 33, which the C library reserves, may be ignored. Other signals are reset,
    // even if they were ignored when these tests started (HUP by nohup, INT and QUIT in the
    // background).
    assert!(
        signals.iter().all(|line| line.ends_with("0000000")),
        "{signals:?}"
    );
}

#[tokio::test]
async fn cmd_leads_a_group_of_its_own_outside_of_the_guards() {
    let fixture = Fixture::new();
    let mut workload = fixture.start(
        "cut -d' ' -f1,4,5,6 /proc/$$/stat > self; cut -d' ' -f1,5,6 /proc/$PPID/stat > guard",
    );
    let guard = workload.guard().to_string();
    assert_eq!(workload.ended().await.end, CommandEnd::Exited(0));
    let own = fixture.lines("self").remove(0);
    let own: Vec<_> = own.split(' ').collect();
    let of_guard = fixture.lines("guard").remove(0);
    let of_guard: Vec<_> = of_guard.split(' ').collect();
    assert_eq!(own[1], guard, "CMD's parent");
    assert_eq!(own[0], own[2], "CMD leads its group");
    assert_eq!(of_guard[0], of_guard[1], "the guard leads another group");
}

#[tokio::test]
async fn our_configuration_and_the_service_managers_variables_do_not_reach_cmd() {
    let fixture = Fixture::new();
    let plan = Plan::of("env > environment").once();
    let daemon = plan.start_with(
        &fixture,
        &[
            ("LEASEHOLD_MONGODB__URI", "mongodb://name:secret@host"),
            ("LEASEHOLD_LEASE__NAME", "orders"),
            ("LEASEHOLD_SERVICE_PORT", "80"),
            ("NOTIFY_SOCKET", "/run/systemd/notify"),
            ("WATCHDOG_USEC", "1"),
            ("KEPT", "yes"),
        ],
    );
    wait_for_gone(&fixture).await;
    drop(daemon);
    let environment = fixture.lines("environment");
    let has = |text: &str| environment.iter().any(|line| line.starts_with(text));
    assert!(has("KEPT=yes") && has("LEASEHOLD_SERVICE_PORT=80"));
    for ours in [
        "LEASEHOLD_MONGODB",
        "LEASEHOLD_LEASE__",
        "NOTIFY_",
        "WATCHDOG_",
    ] {
        assert!(!has(ours), "{environment:?}");
    }
    assert!(!environment.iter().any(|line| line.contains("secret")));
}

#[tokio::test]
async fn a_variable_that_the_caller_sets_reaches_cmd() {
    let fixture = Fixture::new();
    let script = fixture
        .script("echo $LEASEHOLD_TOKEN > token")
        .env("LEASEHOLD_TOKEN", "17");
    let mut workload = GuardedCommand::start(&script, terms(LONG, LONG), None).unwrap();
    assert_eq!(workload.ended().await.end, CommandEnd::Exited(0));
    assert_eq!(fixture.lines("token"), ["17"]);
}

#[test]
fn standard_input_and_output_pass_through() {
    let fixture = Fixture::new();
    let plan = Plan::of("read word; echo \"out $word\"; echo \"err $word\" >&2")
        .lasting(LONG, millis(100))
        .once();
    let mut daemon = Process::new("/bin/sh")
        .args(["-c", &format!("exec {}", command_line())])
        .envs(plan.environment(&fixture))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    daemon.stdin.take().unwrap().write_all(b"word\n").unwrap();
    let (mut out, mut err) = (String::new(), String::new());
    daemon
        .stdout
        .take()
        .unwrap()
        .read_to_string(&mut out)
        .unwrap();
    daemon
        .stderr
        .take()
        .unwrap()
        .read_to_string(&mut err)
        .unwrap();
    daemon.wait().unwrap();
    assert!(out.contains("out word\n"), "{out}");
    assert!(err.contains("err word\n"), "{err}");
}

#[tokio::test]
async fn a_quiet_command_reads_nothing_and_prints_on_standard_error() {
    let fixture = Fixture::new();
    let script = fixture
        .script(
            "a=$(readlink /proc/$$/fd/0); b=$(readlink /proc/$$/fd/1); c=$(readlink /proc/$$/fd/2)
             echo $a > in; echo $b > out; echo $c > err",
        )
        .quiet();
    let mut workload = GuardedCommand::start(&script, terms(LONG, LONG), None).unwrap();
    assert_eq!(workload.ended().await.end, CommandEnd::Exited(0));
    assert_eq!(fixture.lines("in"), ["/dev/null"]);
    assert_eq!(fixture.lines("out"), fixture.lines("err"));
}
