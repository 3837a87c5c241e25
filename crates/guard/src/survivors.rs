//! Checks in /proc whether a process of a command may still run after its daemon and guard were
//! killed. The answer is yes if /proc hides processes, or if ids are from another namespace.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{self, Read};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use rustix::process::geteuid;

/// A process identity that distinguishes the process from a later process that reuses its id.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ProcessId {
    /// The process id.
    pub pid: i32,
    /// Start time, in clock ticks since boot.
    pub started: u64,
    /// The inode of the PID namespace that the process id belongs to; 0 if unknown.
    pub pid_namespace: u64,
    /// The inode of the time namespace that the start time belongs to; 0 if the kernel has none.
    pub time_namespace: u64,
    /// The session, if it is the parent's own; 0 otherwise. The session of a terminal also contains
    /// unrelated processes.
    pub session: i32,
}

impl ProcessId {
    /// Identifies a process. If the process is not in /proc now, its end can never be confirmed.
    pub fn of(pid: i32) -> Self {
        let stat = Stat::of(pid).ok().flatten();
        let session = stat.filter(|stat| stat.session == stat.parent);
        Self {
            pid,
            started: stat.map_or(0, |stat| stat.started),
            pid_namespace: stat.map_or(0, |_| namespace("pid")),
            time_namespace: namespace("time"),
            session: session.map_or(0, |stat| stat.session),
        }
    }
}

pub(super) fn namespace(kind: &str) -> u64 {
    fs::metadata(Path::new("/proc/self/ns").join(kind)).map_or(0, |found| found.ino())
}

/// Returns true if one of these may run: `leader`, a process of its group or session, or a process
/// whose environment contains a variable (`NAME=VALUE`) that `mark` accepts.
pub fn may_run(leader: &ProcessId, mark: impl Fn(&[u8]) -> bool) -> bool {
    let here = leader.pid_namespace != 0
        && leader.pid_namespace == namespace("pid")
        && leader.time_namespace == namespace("time");
    // The mount option hidepid also hides process 1.
    let sees_all = || matches!(Stat::of(1), Ok(Some(_)));
    if !here || !sees_all() {
        return true;
    }
    match Stat::of(leader.pid) {
        Err(_) => return true,
        Ok(Some(stat)) if stat.started == leader.started && stat.runs => return true,
        Ok(_) => {}
    }
    let Ok(processes) = fs::read_dir("/proc") else {
        return true;
    };
    let own = std::process::id().cast_signed();
    let mut buffer = Vec::new();
    for entry in processes {
        let Ok(entry) = entry else { return true };
        let name = entry.file_name();
        let number = name.to_str().and_then(|name| name.parse().ok());
        let Some(pid) = number.filter(|pid| *pid != own) else {
            continue;
        };
        match Stat::of(pid) {
            Err(_) => return true,
            Ok(Some(stat)) if stat.runs && stat.started >= leader.started => {
                let is_in_session = leader.session != 0 && stat.session == leader.session;
                if stat.group == leader.pid
                    || is_in_session
                    || may_be_marked(pid, &stat, &mark, &mut buffer)
                {
                    return true;
                }
            }
            Ok(_) => {}
        }
    }
    false
}

/// Returns true if the environment of the process contains a mark, or cannot be read now. If the
/// kernel hides the environment, the process counts as marked unless it belongs to another user or
/// is leasehold, which hides its own environment.
///
/// During an exec, the environment reads as empty. The stat file shows that an exec is in progress.
fn may_be_marked(
    pid: i32,
    stat: &Stat,
    mark: impl Fn(&[u8]) -> bool,
    buffer: &mut Vec<u8>,
) -> bool {
    for _ in 0..READS_MAX {
        match read_at_once(&format!("/proc/{pid}/environ"), buffer) {
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                return is_of_this_user(pid) && !is_leasehold(pid);
            }
            Err(error) => return !is_gone(&error),
            Ok(environment) if !environment.is_empty() => {
                let mut variables = environment.split(|byte| *byte == 0);
                return variables.any(&mark);
            }
            Ok(_) if stat.is_kernel_thread => return false,
            Ok(_) => {}
        }
        let now = match Stat::of(pid) {
            Ok(Some(now)) => now,
            Ok(None) => return false,
            Err(_) => return true,
        };
        if now.has_no_environment && !now.is_executing {
            return false;
        }
        std::thread::yield_now();
    }
    true
}

