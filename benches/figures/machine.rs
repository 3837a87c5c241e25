//! The machine and settings of a measurement, without which the figures mean little.

use std::fs;
use std::process::Command;

use leasehold_testbed::{Scratch, mongod_binary};

use crate::launch::Setup;

/// Returns a few lines about the machine and the settings.
pub(crate) fn describe(setup: &Setup) -> String {
    let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
    let field = |text: &str, name: &str| {
        let line = text.lines().find(|line| line.starts_with(name));
        let value = line.and_then(|line| line.split_once(':'));
        value.map_or("unknown".to_owned(), |(_, value)| value.trim().to_owned())
    };
    let cpu = field(&read("/proc/cpuinfo"), "model name");
    let cores = std::thread::available_parallelism().map_or(0, usize::from);
    let memory = field(&read("/proc/meminfo"), "MemTotal");
    let kernel = read("/proc/sys/kernel/osrelease");
    let load = read("/proc/loadavg");
    let load: Vec<_> = load.split(' ').take(3).collect();
    let scratch = Scratch::new();
    let place = if scratch.path().starts_with("/dev/shm") {
        "in memory (/dev/shm)"
    } else {
        "on disk"
    };
    let sizes = if setup.quick {
        "--quick: fewer samples"
    } else {
        "full"
    };
    format!(
        "machine   {cpu}, {cores} cores, memory {memory}, Linux {}\n\
         load      {} before the start (1, 5, 15 min)\n\
         store     {}, three members on 127.0.0.1, their data {place}, TLS off\n\
         settings  status directories {place}; timings and heartbeat are the defaults (24s/18s/3s, 10s) \
         unless a row says otherwise; {sizes}\n",
        kernel.trim(),
        load.join(" "),
        mongod_version(),
    )
}

fn mongod_version() -> String {
    let output = mongod_binary().ok().and_then(|path| {
        let version = Command::new(path).arg("--version").output();
        version.ok()
    });
    let text = output.map(|output| String::from_utf8_lossy(&output.stdout).into_owned());
    let first = text.as_deref().and_then(|text| text.lines().next());
    first.map_or("no mongod".to_owned(), |line| {
        line.replace("db version v", "mongod ")
    })
}
