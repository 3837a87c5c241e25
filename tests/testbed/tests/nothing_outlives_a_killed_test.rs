//! Goal: verify that a killed test process leaves no mongod or other child process behind. Method:
//! kill another run of this test binary, which prints the process ids and then waits.

#![allow(clippy::unwrap_used)] // A failed unwrap fails the test.
#![allow(clippy::disallowed_methods)] // The test measures with its own clocks.
#![allow(clippy::print_stdout)] // The test prints its measurements.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use leasehold_testbed::pid::is_alive;
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
    let alive = |pid: &u32| is_alive(*pid);
    let pids: Vec<_> = pids.split(' ').map(|pid| pid.parse().unwrap()).collect();
    assert_eq!(pids.iter().filter(|pid| alive(pid)).count(), 4);
    victim.kill().unwrap();
    victim.wait().unwrap();
    let end = Instant::now() + Duration::from_secs(10);
    while pids.iter().any(&alive) {
        assert!(Instant::now() < end, "still there: {line}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    // A killed test cannot remove its data, but the directory's name identifies the owner.
    assert!(directory.contains("leasehold-testbed-"));
    // The other threads of a killed process may end after its main thread, and create files until
    // then.
    while let Err(error) = std::fs::remove_dir_all(Path::new(directory)) {
        assert!(Instant::now() < end, "{directory}: {error}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}
