//! A test process that is killed itself leaves no mongod and no daemon behind.
//! The victim is this test binary again: it prints the ids and then waits.

#![allow(clippy::unwrap_used)] // A test stops where something is amiss.
#![allow(clippy::disallowed_methods)] // It measures from outside.
#![allow(clippy::print_stdout)] // What it measured is worth reading.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use leasehold_testbed::{Launch, ReplicaSet};

const VICTIM: &str = "LEASEHOLD_TESTBED_VICTIM";

#[tokio::test]
async fn nothing_outlives_a_killed_test() {
    if std::env::var_os(VICTIM).is_some() {
        let set = ReplicaSet::start().await;
        let sleeper = Launch::new("/bin/sleep").argument("1000").start().unwrap();
        let pids: Vec<_> = set.pids().into_iter().chain([sleeper.pid()]).collect();
        let pids: Vec<_> = pids.iter().map(u32::to_string).collect();
        println!(
            "\npids {} directory {}",
            pids.join(" "),
            set.directory().display()
        );
        std::future::pending::<()>().await;
    }
    let mut victim = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "nothing_outlives_a_killed_test", "--nocapture"])
        .env(VICTIM, "1")
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let output = BufReader::new(victim.stdout.take().unwrap());
    let line = output
        .lines()
        .map(Result::unwrap)
        .find(|line| line.starts_with("pids "))
        .unwrap();
    let (pids, directory) = line["pids ".len()..].split_once(" directory ").unwrap();
    let alive = |pid: &&str| {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        // A zombie whom nobody reaps, as in a container without an init, is dead.
        !stat.is_empty() && !stat.rsplit(") ").next().unwrap().starts_with('Z')
    };
    let pids: Vec<_> = pids.split(' ').collect();
    assert_eq!(pids.iter().filter(|pid| alive(pid)).count(), 4);
    victim.kill().unwrap();
    victim.wait().unwrap();
    let end = Instant::now() + Duration::from_secs(10);
    while pids.iter().any(&alive) {
        assert!(Instant::now() < end, "still there: {line}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    // Data cannot remove itself; the name says whose it was.
    assert!(directory.contains("leasehold-testbed-"));
    std::fs::remove_dir_all(Path::new(directory)).unwrap();
}
