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

/// A daemon that was executed at a known instant. Ends when it is dropped.
#[derive(Debug)]
pub(crate) struct Executed {
    child: Child,
    /// CLOCK_BOOTTIME right before the program was executed.
    pub(crate) at_ns: u64,
}

impl Executed {
    /// Executes `leasehold run`. To be called on the main thread, since the
    /// child ends with the thread that started it.
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
        let this = std::env::current_exe().expect("the path of this program can be read");
        let mut command = Command::new(this);
        command
            .args([STAGE, &std::process::id().to_string()])
            .arg(&setup.binary)
            .args(["run", "--identity", "a", "--lease", lease])
            .args(["--mongodb-uri-file".as_ref(), uri_file.as_os_str()])
            .args(["--status-directory".as_ref(), directory.as_os_str()])
            .arg(format!("--http-listen=127.0.0.1:{}", port.number()))
            .env_clear()
            .process_group(0)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null());
        let mut child = command.spawn().expect("this program can be started again");
        let mut told = String::new();
        let output = child.stdout.take().expect("its output is a pipe");
        BufReader::new(output)
            .read_line(&mut told)
            .expect("the stage tells the time");
        let at_ns = told.trim().parse().expect("the time is a number");
        Self { child, at_ns }
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
