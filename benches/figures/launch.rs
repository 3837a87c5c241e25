//! Starts the measured daemons. To measure a start, the benchmark must know when the program was
//! executed, but the testbed's own wrapper processes take some milliseconds to execute it. The
//! benchmark program is therefore its own wrapper, called a stage: it sets PDEATHSIG, prints the
//! time, and executes the measured program.

use std::ffi::OsString;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::Duration;

use leasehold_testbed::daemon::{boottime_ns, sample};
use leasehold_testbed::{
    Daemon, DaemonBuilder, ReplicaSet, ReplicaSetBuilder, ReservedPort, Storage,
};
use rustix::process::{Pid, Signal, getppid, kill_process, set_parent_process_death_signal};
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

/// First argument of this program when it acts as a stage.
pub(crate) const STAGE: &str = "--stage-of";

/// Maximum wait, enough for fifty daemons that start at once on two cores.
const READY_MAX: Duration = Duration::from_secs(60);
const POLL: Duration = Duration::from_millis(20);
const LOOK: Duration = Duration::from_millis(2);

#[derive(Debug, Clone)]
pub(crate) struct Setup {
    pub(crate) binary: PathBuf,
    /// True if fewer samples suffice.
    pub(crate) quick: bool,
    pub(crate) storage: Storage,
}

impl Default for Setup {
    fn default() -> Self {
        Self {
            binary: env!("CARGO_BIN_EXE_leasehold").into(),
            quick: false,
            storage: Storage::Memory,
        }
    }
}

impl Setup {
    pub(crate) fn count(&self, full: usize, quick: usize) -> usize {
        if self.quick { quick } else { full }
    }

    /// Shortens a measurement to a third in a quick run.
    pub(crate) fn pause(&self, full: Duration) -> Duration {
        if self.quick { full / 3 } else { full }
    }

    pub(crate) async fn set(&self) -> ReplicaSet {
        self.set_of(ReplicaSet::builder()).await
    }

    pub(crate) async fn set_of(&self, builder: ReplicaSetBuilder) -> ReplicaSet {
        builder
            .storage(self.storage)
            .default_journal()
            .start()
            .await
    }

    pub(crate) fn daemon(&self, lease: &str, identity: &str, uri: &str) -> DaemonBuilder {
        Daemon::builder(&self.binary)
            .lease(lease)
            .identity(identity)
            .uri(uri)
            .untraced()
    }
}

pub(crate) fn directories(parent: &Path, count: usize) -> Vec<PathBuf> {
    let paths = (0..count).map(|index| parent.join(format!("status-{index}")));
    paths
        .inspect(|path| std::fs::create_dir(path).expect("create a status directory"))
        .collect()
}

/// Waits until a daemon's change stream is open, so the daemon is in steady state. Panics after
/// [`READY_MAX`].
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

#[derive(Debug, Clone, Default)]
pub(crate) struct Line {
    pub(crate) program: PathBuf,
    pub(crate) arguments: Vec<OsString>,
    /// The program's environment. No other variables are inherited.
    pub(crate) environment: Vec<(String, String)>,
}

impl Line {
    fn staged(&self) -> Command {
        let this = std::env::current_exe().expect("the path of this program");
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

/// A running program, and the time at which it was executed. Killed on drop. Must be started on the
/// main thread, because the child exits with the thread that started it.
#[derive(Debug)]
pub(crate) struct Executed {
    child: Child,
    /// CLOCK_BOOTTIME right before the program was executed.
    pub(crate) at_ns: u64,
}

impl Executed {
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

    /// Executes a command line, and waits until its stage has printed the time.
    pub(crate) fn line(line: &Line) -> Self {
        let mut command = line.staged();
        command.stdout(Stdio::piped());
        let mut child = command.spawn().expect("start this program again");
        let mut told = String::new();
        let output = child.stdout.take().expect("the child's output is a pipe");
        BufReader::new(output)
            .read_line(&mut told)
            .expect("the stage prints the time");
        let at_ns = told.trim().parse().expect("the time is a number");
        Self { child, at_ns }
    }

    /// Like [`line`](Self::line), but does not wait for the stage, so `at_ns` is the time before
    /// the stage starts.
    pub(crate) fn non_blocking(line: &Line) -> Self {
        let at_ns = boottime_ns();
        let child = line.staged().spawn();
        let child = child.expect("start this program again");
        Self { child, at_ns }
    }

    /// Like [`line`](Self::line), but also returns each line that the program prints, with the
    /// time.
    pub(crate) fn printing(line: &Line) -> (Self, UnboundedReceiver<(u64, String)>) {
        let mut command = line.staged();
        command.stdout(Stdio::piped());
        let mut child = command.spawn().expect("start this program again");
        let output = child.stdout.take().expect("the child's output is a pipe");
        let mut lines = BufReader::new(output).lines().map_while(Result::ok);
        let told = lines.next().expect("the stage prints the time");
        let at_ns = told.parse().expect("the time is a number");
        let (sender, printed) = unbounded_channel();
        std::thread::Builder::new()
            .name("printed".to_owned())
            .spawn(move || {
                // The loop ends when the program closes its output or the receiver is dropped.
                let _ = lines.try_for_each(|line| sender.send((boottime_ns(), line)));
            })
            .expect("start a thread");
        (Self { child, at_ns }, printed)
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn term(&self) {
        let pid = i32::try_from(self.pid()).ok().and_then(Pid::from_raw);
        // The process has not been reaped, so no other process has its id.
        let _ = kill_process(pid.expect("a process id"), Signal::TERM);
    }

    /// Waits for the exit and returns its time. Panics if the exit status is not 0.
    pub(crate) fn wait(&mut self) -> u64 {
        let status = self.child.wait().expect("wait for the child");
        let ended_ns = boottime_ns();
        assert!(status.success(), "the program ended with {status}");
        ended_ns
    }

    pub(crate) async fn ended(&mut self) {
        while self.child.try_wait().expect("wait for the child").is_none() {
            tokio::time::sleep(LOOK).await;
        }
        self.wait();
    }

    pub(crate) fn kill(&mut self) {
        // The program may have exited already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for Executed {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Runs `--stage-of PARENT PROGRAM ARG…`. Returns only if the execution fails.
pub(crate) fn stage(mut arguments: impl Iterator<Item = OsString>) -> ExitCode {
    let parent = arguments.next();
    let Some(program) = arguments.next() else {
        return ExitCode::from(64);
    };
    // If the parent has already exited, the signal never arrives. The comparison below detects
    // this.
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

/// Converts a duration to nanoseconds, for comparison with times on CLOCK_BOOTTIME.
pub(crate) fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).expect("durations are at most minutes")
}

/// Returns the difference in seconds. The result is negative if `to_ns` is earlier.
pub(crate) fn seconds(from_ns: u64, to_ns: u64) -> f64 {
    let difference = i128::from(to_ns) - i128::from(from_ns);
    #[allow(clippy::cast_precision_loss)] // Far below 2^53 ns within a run.
    let nanos = difference as f64;
    nanos / 1e9
}
