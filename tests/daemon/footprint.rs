//! Goal: a daemon is one process with at most three threads, and leaves no process behind.

use std::path::PathBuf;

use leasehold_testbed::Daemon;

use crate::contest::{Contest, LONG};

#[tokio::test]
async fn leader_and_follower_have_three_threads_at_most_and_no_children() {
    let contest = Contest::new("footprint").await;
    let leader = contest.candidate("leader").leading(LONG).await;
    let follower = contest
        .candidate("follower")
        .following("leader", LONG)
        .await;
    for daemon in [&leader, &follower] {
        // The threads are counted only after a name lookup, a scrape and a file write, because
        // these may start threads.
        daemon.http("/metrics").await.unwrap();
        let status = std::fs::read_to_string(process(daemon).join("status")).unwrap();
        let threads = status
            .lines()
            .find_map(|line| line.strip_prefix("Threads:"));
        let threads: u32 = threads.unwrap().trim().parse().unwrap();
        assert!((1..=3).contains(&threads), "{threads} threads");
        assert_eq!(children(daemon), "", "the daemon starts no process");
    }
    assert_eq!(leader.term_and_exit(LONG).await, 0);
    assert!(!process(&leader).exists(), "the process is gone");
}

fn process(daemon: &Daemon) -> PathBuf {
    PathBuf::from(format!("/proc/{}", daemon.pid()))
}

fn children(daemon: &Daemon) -> String {
    let threads = std::fs::read_dir(process(daemon).join("task")).unwrap();
    let children = threads.map(|thread| {
        let file = thread.unwrap().path().join("children");
        std::fs::read_to_string(file).unwrap_or_default()
    });
    children.collect()
}
