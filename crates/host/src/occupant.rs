//! Finds the processes that have locked a file or taken a port, to name them in errors.
//!
//! The search reads /proc, so it finds only processes of its own PID namespace that this user may
//! inspect. The search runs only after a lock or an address was refused.

use std::collections::BTreeSet;
use std::fmt;
use std::fs;
use std::net::{IpAddr, SocketAddr};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use rustix::fs::{major, minor};

/// A process that occupies a file or port.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Occupant {
    pid: u32,
    name: String,
    /// True if the process runs the same program as this process.
    pub is_leasehold: bool,
}

impl fmt::Display for Occupant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "process {} ({})", self.pid, self.name)
    }
}

/// Formats the occupants as one phrase.
pub fn named(occupants: &[Occupant]) -> String {
    if occupants.is_empty() {
        return "another process".to_owned();
    }
    let named: Vec<_> = occupants.iter().map(ToString::to_string).collect();
    named.join(", ")
}

const NAMED_MAX: usize = 3;

/// Returns the other visible processes that have this file open. If this user may not read a
/// process's descriptors (a daemon hides its own), only a lock on the file reveals the process.
pub fn of_file(path: &Path) -> Vec<Occupant> {
    let Ok(wanted) = fs::metadata(path) else {
        return Vec::new();
    };
    let wanted = (wanted.dev(), wanted.ino());
    let open = of(|descriptor| {
        // This call follows the link to the open file, even if the file was deleted.
        let found = fs::metadata(descriptor);
        found.is_ok_and(|found| (found.dev(), found.ino()) == wanted)
    });
    if !open.is_empty() {
        return open;
    }
    let mine = name_of(std::process::id());
    let table = fs::read_to_string("/proc/locks").unwrap_or_default();
    let owners = table.lines().filter_map(|line| owner(line, wanted));
    let locked: BTreeSet<u32> = owners.collect();
    let occupant = |pid| {
        let name = name_of(pid)?;
        let program = |name: &str| name.split(' ').next().map(str::to_owned);
        let is_leasehold = program(&name) == mine.as_deref().and_then(program);
        Some(Occupant {
            pid,
            name,
            is_leasehold,
        })
    };
    let occupants = locked.into_iter().filter_map(occupant);
    occupants.take(NAMED_MAX).collect()
}

fn name_of(pid: u32) -> Option<String> {
    let name = fs::read_to_string(format!("/proc/{pid}/comm")).ok()?;
    let name = match name.trim() {
        OF_A_STAGE => stage(&fs::read(format!("/proc/{pid}/cmdline")).ok()?),
        name => name.to_owned(),
    };
    Some(name.escape_debug().to_string())
}

/// The kernel's name for a process that executed /proc/self/exe, as a guard does.
const OF_A_STAGE: &str = "exe";

/// Returns the program and its first argument, such as `leasehold __guard`.
fn stage(command_line: &[u8]) -> String {
    let words = command_line.split(|byte| *byte == 0).take(2);
    let words: Vec<_> = words.map(String::from_utf8_lossy).collect();
    words.join(" ").trim_end().to_owned()
}

/// Parses a line of /proc/locks. Returns the process if the line describes a lock on this file.
fn owner(line: &str, (device, inode): (u64, u64)) -> Option<u32> {
    let fields = line.split_whitespace().skip(1);
    let mut fields = fields.skip_while(|field| *field == "->").skip(3);
    let pid = fields.next()?.parse().ok()?;
    let mut place = fields.next()?.split(':');
    let mut hex = || u32::from_str_radix(place.next()?, 16).ok();
    let same_device = (hex()?, hex()?) == (major(device), minor(device));
    let same_inode = place.next()?.parse() == Ok(inode);
    (same_device && same_inode).then_some(pid)
}

/// Returns the processes that listen on this address; empty if none are visible.
pub fn of_address(address: SocketAddr) -> Vec<Occupant> {
    // A listener on `[::]` also takes the IPv4 port, and a listener on IPv4 blocks `[::]`.
    let tables = match address.ip() {
        IpAddr::V6(ip) if !ip.is_unspecified() && ip.to_ipv4_mapped().is_none() => &["tcp6"][..],
        _ => &["tcp", "tcp6"][..],
    };
    let read = |table| fs::read_to_string(Path::new("/proc/net").join(table)).unwrap_or_default();
    let tables: Vec<_> = tables.iter().map(read).collect();
    let listeners = tables.iter().flat_map(|table| table.lines());
    let inodes = listeners.filter_map(|line| listener(line, address.port()));
    let sockets: Vec<_> = inodes.map(|inode| format!("socket:[{inode}]")).collect();
    of(|descriptor| {
        let link = fs::read_link(descriptor).unwrap_or_default();
        sockets.iter().any(|socket| link.as_os_str() == &**socket)
    })
}

