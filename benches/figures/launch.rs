//! The daemons under measurement, and how they are started.
//!
//! Where the start itself is measured it must be known when the program was
//! executed. The testbed's stages before it take some milliseconds, so this
//! program is the stage: it sets PDEATHSIG, tells the time, and executes.

use std::ffi::OsString;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::Duration;

use leasehold_testbed::daemon::{boottime_ns, sample};
use leasehold_testbed::{Daemon, DaemonBuilder, ReservedPort};
use rustix::process::{Signal, getppid, set_parent_process_death_signal};

/// The first argument of a stage.
pub(crate) const STAGE: &str = "--stage-of";

/// Long enough for fifty daemons that start at once on two cores.
const READY_MAX: Duration = Duration::from_secs(60);
const POLL: Duration = Duration::from_millis(20);
const LOOK: Duration = Duration::from_millis(2);

/// What is measured, and how thoroughly.
#[derive(Debug, Clone)]
pub(crate) struct Setup {
    /// The binary; that of this build unless another one is compared with it.
    pub(crate) binary: PathBuf,
    /// Fewer samples.
    pub(crate) quick: bool,
}

impl Default for Setup {
    fn default() -> Self {
        Self {
            binary: env!("CARGO_BIN_EXE_leasehold").into(),
            quick: false,
        }
    }
}

impl Setup {
    /// How many samples.
    pub(crate) fn count(&self, full: usize, quick: usize) -> usize {
        if self.quick { quick } else { full }
    }

    /// A daemon, with its status directory made before it starts, so that it
    /// can be observed from the first status on.
    pub(crate) fn daemon(&self, lease: &str, identity: &str, uri: &str) -> DaemonBuilder {
        Daemon::builder(&self.binary)
            .lease(lease)
            .identity(identity)
            .uri(uri)
    }
}

/// Makes `count` status directories below `parent`.
pub(crate) fn directories(parent: &Path, count: usize) -> Vec<PathBuf> {
    let paths = (0..count).map(|index| parent.join(format!("status-{index}")));
    paths
        .inspect(|path| std::fs::create_dir(path).expect("a status directory can be made"))
        .collect()
}

/// Waits until a daemon has its change stream: then it is in steady state.
///
/// # Panics
/// When it does not get there.
pub(crate) async fn watching(daemon: &Daemon) {
    let end = boottime_ns() + nanos(READY_MAX);
    loop {
        if let Ok((_, text)) = daemon.http("/metrics").await
            && sample(&text, "leasehold_watch_connected") == Some(1.0)
            && daemon
                .try_status()
                .is_some_and(|status| status["role"] != "unknown")
        {
            return;
        }
        assert!(
            boottime_ns() < end,
            "{}: no change stream; the log:\n{}",
            daemon.identity(),
            daemon.logs()
        );
        tokio::time::sleep(POLL).await;
    }
}

/// A command line.
#[derive(Debug, Clone, Default)]
pub(crate) struct Line {
    pub(crate) program: PathBuf,
    pub(crate) arguments: Vec<OsString>,
    /// All that it gets of an environment.
    pub(crate) environment: Vec<(String, String)>,
}

impl Line {
    /// With this program as the stage before it.
    fn staged(&self) -> Command {
        let this = std::env::current_exe().expect("the path of this program can be read");
        let mut command = Command::new(this);
        command
            .args([STAGE, &std::process::id().to_string()])
            .arg(&self.program)
            .args(&self.arguments)
            .env_clear()
            .envs(self.environment.iter().map(|(name, value)| (name, value)))
            .process_group(0)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        command
    }
}

/// A program that was executed at a known instant. Ends when it is dropped.
/// To be started on the main thread, since the child ends with the thread that
/// started it.
#[derive(Debug)]
pub(crate) struct Executed {
    child: Child,
    /// CLOCK_BOOTTIME right before the program was executed.
    pub(crate) at_ns: u64,
}

