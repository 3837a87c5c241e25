//! A command must inherit its caller's state unchanged: signals, limits, descriptors, environment,
//! scheduling and more.

use std::collections::BTreeMap;

use crate::deviations::{ATTRIBUTES, INHERITED};
use crate::table::{Row, judge};
use crate::tool::{Place, Scene, Tool};

/// Runs the program in its arguments with all signals blocked.
const BLOCKING: &str = "python3 -c 'import os, signal, sys
signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
os.execvp(sys.argv[1], sys.argv[1:])'";

/// Name of the situation that excludes tini, because tini waits indefinitely if SIGCHLD is ignored.
/// The observer is not a shell, because a shell resets an ignored SIGCHLD.
const SIGCHLD_IGNORED: &str = "SIGCHLD ignored";

/// Names and scripts. The program `OBSERVE` records the properties of its own process.
const SITUATIONS: &[(&str, &str)] = &[
    ("ordinary", "RUN OBSERVE"),
    (
        "signals ignored",
        "trap '' HUP INT QUIT TERM USR1 USR2 ALRM VTALRM PROF TSTP TTIN TTOU XFSZ XCPU WINCH URG IO
         RUN OBSERVE",
    ),
    ("SIGPIPE ignored", "trap '' PIPE; RUN OBSERVE"),
    (SIGCHLD_IGNORED, "trap '' CHLD; RUN cp /proc/self/status \"$OUT\""),
    ("nohup", "nohup RUN OBSERVE"),
    ("background job of a script", "RUN OBSERVE & wait $!"),
    (
        "limits",
        "ulimit -c 0; ulimit -s 4096; ulimit -f 40960; ulimit -t 1000; ulimit -n 300; ulimit -l 64
         ulimit -q 4096; ulimit -i 5000; ulimit -e 10; ulimit -r 0; ulimit -v 8000000; ulimit -u 50000
         RUN OBSERVE",
    ),
    (
        "soft limits",
        "ulimit -Sc 0; ulimit -Sn 200; ulimit -Ss 2048; RUN OBSERVE",
    ),
    (
        "scheduling",
        "nice -n 5 ionice -c 2 -n 7 chrt -b 0 taskset -c 0 RUN OBSERVE",
    ),
    (
        "memory",
        "echo 300 > /proc/self/oom_score_adj; echo 3 > /proc/self/coredump_filter
         echo 100000 > /proc/self/timerslack_ns; RUN OBSERVE",
    ),
    ("personality", "setarch -R RUN OBSERVE"),
    ("umask", "umask 027; RUN OBSERVE"),
    ("directory", "mkdir here; cd here; RUN OBSERVE"),
    (
        "deleted directory",
        "mkdir gone; cd gone; rmdir ../gone; RUN OBSERVE",
    ),
    (
        "descriptors",
        "exec 3< /dev/null 4> four 5>> five 7<> seven; RUN OBSERVE",
    ),
    ("output is a file", "RUN OBSERVE < /dev/zero >> all 2>&1"),
    ("standard input closed", "RUN OBSERVE <&-"),
    ("standard output closed", "RUN OBSERVE >&-"),
    ("standard error closed", "RUN OBSERVE 2>&-"),
    ("all three closed", "RUN OBSERVE <&- >&- 2>&-"),
    ("no new privileges", "setpriv --no-new-privs RUN OBSERVE"),
    (
        "capabilities",
        "setpriv --bounding-set -mac_admin --inh-caps +net_raw --ambient-caps +net_raw RUN OBSERVE",
    ),
    (
        "time namespace",
        "unshare --time --boottime 100000 --fork sh -c 'readlink /proc/self/ns/time > time; exec \"$@\"' sh RUN OBSERVE",
    ),
    (
        "environment",
        r"export EMPTY= LINES_=$'one\ntwo' BYTES=$'a\xffb' LEASEHOLD_SERVICE_PORT=80
          env odd.name=1 RUN OBSERVE",
    ),
    (
        "environment of a service",
        "export NOTIFY_SOCKET=/nowhere WATCHDOG_USEC=1 LEASEHOLD_LOG__FORMAT=text; RUN OBSERVE",
    ),
];

type Facts = BTreeMap<String, String>;

