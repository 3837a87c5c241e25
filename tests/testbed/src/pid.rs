//! Signals and inspects processes by id.

use std::path::Path;

use rustix::process::{Pid, Signal, kill_process};

/// Sends a signal.
///
/// # Panics
/// If there is no such process.
pub fn signal(pid: u32, signal: Signal) {
    let number = i32::try_from(pid).expect("a process id");
    let process = Pid::from_raw(number).expect("a process id");
    kill_process(process, signal).unwrap_or_else(|error| panic!("process {pid}: {error}"));
}

/// Sends a signal to a process that may have ended.
pub fn signal_if_there(pid: u32, signal: Signal) {
    if let Some(process) = i32::try_from(pid).ok().and_then(Pid::from_raw) {
        let _ = kill_process(process, signal);
    }
}

/// Returns true if a process exists, even as a zombie.
pub fn exists(pid: u32) -> bool {
    Path::new(&format!("/proc/{pid}")).exists()
}

/// Returns true if a process exists and has not exited. An orphan stays a zombie until its new
/// parent waits for it, which never happens in a container without an init.
pub fn is_alive(pid: u32) -> bool {
    state(pid).is_some_and(|state| state != 'Z')
}

/// Returns the state of a process, as `ps` shows it.
pub fn state(pid: u32) -> Option<char> {
    stat(pid)?.first()?.chars().next()
}

/// Returns the parent of a process.
///
/// # Panics
/// If there is no such process.
pub fn parent(pid: u32) -> u32 {
    let fields = stat(pid).unwrap_or_else(|| panic!("process {pid} has ended"));
    fields[1].parse().expect("the parent's id")
}

/// Returns the children of all threads of a process.
pub fn children(pid: u32) -> Vec<u32> {
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task"));
    let tasks = tasks.into_iter().flatten().flatten();
    let children = tasks.map(|task| std::fs::read_to_string(task.path().join("children")));
    let children: String = children.map(Result::unwrap_or_default).collect();
    let pids = children.split_whitespace();
    pids.map(|pid| pid.parse().expect("a child's id")).collect()
}

/// Returns the live processes that were started with an environment variable whose value is a path
/// below a directory.
pub fn with_variable(name: &str, directory: &Path) -> Vec<u32> {
    let assignment = format!("{name}={}", directory.display());
    let has_variable = |pid: &u32| {
        let environment = std::fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
        let mut variables = environment.split(|byte| *byte == 0);
        variables.any(|variable| variable.starts_with(assignment.as_bytes()))
    };
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    pids.filter(has_variable)
        .filter(|pid| is_alive(*pid))
        .collect()
}

/// Returns the fields of /proc/pid/stat after the process's name, which may contain any character.
/// The first of these fields is the state.
fn stat(pid: u32) -> Option<Vec<String>> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let (_, fields) = stat.rsplit_once(") ")?;
    Some(fields.split_whitespace().map(str::to_owned).collect())
}