/// Returns true if the process was reaped before or during the read of its file.
fn is_gone(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::NotFound || error.raw_os_error() == Some(ESRCH)
}

/// Returns true if the process may belong to this user. Reads the user from the process's status
/// file, because root owns the /proc files of a process that is not dumpable.
fn is_of_this_user(pid: i32) -> bool {
    match fs::read_to_string(format!("/proc/{pid}/status")) {
        Ok(status) => has_user(&status, geteuid().as_raw()),
        Err(error) => !is_gone(&error),
    }
}

/// Returns true if one of the process's user ids (real, effective, saved, file system) is `user`,
/// or if they are missing.
fn has_user(status: &str, user: u32) -> bool {
    let ids = status.lines().find_map(|line| line.strip_prefix("Uid:"));
    let is_user = |id: &str| id.parse() == Ok(user);
    ids.is_none_or(|ids| ids.split_whitespace().any(is_user))
}

/// Returns true if the command line names leasehold, or the program of this process.
fn is_leasehold(pid: i32) -> bool {
    let Ok(words) = fs::read(format!("/proc/{pid}/cmdline")) else {
        return false;
    };
    let program = words.split(|byte| *byte == 0).next().map(OsStr::from_bytes);
    let program = program.and_then(|program| Path::new(program).file_name());
    let own = std::env::args_os().next();
    let own = own.as_deref().and_then(|own| Path::new(own).file_name());
    program.is_some_and(|program| program == "leasehold" || Some(program) == own)
}

/// Reads a file with one system call, because an exec may happen between two calls.
fn read_at_once<'a>(path: &str, buffer: &'a mut Vec<u8>) -> io::Result<&'a [u8]> {
    buffer.resize(buffer.len().max(ENVIRONMENT_USUAL), 0);
    loop {
        let read = File::open(path)?.read(buffer)?;
        if read < buffer.len() {
            return Ok(&buffer[..read]);
        }
        if read >= ENVIRONMENT_MAX {
            return Err(io::ErrorKind::OutOfMemory.into());
        }
        buffer.resize(read * 2, 0);
    }
}

/// Fields of /proc/PID/stat.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stat {
    /// The process id of the parent.
    pub parent: i32,
    /// Start time, in clock ticks since boot.
    pub started: u64,
    runs: bool,
    is_kernel_thread: bool,
    /// True during an exec. `has_no_environment` may then be wrong.
    is_executing: bool,
    has_no_environment: bool,
    group: i32,
    session: i32,
}

