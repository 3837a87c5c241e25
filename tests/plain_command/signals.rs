//! Signals must reach a command as if a service manager or kill(1) had sent them to the plain
//! command.

use std::os::unix::process::CommandExt;
use std::process::{Child, Command};

use leasehold_testbed::pid;
use rustix::process::Signal;

use crate::deviations::SIGNALS;
use crate::ends::shown;
use crate::table::{Row, judge};
use crate::tool::{Place, Scene, Tool, eventually};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum To {
    Process,
    Group,
}

/// Situations, signals and targets. kill(1) sends the signals by name, because rustix has no
/// real-time signals.
const SITUATIONS: &[(&str, &str, To)] = &[
    ("TERM to the process", "TERM", To::Process),
    ("TERM to the group", "TERM", To::Group),
    ("INT to the process", "INT", To::Process),
    ("QUIT to the process", "QUIT", To::Process),
    ("HUP to the process", "HUP", To::Process),
    ("USR1 to the process", "USR1", To::Process),
    ("USR2 to the process", "USR2", To::Process),
    ("ALRM to the process", "ALRM", To::Process),
    ("PWR to the process", "PWR", To::Process),
    ("PROF to the process", "PROF", To::Process),
    ("IO to the process", "IO", To::Process),
    ("XCPU to the process", "XCPU", To::Process),
    ("RTMIN+3 to the process", "RTMIN+3", To::Process),
    ("RTMAX to the process", "RTMAX", To::Process),
    ("WINCH to the process", "WINCH", To::Process),
    ("URG to the process", "URG", To::Process),
    ("TTIN to the process", "TTIN", To::Process),
    ("TTOU to the process", "TTOU", To::Process),
];

/// Signals that `run` handles itself, or that do not affect it.
const OF_RUN: [&str; 7] = ["HUP", "USR1", "USR2", "WINCH", "URG", "TTIN", "TTOU"];

/// The command creates the file `ready`, records the first signal that it receives, and exits with
/// 3.
const NOTES: &str = "exec RUN bash -c 'for name in \
        TERM INT QUIT HUP USR1 USR2 ALRM PWR PROF IO XCPU RTMIN+3 RTMAX WINCH URG TTIN TTOU; do
        trap \"echo $name >> noted; exit 3\" $name
    done; echo $$ > pid; mv pid ready; while :; do sleep 0.02; done'";

/// The command creates the file `ready` and keeps the default action of every signal.
const SLEEPS: &str = "exec RUN bash -c 'echo $$ > pid; mv pid ready; exec sleep 60'";

/// Starts a command in its own process group, so that a signal to the group does not reach the
/// test.
fn started(scene: &Scene<'_>, script: &str) -> Child {
    let mut bash = scene.bash(script);
    bash.process_group(0);
    let child = bash.spawn().unwrap();
    eventually("the command runs", || scene.path("ready").exists());
    child
}

fn send(name: &str, to: To, pid: u32) {
    let to = match to {
        To::Process => pid.to_string(),
        To::Group => format!("-{pid}"),
    };
    let kill = format!("kill -s {name} -- {to}");
    // Use bash's builtin, because the kill(1) of procps does not know SIGRTMAX.
    let sent = Command::new("bash").args(["-c", &kill]).status();
    assert!(sent.unwrap().success(), "SIG{name} to {to}");
}

fn observed(scene: &Scene<'_>, signal: &str, to: To) -> (String, String) {
    let mut child = started(scene, NOTES);
    send(signal, to, child.id());
    let end = shown(child.wait().unwrap());
    let command: u32 = scene.read("ready").trim().parse().unwrap();
    // flock(1) does not forward signals, so its command may still be running.
    let stays = scene.tool == Tool::Flock && pid::is_alive(command);
    pid::signal_if_there(command, Signal::KILL);
    let noted = match stays {
        true => "none: it runs on".to_owned(),
        false => scene
            .read("noted")
            .split_whitespace()
            .collect::<Vec<_>>()
            .join(" "),
    };
    (end, noted)
}

