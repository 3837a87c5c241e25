//! Child processes that end with the test that started them.
//!
//! PDEATHSIG ensures this even if the test is killed. The kernel sends the signal when the *thread*
//! that forked ends, so all children are started by one thread that lives as long as the process.
//! The setting has no effect if the parent has already exited, so a later stage of the start checks
//! the parent's id.
//!
//! The stages are `setpriv` and `sh`, because the workspace forbids `unsafe`, which `pre_exec`
//! needs. Both call exec, so the program keeps the child's process id. The stages take 3.6 ms
//! before the program starts (measured on two busy cores).

use std::ffi::OsString;
use std::fs::OpenOptions;
use std::io::{self, Write as _};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, OnceLock, mpsc};
use std::time::{Duration, Instant};

use rustix::io::retry_on_intr;
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process, waitid};

use crate::Failure;

const POLL: Duration = Duration::from_millis(1);

/// Determines when the process ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lifetime {
    /// The process ends with its starter, by SIGKILL from the kernel.
    OfStarter,
    /// The process does not end automatically. The process runs in a separate session, so that a
    /// terminal's hangup and Ctrl-C do not reach it.
    Detached,
}

/// A process to be started.
#[derive(Debug, Clone)]
pub struct Launch {
    program: PathBuf,
    arguments: Vec<OsString>,
    environment: Vec<(String, OsString)>,
    stderr: Option<PathBuf>,
    lifetime: Lifetime,
    namespace: Option<String>,
}

impl Launch {
    /// Prepares to start `program` with only PATH in its environment, and with standard input,
    /// output and error on /dev/null.
    pub fn new(program: impl Into<PathBuf>) -> Self {
        Self {
            program: program.into(),
            arguments: Vec::new(),
            environment: Vec::new(),
            stderr: None,
            lifetime: Lifetime::OfStarter,
            namespace: None,
        }
    }

    /// Sets the network namespace, which `ip netns add` has created.
    pub fn inside(mut self, namespace: impl Into<String>) -> Self {
        self.namespace = Some(namespace.into());
        self
    }

    /// Appends one argument.
    pub fn argument(mut self, argument: impl Into<OsString>) -> Self {
        self.arguments.push(argument.into());
        self
    }

    /// Appends arguments.
    pub fn arguments<A: Into<OsString>>(mut self, arguments: impl IntoIterator<Item = A>) -> Self {
        self.arguments.extend(arguments.into_iter().map(Into::into));
        self
    }

    /// Sets one environment variable.
    pub fn env(mut self, name: impl Into<String>, value: impl Into<OsString>) -> Self {
        self.environment.push((name.into(), value.into()));
        self
    }

    /// Sets environment variables.
    pub fn envs(
        self,
        variables: impl IntoIterator<Item = (impl Into<String>, impl Into<OsString>)>,
    ) -> Self {
        let set = |launch: Self, (name, value)| launch.env(name, value);
        variables.into_iter().fold(self, set)
    }

    /// Appends standard error to a file. Unlike a pipe, a file never blocks the writer, and
    /// outlives both sides.
    pub fn stderr(mut self, path: impl Into<PathBuf>) -> Self {
        self.stderr = Some(path.into());
        self
    }

    /// Sets the lifetime of the process.
    pub fn lifetime(mut self, lifetime: Lifetime) -> Self {
        self.lifetime = lifetime;
        self
    }

    /// Starts the process.
    ///
    /// # Errors
    /// If the process cannot be started. The error names the package to install if a stage is
    /// missing.
    pub fn start(&self) -> Result<Process, Failure> {
        let child = spawn(self.command()?).map_err(|error| {
            Failure::new(format!("cannot start {}: {error}", self.program.display()))
        })?;
        let raw = i32::try_from(child.id()).expect("a process id fits in an i32");
        let pid = Pid::from_raw(raw).expect("a child's process id is not 0");
        let fakes_time = self
            .environment
            .iter()
            .any(|(name, _)| name == "LD_PRELOAD");
        Ok(Process {
            pid,
            fakes_time,
            stays: AtomicBool::new(false),
            child: Mutex::new(child),
        })
    }

