//! Ports that stay reserved for as long as a fixture needs them.
//!
//! A killed member must restart on its old port. Binding port 0 and closing the socket is not
//! enough, because the kernel could then give the port to any outgoing connection. Ports therefore
//! come from below the kernel's ephemeral range, and a file lock reserves each port among all test
//! processes of this user. The kernel releases the lock when the process ends.

use std::fs::{File, OpenOptions};
use std::net::{Ipv4Addr, SocketAddrV4};
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};

use rustix::fs::{FlockOperation, flock};
use rustix::net::sockopt::set_socket_reuseaddr;
use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, socket_with};

/// Start of the range. All ports have five digits, so that a proxy can replace a port without
/// changing the length of a message.
const FIRST: u32 = 10_000;
/// End of the range: by default, Linux's ephemeral ports start here.
const END: u32 = 32_768;
/// Number of attempts, so each port is tried at most once.
const TRIES_MAX: u32 = END - FIRST;

/// A free port on 127.0.0.1, reserved among all testbeds until dropped.
#[derive(Debug)]
pub struct ReservedPort {
    number: u16,
    _lock: File,
}

impl ReservedPort {
    /// Reserves a free port.
    ///
    /// # Panics
    /// If all ports are in use.
    pub fn new() -> Self {
        for _ in 0..TRIES_MAX {
            let number = next_number();
            let Some(lock) = claim(number) else { continue };
            // Another program may be using the port.
            if is_free(number) {
                return Self {
                    number,
                    _lock: lock,
                };
            }
        }
        panic!("no free port between {FIRST} and {END} on 127.0.0.1");
    }

    /// Returns the port number.
    pub fn number(&self) -> u16 {
        self.number
    }
}

impl Default for ReservedPort {
    fn default() -> Self {
        Self::new()
    }
}

/// Returns the next number of the range. The start differs between processes, so concurrent test
/// processes rarely try the same number.
fn next_number() -> u16 {
    static STEP: AtomicU32 = AtomicU32::new(0);
    let start = std::process::id().wrapping_mul(7_919);
    let offset = start.wrapping_add(STEP.fetch_add(1, Ordering::Relaxed)) % (END - FIRST);
    u16::try_from(FIRST + offset).expect("the range ends below 65536")
}

/// Returns true if this process can bind the port, so no process listens on it. The probe itself
/// never listens, because a child that another thread forks holds a copy of the probe until the
/// child executes its program, and a listening copy would prevent the port's owner from binding the
/// port.
fn is_free(number: u16) -> bool {
    bind_to(&probe(), number)
}

fn probe() -> OwnedFd {
    let flags = SocketFlags::CLOEXEC;
    let probe =
        socket_with(AddressFamily::INET, SocketType::STREAM, flags, None).expect("create a socket");
    set_socket_reuseaddr(&probe, true).expect("reuse the address");
    probe
}

fn bind_to(probe: &OwnedFd, number: u16) -> bool {
    bind(probe, &SocketAddrV4::new(Ipv4Addr::LOCALHOST, number)).is_ok()
}

fn claim(number: u16) -> Option<File> {
    let uid = rustix::process::getuid().as_raw();
    let directory: PathBuf = std::env::temp_dir().join(format!("leasehold-testbed-ports-{uid}"));
    std::fs::create_dir_all(&directory).expect("create the directory of port locks");
    let file = OpenOptions::new()
        .create(true)
        .write(true)
        .truncate(false)
        .open(directory.join(number.to_string()))
        .expect("open a port lock");
    flock(&file, FlockOperation::NonBlockingLockExclusive).ok()?;
    Some(file)
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;
    use std::time::{Duration, Instant};

    use super::*;

    #[test]
    fn ports_are_free_distinct_and_have_five_digits() {
        let ports: Vec<_> = (0..50).map(|_| ReservedPort::new()).collect();
        let mut numbers: Vec<_> = ports.iter().map(ReservedPort::number).collect();
        numbers.sort_unstable();
        numbers.dedup();
        assert_eq!(numbers.len(), 50);
        assert!(
            numbers
                .iter()
                .all(|number| (10_000..32_768).contains(number))
        );
    }

    #[test]
    fn a_port_that_something_listens_on_is_not_free() {
        let port = ReservedPort::new();
        let listener =
            TcpListener::bind((Ipv4Addr::LOCALHOST, port.number())).expect("bind a reserved port");
        assert!(!is_free(port.number()));
        drop(listener);
        // A child that another test forks holds a copy of the listener until the child executes its
        // program.
        let end = Instant::now() + Duration::from_secs(60);
        while !is_free(port.number()) {
            assert!(Instant::now() < end, "port {} stays in use", port.number());
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    #[test]
    fn a_probe_that_a_child_still_holds_does_not_keep_a_port_from_its_owner() {
        let port = ReservedPort::new();
        let probe = probe();
        assert!(bind_to(&probe, port.number()));
        TcpListener::bind((Ipv4Addr::LOCALHOST, port.number()))
            .expect("a bound probe does not block the port");
    }

    #[test]
    fn a_reserved_port_cannot_be_claimed_again() {
        let port = ReservedPort::new();
        assert!(claim(port.number()).is_none());
    }
}
