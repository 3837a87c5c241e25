//! Reads from the kernel which resources a process uses.

use std::fs;

#[derive(Debug, Clone, Copy)]
pub(crate) struct Memory {
    /// Resident memory in bytes, including pages of the program's file.
    pub(crate) rss: f64,
    /// Resident anonymous memory, in bytes.
    pub(crate) rss_anon: f64,
    /// Proportional set size, which divides shared pages among the processes that share them.
    pub(crate) pss: f64,
    /// Private memory, clean and dirty: pages that no other process maps.
    pub(crate) private: f64,
    pub(crate) threads: f64,
}

impl Memory {
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

/// Returns the guard of a daemon's command. Panics if the daemon has no guard.
pub(crate) fn guard_of(daemon: u32) -> u32 {
    let children = children_of(daemon);
    let is_guard = |pid: &u32| read(&format!("/proc/{pid}/cmdline")).contains("__guard");
    let guard = children.iter().copied().find(is_guard);
    guard.unwrap_or_else(|| panic!("no guard among {children:?}"))
}

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

#[derive(Debug, Clone, Copy)]
pub(crate) struct Work {
    /// CPU time in seconds.
    pub(crate) cpu: f64,
    /// Number of times that a thread went to sleep, which equals the number of wakeups.
    pub(crate) wakeups: f64,
    /// Voluntary and involuntary context switches.
    pub(crate) switches: f64,
}

impl Work {
    /// Returns the sum over all threads. Uses the scheduler's nanoseconds, because utime and stime
    /// count only whole ticks of 10 ms.
    pub(crate) fn of(pid: u32) -> Self {
        let tasks = fs::read_dir(format!("/proc/{pid}/task")).expect("the process runs");
        let mut work = Self {
            cpu: 0.0,
            wakeups: 0.0,
            switches: 0.0,
        };
        for task in tasks.flatten() {
            let path = task.path();
            let times = read(&format!("{}/schedstat", path.display()));
            let on_cpu = times.split(' ').next().and_then(|nanos| nanos.parse().ok());
            work.cpu += on_cpu.unwrap_or(0.0) / 1e9;
            let status = read(&format!("{}/status", path.display()));
            let slept = number(&status, "voluntary_ctxt_switches:");
            work.wakeups += slept;
            work.switches += slept + number(&status, "nonvoluntary_ctxt_switches:");
        }
        work
    }
}

/// Returns CPU time in seconds since the process started, in whole ticks of 10 ms. Includes threads
/// that have ended.
pub(crate) fn cpu_of_all(pid: u32) -> f64 {
    let stat = read(&format!("/proc/{pid}/stat"));
    // The name is in parentheses and may contain spaces.
    let (_, fields) = stat.rsplit_once(") ").expect("a name");
    let ticks = fields.split(' ').skip(11).take(2).map(|ticks| {
        let ticks = ticks.parse::<f64>();
        ticks.expect("a number of ticks")
    });
    ticks.sum::<f64>() / 100.0
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