/// Parses a line of /proc/net/tcp. Returns the socket's inode if it listens on this port.
fn listener(line: &str, port: u16) -> Option<&str> {
    const LISTEN: &str = "0A";
    let mut fields = line.split_whitespace().skip(1);
    let (_, local_port) = fields.next()?.split_once(':')?;
    let listens = fields.nth(1)? == LISTEN;
    let same_port = u16::from_str_radix(local_port, 16) == Ok(port);
    fields.nth(5).filter(|_| listens && same_port)
}

fn of(wanted: impl Fn(&Path) -> bool) -> Vec<Occupant> {
    let me = std::process::id();
    let program = |process: &Path| fs::metadata(process.join("exe")).map(|m| (m.dev(), m.ino()));
    let ours = program(Path::new("/proc/self")).ok();
    let mut found = Vec::new();
    for process in fs::read_dir("/proc").into_iter().flatten().flatten() {
        let (name, path) = (process.file_name(), process.path());
        let Some(pid) = name.to_str().and_then(|name| name.parse().ok()) else {
            continue;
        };
        let descriptors = fs::read_dir(path.join("fd"));
        let mut descriptors = descriptors.into_iter().flatten().flatten();
        if pid == me || !descriptors.any(|descriptor| wanted(&descriptor.path())) {
            continue;
        }
        found.push(Occupant {
            pid,
            name: name_of(pid).unwrap_or_default(),
            is_leasehold: ours.is_some() && program(&path).ok() == ours,
        });
        if found.len() == NAMED_MAX {
            break;
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, TcpListener};

    use super::*;

    #[test]
    fn another_process_with_an_open_file_is_named() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("file");
        let file = fs::File::create(&path).expect("a file");
        assert_eq!(named(&of_file(&path)), "another process");
        let mut other = std::process::Command::new("cat")
            .stdin(std::process::Stdio::piped())
            .stdout(file)
            .spawn()
            .expect("cat");
        let expected = format!("process {} (cat)", other.id());
        let found = of_file(&path);
        assert_eq!(named(&found), expected);
        assert!(!found[0].is_leasehold);
        drop(other.stdin.take());
        other.wait().expect("its end");
    }

    #[test]
    fn a_guard_is_named_by_its_command_line() {
        assert_eq!(stage(b"leasehold\0__guard\0"), "leasehold __guard");
        assert_eq!(stage(b"exe\0"), "exe");
    }

    #[test]
    fn a_line_of_proc_locks_names_the_owner_of_a_file() {
        let device = rustix::fs::makedev(0xfe, 0x1a);
        let line = "12: FLOCK  ADVISORY  WRITE 4711 fe:1a:1234 0 EOF";
        assert_eq!(owner(line, (device, 1234)), Some(4711));
        assert_eq!(owner(line, (device, 1235)), None);
        assert_eq!(owner(line, (rustix::fs::makedev(0xfe, 0), 1234)), None);
        let waits = "12: -> FLOCK  ADVISORY  WRITE 4712 fe:1a:1234 0 EOF";
        assert_eq!(owner(waits, (device, 1234)), Some(4712));
        assert_eq!(owner("12: FLOCK", (device, 1234)), None);
    }

    #[test]
    fn a_line_of_proc_net_tcp_names_a_listener() {
        let socket = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
        let port = socket.local_addr().expect("an address").port();
        let table = fs::read_to_string("/proc/net/tcp").expect("a table");
        let found: Vec<_> = table.lines().filter_map(|l| listener(l, port)).collect();
        assert_eq!(found.len(), 1, "{table}");
    }

    #[test]
    fn a_listener_on_all_addresses_occupies_an_ipv4_port() {
        // Without IPv6 in the kernel, there is nothing to test.
        let Ok(socket) = TcpListener::bind((std::net::Ipv6Addr::UNSPECIFIED, 0)) else {
            return;
        };
        let port = socket.local_addr().expect("an address").port();
        let mut other = std::process::Command::new("sleep")
            .arg("60")
            .stdin(std::os::fd::OwnedFd::from(socket))
            .spawn()
            .expect("sleep");
        let found = of_address((Ipv4Addr::LOCALHOST, port).into());
        other.kill().expect("killed");
        let id = other.wait().map(|_| other.id()).expect("its end");
        assert!(found.iter().any(|occupant| occupant.pid == id), "{found:?}");
    }
}
