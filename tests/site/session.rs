//! Runs the commands of a page in one shell.

use std::fs;
use std::os::unix::fs::symlink;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};

use leasehold_testbed::{ReservedPort, skip};

use crate::page::{Block, blocks, root, text};
use crate::shape::difference;

const PROGRAM: &str = env!("CARGO_BIN_EXE_leasehold");

/// Ports that appear on the pages. Each session replaces these ports with free ports.
const PORTS: [&str; 5] = ["9402", "9403", "9411", "9412", "9413"];

const SECONDS_MAX: u32 = 240;

/// Timeout of a command that installs packages. Go compiles some programs for minutes.
const INSTALL_SECONDS_MAX: u32 = 1_800;

/// Commands that install packages from a registry.
const REGISTRIES: [&str; 3] = ["npm install", "pip install", "go install"];

/// The page's shell prints a line with one of these prefixes before and after each command's
/// output.
const BEGINS: &str = "\u{1}begins ";
const ENDS: &str = "\u{1}ends ";

/// An outer shell around a script's shell. Its arguments are the timeout in seconds and the name of
/// the script. If the test is killed, the outer shell gets SIGTERM and kills the process group. A
/// replica set is not in this group: `make stop` ends a running set, and an interrupted start ends
/// its own set.
const OUTER: &str = r#"
starts_a_set() {
    for program in /proc/[0-9]*/exe; do
        [ ! "$program" -ef target/debug/demo ] || return 0
    done
    return 1
}
end() {
    trap '' TERM
    kill -TERM -- "-$$"
    for attempt in $(seq 100); do
        starts_a_set || break
        sleep 0.1
    done
    make --silent stop >/dev/null 2>&1
    kill -KILL -- "-$$"
}
trap end TERM
timeout --foreground --kill-after 5 "$1" bash "$2.sh" </dev/null >"$2.out" 2>&1 &
wait $!
code=$?
echo "$code" > "$2.code"
end
"#;

/// Exit code of `timeout` after a timeout.
const TOO_SLOW: &str = "124";

struct Shown {
    line: usize,
    command: String,
    output: String,
}

fn commands(block: &Block) -> Vec<Shown> {
    if block.language != "console" {
        return vec![Shown {
            line: block.line,
            command: block.text.clone(),
            output: "…".to_owned(),
        }];
    }
    let mut found: Vec<Shown> = Vec::new();
    let mut continues = false;
    for (line, number) in block.text.lines().zip(block.line + 1..) {
        if let Some(command) = line.strip_prefix("$ ") {
            found.push(Shown {
                line: number,
                command: command.to_owned(),
                output: String::new(),
            });
            continues = command.ends_with('\\');
            continue;
        }
        let last = found.last_mut();
        let last = last.unwrap_or_else(|| panic!("line {number}: an output without a command"));
        let into = match continues {
            true => &mut last.command,
            false => &mut last.output,
        };
        if !into.is_empty() {
            into.push('\n');
        }
        into.push_str(line);
        continues = continues && line.ends_with('\\');
    }
    if block.is_on_a_terminal {
        for shown in &mut found {
            shown.command = on_a_terminal(&shown.command);
        }
    }
    found
}

/// Returns a command that runs `command` on its own terminal.
fn on_a_terminal(command: &str) -> String {
    let quoted = command.replace('\'', r"'\''");
    format!("script --quiet --return --command '{quoted}' /dev/null < /dev/null")
}

pub(crate) struct Session {
    page: &'static str,
    directory: tempfile::TempDir,
    environment: Vec<(&'static str, String)>,
    may_fail: bool,
    /// The command of the page that was run before the page.
    installed: Option<String>,
}

impl Session {
    pub(crate) fn new(page: &'static str) -> Self {
        // Hard links to the programs require a directory on the same file system.
        let directory = tempfile::Builder::new()
            .prefix("site-")
            .tempdir_in(env!("CARGO_TARGET_TMPDIR"))
            .unwrap();
        let database: String = page
            .chars()
            .map(|c| if c.is_ascii_alphanumeric() { c } else { '-' })
            .collect();
        let mut session = Self {
            page,
            directory,
            environment: Vec::new(),
            may_fail: false,
            installed: None,
        };
        let programs = session.directory().join("bin");
        fs::create_dir(&programs).unwrap();
        symlink(PROGRAM, programs.join("leasehold")).unwrap();
        // The program runs as a server under this name. The package redis-tools has no such name.
        symlink("/usr/bin/redis-check-rdb", programs.join("redis-server")).unwrap();
        session.set("GOBIN", programs.display().to_string());
        let path = std::env::var("PATH").unwrap();
        session.set("PATH", format!("{}:{path}", programs.display()));
        if let Some(cache) = cache() {
            session.set("npm_config_cache", format!("{cache}/npm"));
            session.set("PIP_CACHE_DIR", format!("{cache}/pip"));
            session.set("MAVEN_OPTS", format!("-Dmaven.repo.local={cache}/maven"));
        }
        // Notices of newer versions are not part of the pages.
        session.set("PIP_DISABLE_PIP_VERSION_CHECK", "1");
        session.set("npm_config_update_notifier", "false");
        session.set("LEASEHOLD_LOG__FORMAT", "text");
        session.set("LEASEHOLD_MONGODB__DATABASE", database);
        session.set("XDG_RUNTIME_DIR", session.place("runtime"));
        session.set("LEASEHOLD_STATUS__DIRECTORY", session.place("status"));
        session
    }

