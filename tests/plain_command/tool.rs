//! Runs each of the compared tools in its own directory.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use leasehold_testbed::{ReplicaSet, Scratch, SharedSet, pid, run, skip};
use rustix::process::Signal;

const PROGRAM: &str = env!("CARGO_BIN_EXE_leasehold");

static SET: SharedSet = SharedSet::new(ReplicaSet::builder);

const LONG: Duration = Duration::from_secs(30);

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Tool {
    Plain,
    /// `flock FILE CMD`
    Flock,
    /// `tini -s -- CMD`
    Tini,
    /// `leasehold run -- CMD`
    Run,
    /// `leasehold lock NAME -- CMD`
    Lock,
    /// A hook of `leasehold run`.
    Hook,
}

impl Tool {
    /// Returns all tools except [`Hook`](Self::Hook), without tini if it is not installed.
    pub(crate) fn installed() -> Vec<Self> {
        let all = [Self::Plain, Self::Flock, Self::Tini, Self::Run, Self::Lock];
        let mut all = all.to_vec();
        if !Path::new("/usr/bin/tini").exists() {
            skip("no tini; on Debian: apt-get install -y tini");
            all.retain(|tool| *tool != Self::Tini);
        }
        all
    }

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Plain => "plain",
            Self::Flock => "flock",
            Self::Tini => "tini",
            Self::Run => "run -- CMD",
            Self::Lock => "lock -- CMD",
            Self::Hook => "hook",
        }
    }

    pub(crate) fn is_ours(self) -> bool {
        matches!(self, Self::Run | Self::Lock | Self::Hook)
    }
}

/// The database and the directory that all runs of a test share.
pub(crate) struct Place {
    set: Arc<ReplicaSet>,
    database: String,
    scratch: Scratch,
}

/// One run of a tool, with its own directory, lease and lock.
pub(crate) struct Scene<'a> {
    place: &'a Place,
    pub(crate) tool: Tool,
    name: String,
    pub(crate) directory: PathBuf,
    pub(crate) hook: Vec<String>,
}

impl Place {
    pub(crate) fn new() -> Self {
        static PLACES: AtomicUsize = AtomicUsize::new(1);
        let number = PLACES.fetch_add(1, Ordering::Relaxed);
        let place = Self {
            set: run(SET.get()),
            database: format!("plain_command_{number}"),
            scratch: Scratch::new(),
        };
        std::fs::write(place.scratch.path().join("uri"), place.set.uri()).unwrap();
        place
    }

    pub(crate) fn scene(&self, tool: Tool) -> Scene<'_> {
        static SCENES: AtomicUsize = AtomicUsize::new(1);
        let name = format!("scene-{}", SCENES.fetch_add(1, Ordering::Relaxed));
        let directory = self.scratch.path().join(&name);
        std::fs::create_dir(&directory).unwrap();
        Scene {
            place: self,
            tool,
            name,
            directory,
            hook: vec!["true".to_owned()],
        }
    }
}

impl Drop for Place {
    /// After a failure, kills the processes that still run. A daemon would create its status
    /// directory again after the removal.
    fn drop(&mut self) {
        if !std::thread::panicking() {
            return;
        }
        let end = Instant::now() + LONG;
        loop {
            let left = pid::with_variable("XDG_RUNTIME_DIR", self.scratch.path());
            if left.is_empty() || Instant::now() > end {
                return;
            }
            for process in left {
                pid::signal_if_there(process, Signal::KILL);
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

impl Scene<'_> {
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.directory.join(name)
    }

    pub(crate) fn read(&self, name: &str) -> String {
        let bytes = std::fs::read(self.path(name)).unwrap_or_default();
        String::from_utf8_lossy(&bytes).into_owned()
    }

    pub(crate) fn script(&self, text: &str) -> String {
        text.replace("RUN ", &self.prefix())
    }

    fn prefix(&self) -> String {
        let Self { name, .. } = self;
        match self.tool {
            Tool::Plain => String::new(),
            Tool::Flock => format!("flock '{}' ", self.path("lock").display()),
            Tool::Tini => "tini -s -- ".to_owned(),
            Tool::Lock => format!("{} -- ", self.ours(&["lock", name])),
            Tool::Run => format!("{} -- ", self.daemon(&[])),
            Tool::Hook => {
                let file = self.path("hooks.toml");
                let text = format!("[hooks]\non_lead = {:?}\n", self.hook);
                std::fs::write(&file, text).unwrap();
                // When the command ends, the hook is killed, so the command waits for the hook's
                // result.
                let waits = "while [ ! -s \"$OUT\" ]; do sleep 0.02; done";
                let config = format!("--config={}", file.display());
                format!("{} -- sh -c '{waits}' ", self.daemon(&[&config]))
            }
        }
    }

    fn daemon(&self, flags: &[&str]) -> String {
        let lease = format!("--lease={}", self.name);
        let status = format!("--status-directory={}", self.path("status").display());
        let flags = [&["run", &lease, &status, "--http-listen="], flags].concat();
        self.ours(&flags)
    }

    pub(crate) fn operators(&self, words: &[&str]) -> String {
        self.ours(words)
    }

    fn ours(&self, words: &[&str]) -> String {
        let uri = self.place.scratch.path().join("uri");
        let quoted: Vec<_> = words.iter().map(|word| format!("'{word}'")).collect();
        format!(
            "'{PROGRAM}' {} --mongodb-uri-file='{}' --mongodb-database={} --log-format=text --log-level=warn",
            quoted.join(" "),
            uri.display(),
            self.place.database,
        )
    }

    /// Returns a command that runs a bash script in the scene's directory, and writes its output to
    /// the files `out` and `err`.
    pub(crate) fn bash(&self, text: &str) -> Command {
        let mut bash = Command::new("bash");
        bash.args(["-c", &self.script(text)])
            .stdin(Stdio::null())
            .stdout(self.create("out"))
            .stderr(self.create("err"));
        self.placed(bash)
    }

    pub(crate) fn placed(&self, mut command: Command) -> Command {
        command
            .current_dir(&self.directory)
            .env_clear()
            .env(
                "PATH",
                "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
            )
            .env("HOME", &self.directory)
            .env("XDG_RUNTIME_DIR", &self.directory)
            .env("OUT", self.path("facts"));
        command
    }

    fn create(&self, name: &str) -> std::fs::File {
        std::fs::File::create(self.path(name)).unwrap()
    }
}

pub(crate) fn eventually(what: &str, condition: impl FnMut() -> bool) {
    eventually_or(what, String::new, condition);
}

/// Waits for a condition. After a timeout, fails with the description that `seen` returns.
pub(crate) fn eventually_or(
    what: &str,
    seen: impl Fn() -> String,
    mut condition: impl FnMut() -> bool,
) {
    let end = Instant::now() + LONG;
    while !condition() {
        assert!(
            Instant::now() < end,
            "timed out waiting for: {what}\n{}",
            seen()
        );
        std::thread::sleep(Duration::from_millis(5));
    }
}
