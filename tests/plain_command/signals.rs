//! Signals that are sent to the tool while the command runs, by a service manager or with kill(1).

use std::os::unix::process::CommandExt;

use leasehold_testbed::pid;
use rustix::process::{Pid, Signal, kill_process_group};

use crate::deviations::SIGNALS;
use crate::ends::shown;
use crate::table::{Row, judge};
use crate::tool::{Place, Scene, Tool, eventually};

/// Recipient of a signal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum To {
    /// The process that the parent has started.
    Process,
    /// Its process group.
    Group,
}

const SITUATIONS: &[(&str, Signal, To)] = &[
    ("TERM to the process", Signal::TERM, To::Process),
    ("TERM to the group", Signal::TERM, To::Group),
    ("INT to the process", Signal::INT, To::Process),
    ("QUIT to the process", Signal::QUIT, To::Process),
    ("HUP to the process", Signal::HUP, To::Process),
    ("USR1 to the process", Signal::USR1, To::Process),
    ("USR2 to the process", Signal::USR2, To::Process),
];

/// A command that notes each signal and exits with 3, and can be waited for.
const NOTES: &str = "exec RUN bash -c 'for name in TERM INT QUIT HUP USR1 USR2; do
        trap \"echo $name >> noted; exit 3\" $name
    done; echo $$ > pid; mv pid ready; while :; do sleep 0.02; done'";

fn observed(scene: &Scene<'_>, signal: Signal, to: To) -> (String, String) {
    let mut bash = scene.bash(NOTES);
    bash.process_group(0);
    let mut child = bash.spawn().unwrap();
    eventually("the command runs", || scene.path("ready").exists());
    match to {
        To::Process => pid::signal(child.id(), signal),
        To::Group => {
            let group = Pid::from_raw(i32::try_from(child.id()).unwrap()).unwrap();
            kill_process_group(group, signal).unwrap();
        }
    }
    let end = shown(child.wait().unwrap());
    let command: u32 = scene.read("ready").trim().parse().unwrap();
    // flock(1) does not pass signals on.
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
        // The daemon uses these itself: it reloads, steps down, and logs its state.
        if [Signal::HUP, Signal::USR1, Signal::USR2].contains(signal) {
            tools.retain(|tool| *tool != Tool::Run);
        }
        let seen = tools.into_iter().map(|tool| {
            let (end, noted) = observed(&place.scene(tool), *signal, *to);
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