impl Stat {
    /// Reads the fields of a process, if it exists. Fails if the process may exist but is
    /// unreadable.
    pub fn of(pid: i32) -> io::Result<Option<Self>> {
        match fs::read(format!("/proc/{pid}/stat")) {
            Ok(text) => Self::parse(&text)
                .map(Some)
                .ok_or_else(|| io::ErrorKind::InvalidData.into()),
            Err(error) if is_gone(&error) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Must not allocate, because the guard calls this function when memory is exhausted.
    pub(super) fn parse(text: &[u8]) -> Option<Self> {
        // The process name before these fields may contain any character, unlike the fields.
        let name_end = text.iter().rposition(|byte| *byte == b')')?;
        let fields = std::str::from_utf8(text.get(name_end + 1..)?).ok()?;
        let field = |index| fields.split_ascii_whitespace().nth(index);
        let threads: u32 = field(17)?.parse().ok()?;
        let flags: u64 = field(6)?.parse().ok()?;
        // A main thread that ended before other threads also shows as a zombie.
        let ended = matches!(field(0)?, "Z" | "X" | "x") && threads <= 1;
        Some(Self {
            parent: field(1)?.parse().ok()?,
            started: field(19)?.parse().ok()?,
            runs: !ended,
            is_kernel_thread: flags & PF_KTHREAD != 0,
            // The code address is 0 until an exec is almost complete. The kernel hides the address
            // from other users.
            is_executing: field(23)? == "0",
            has_no_environment: field(47)? == field(48)?,
            group: field(2)?.parse().ok()?,
            session: field(3)?.parse().ok()?,
        })
    }
}

/// Initial size of the buffer. Most environments are far smaller.
const ENVIRONMENT_USUAL: usize = 64 * 1024;
/// A process with a larger environment counts as possibly marked.
const ENVIRONMENT_MAX: usize = 16 * 1024 * 1024;
/// Maximum number of reads of an environment during an exec, which takes less than 1 ms.
const READS_MAX: usize = 100;
const PF_KTHREAD: u64 = 0x0020_0000;

const ESRCH: i32 = rustix::io::Errno::SRCH.raw_os_error();

#[cfg(test)]
mod tests {
    use std::os::unix::process::CommandExt;
    use std::process::{Child, Command};
    use std::time::Duration;

    use super::*;

    const MARK: &str = "LEASEHOLD_TEST_MARK=survivors";

    struct Sleeper(Child);

    impl Drop for Sleeper {
        fn drop(&mut self) {
            let _ = self.0.kill();
            let _ = self.0.wait();
        }
    }

    /// Waits until [`may_run`] returns false. On a busy machine, a foreign process may count as
    /// marked for a moment during its exec.
    fn is_gone(id: &ProcessId, mark: &str) -> bool {
        let until = leasehold_clock::boot_now() + Duration::from_secs(30);
        while may_run(id, |variable| variable == mark.as_bytes()) {
            if leasehold_clock::boot_now() > until {
                return false;
            }
            std::thread::yield_now();
        }
        true
    }

    fn sleeper(command: &mut Command) -> (Sleeper, ProcessId) {
        started(command.arg("600"))
    }

    fn started(command: &mut Command) -> (Sleeper, ProcessId) {
        let child = command.spawn().expect("the program is installed");
        let id = ProcessId::of(i32::try_from(child.id()).expect("a process id"));
        (Sleeper(child), id)
    }

    #[test]
    fn a_process_may_run_until_it_is_gone_and_a_zombie_is() {
        let (Sleeper(ref mut child), id) = sleeper(&mut Command::new("sleep"));
        assert!(may_run(&id, |variable| variable == MARK.as_bytes()));
        child.kill().expect("the process is our child");
        // The child stays a zombie until it is reaped.
        let ended = rustix::process::WaitIdOptions::EXITED | rustix::process::WaitIdOptions::NOWAIT;
        let pid = rustix::process::Pid::from_child(child);
        rustix::process::waitid(rustix::process::WaitId::Pid(pid), ended)
            .expect("the process is our child");
        assert!(is_gone(&id, MARK));
        child.wait().expect("the process is our child");
        assert!(is_gone(&id, MARK));
    }

    #[test]
    fn a_later_process_of_the_same_number_is_another_one() {
        let (child, id) = sleeper(&mut Command::new("sleep"));
        let before = ProcessId {
            started: id.started - 1,
            ..id
        };
        assert!(is_gone(&before, MARK));
        drop(child);
    }

    #[test]
    fn marked_processes_count_in_every_session() {
        let (leader, id) = sleeper(&mut Command::new("sleep"));
        drop(leader);
        let mark = "LEASEHOLD_TEST_MARK=wherever";
        let (name, value) = mark.split_once('=').expect("a variable");
        let (left, _) = sleeper(Command::new("setsid").arg("sleep").env(name, value));
        assert!(may_run(&id, |variable| variable == mark.as_bytes()));
        assert!(is_gone(&id, MARK));
        drop(left);
        assert!(is_gone(&id, mark));
    }

    #[test]
    fn a_process_of_the_session_counts_without_its_group_and_environment() {
        let (leader, id) = sleeper(Command::new("sleep").process_group(0));
        drop(leader);
        let (_left, left) = sleeper(Command::new("setsid").arg("sleep").env_clear());
        let session = || Stat::of(left.pid).ok().flatten().map(|stat| stat.session);
        let until = leasehold_clock::boot_now() + Duration::from_secs(30);
        while session() != Some(left.pid) {
            assert!(leasehold_clock::boot_now() < until, "no session");
            std::thread::yield_now();
        }
        let session = ProcessId {
            session: left.pid,
            ..id
        };
        assert!(may_run(&session, |variable| variable == MARK.as_bytes()));
        assert!(is_gone(&id, MARK));
    }

    #[test]
    fn only_the_session_of_the_parent_is_recorded() {
        let (_child, id) = sleeper(&mut Command::new("sleep"));
        assert_eq!(id.session, 0, "this process does not lead its session");
        let place = tempfile::tempdir().expect("a directory");
        let mut guard = Command::new("setsid");
        // In the background, a shell replaces standard input, so the child reads descriptor 3.
        let script = "exec 3<&0; cat <&3 & echo $! >child; wait";
        // The child ends when this end of the pipe is closed.
        let (theirs, _ours) = io::pipe().expect("a pipe");
        let guard = guard.current_dir(place.path()).stdin(theirs);
        guard.args(["sh", "-c", script]);
        let (_guard, guard) = started(guard);
        let until = leasehold_clock::boot_now() + Duration::from_secs(30);
        let child = loop {
            let written = fs::read_to_string(place.path().join("child")).unwrap_or_default();
            if let Ok(child) = written.trim().parse() {
                break child;
            }
            assert!(leasehold_clock::boot_now() < until, "no child");
            std::thread::yield_now();
        };
        assert_eq!(ProcessId::of(child).session, guard.pid);
    }

    /// If [`Stat`] ignored `is_executing`, this test would fail within a few hundred checks.
    #[test]
    fn a_marked_process_counts_while_it_executes_another_program() {
        let (leader, id) = sleeper(&mut Command::new("sleep"));
        drop(leader);
        let mark = "LEASEHOLD_TEST_MARK=executes";
        let (name, value) = mark.split_once('=').expect("a variable");
        let again = r#"exec sh -c "$0" "$0""#;
        let mut command = Command::new("setsid");
        let (left, _) = started(command.args(["sh", "-c", again, again]).env(name, value));
        for look in 0..500 {
            assert!(
                may_run(&id, |variable| variable == mark.as_bytes()),
                "look {look}"
            );
        }
        drop(left);
        assert!(is_gone(&id, mark));
    }

    #[test]
    fn the_status_of_a_process_names_its_users() {
        let status = "Name:\tsudo\nUid:\t1000\t0\t0\t0\nGid:\t1000\t0\t0\t0\n";
        for (user, expected) in [(1000, true), (0, true), (100, false), (10000, false)] {
            assert_eq!(has_user(status, user), expected, "{user}");
        }
        assert!(has_user("Name:\tsudo\n", 1000));
    }

    #[test]
    fn a_reader_in_another_namespace_gets_unknown() {
        let (child, id) = sleeper(&mut Command::new("sleep"));
        drop(child);
        assert!(is_gone(&id, MARK));
        for elsewhere in [
            ProcessId {
                pid_namespace: 0,
                ..id
            },
            ProcessId {
                pid_namespace: id.pid_namespace + 1,
                ..id
            },
            ProcessId {
                time_namespace: id.time_namespace + 1,
                ..id
            },
        ] {
            assert!(may_run(&elsewhere, |_| false), "{elsewhere:?}");
        }
    }
}