impl Executed {
    /// Executes `leasehold run`.
    ///
    /// # Panics
    /// When it cannot be started.
    pub(crate) fn start(
        setup: &Setup,
        uri_file: &Path,
        lease: &str,
        directory: &Path,
        port: &ReservedPort,
    ) -> Self {
        let mut arguments: Vec<OsString> = Vec::new();
        arguments.extend(["run", "--identity", "a", "--lease", lease].map(OsString::from));
        arguments.extend(["--mongodb-uri-file".into(), uri_file.into()]);
        arguments.extend(["--status-directory".into(), directory.into()]);
        arguments.push(format!("--http-listen=127.0.0.1:{}", port.number()).into());
        Self::line(&Line {
            program: setup.binary.clone(),
            arguments,
            environment: Vec::new(),
        })
    }

    /// Executes a command line, and waits for the stage to tell the time.
    ///
    /// # Panics
    /// When it cannot be started.
    pub(crate) fn line(line: &Line) -> Self {
        let mut command = line.staged();
        command.stdout(Stdio::piped());
        let mut child = command.spawn().expect("this program can be started again");
        let mut told = String::new();
        let output = child.stdout.take().expect("its output is a pipe");
        BufReader::new(output)
            .read_line(&mut told)
            .expect("the stage tells the time");
        let at_ns = told.trim().parse().expect("the time is a number");
        Self { child, at_ns }
    }

    /// Executes a command line without waiting for the stage: `at_ns` is when
    /// that was started.
    ///
    /// # Panics
    /// When it cannot be started.
    pub(crate) fn at_once(line: &Line) -> Self {
        let at_ns = boottime_ns();
        let child = line.staged().spawn();
        let child = child.expect("this program can be started again");
        Self { child, at_ns }
    }

    /// Waits for its end, which has to be one with 0, and says when it was.
    ///
    /// # Panics
    /// When it ended otherwise.
    pub(crate) fn wait(&mut self) -> u64 {
        let status = self.child.wait().expect("a child can be waited for");
        let ended_ns = boottime_ns();
        assert!(status.success(), "it ended with {status}");
        ended_ns
    }

    /// As [`wait`](Self::wait), while others go on.
    pub(crate) async fn ended(&mut self) {
        while self
            .child
            .try_wait()
            .expect("a child can be waited for")
            .is_none()
        {
            tokio::time::sleep(LOOK).await;
        }
        self.wait();
    }

    /// Ends it with SIGKILL and waits until it is gone.
    pub(crate) fn kill(&mut self) {
        // It may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for Executed {
    fn drop(&mut self) {
        self.kill();
    }
}

/// The stage: `--stage-of PARENT PROGRAM ARG…`. Returns only if it fails.
pub(crate) fn stage(mut arguments: impl Iterator<Item = OsString>) -> ExitCode {
    let parent = arguments.next();
    let Some(program) = arguments.next() else {
        return ExitCode::from(64);
    };
    // A parent that died before this was set would never be noticed.
    let bound = set_parent_process_death_signal(Some(Signal::KILL));
    let now = getppid().map(|pid| OsString::from(pid.to_string()));
    if bound.is_err() || now != parent {
        return ExitCode::FAILURE;
    }
    let mut command = Command::new(program);
    command.args(arguments);
    let _ = writeln!(std::io::stdout(), "{}", boottime_ns());
    drop(command.exec());
    ExitCode::from(126)
}

/// As nanoseconds, to be compared with instants of CLOCK_BOOTTIME.
pub(crate) fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).expect("durations here are minutes at most")
}

/// From one instant to another, in seconds; negative if it is the earlier.
pub(crate) fn seconds(from_ns: u64, to_ns: u64) -> f64 {
    let difference = i128::from(to_ns) - i128::from(from_ns);
    #[allow(clippy::cast_precision_loss)] // Far below 2^53 ns between two instants of a run.
    let nanos = difference as f64;
    nanos / 1e9
}
