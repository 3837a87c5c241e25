//! What a process uses, as the kernel counts it.

use std::fs;

/// What a process holds at this instant.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Memory {
    /// Resident, in bytes, with the pages of the program's file.
    pub(crate) rss: f64,
    /// Of these, what is its own and in no file.
    pub(crate) rss_anon: f64,
    /// Proportional: shared pages are divided among those who share them.
    pub(crate) pss: f64,
    /// What no other process maps, clean or written to: what ends with it.
    pub(crate) private: f64,
    /// How many threads it has.
    pub(crate) threads: f64,
}

impl Memory {
    /// Of the process `pid`.
    pub(crate) fn of(pid: u32) -> Self {
        let status = read(&format!("/proc/{pid}/status"));
        let rollup = read(&format!("/proc/{pid}/smaps_rollup"));
        Self {
            rss: number(&status, "VmRSS:") * 1024.0,
            rss_anon: number(&status, "RssAnon:") * 1024.0,
            pss: number(&rollup, "Pss:") * 1024.0,
            private: (number(&rollup, "Private_Clean:") + number(&rollup, "Private_Dirty:"))
                * 1024.0,
            threads: number(&status, "Threads:"),
        }
    }
}

/// The guard of a daemon's command.
///
/// # Panics
/// When the daemon has none.
pub(crate) fn guard_of(daemon: u32) -> u32 {
    let children = children_of(daemon);
    let is_guard = |pid: &u32| read(&format!("/proc/{pid}/cmdline")).contains("__guard");
    let guard = children.iter().copied().find(is_guard);
    guard.unwrap_or_else(|| panic!("no guard among {children:?}"))
}

/// The children of a process that runs.
pub(crate) fn children_of(pid: u32) -> Vec<u32> {
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).expect("the process runs");
    let children = tasks
        .flatten()
        .map(|task| read(&format!("{}/children", task.path().display())));
    children
        .flat_map(|text| text.split_whitespace().map(str::parse).collect::<Vec<_>>())
        .map(|pid| pid.expect("a process id"))
        .collect()
}

/// What a process has used since its start.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Work {
    /// On a CPU, in seconds.
    pub(crate) cpu: f64,
    /// How often a thread of it went to sleep, which is how often it woke.
    pub(crate) wakeups: f64,
}

impl Work {
    /// Of the process `pid`, over its threads. utime and stime count whole
    /// ticks of 10 ms; the scheduler counts nanoseconds.
    pub(crate) fn of(pid: u32) -> Self {
        let tasks = fs::read_dir(format!("/proc/{pid}/task")).expect("the process runs");
        let mut work = Self {
            cpu: 0.0,
            wakeups: 0.0,
        };
        for task in tasks.flatten() {
            let path = task.path();
            let times = read(&format!("{}/schedstat", path.display()));
            let on_cpu = times.split(' ').next().and_then(|nanos| nanos.parse().ok());
            work.cpu += on_cpu.unwrap_or(0.0) / 1e9;
            let status = read(&format!("{}/status", path.display()));
            work.wakeups += number(&status, "voluntary_ctxt_switches:");
        }
        work
    }
}

fn read(path: &str) -> String {
    fs::read_to_string(path).unwrap_or_else(|error| panic!("{path}: {error}"))
}

fn number(text: &str, name: &str) -> f64 {
    let line = text.lines().find_map(|line| line.strip_prefix(name));
    let value = line.and_then(|line| line.split_whitespace().next());
    let parsed = value.and_then(|value| value.parse().ok());
    parsed.unwrap_or_else(|| panic!("no {name} in:\n{text}"))
}
