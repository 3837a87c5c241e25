//! leasehold stops a command even if the parent has blocked signals. Depending on the
//! configuration, leasehold stops all of the command's processes or only the first process.
//! leasehold ends processes that a command leaves behind, and survives a failed write to an output.

use std::process::Child;

use leasehold_testbed::pid;
use rustix::process::Signal;

use crate::ends::shown;
use crate::tool::{Place, Scene, Tool, eventually};

const TOOLS: [Tool; 2] = [Tool::Run, Tool::Lock];

/// Runs the program in its arguments with all signals blocked.
const BLOCKING: &str = "import os, signal, sys
signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
os.execvp(sys.argv[1], sys.argv[1:])";

fn started(scene: &Scene<'_>, script: &str) -> Child {
    scene.bash(script).spawn().unwrap()
}

#[test]
fn a_command_is_stopped_by_signals_that_its_parent_had_blocked() {
    let place = Place::new();
    for tool in TOOLS {
        let scene = place.scene(tool);
        let script = "RUN bash -c 'trap \"echo stopped > noted; exit 0\" TERM; : > ready
                          while :; do sleep 0.02; done'";
        let script = format!("exec python3 -c '{BLOCKING}' {script}");
        let mut child = started(&scene, &script);
        eventually("the command runs", || scene.path("ready").exists());
        pid::signal(child.id(), Signal::TERM);
        assert_eq!(shown(child.wait().unwrap()), "exit code 0", "{tool:?}");
        assert_eq!(scene.read("noted"), "stopped\n", "{tool:?}");
    }
}

#[test]
fn the_stop_signal_may_go_to_the_first_process_alone() {
    let place = Place::new();
    for tool in TOOLS {
        for (scope, noted) in [("group", "child\nmain\n"), ("main", "main\n")] {
            let scene = place.scene(tool);
            // The first process waits until its child has recorded the signal, or until a signal to
            // the whole group would have arrived.
            let script = format!(
                "export LEASEHOLD_WORKLOAD__STOP_SCOPE={scope}
                 exec RUN bash -c '
                     bash -c \"trap \\\"echo child >> noted; exit\\\" TERM; : > child
                         while :; do sleep 0.01; done\" &
                     child=$!
                     trap \"for i in \\$(seq 50); do [ -e noted ] && break; sleep 0.02; done
                         echo main >> noted; kill -KILL $child; exit 0\" TERM
                     until [ -e child ]; do sleep 0.01; done
                     : > ready
                     while :; do sleep 0.01; done'"
            );
            let mut child = started(&scene, &script);
            eventually("the command runs", || scene.path("ready").exists());
            pid::signal(child.id(), Signal::TERM);
            assert_eq!(shown(child.wait().unwrap()), "exit code 0", "{tool:?}");
            assert_eq!(scene.read("noted"), noted, "{tool:?}, {scope}");
        }
    }
}

#[test]
fn a_process_that_stays_is_stopped_after_the_linger_and_reported() {
    let place = Place::new();
    // leasehold must fail even if the command succeeds, because the stopped process may be an
    // output filter whose file is now incomplete.
    for (code, reported) in [(3, "exit code 3"), (0, "exit code 76")] {
        for tool in TOOLS {
            let scene = place.scene(tool);
            // The linger time is long enough for a busy machine.
            let script = format!(
                "export LEASEHOLD_WORKLOAD__LINGER=2s
                 exec RUN sh -c 'sleep 60 & echo $! > stays; exit {code}'"
            );
            let mut child = started(&scene, &script);
            assert_eq!(shown(child.wait().unwrap()), reported, "{tool:?}");
            let said = scene.read("err");
            let text = "left processes that did not end within workload.linger";
            assert!(said.contains(text), "{tool:?}: {said}");
            let stays: u32 = scene.read("stays").trim().parse().unwrap();
            assert!(!pid::is_alive(stays), "{tool:?}");
        }
    }
}

#[test]
fn a_failed_output_costs_a_log_line_but_not_the_process() {
    let place = Place::new();
    let limited = "head -c 1024 /dev/zero > full; ulimit -f 1
         export LEASEHOLD_LOG__LEVEL=debug; exec RUN sh -c 'exit 3' 2>> full";
    let unread = "export LEASEHOLD_LOG__LEVEL=debug
         { RUN sh -c 'while [ ! -e closed ]; do sleep 0.01; done; exit 3'; echo $? > code; } 2>&1 |
             { exec <&-; : > closed; }
         exit $(cat code)";
    for tool in TOOLS {
        for script in [limited, unread] {
            let scene = place.scene(tool);
            let script = scene.script(script).replace(" --log-level=warn", "");
            let mut child = started(&scene, &script);
            let ended = shown(child.wait().unwrap());
            assert_eq!(ended, "exit code 3", "{tool:?}: {script}");
        }
    }
}