fn facts(place: &Place, tool: Tool, script: &str) -> Facts {
    let mut scene = place.scene(tool);
    let path = |name: &str| scene.path(name).display().to_string();
    scene.hook = match script.contains("OBSERVE") {
        true => vec!["sh".to_owned(), path("observe.sh")],
        false => vec![
            "cp".to_owned(),
            "/proc/self/status".to_owned(),
            path("facts"),
        ],
    };
    for (name, text) in [
        ("observe.sh", include_str!("observe.sh")),
        ("prctl.py", include_str!("prctl.py")),
    ] {
        std::fs::write(scene.path(name), text).unwrap();
    }
    let script = script.replace("OBSERVE", r#"sh "$HOME/observe.sh""#);
    // Bash would replace itself with the last command, so the script ends with `exit`.
    let mut bash = scene.bash(&format!("export OUTER=$$\n{script}\nexit $?"));
    let status = bash.status().unwrap();
    let seen = scene.read("facts");
    if tool == Tool::Tini && !status.success() {
        // tini does not start with a closed standard input.
        return Facts::new();
    }
    assert!(
        status.success() && !seen.is_empty(),
        "{tool:?}, {script}: {status}: {}{}",
        scene.read("err"),
        scene.read("facts.errors"),
    );
    parsed(&scene, &seen)
}

fn parsed(scene: &Scene<'_>, seen: &str) -> Facts {
    let directory = scene.directory.display().to_string();
    // The situation creates a time namespace for each tool. The kernel gives the new namespace the
    // number of the previous namespace only if no other process has created a namespace meanwhile.
    let own_time = scene.read("time").trim().to_owned();
    // Use only the signal fields of a copied /proc/self/status.
    let is_copy = seen.starts_with("Name:");
    let lines = seen.lines().filter_map(|line| line.split_once('\t'));
    let lines = lines.filter(|(name, _)| !is_copy || ["SigBlk:", "SigIgn:"].contains(name));
    let lines = lines.map(|(name, value)| (name.trim_end_matches(':'), value));
    let facts = lines.map(|(property, value)| {
        let value = value.replace(&directory, "DIRECTORY");
        match property {
            _ if !own_time.is_empty() && value == own_time => {
                (property.to_owned(), "that of the caller".to_owned())
            }
            "SigBlk" => ("blocked signals".to_owned(), signals(&value)),
            "SigIgn" => ("ignored signals".to_owned(), signals(&value)),
            _ => (property.to_owned(), value),
        }
    });
    // These variables always differ: bash sets `_` to the path of the executed program, and this
    // test sets OUTER.
    let differ = ["variable _", "variable OUTER"];
    facts
        .filter(|(property, _)| !differ.contains(&property.as_str()))
        .collect()
}

fn signals(mask: &str) -> String {
    let mask = u64::from_str_radix(mask, 16).unwrap();
    // The C library reserves signals 32 and 33. glibc's posix_spawn starts programs with these two
    // signals ignored.
    let reserved = [32, 33];
    let set = (1..=64).filter(|number| mask >> (number - 1) & 1 == 1 && !reserved.contains(number));
    let names = set.map(|number| {
        let name = signal_hook::low_level::signal_name(number);
        name.map_or_else(|| number.to_string(), str::to_owned)
    });
    names.collect::<Vec<_>>().join(" ")
}

fn compared(situation: &str, all: &[(Tool, Facts)]) -> Vec<Row> {
    let mut properties: Vec<_> = all.iter().flat_map(|(_, facts)| facts.keys()).collect();
    properties.sort_unstable();
    properties.dedup();
    let row = |property: &String| Row {
        situation: situation.to_owned(),
        property: property.clone(),
        values: all
            .iter()
            .map(|(tool, facts)| {
                let value = facts.get(property);
                (*tool, value.map_or("none".to_owned(), String::clone))
            })
            .collect(),
    };
    properties.into_iter().map(row).collect()
}

#[test]
fn a_command_inherits_what_the_plain_command_does() {
    let place = Place::new();
    let mut tools = Tool::installed();
    tools.push(Tool::Hook);
    let mut rows = Vec::new();
    let mut ordinary = Facts::new();
    for (situation, script) in SITUATIONS {
        let waits = |tool: &Tool| *tool == Tool::Tini && *situation == SIGCHLD_IGNORED;
        let all: Vec<_> = tools
            .iter()
            .filter(|tool| !waits(tool))
            .map(|tool| (*tool, facts(&place, *tool, script)))
            .collect();
        let plain = all[0].1.clone();
        let told = |row: &Row| {
            // Omit properties that have their ordinary value and are equal under all tools.
            let changed = plain.get(&row.property) != ordinary.get(&row.property);
            changed
                || row
                    .values
                    .iter()
                    .any(|(_, value)| *value != row.values[0].1)
        };
        rows.extend(compared(situation, &all).into_iter().filter(told));
        if ordinary.is_empty() {
            ordinary = plain;
        }
    }
    judge(&rows, INHERITED);
}

#[test]
fn attributes_that_only_the_process_sees_equal_the_plain_commands() {
    let place = Place::new();
    let attributes = r#"RUN python3 "$HOME/prctl.py" '' $'a\nb\xff' '*' "#;
    let mut rows = Vec::new();
    for (situation, script) in [
        ("attributes", attributes.to_owned()),
        ("signals blocked", format!("{BLOCKING} {attributes}")),
    ] {
        let tools = Tool::installed().into_iter();
        let all: Vec<_> = tools
            .map(|tool| (tool, facts(&place, tool, &script)))
            .collect();
        rows.extend(compared(situation, &all));
    }
    judge(&rows, ATTRIBUTES);
}

#[test]
fn a_command_finds_the_sockets_of_its_unit() {
    let place = Place::new();
    let finds = "case $LISTEN_PID in
            $$) echo own $LISTEN_FDS; cat <&3;;
            1) echo that of another process;;
        esac";
    for (pid, found) in [
        ("$$", "own 1\nsocket\n"),
        ("1", "that of another process\n"),
    ] {
        for tool in [Tool::Plain, Tool::Run, Tool::Lock] {
            let scene = place.scene(tool);
            let script = format!(
                "echo socket > socket; exec 3< socket
                 export LISTEN_FDS=1 LISTEN_PID={pid}
                 exec RUN sh -c '{finds}'"
            );
            assert!(scene.bash(&script).status().unwrap().success(), "{tool:?}");
            assert_eq!(scene.read("out"), found, "{tool:?}");
        }
    }
}
