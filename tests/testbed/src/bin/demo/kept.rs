//! Records the processes that a demonstration leaves running, so that `demo stop` can end them.
//!
//! The file has a line for each process, with its id and its start time in clock ticks, and a line
//! for each directory. Together, id and start time identify a process until the machine restarts.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

/// Maximum wait after SIGTERM. mongod takes 0.2 s; a daemon waits for its handoff delay.
const END_MAX: Duration = Duration::from_secs(10);

/// Returns the path of the file. The file is next to the binaries, so `cargo clean` removes it too.
pub(crate) fn file() -> PathBuf {
    let program = std::env::current_exe().unwrap_or_default();
    program.parent().unwrap_or(Path::new(".")).join("demo.kept")
}

pub(crate) fn note(pids: &[u32], directories: &[PathBuf]) -> std::io::Result<()> {
    let mut text = String::new();
    for pid in pids {
        if let Some(start) = start_time(*pid) {
            text += &format!("process {pid} {start}\n");
        }
    }
    for directory in directories {
        text += &format!("directory {}\n", directory.display());
    }
    std::fs::write(file(), text)
}

pub(crate) fn any_runs() -> bool {
    processes(&read()).iter().any(|process| process.runs())
}

/// Ends the recorded processes that are still running, and removes the directories. Returns the
/// number of ended processes.
pub(crate) fn end() -> usize {
    let text = read();
    let processes: Vec<_> = processes(&text).into_iter().filter(Noted::runs).collect();
    for process in &processes {
        process.signal(Signal::TERM);
    }
    let end = Instant::now() + END_MAX;
    while processes.iter().any(Noted::runs) && Instant::now() < end {
        std::thread::sleep(Duration::from_millis(10));
    }
    for process in &processes {
        if process.runs() {
            process.signal(Signal::KILL);
        }
    }
    for directory in text
        .lines()
        .filter_map(|line| line.strip_prefix("directory "))
    {
        // Remove only testbed directories, because a user may have edited the file.
        if directory.contains("/leasehold-testbed-") {
            let _ = std::fs::remove_dir_all(directory);
        }
    }
    let _ = std::fs::remove_file(file());
    processes.len()
}

struct Noted {
    pid: u32,
    start: String,
}

impl Noted {
    /// True if the process is running. Another process may have reused the id, but then the start
    /// time differs.
    fn runs(&self) -> bool {
        start_time(self.pid).as_ref() == Some(&self.start)
    }

    fn signal(&self, signal: Signal) {
        let pid = i32::try_from(self.pid).ok().and_then(Pid::from_raw);
        if let Some(pid) = pid {
            let _ = kill_process(pid, signal);
        }
    }
}

fn read() -> String {
    std::fs::read_to_string(file()).unwrap_or_default()
}

fn processes(text: &str) -> Vec<Noted> {
    let lines = text
        .lines()
        .filter_map(|line| line.strip_prefix("process "));
    let parse = |line: &str| {
        let (pid, start) = line.split_once(' ')?;
        Some(Noted {
            pid: pid.parse().ok()?,
            start: start.to_owned(),
        })
    };
    lines.filter_map(parse).collect()
}

/// Returns field 22 of /proc/PID/stat, or `None` if the process has exited or is a zombie.
fn start_time(pid: u32) -> Option<String> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name in parentheses may contain any character, so start after it.
    let rest = stat.rsplit_once(") ")?.1;
    let mut fields = rest.split(' ');
    if fields.next() == Some("Z") {
        return None;
    }
    fields.nth(18).map(str::to_owned)
}
