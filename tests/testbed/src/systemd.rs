//! A real systemd as process 1 of namespaces of its own, for tests of units.
//!
//! systemd runs on a copy-on-write view of this machine's root, with only the units that a test
//! installs, and shares this machine's network. The user must be root.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::{Duration, Instant};

use crate::{Failure, Launch, Process, Scratch, pid, wait};

const PROGRAM: &str = "/usr/lib/systemd/systemd";
/// Mount points of cgroup version 2, with and without version 1 on the same machine.
const CGROUP_ROOTS: [&str; 2] = ["/sys/fs/cgroup/unified", "/sys/fs/cgroup"];
const BOOT: &str = include_str!("systemd/boot.sh");
/// Time that the kernel takes to end all processes on a busy machine.
const ENDED_WITHIN: Duration = Duration::from_secs(10);
const POLL: Duration = Duration::from_millis(5);

/// A running systemd. Dropping it kills all of its processes; the kernel then removes the mounts.
#[derive(Debug)]
pub struct Systemd {
    process: Process,
    init: u32,
    log: PathBuf,
    // Dropped after the processes are killed.
    _cgroup: Group,
    _scratch: Scratch,
}

impl Systemd {
    /// Boots systemd, with `program` as `/usr/bin/leasehold`.
    ///
    /// # Errors
    /// If systemd is not installed, or if the namespaces cannot be created; this needs root.
    pub async fn boot(program: &Path) -> Result<Self, Failure> {
        if !Path::new(PROGRAM).exists() {
            let remedy = "on Debian: apt-get install -y --no-install-recommends systemd";
            return Err(Failure::new(format!("{PROGRAM} is missing; {remedy}")));
        }
        let (scratch, cgroup) = (Scratch::new(), Group::new()?);
        let log = scratch.path().join("log");
        let root = scratch.path().join("mounted");
        fs::create_dir(&root).unwrap();
        let process = Launch::new("/bin/sh")
            .arguments(["-c", BOOT, BOOT])
            .argument(&cgroup.path)
            .arguments([&root, program])
            .stderr(&log)
            .start()?;
        let mut systemd = Self {
            process,
            init: 0,
            log,
            _cgroup: cgroup,
            _scratch: scratch,
        };
        let mut booted = false;
        wait::eventually("systemd boots", async || {
            let init = pid::children(systemd.process.pid()).first().copied();
            systemd.init = init.unwrap_or_default();
            booted = init.is_some() && systemd.path("/run/systemd/private").exists();
            booted || systemd.process.exit_status().is_some()
        })
        .await;
        if booted {
            return Ok(systemd);
        }
        let log = fs::read_to_string(&systemd.log).unwrap_or_default();
        Err(Failure::new(format!("systemd does not boot: {log}")))
    }

    /// Returns the path of a file of the booted system, as this process sees it.
    pub fn path(&self, path: &str) -> PathBuf {
        PathBuf::from(format!("/proc/{}/root{path}", self.init))
    }

    /// Writes a file with these permissions, and its parent directories.
    ///
    /// # Panics
    /// If the file cannot be written.
    pub fn write(&self, path: &str, mode: u32, text: impl AsRef<[u8]>) {
        use std::os::unix::fs::PermissionsExt;
        let path = self.path(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, text).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
    }

    /// Runs a command in the booted system. Returns its standard output.
    ///
    /// # Panics
    /// If the command fails.
    pub fn run(&self, command: &[&str]) -> String {
        let Output {
            status,
            stdout,
            stderr,
        } = Command::new("nsenter")
            .args(["--target", &self.init.to_string()])
            .args(["--mount", "--pid", "--ipc", "--uts", "--"])
            .args(command)
            .output()
            .unwrap();
        let [stdout, stderr] = [stdout, stderr].map(|text| String::from_utf8(text).unwrap());
        assert!(
            status.success(),
            "{command:?}: {stdout}{stderr}\n{}",
            self.journal()
        );
        stdout
    }

    /// Runs systemctl.
    ///
    /// # Panics
    /// If systemctl fails.
    pub fn systemctl(&self, arguments: &[&str]) {
        self.run(&[&["systemctl"], arguments].concat());
    }

    /// Returns a property of a unit.
    ///
    /// # Panics
    /// If systemctl fails.
    pub fn property(&self, unit: &str, property: &str) -> String {
        let shown = self.run(&["systemctl", "show", "--value", "--property", property, unit]);
        shown.trim_end().to_owned()
    }

    /// Returns the journal.
    ///
    /// # Panics
    /// If journalctl cannot be started.
    pub fn journal(&self) -> String {
        let output = Command::new("nsenter")
            .args(["--target", &self.init.to_string(), "--mount", "--"])
            .args(["journalctl", "--no-pager", "--output=cat"])
            .output()
            .unwrap();
        String::from_utf8_lossy(&output.stdout).into_owned()
    }
}

impl Drop for Systemd {
    #[allow(clippy::print_stderr, reason = "the output of a failed test")]
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("-- journal of systemd:\n{}", self.journal());
        }
        // The kernel kills the other processes of the PID namespace with process 1.
        pid::signal_if_there(self.init, rustix::process::Signal::KILL);
        self.process.kill();
    }
}

/// A control group for systemd and all its processes. systemd creates its own groups below this one.
#[derive(Debug)]
struct Group {
    path: PathBuf,
}

impl Group {
    fn new() -> Result<Self, Failure> {
        let name = format!("leasehold-testbed-{}-systemd", std::process::id());
        let mut roots = CGROUP_ROOTS.map(Path::new).into_iter();
        let root = roots.find(|root| root.join("cgroup.controllers").exists());
        let root = root.ok_or_else(|| Failure::new("needs cgroup version 2"))?;
        let path = tempfile::Builder::new().prefix(&name).tempdir_in(root);
        let path = path.map_err(|error| Failure::new(format!("needs root: {error}")))?;
        Ok(Self { path: path.keep() })
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        let end = Instant::now() + ENDED_WITHIN;
        // A group can be removed once its processes have ended.
        while !remove(&self.path) && Instant::now() < end {
            std::thread::sleep(POLL);
        }
    }
}

fn remove(group: &Path) -> bool {
    let below = fs::read_dir(group).into_iter().flatten().flatten();
    for entry in below {
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            remove(&entry.path());
        }
    }
    fs::remove_dir(group).is_ok()
}
