//! The daemons under attack, and their use of memory and descriptors.

use std::collections::HashSet;
use std::fs;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;

use leasehold_testbed::{Daemon, DaemonTimings, ReplicaSet, SharedSet, Stage};

pub(crate) use leasehold_testbed::wait::{LONG, eventually};

pub(crate) const PROGRAM: &str = env!("CARGO_BIN_EXE_leasehold");

static SET: SharedSet = SharedSet::new(ReplicaSet::builder);

/// Returns a database whose daemons renew twice a second.
pub(crate) async fn stage() -> Stage {
    let set: Arc<ReplicaSet> = SET.get().await;
    Stage::new(PROGRAM, set).timings(DaemonTimings::DEMO)
}

pub(crate) fn loopback(port: u16) -> SocketAddr {
    (Ipv4Addr::LOCALHOST, port).into()
}

/// Counts a server's open descriptors, except outgoing connections, because the MongoDB driver
/// opens these at any time.
pub(crate) fn descriptors(pid: u32, server: SocketAddr) -> usize {
    let directory = fs::read_dir(format!("/proc/{pid}/fd")).unwrap();
    // The server may close a descriptor before this process reads its link.
    let open = directory.flatten();
    let open: Vec<_> = open.flat_map(|one| fs::read_link(one.path())).collect();
    let table = fs::read_to_string(format!("/proc/{pid}/net/tcp")).unwrap();
    let to_others = table.lines().skip(1).filter_map(|line| {
        let fields: Vec<_> = line.split_whitespace().collect();
        let (_, port) = fields[1].split_once(':')?;
        let port = u16::from_str_radix(port, 16).unwrap();
        (port != server.port()).then(|| PathBuf::from(format!("socket:[{}]", fields[9])))
    });
    let to_others: HashSet<_> = to_others.collect();
    open.iter().filter(|one| !to_others.contains(*one)).count()
}

/// Returns the resident memory of a process, in bytes.
pub(crate) fn resident(pid: u32) -> u64 {
    kilobytes(pid, "VmRSS:") * 1024
}

/// Returns the peak resident memory of a process, in bytes, since [`forget_peak`].
pub(crate) fn peak(pid: u32) -> u64 {
    kilobytes(pid, "VmHWM:") * 1024
}

pub(crate) fn forget_peak(pid: u32) {
    fs::write(format!("/proc/{pid}/clear_refs"), "5").unwrap();
}

fn kilobytes(pid: u32, field: &str) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let value = status.lines().find_map(|line| line.strip_prefix(field));
    let number = value.unwrap().trim().trim_end_matches(" kB");
    number.parse().unwrap()
}

/// Asserts that a daemon still leads with this token, answers HTTP requests, and has not panicked.
pub(crate) async fn assert_unharmed(daemon: &Daemon, token: i64) {
    let (code, leader) = daemon.http_json("/leader").await;
    let logs = daemon.logs();
    let logs = logs
        .lines()
        .filter(|line| !line.contains("http connection"));
    let logs = logs.collect::<Vec<_>>().join("\n");
    assert_eq!(
        (code, leader["token"].as_i64()),
        (200, Some(token)),
        "{logs}"
    );
    assert_eq!(daemon.http("/livez").await.unwrap().0, 200);
    let (code, status) = daemon.http_json("/status").await;
    assert_eq!((code, &status["leader"]), (200, &true.into()));
    let failures = ["surface=\"http\"".to_owned()];
    let name = "leasehold_publish_failures_total";
    assert_eq!(daemon.metric_sum(name, &failures).await, 0.0);
    assert_eq!(daemon.logged("panicked"), 0, "{}", daemon.logs());
}