    fn command(&self) -> Result<Command, Failure> {
        let mut command = match self.lifetime {
            Lifetime::OfStarter => {
                let mut command = Command::new(stage("setpriv")?);
                command.args(["--pdeathsig", "KILL", "--", "/bin/sh", "-c"]);
                command.arg(r#"[ "$PPID" = "$0" ] && exec "$@""#);
                command.arg(std::process::id().to_string());
                // Ctrl-C must reach only the test, which then cleans up.
                command.process_group(0);
                command
            }
            // setsid forks if it is a process group leader, so this branch creates no process
            // group.
            Lifetime::Detached => Command::new(stage("setsid")?),
        };
        // `env` follows these stages. Otherwise, a preloaded library would be loaded into the
        // stages, and variables that a shell exports would reach the program.
        command.args(["/usr/bin/env", "-i"]);
        let path = std::env::var_os("PATH").unwrap_or_else(|| "/usr/bin:/bin".into());
        for (name, value) in std::iter::once((&"PATH".to_owned(), &path))
            .chain(self.environment.iter().map(|(n, v)| (n, v)))
        {
            let mut assignment = OsString::from(name);
            assignment.push("=");
            assignment.push(value);
            command.arg(assignment);
        }
        if let Some(namespace) = &self.namespace {
            // nsenter does not fork for a network namespace, so the program keeps the process id.
            command.arg(stage("nsenter")?);
            command.arg(format!("--net=/run/netns/{namespace}"));
        }
        command.arg(&self.program).args(&self.arguments);
        command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        if let Some(path) = &self.stderr {
            let file = OpenOptions::new().create(true).append(true).open(path);
            command.stderr(file.map_err(|error| {
                Failure::new(format!("cannot write {}: {error}", path.display()))
            })?);
        }
        Ok(command)
    }
}

/// A running child process. Dropping it kills the process (SIGKILL), unless
/// [`leave_up`](Self::leave_up) was called.
#[derive(Debug)]
pub struct Process {
    pid: Pid,
    fakes_time: bool,
    stays: AtomicBool,
    child: Mutex<Child>,
}

impl Process {
    /// Returns the process id.
    pub fn pid(&self) -> u32 {
        self.pid.as_raw_nonzero().get().unsigned_abs()
    }

    /// Sends a signal, unless the process has exited. The kernel does not reuse the process id
    /// until this module has reaped the process.
    pub fn signal(&self, signal: Signal) {
        let mut child = self.child.lock().expect("no holder of this lock panics");
        if matches!(child.try_wait(), Ok(None)) {
            // The process may exit between the check and the signal, but its id is not reused yet.
            let _ = kill_process(self.pid, signal);
        }
    }

    /// Sends SIGSTOP and waits until every thread has stopped. On busy cores, a running thread
    /// could otherwise answer a request after the signal was sent.
    pub fn stop(&self) {
        let mut child = self.child.lock().expect("no holder of this lock panics");
        if matches!(child.try_wait(), Ok(None)) {
            let _ = kill_process(self.pid, Signal::STOP);
            // NOWAIT checks the child without reaping it.
            let look = WaitIdOptions::STOPPED | WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
            let stopped = retry_on_intr(|| waitid(WaitId::Pid(self.pid), look));
            stopped.expect("waitid succeeds for a child that has not been reaped");
        }
    }

    /// Kills the process (SIGKILL) and waits until it has exited. Also works on a stopped process.
    pub fn kill(&self) {
        let mut child = self.child.lock().expect("no holder of this lock panics");
        let _ = child.kill();
        let _ = child.wait();
        drop(child);
        self.clear_fake_time();
    }

    /// Leaves the process running when this value is dropped. A process started as
    /// [`Lifetime::Detached`] also outlives this process.
    pub fn leave_up(&self) {
        self.stays.store(true, Ordering::Relaxed);
    }

    /// Returns the exit status; `None` while the process is running.
    pub fn exit_status(&self) -> Option<ExitStatus> {
        let mut child = self.child.lock().expect("no holder of this lock panics");
        child.try_wait().expect("wait for a child")
    }

    /// Waits for the exit; `None` if the process is still running after `deadline`.
    pub async fn wait(&self, deadline: Duration) -> Option<ExitStatus> {
        let end = Instant::now() + deadline;
        loop {
            if let Some(status) = self.exit_status() {
                self.clear_fake_time();
                return Some(status);
            }
            if Instant::now() > end {
                return None;
            }
            // Poll, because waiting on a pidfd would need tokio's AsyncFd and therefore unsafe
            // code.
            tokio::time::sleep(POLL).await;
        }
    }