    pub(crate) fn set(&mut self, name: &'static str, value: impl Into<String>) {
        self.environment.push((name, value.into()));
    }

    /// Accepts all exit codes, for commands that report a problem. The output must still match.
    pub(crate) fn may_fail(&mut self) {
        self.may_fail = true;
    }

    pub(crate) fn directory(&self) -> &Path {
        self.directory.path()
    }

    fn place(&self, name: &str) -> String {
        let place = self.directory().join(format!(".{name}"));
        fs::create_dir(&place).unwrap();
        place.display().to_string()
    }

    /// Writes the page's files, runs its commands in order, and compares their output. Panics if a
    /// command fails or its output differs.
    pub(crate) fn run(&self) {
        self.run_text(text(self.page));
    }

    /// Runs the page's command that installs packages from a registry, if there is one. Returns
    /// false, and prints why, if the registry is unreachable. [`run`](Self::run) omits the command,
    /// because even a repeated installation can fetch packages.
    pub(crate) fn packages_are_available(&mut self) -> bool {
        let installed = self.install(INSTALL_SECONDS_MAX);
        if let Err(why) = &installed {
            let page = self.page;
            skip(&format!("{page}: the packages are not available: {why}"));
        }
        installed.is_ok()
    }

    fn install(&mut self, seconds_max: u32) -> Result<(), String> {
        let blocks = blocks(&text(self.page));
        // The command may read a file of the page.
        for block in &blocks {
            if let Some(file) = block.file() {
                self.write(file, &block.text);
            }
        }
        let run = blocks.iter().filter(|block| !block.is_marked_not_run());
        let mut commands = run.filter(|block| block.is_shell()).flat_map(commands);
        let Some(install) =
            commands.find(|shown| REGISTRIES.iter().any(|it| shown.command.contains(it)))
        else {
            return Ok(());
        };
        let command = install.command;
        self.write("install.sh", &command);
        let (code, output) = self.output("install", seconds_max);
        let why = match code.as_str() {
            "0" => {
                self.installed = Some(command);
                return Ok(());
            }
            TOO_SLOW => format!("still running after {seconds_max} s"),
            code => format!("exit code {code}"),
        };
        Err(format!("{command}: {why}\n{output}"))
    }

    /// Like [`run`](Self::run), but for a part of the page.
    pub(crate) fn run_text(&self, mut text: String) {
        let ports = PORTS.map(|shown| (shown, ReservedPort::new()));
        for (shown, port) in &ports {
            text = text.replace(shown, &port.number().to_string());
        }
        let mut shown = Vec::new();
        for block in blocks(&text) {
            if let Some(file) = block.file() {
                self.write(file, &block.text);
            } else if block.is_shell() && !block.is_marked_not_run() {
                shown.extend(commands(&block));
            }
        }
        shown.retain(|shown| Some(&shown.command) != self.installed.as_ref());
        assert!(!shown.is_empty(), "{}: no commands", self.page);
        let script: String = shown
            .iter()
            .enumerate()
            .map(|(n, shown)| {
                let command = &shown.command;
                format!("echo; echo '{BEGINS}{n}'\n{command}\ncode=$?; echo; echo '{ENDS}'$code\n")
            })
            .collect();
        self.write("page.sh", &script);
        let (code, output) = self.output("page", SECONDS_MAX);
        let too_slow = code == TOO_SLOW;
        assert!(
            !too_slow,
            "{}: too slow:\n{output}{}",
            self.page,
            self.logs()
        );
        self.compare(&shown, &output);
    }

