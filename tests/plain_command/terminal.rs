//! On a terminal (of script(1)), keys, job control and a hangup must affect a command under
//! leasehold as they affect the plain command.

use std::fs::File;
use std::io::Write;
use std::process::{Child, ChildStdin, Command, Stdio};

use leasehold_testbed::pid;
use rustix::process::Signal;

use crate::deviations::TERMINAL;
use crate::ends::shown;
use crate::table::{Row, judge};
use crate::tool::{Place, Scene, Tool, eventually, eventually_or};

const CTRL_C: &str = "\x03";
const CTRL_Z: &str = "\x1a";
const CTRL_BACKSLASH: &str = "\x1c";

const SLEEPS: &str = "RUN sh -c 'echo runs >> noted; exec sleep 60'";
const READS: &str = "RUN sh -c 'echo runs >> noted; read line; echo read $line >> noted'";
/// The command records each hangup.
const HEARS: &str = "RUN bash -c 'trap \"echo hangup >> noted; exit 4\" HUP
     echo runs >> noted; while :; do sleep 0.02; done'";

enum Step {
    Sees(&'static str),
    Presses(&'static str),
    HangsUp,
}
use Step::{HangsUp, Presses, Sees};

struct Situation {
    name: &'static str,
    /// The shell's program and options. `bash -m` controls jobs like an interactive shell.
    shell: &'static str,
    script: String,
    steps: Vec<Step>,
}

fn situation(
    name: &'static str,
    shell: &'static str,
    script: impl Into<String>,
    steps: Vec<Step>,
) -> Situation {
    Situation {
        name,
        shell,
        script: script.into(),
        steps,
    }
}

fn situations() -> Vec<Situation> {
    let runs_and = |key| vec![Sees("runs"), Presses(key)];
    let next = "echo next >> noted";
    vec![
        situation(
            "Ctrl-C, and a next line",
            "bash",
            format!("{SLEEPS}\n{next}"),
            runs_and(CTRL_C),
        ),
        situation(
            "Ctrl-C in a loop",
            "bash",
            format!("for i in 1 2; do {SLEEPS}; done; {next}"),
            runs_and(CTRL_C),
        ),
        situation(
            "Ctrl-C, and a trap",
            "bash",
            format!("trap 'echo trap >> noted; exit 3' INT\n{SLEEPS}\n{next}"),
            runs_and(CTRL_C),
        ),
        situation(
            "Ctrl-C in a pipeline",
            "bash",
            format!("{SLEEPS} | cat\n{next}"),
            runs_and(CTRL_C),
        ),
        situation(
            "Ctrl-C, which the command handles",
            "bash",
            "RUN bash -c 'trap \"exit 5\" INT; echo runs >> noted; while :; do sleep 0.02; done'
                 echo $? >> noted",
            runs_and(CTRL_C),
        ),
        situation(
            "Ctrl-C with job control",
            "bash -m",
            format!("{SLEEPS}\n{next}"),
            runs_and(CTRL_C),
        ),
        situation(
            "it sends itself SIGINT",
            "bash",
            "RUN sh -c 'kill -INT $$'\necho next $? >> noted",
            vec![],
        ),
        situation(
            "Ctrl-\\",
            // Bash ignores SIGQUIT, so the script runs in sh.
            "sh",
            format!("ulimit -c 0\n{SLEEPS}\n{next}"),
            runs_and(CTRL_BACKSLASH),
        ),
        situation(
            "Ctrl-C during a background job of a script",
            "bash",
            "RUN sh -c 'echo runs >> noted; while [ ! -e go ]; do sleep 0.02; done; exit 6' &
             job=$!
             trap 'echo trap >> noted; : > go; wait $job; echo $? >> noted; exit 0' INT
             wait $job",
            runs_and(CTRL_C),
        ),
        situation(
            "Ctrl-Z, then fg",
            "bash -m",
            format!("{READS}\necho stopped $? >> noted\nfg > fg\necho $? >> noted"),
            vec![
                Sees("runs"),
                Presses(CTRL_Z),
                Sees("stopped 148"),
                Presses("word\n"),
                Sees("read word"),
            ],
        ),
        situation(
            "Ctrl-Z, then bg",
            "bash -m",
            "RUN sh -c 'mkfifo go; echo runs >> noted; read line < go; echo $line >> noted; exit 7'
             echo stopped $? >> noted
             bg > bg
             echo from the shell > go
             wait %1
             echo $? >> noted",
            runs_and(CTRL_Z),
        ),
        situation(
            "in the background, it reads the terminal, then fg",
            "bash -m",
            format!(
                "{READS} &
                 while ! jobs -s | grep -q .; do sleep 0.02; done
                 echo stopped >> noted
                 fg > fg
                 echo $? >> noted"
            ),
            vec![Sees("stopped"), Presses("word\n"), Sees("read word")],
        ),
        situation(
            "the shell reads the terminal afterwards",
            "bash -m",
            "RUN sh -c 'echo runs >> noted'\nread line; echo read $line >> noted",
            vec![Sees("runs"), Presses("word\n"), Sees("read word")],
        ),
        situation(
            "input through a pipeline",
            "bash -m",
            format!("{READS} | cat"),
            vec![Sees("runs"), Presses("word\n"), Sees("read word")],
        ),
        situation(
            "the terminal hangs up",
            "bash",
            HEARS,
            vec![Sees("runs"), HangsUp, Sees("hangup")],
        ),
        situation(
            "the terminal hangs up, with nohup",
            "bash",
            "nohup RUN sh -c 'echo runs >> noted; while [ ! -e go ]; do sleep 0.02; done
                 echo survived >> noted'",
            vec![Sees("runs"), HangsUp],
        ),
    ]
}

/// A terminal of script(1). Dropping the terminal causes a hangup.
struct Terminal {
    script: Child,
    keyboard: Option<ChildStdin>,
}

impl Terminal {
    fn new(scene: &Scene<'_>, shell: &str, text: &str) -> Self {
        let file = scene.path("script");
        std::fs::write(&file, scene.script(text)).unwrap();
        let mut script = Command::new("script");
        let screen = File::create(scene.path("screen")).unwrap();
        script
            .args([
                "-qefc",
                &format!("exec {shell} {}", file.display()),
                "/dev/null",
            ])
            .stdin(Stdio::piped())
            .stdout(screen.try_clone().unwrap())
            .stderr(screen);
        let mut script = scene.placed(script).spawn().unwrap();
        let keyboard = script.stdin.take();
        Self { script, keyboard }
    }

    /// Presses keys once the shell waits for the command. Before that, Ctrl-C would kill the shell,
    /// whatever the command does.
    fn press(&mut self, keys: &str) {
        let children = format!("/proc/{0}/task/{0}/children", self.script.id());
        let children = std::fs::read_to_string(children).unwrap();
        let shell = children.trim().to_owned();
        // If the command reads before the shell has given it the terminal, the kernel stops the
        // command. The shell then resumes the command, and SIGCONT would discard a pending Ctrl-Z,
        // so wait until the command runs.
        eventually("the shell waits, and the foreground command runs", || {
            let [state, .., foreground] = stat(&shell).unwrap_or_default();
            let [leader, ..] = stat(&foreground).unwrap_or_default();
            state == "S" && leader != "T"
        });
        let keyboard = self.keyboard.as_mut().unwrap();
        keyboard.write_all(keys.as_bytes()).unwrap();
    }
}

/// Returns fields 3 to 8 of stat(5) of a process. The first field is the process state; the last
/// field is the terminal's foreground group.
fn stat(process: &str) -> Option<[String; 6]> {
    let text = std::fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    let (_, fields) = text.rsplit_once(") ")?;
    let fields: Vec<_> = fields.split(' ').take(6).map(str::to_owned).collect();
    fields.try_into().ok()
}

impl Drop for Terminal {
    fn drop(&mut self) {
        let _ = self.script.kill();
        let _ = self.script.wait();
    }
}

/// Returns the processes of a scene with their states, process groups and foreground groups.
fn processes(scene: &Scene<'_>) -> String {
    let found = pid::with_variable("XDG_RUNTIME_DIR", &scene.directory);
    let line = |pid: u32| {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        let fields: Vec<_> = stat.split(' ').take(8).collect();
        fields.join(" ")
    };
    let lines: Vec<_> = found.into_iter().map(line).collect();
    lines.join("\n")
}

/// Runs the situation. Returns the shell's exit status and the lines of the file `noted`.
fn played(scene: &Scene<'_>, situation: &Situation) -> (String, String) {
    let Situation {
        name,
        shell,
        script,
        steps,
    } = situation;
    let mut terminal = Terminal::new(scene, shell, script);
    let mut end = None;
    for step in steps {
        match step {
            Sees(line) => eventually_or(
                &format!("{name}, {:?}: {line}", scene.tool),
                || {
                    format!(
                        "noted:\n{}screen:\n{}\n{}",
                        scene.read("noted"),
                        scene.read("screen"),
                        processes(scene)
                    )
                },
                || scene.read("noted").contains(&format!("{line}\n")),
            ),
            Presses(keys) => terminal.press(keys),
            HangsUp => {
                let _ = terminal.script.kill();
                end = Some("hung up".to_owned());
            }
        }
    }
    if *name == "the terminal hangs up, with nohup" {
        std::fs::write(scene.path("go"), "").unwrap();
        eventually("the command survives", || {
            scene.read("noted").contains("survived")
        });
    }
    let end = end.unwrap_or_else(|| shown(terminal.script.wait().unwrap()));
    let noted = scene.read("noted");
    (end, noted.lines().collect::<Vec<_>>().join(", "))
}

/// Runs an operator's command in a script, and presses Ctrl-C once `file` contains `text`. Asserts
/// that Ctrl-C ends the whole script.
fn is_interrupted(place: &Place, words: &[&str], redirection: &str, (file, text): (&str, &str)) {
    let scene = place.scene(Tool::Lock);
    // `web` logs its address at level info.
    let command = scene.operators(words).replace("=warn", "=info");
    let script = format!("{command} {redirection}\necho next >> noted\n");
    let mut terminal = Terminal::new(&scene, "bash", &script);
    eventually(&format!("{words:?} has begun"), || {
        scene.read(file).contains(text)
    });
    terminal.press(CTRL_C);
    let end = shown(terminal.script.wait().unwrap());
    let noted = scene.read("noted");
    assert_eq!(
        (end.as_str(), noted.as_str()),
        ("exit code 130", ""),
        "{words:?}"
    );
}

#[test]
fn the_log_names_ctrl_c_as_the_cause_of_the_end() {
    let place = Place::new();
    let scene = place.scene(Tool::Run);
    let script = scene.script(SLEEPS);
    let script = script.replace("--log-level=warn", "--log-level=info");
    let mut terminal = Terminal::new(&scene, "bash", &script);
    eventually("it runs", || scene.read("noted").contains("runs"));
    terminal.press(CTRL_C);
    terminal.script.wait().unwrap();
    let screen = scene.read("screen");
    assert!(
        screen.contains("workload ended by SIGINT (Ctrl-C)"),
        "{screen}"
    );
    assert!(!screen.contains("exited by itself"), "{screen}");
}

#[test]
fn the_log_says_whether_the_command_ended_or_was_not_started() {
    let place = Place::new();
    let missing = "was not started: its interpreter or its loader does not exist";
    for (command, news) in [("true", "ended"), ("./program", missing)] {
        let scene = place.scene(Tool::Run);
        // Only exec itself finds a relative interpreter.
        std::fs::write(scene.path("program"), "#!no/such/interpreter\n").unwrap();
        let executable = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        std::fs::set_permissions(scene.path("program"), executable).unwrap();
        let script = scene.script(&format!("RUN {command}"));
        let script = script.replace("--log-level=warn", "--log-level=info");
        Terminal::new(&scene, "bash", &script)
            .script
            .wait()
            .unwrap();
        let screen = scene.read("screen");
        let news = format!("role changed: stops leading: the command {news} (workload_exit)");
        assert!(screen.contains(&news), "{screen}");
    }
}

#[test]
fn ctrl_c_ends_the_script_around_an_operators_command() {
    let place = Place::new();
    // The operators' commands need a lease to list.
    let ran = place.scene(Tool::Run).bash("RUN true").status().unwrap();
    assert!(ran.success());
    let watch = ["leases", "--watch"];
    let alternate_screen = "\x1b[?1049h";
    is_interrupted(&place, &watch, "", ("screen", alternate_screen));
    is_interrupted(&place, &watch, "> changes", ("changes", "present"));
    let web = ["web", "--listen=127.0.0.1:0"];
    is_interrupted(&place, &web, "", ("screen", "listening on"));
    // timeout(1) runs the command in a background process group, which the kernel would stop if the
    // command drew a table. The command prints lines instead.
    let scene = place.scene(Tool::Lock);
    let script = format!("timeout 2 {}\necho $? >> noted\n", scene.operators(&watch));
    let mut terminal = Terminal::new(&scene, "bash", &script);
    eventually("it ends", || scene.read("noted").contains("124"));
    terminal.script.wait().unwrap();
    let screen = scene.read("screen");
    assert!(screen.contains("\"present\""), "{screen}");
}

fn holder(scene: &Scene<'_>) -> Child {
    let script = "exec RUN sh -c ': > holds; exec sleep 60'";
    let holder = scene.bash(script).spawn().unwrap();
    eventually("the lock is held", || scene.path("holds").exists());
    holder
}

#[test]
fn a_wait_on_a_terminal_that_takes_no_output_can_be_stopped() {
    let place = Place::new();
    let scene = place.scene(Tool::Lock);
    let mut holder = holder(&scene);
    // Suspends the output, like Ctrl-S.
    let script = "python3 -c 'import termios; termios.tcflow(1, termios.TCOOFF)'
        sh -c 'echo $$ > waiter; exec RUN true'
        echo $? >> noted";
    let _terminal = Terminal::new(&scene, "bash", script);
    let listed = scene.operators(&["locks"]);
    eventually("it waits", || {
        let listed = scene.bash(&listed).output().is_ok();
        listed && scene.read("out").contains("waits")
    });
    let waiter = scene.read("waiter").trim().parse().unwrap();
    pid::signal(waiter, Signal::TERM);
    eventually("it ends", || scene.read("noted").contains("143"));
    pid::signal(holder.id(), Signal::TERM);
    holder.wait().unwrap();
}

#[test]
fn a_background_job_waits_on_a_terminal_that_stops_its_output() {
    let place = Place::new();
    for tool in [Tool::Flock, Tool::Lock, Tool::Run] {
        let scene = place.scene(tool);
        // `run` has no other holder, because two daemons cannot share a status directory.
        let holder = (tool != Tool::Run).then(|| holder(&scene));
        let script = "stty tostop
            RUN sh -c 'echo ran >> noted' &
            wait
            echo $? >> noted";
        let script = scene
            .script(script)
            .replace("--log-level=warn", "--log-level=info");
        let mut terminal = Terminal::new(&scene, "bash -m", &script);
        if tool == Tool::Lock {
            eventually("it waits", || {
                scene
                    .read("screen")
                    .contains("waiting for the lock: held by")
            });
        }
        if let Some(mut holder) = holder {
            pid::signal(holder.id(), Signal::TERM);
            holder.wait().unwrap();
        }
        let end = shown(terminal.script.wait().unwrap());
        assert_eq!(
            (end.as_str(), scene.read("noted").as_str()),
            ("exit code 0", "ran\n0\n"),
            "{tool:?}"
        );
    }
}

#[test]
fn a_job_on_a_terminal_behaves_like_the_plain_command() {
    let place = Place::new();
    let mut rows = Vec::new();
    for situation in situations() {
        let mut tools = Tool::installed();
        if situation.shell == "bash -m" {
            // Ctrl-Z stops tini's command, but not tini itself.
            tools.retain(|tool| *tool != Tool::Tini);
        }
        let seen = tools.into_iter().map(|tool| {
            let (end, noted) = played(&place.scene(tool), &situation);
            (tool, end, noted)
        });
        let seen: Vec<_> = seen.collect();
        let row = |property: &str, values| Row {
            situation: situation.name.to_owned(),
            property: property.to_owned(),
            values,
        };
        let ends = seen.iter().map(|(tool, end, _)| (*tool, end.clone()));
        rows.push(row("end of the script", ends.collect()));
        let noted = seen.into_iter().map(|(tool, _, noted)| (tool, noted));
        rows.push(row("noted", noted.collect()));
    }
    judge(&rows, TERMINAL);
}