    /// Removes the two files that libfaketime leaves in shared memory for every process.
    fn clear_fake_time(&self) {
        if self.fakes_time {
            for name in ["faketime_shm", "sem.faketime_sem"] {
                let _ = std::fs::remove_file(format!("/dev/shm/{name}_{}", self.pid()));
            }
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if !self.stays.load(Ordering::Relaxed) {
            self.kill();
        }
    }
}

/// Returns the exit code as a shell reports it: 128 + n after signal n.
pub fn exit_code(status: ExitStatus) -> i32 {
    status
        .code()
        .unwrap_or_else(|| 128 + status.signal().unwrap_or(0))
}

/// Writes a program that can be executed immediately.
///
/// A separate process writes the file, because a file that is open for writing cannot be executed.
/// If this process opened the file, children that other threads fork would inherit the descriptor
/// until they execute their programs.
///
/// # Panics
/// If the file cannot be written.
pub fn write_program(path: &Path, text: &str) {
    let mut writer = Command::new("/bin/sh")
        .args(["-c", r#"umask 077 && cat > "$0" && chmod 700 "$0""#])
        .arg(path)
        .stdin(Stdio::piped())
        .spawn()
        .expect("start a shell");
    let mut input = writer.stdin.take().expect("the shell's input is a pipe");
    input
        .write_all(text.as_bytes())
        .expect("the shell reads its whole input");
    drop(input);
    let written = writer.wait().expect("wait for the shell");
    assert!(written.success(), "cannot write {}", path.display());
}

fn stage(name: &str) -> Result<PathBuf, Failure> {
    let found = ["/usr/bin", "/bin", "/usr/sbin", "/sbin"]
        .iter()
        .map(|directory| Path::new(directory).join(name))
        .find(|path| path.exists());
    found.ok_or_else(|| {
        Failure::new(format!(
            "{name} is missing; on Debian: apt-get install -y util-linux"
        ))
    })
}

type Reply = mpsc::SyncSender<io::Result<Child>>;

/// Starts `command` from the thread that lives as long as this process; see the module
/// documentation.
fn spawn(command: Command) -> io::Result<Child> {
    static SPAWNER: OnceLock<mpsc::Sender<(Command, Reply)>> = OnceLock::new();
    let spawner = SPAWNER.get_or_init(|| {
        let (sender, requests) = mpsc::channel::<(Command, Reply)>();
        std::thread::Builder::new()
            .name("testbed-spawner".to_owned())
            .spawn(move || {
                for (mut command, reply) in requests {
                    let _ = reply.send(command.spawn());
                }
            })
            .expect("start a thread");
        sender
    });
    let (reply, answer) = mpsc::sync_channel(1);
    spawner
        .send((command, reply))
        .expect("the spawner never ends");
    answer.recv().expect("the spawner answers every request")
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONG: Duration = Duration::from_secs(10);

    #[tokio::test]
    async fn the_environment_is_clean_and_stderr_is_kept() {
        let directory = tempfile::tempdir().unwrap();
        let log = directory.path().join("log");
        let process = Launch::new("/bin/sh")
            .arguments(["-c", "/usr/bin/env >&2; exit 7"])
            .env("ONE", "two words")
            .stderr(&log)
            .start()
            .unwrap();
        assert_eq!(process.wait(LONG).await.map(exit_code), Some(7));
        let log = std::fs::read_to_string(log).unwrap();
        assert!(
            log.contains("ONE=two words\n") && log.contains("PATH="),
            "{log}"
        );
        assert!(!log.contains("CARGO"), "{log}");
    }

    #[tokio::test]
    async fn a_stopped_process_is_killed_by_drop() {
        let process = Launch::new("/bin/sleep").argument("1000").start().unwrap();
        let pid = process.pid();
        process.stop();
        let state = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
        assert!(state.contains(") T "), "{state}");
        drop(process);
        assert!(!Path::new(&format!("/proc/{pid}")).exists());
    }

    #[tokio::test]
    async fn a_process_is_stopped_again_after_it_continued_and_not_awaited_after_its_exit() {
        let process = Launch::new("/bin/sleep").argument("1000").start().unwrap();
        for _ in 0..2 {
            process.stop();
            process.signal(Signal::CONT);
        }
        process.signal(Signal::TERM);
        assert_eq!(process.wait(LONG).await.map(exit_code), Some(143));
        process.stop();
    }

    #[tokio::test]
    async fn a_signal_becomes_exit_code_128_plus_n() {
        let process = Launch::new("/bin/sleep").argument("1000").start().unwrap();
        process.signal(Signal::TERM);
        assert_eq!(process.wait(LONG).await.map(exit_code), Some(143));
    }
}
