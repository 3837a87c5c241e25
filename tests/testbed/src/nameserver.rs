//! Runs a nameserver with the records of a replica set on this host, or a nameserver that never
//! answers.

use std::io;
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

/// The name of a host that resolves to 127.0.0.1.
pub const HOST: &str = "db-0.leasehold.test";
/// The name of the record for `mongodb+srv`.
pub const RECORD: &str = "cluster.leasehold.test";

const PORT: u16 = 53;
const HEADER: usize = 12;
const A: u16 = 1;
const TXT: u16 = 16;
const SRV: u16 = 33;
const POLL: Duration = Duration::from_millis(50);

/// A nameserver with its own address in 127.0.0.0/8. Ends on drop.
#[derive(Debug)]
pub struct Nameserver {
    address: Ipv4Addr,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Nameserver {
    /// Starts a nameserver that receives queries and never answers.
    ///
    /// # Errors
    /// If this user may not listen on port 53.
    pub fn silent() -> io::Result<Self> {
        Self::start(|_| None)
    }

    /// Starts a nameserver that knows [`HOST`], and [`RECORD`] with this port and replica set.
    ///
    /// # Errors
    /// If this user may not listen on port 53.
    pub fn answering(port: u16, set: &str) -> io::Result<Self> {
        let set = format!("replicaSet={set}");
        Self::start(move |query| answer(query, port, &set))
    }

    fn start(answer: impl Fn(&[u8]) -> Option<Vec<u8>> + Send + 'static) -> io::Result<Self> {
        let socket = free_address()?;
        socket.set_read_timeout(Some(POLL))?;
        let SocketAddr::V4(address) = socket.local_addr()? else {
            return Err(io::Error::other("not an IPv4 address"));
        };
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let thread = thread::spawn(move || {
            let mut query = [0; 512];
            while !stopped.load(Ordering::Relaxed) {
                if let Ok((length, from)) = socket.recv_from(&mut query)
                    && let Some(answer) = answer(&query[..length])
                {
                    let _ = socket.send_to(&answer, from);
                }
            }
        });
        Ok(Self {
            address: *address.ip(),
            stop,
            thread: Some(thread),
        })
    }

    /// Returns the `/etc/resolv.conf` line for this nameserver.
    pub fn line(&self) -> String {
        format!("nameserver {}\n", self.address)
    }
}

impl Drop for Nameserver {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn free_address() -> io::Result<UdpSocket> {
    let mut taken = io::Error::from(io::ErrorKind::AddrInUse);
    for last in 1..=250 {
        match UdpSocket::bind((Ipv4Addr::new(127, 83, 53, last), PORT)) {
            Err(error) if error.kind() == io::ErrorKind::AddrInUse => taken = error,
            bound => return bound,
        }
    }
    Err(taken)
}

/// Answers a query. The answer to a query for an unknown name has no records.
fn answer(query: &[u8], port: u16, set: &str) -> Option<Vec<u8>> {
    let (name, end) = name_of(query)?;
    let kind = u16::from_be_bytes(query.get(end..end + 2)?.try_into().ok()?);
    let record = match (name.as_str(), kind) {
        (HOST, A) => Some(Ipv4Addr::LOCALHOST.octets().to_vec()),
        (RECORD, TXT) => Some(counted(set)),
        (name, SRV) if name == format!("_mongodb._tcp.{RECORD}") => {
            let mut record = vec![0; 4];
            record.extend(port.to_be_bytes());
            record.extend(HOST.split('.').flat_map(counted));
            record.push(0);
            Some(record)
        }
        _ => None,
    };
    // Header: the query's id, the flags (response, recursion, no error), and the record counts.
    let mut reply = query.get(..2)?.to_vec();
    reply.extend([0x81, 0x80, 0, 1, 0, u8::from(record.is_some()), 0, 0, 0, 0]);
    reply.extend(query.get(HEADER..end + 4)?);
    if let Some(record) = record {
        // Answer: a pointer to the queried name, type, class IN, TTL 60 s, length and data.
        reply.extend([0xc0, 0x0c]);
        reply.extend(kind.to_be_bytes());
        reply.extend([0, 1, 0, 0, 0, 60]);
        reply.extend(u16::try_from(record.len()).ok()?.to_be_bytes());
        reply.extend(record);
    }
    Some(reply)
}

/// Returns the queried name, and the index after it.
fn name_of(query: &[u8]) -> Option<(String, usize)> {
    let mut labels = Vec::new();
    let mut at = HEADER;
    loop {
        let length = usize::from(*query.get(at)?);
        at += 1;
        if length == 0 {
            return Some((labels.join(".").to_lowercase(), at));
        }
        let label = query.get(at..at + length)?;
        labels.push(String::from_utf8_lossy(label).into_owned());
        at += length;
    }
}

/// Returns a text, prefixed with its length.
fn counted(text: &str) -> Vec<u8> {
    let mut counted = vec![u8::try_from(text.len()).expect("a short text")];
    counted.extend(text.as_bytes());
    counted
}