#[test]
fn a_signal_reaches_the_command() {
    let place = Place::new();
    let mut rows = Vec::new();
    for (situation, signal, to) in SITUATIONS {
        let mut tools = Tool::installed();
        if OF_RUN.contains(signal) {
            tools.retain(|tool| *tool != Tool::Run);
        }
        // These signals do not affect flock(1), and tini withholds some of them from its command.
        if ["WINCH", "URG", "TTIN", "TTOU"].contains(signal) {
            tools.retain(|tool| ![Tool::Flock, Tool::Tini].contains(tool));
        }
        let seen = tools.into_iter().map(|tool| {
            let (end, noted) = observed(&place.scene(tool), signal, *to);
            (tool, end, noted)
        });
        let seen: Vec<_> = seen.collect();
        let row = |property: &str, values| Row {
            situation: (*situation).to_owned(),
            property: property.to_owned(),
            values,
        };
        let ends = seen.iter().map(|(tool, end, _)| (*tool, end.clone()));
        rows.push(row("end", ends.collect()));
        let noted = seen.into_iter().map(|(tool, _, noted)| (tool, noted));
        rows.push(row("received", noted.collect()));
    }
    judge(&rows, SIGNALS);
}

/// Signals that terminate a process by default and have no special meaning to leasehold.
const ENDING: [&str; 8] = [
    "ALRM", "VTALRM", "PROF", "PWR", "IO", "XCPU", "RTMIN+3", "RTMAX",
];

fn exit_code(signal: &str) -> String {
    let kill = format!("kill -l {signal}");
    let number = Command::new("bash").args(["-c", &kill]).output().unwrap();
    let number = String::from_utf8(number.stdout).unwrap();
    format!("exit code {}", 128 + number.trim().parse::<u32>().unwrap())
}

#[test]
fn a_signal_that_ends_a_process_by_default_frees_the_lock() {
    let place = Place::new();
    for signal in ENDING {
        let scene = place.scene(Tool::Lock);
        let mut child = started(&scene, SLEEPS);
        send(signal, To::Process, child.id());
        let end = shown(child.wait().unwrap());
        assert_eq!(end, exit_code("TERM"), "{signal}: the stop signal");
        let command: u32 = scene.read("ready").trim().parse().unwrap();
        assert!(!pid::is_alive(command), "{signal}");
        let next = scene.script("RUN true").replace(" -- ", " --no-wait -- ");
        let next = scene.bash(&next).status().unwrap();
        assert_eq!(shown(next), "exit code 0", "{signal}");
    }
}

#[test]
fn a_signal_that_ends_a_process_by_default_ends_a_wait() {
    let place = Place::new();
    for signal in ENDING {
        let scene = place.scene(Tool::Lock);
        let mut holder = started(&scene, SLEEPS);
        let waiter = scene.script("exec RUN true");
        let waiter = waiter.replace("--log-level=warn", "--log-level=info");
        let mut waiter = scene.bash(&waiter).spawn().unwrap();
        eventually("it waits", || {
            scene.read("err").contains("waiting for the lock")
        });
        send(signal, To::Process, waiter.id());
        assert_eq!(shown(waiter.wait().unwrap()), exit_code(signal));
        let listed = scene.bash(&scene.operators(&["locks"])).status();
        assert!(listed.unwrap().success());
        let listed = scene.read("out");
        assert!(!listed.contains("waits"), "{signal}: it left: {listed}");
        send("TERM", To::Process, holder.id());
        holder.wait().unwrap();
    }
}

#[test]
fn a_guard_survives_signals_that_end_a_process_by_default() {
    let place = Place::new();
    for tool in [Tool::Run, Tool::Lock] {
        let scene = place.scene(tool);
        let mut child = started(&scene, SLEEPS);
        let command: u32 = scene.read("ready").trim().parse().unwrap();
        let guard = pid::parent(command);
        for signal in ENDING {
            send(signal, To::Process, guard);
        }
        // leasehold forwards SIGTERM to the guard, which handles it after the other signals.
        send("TERM", To::Process, child.id());
        let end = shown(child.wait().unwrap());
        let expected = match tool {
            Tool::Run => "exit code 0",
            _ => "exit code 143",
        };
        let said = scene.read("err");
        assert_eq!(end, expected, "{tool:?}: {said}");
        assert!(!said.contains("lost the guard"), "{tool:?}: {said}");
    }
}
