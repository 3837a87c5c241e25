//! The container of a workload: `leasehold guard` as process 1 of a PID namespace.

use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::process::Signal;

use crate::process::exit_code;
use crate::{Cgroup, Failure, Launch, Process, pid, wait};

/// Maximum time until the namespaces exist on a busy machine.
const STARTED_WITHIN: Duration = Duration::from_secs(60);

const UNSHARE: &str = "/usr/bin/unshare";
/// Enters the group $0, and executes the program.
const ENTER: &str = r#"echo 0 > "$0/cgroup.procs" && exec "$@""#;

/// A container with `leasehold guard`. Dropping it kills all of its processes.
#[derive(Debug)]
pub struct GuardContainer {
    process: Process,
    log: PathBuf,
}

impl GuardContainer {
    /// Starts `program guard --socket SOCKET -- COMMAND`. Standard error goes to `log`.
    ///
    /// # Errors
    /// If the namespaces cannot be created; this needs root.
    pub fn start(
        program: &Path,
        socket: &Path,
        command: &[String],
        log: &Path,
    ) -> Result<Self, Failure> {
        Self::begin(Launch::new(UNSHARE), program, socket, command, log)
    }

    /// Like [`start`](Self::start), but in a control group of its own.
    ///
    /// # Errors
    /// Like [`start`](Self::start).
    pub fn start_in(
        cgroup: &Cgroup,
        program: &Path,
        socket: &Path,
        command: &[String],
        log: &Path,
    ) -> Result<Self, Failure> {
        let launch = Launch::new("/bin/sh").arguments(["-c", ENTER]);
        let launch = launch.argument(cgroup.path()).argument(UNSHARE);
        Self::begin(launch, program, socket, command, log)
    }

    fn begin(
        launch: Launch,
        program: &Path,
        socket: &Path,
        command: &[String],
        log: &Path,
    ) -> Result<Self, Failure> {
        let namespaces = ["--pid", "--fork", "--kill-child", "--mount-proc", "--"];
        let process = launch
            .arguments(namespaces)
            .argument(program)
            .arguments(["guard", "--socket"])
            .argument(socket)
            .argument("--")
            .arguments(command)
            .stderr(log)
            .start()?;
        Ok(Self {
            process,
            log: log.to_owned(),
        })
    }

    /// Returns the process id of process 1, as the host sees it.
    pub async fn process_1(&self) -> u32 {
        let mut found = None;
        wait::within(STARTED_WITHIN, "process 1 of the container", async || {
            found = pid::children(self.process.pid()).first().copied();
            found.is_some()
        })
        .await;
        found.expect("the wait found it")
    }

    /// Kills all processes of the container, as the kernel does if the container has no memory left.
    pub async fn kill(&self) {
        pid::signal(self.process_1().await, Signal::KILL);
    }

    /// Sends SIGTERM to process 1, as a container runtime does to stop a container.
    pub async fn stop(&self) {
        pid::signal(self.process_1().await, Signal::TERM);
    }

    /// Waits until the container has ended. Returns the exit code of process 1, or 128 + N after
    /// signal N.
    ///
    /// # Panics
    /// If the container still runs after `deadline`.
    pub async fn wait_exit(&self, deadline: Duration) -> i32 {
        let status = self.process.wait(deadline).await.map(exit_code);
        status.unwrap_or_else(|| panic!("the container still runs; its log:\n{}", self.logs()))
    }

    /// Returns the exit code of process 1, as in [`wait_exit`](Self::wait_exit); `None` while the
    /// container runs.
    pub fn exit_code(&self) -> Option<i32> {
        self.process.exit_status().map(exit_code)
    }

    /// Returns the output of the guard and its command on standard error.
    pub fn logs(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap_or_default()
    }
}
