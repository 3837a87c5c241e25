//! Describes the machine and the settings of a measurement, for readers who compare figures.

use std::collections::BTreeMap;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

use leasehold_testbed::daemon::boottime_ns;
use leasehold_testbed::{Failure, Scratch, Storage, mongod_binary};

use crate::launch::{Setup, seconds};
use crate::report::Unit;

pub(crate) fn describe(setup: &Setup, disks: &BTreeMap<String, String>) -> String {
    let disks = disks.iter().map(|(name, disk)| format!("{name}: {disk}"));
    let disks: Vec<_> = disks.collect();
    let place = match Scratch::new().path().starts_with("/dev/shm") {
        true => "in memory (/dev/shm)",
        false => "on disk",
    };
    format!(
        "machine   {}\n\
         load      {} before the start (1, 5, 15 min)\n\
         store     mongod {}, three members on 127.0.0.1, TLS off; their data: {}\n\
         settings  status directories {place}; timings and heartbeat are the defaults (24s/18s/3s, 10s) \
         unless a row says otherwise; {}\n",
        machine(),
        load(),
        mongod(),
        disks.join("; "),
        sizes(setup),
    )
}

pub(crate) fn machine() -> String {
    let field = |text: &str, name: &str| {
        let line = text.lines().find(|line| line.starts_with(name));
        let value = line.and_then(|line| line.split_once(':'));
        value.map_or("unknown".to_owned(), |(_, value)| value.trim().to_owned())
    };
    let cpu = field(&read("/proc/cpuinfo"), "model name");
    let cores = std::thread::available_parallelism().map_or(0, usize::from);
    let memory = field(&read("/proc/meminfo"), "MemTotal");
    let kernel = read("/proc/sys/kernel/osrelease");
    let kernel = kernel.trim();
    format!("{cpu}, {cores} cores, memory {memory}, Linux {kernel}")
}

pub(crate) fn load() -> String {
    let load = read("/proc/loadavg");
    let load: Vec<_> = load.split(' ').take(3).collect();
    load.join(" ")
}

pub(crate) fn sizes(setup: &Setup) -> &'static str {
    if setup.quick { "quick" } else { "full" }
}

/// Returns the file system of a storage and the duration of a flush. Fails if the storage does not
/// exist.
pub(crate) fn disk(storage: Storage) -> Result<String, Failure> {
    let scratch = Scratch::on(storage)?;
    let parent = scratch.path().parent().unwrap_or(Path::new("/"));
    let mounts = read("/proc/mounts");
    let mounts = mounts.lines().filter_map(|line| {
        let mut fields = line.split(' ');
        let (device, place, kind) = (fields.next()?, fields.next()?, fields.next()?);
        parent.starts_with(place).then_some((place, device, kind))
    });
    // Use the innermost of nested mounts, and the last of several mounts at one path.
    let mount = mounts.max_by_key(|(place, ..)| place.len());
    let (_, device, kind) = mount.unwrap_or(("", "unknown", "unknown"));
    let flush = Unit::Time.show(flush(&scratch.path().join("flushed")));
    let parent = parent.display();
    Ok(format!(
        "{parent} ({kind}, {device}), a flush of 4 kB takes {flush}"
    ))
}

/// Returns the median of several appends with fdatasync, in seconds.
fn flush(path: &Path) -> f64 {
    let mut file = fs::File::create(path).expect("create a file");
    let flushed = (0..51).map(|_| {
        let began_ns = boottime_ns();
        file.write_all(&[0; 4096]).expect("write a file");
        file.sync_data().expect("flush a file");
        seconds(began_ns, boottime_ns())
    });
    let mut series: Vec<_> = flushed.collect();
    series.sort_by(f64::total_cmp);
    series[series.len() / 2]
}

pub(crate) fn mongod() -> String {
    let first = mongod_binary()
        .ok()
        .and_then(|path| version(path, "--version"));
    first.map_or("unknown".to_owned(), |line| {
        line.replace("db version v", "")
    })
}

/// Runs a program with this argument to get its version. Returns the first line of the output.
pub(crate) fn version(program: PathBuf, argument: &str) -> Option<String> {
    let output = Command::new(program).arg(argument).output().ok()?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    text.lines().next().map(str::to_owned)
}

fn read(path: &str) -> String {
    fs::read_to_string(path).unwrap_or_default()
}