    fn write(&self, file: &str, text: &str) {
        let path = self.directory().join(file);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    /// Runs a script in the directory. Returns the exit code and the output.
    fn output(&self, script: &str, seconds_max: u32) -> (String, String) {
        let mut outer = Command::new("setpriv");
        outer
            .args(["--pdeathsig", "TERM", "bash", "-c", OUTER, "bash"])
            .args([&seconds_max.to_string(), script])
            .current_dir(self.directory())
            .envs(self.environment.iter().cloned())
            // Under `make test`, a nested `make` would otherwise print the directories that it
            // enters.
            .env_remove("MAKEFLAGS")
            .env_remove("MAKELEVEL")
            .stdin(Stdio::null())
            .process_group(0);
        outer.status().expect("start setpriv of util-linux");
        let place = |kind| self.directory().join(format!("{script}.{kind}"));
        let output = fs::read(place("out")).unwrap();
        let output = String::from_utf8_lossy(&output).into_owned();
        let code = fs::read_to_string(place("code")).unwrap_or_default();
        (code.trim().to_owned(), output)
    }

    fn logs(&self) -> String {
        let entries = fs::read_dir(self.directory()).unwrap();
        let paths = entries.map(|entry| entry.unwrap().path());
        let logs = paths.filter(|path| path.extension().is_some_and(|it| it == "log"));
        let ends = logs.map(|path| {
            let text = fs::read_to_string(&path).unwrap_or_default();
            let lines: Vec<_> = text.lines().rev().take(20).collect();
            let lines: Vec<_> = lines.into_iter().rev().collect();
            format!("\n{}:\n{}\n", path.display(), lines.join("\n"))
        });
        ends.collect()
    }

    fn compare(&self, shown: &[Shown], output: &str) {
        for (n, shown) in shown.iter().enumerate() {
            let place = format!("{}:{}: {}", self.page, shown.line, shown.command);
            let begins = format!("\n{BEGINS}{n}\n");
            let part = output.split_once(&begins).map(|(_, rest)| rest);
            let part = part.and_then(|rest| rest.split_once(&format!("\n{ENDS}")));
            let Some((found, rest)) = part else {
                panic!("{place}\ndid not end:\n{output}{}", self.logs());
            };
            let code = rest.lines().next().unwrap_or_default();
            let success = self.may_fail || code == "0";
            assert!(success, "{place}\nexited with {code}:\n{found}\n{output}");
            let found = without_notices(found);
            if let Some(difference) = difference(&shown.output, &found) {
                panic!("{place}\n{difference}");
            }
        }
    }
}

/// Returns the directory in which fetched programs and packages remain for the next run.
fn cache() -> Option<String> {
    let of = |variable: &str| std::env::var(variable).ok();
    let below = |directory: String, name: &str| format!("{directory}/{name}");
    of("LEASEHOLD_CACHE")
        .or_else(|| of("XDG_CACHE_HOME").map(|it| below(it, "leasehold")))
        .or_else(|| of("HOME").map(|it| below(it, ".cache/leasehold")))
}

/// Removes terminal control characters, trailing empty lines, and the shell's notices of killed
/// jobs, which may appear in a later command's output.
fn without_notices(output: &str) -> String {
    let notice = |line: &&str| line.starts_with("page.sh: line ") && line.contains(" Killed ");
    let lines = output.lines().filter(|line| !notice(line));
    let lines: Vec<_> = lines.map(as_seen).collect();
    lines.join("\n").trim_end_matches('\n').to_owned()
}

/// Returns a line as a terminal displays it: without color codes and overwritten text.
fn as_seen(line: &str) -> String {
    let line = line.trim_end_matches('\r');
    let mut parts = line.rsplit('\r').next().unwrap_or_default().split('\u{1b}');
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |seen, part| {
        let control = part.strip_prefix('[').unwrap_or(part);
        let end = control.find(|c: char| c.is_ascii_alphabetic());
        seen + end.map_or("", |end| &control[end + 1..])
    })
}

#[test]
fn a_terminal_shows_no_colours_and_no_overwritten_text() {
    assert_eq!(as_seen("\u{1b}[32mheld\u{1b}[0m  anna\r"), "held  anna");
    assert_eq!(as_seen("waiting\r\u{1b}[2Kleading"), "leading");
}

#[test]
fn an_installation_that_does_not_end_is_named() {
    let registry = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let mut session = Session::new("docs/recipes/celery-beat.md");
    let index = format!("http://{}/simple", registry.local_addr().unwrap());
    session.set("PIP_INDEX_URL", index);
    session.set("no_proxy", "127.0.0.1".to_owned());
    let why = session.install(5).unwrap_err();
    assert!(why.contains("pip install --quiet celery"), "{why}");
    assert!(why.contains("still running after 5 s"), "{why}");
}

/// Makes a session's directory resemble the repository after `make build`. The directory contains
/// this build's programs, and `make` does not run cargo.
pub(crate) fn like_the_repository(session: &mut Session) {
    let directory = session.directory().to_owned();
    for entry in fs::read_dir(root()).unwrap() {
        let name = entry.unwrap().file_name();
        let hidden = name.to_string_lossy().starts_with('.');
        if !hidden && name != "target" {
            symlink(root().join(&name), directory.join(&name)).unwrap();
        }
    }
    for profile in ["debug", "release"] {
        let programs = directory.join("target").join(profile);
        fs::create_dir_all(&programs).unwrap();
        symlink(PROGRAM, programs.join("leasehold")).unwrap();
    }
    // A hard link, because the program keeps its process list next to its own executable.
    let demo = Path::new(PROGRAM).with_file_name("demo");
    assert!(demo.exists(), "no demo: cargo build --workspace --bins");
    fs::hard_link(demo, directory.join("target/debug/demo")).unwrap();
    session.set("CARGO", "true");
}
