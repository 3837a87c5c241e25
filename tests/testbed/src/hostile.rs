//! Runs hostile HTTP clients, with their own address and thread.

use std::collections::VecDeque;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tokio::io::AsyncWriteExt;
use tokio::net::{TcpSocket, TcpStream};
use tokio::sync::oneshot;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use crate::Failure;

/// The clients' own address, because the server evicts connections by peer address.
pub const ADDRESS: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 2);
/// Descriptors that the process needs in addition to the clients' sockets.
const DESCRIPTORS_OF_OTHERS: u64 = 512;
/// Pause of a client between two bytes, and before it connects again.
const PAUSE: Duration = Duration::from_millis(20);
/// Number of clients among which [`Attack::Connections`] divides its connections. A client waits
/// for a second if the listener's queue is full.
const CONNECTORS: usize = 500;
/// Interval at which a client replaces its oldest connection once all connections are open.
/// Together, the clients replace 1,000 connections a second.
const REPLACED_AFTER: Duration = Duration::from_millis(500);
/// Length of the body that a client announces.
const BODY: u64 = 1 << 30;
/// Time after which a client reconnects if the server does not read the request body.
const UNREAD_MAX: Duration = Duration::from_secs(2);

/// The behaviour of the clients.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Attack {
    /// This many connections, each of which sends an endless request head byte by byte (slow
    /// loris).
    ByteByByte(usize),
    /// This many open connections, each with an incomplete head. The oldest connections are
    /// constantly replaced.
    Connections(usize),
    /// This many clients that send bodies of a GiB, or endless bodies, to all paths in turn.
    Bodies(usize),
}

/// Running totals for all clients.
#[derive(Debug, Default)]
pub struct Counts {
    /// Number of connections opened.
    pub connections: AtomicU64,
    /// Number of bytes passed to the kernel.
    pub bytes: AtomicU64,
    /// Largest number of bytes sent on a single connection.
    pub bytes_of_one: AtomicU64,
}

/// Running clients, which stop when this value is dropped.
#[derive(Debug)]
pub struct Hostile {
    counts: Arc<Counts>,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<thread::JoinHandle<()>>,
}

impl Hostile {
    /// Starts clients of the server at an address.
    ///
    /// # Errors
    /// If this process may not open enough descriptors.
    ///
    /// # Panics
    /// If no thread can be started.
    pub fn start(attack: Attack, server: SocketAddr) -> Result<Self, Failure> {
        if let Attack::ByteByByte(count) | Attack::Connections(count) = attack {
            let needed = u64::try_from(count).expect("a small number") + DESCRIPTORS_OF_OTHERS;
            allow_descriptors(needed)?;
        }
        let counts = Arc::new(Counts::default());
        let (stop, stopped) = oneshot::channel();
        let clients = Clients {
            server,
            counts: Arc::clone(&counts),
        };
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .expect("an event loop");
        let thread = thread::spawn(move || {
            runtime.block_on(async {
                tokio::select! {
                    () = clients.run(attack) => {}
                    _ = stopped => {}
                }
            });
        });
        Ok(Self {
            counts,
            stop: Some(stop),
            thread: Some(thread),
        })
    }

    /// Returns the counts so far.
    pub fn counts(&self) -> &Counts {
        &self.counts
    }
}

impl Drop for Hostile {
    fn drop(&mut self) {
        self.stop.take();
        if let Some(thread) = self.thread.take() {
            let ended = thread.join();
            assert!(thread::panicking() || ended.is_ok(), "a client panicked");
        }
    }
}

fn allow_descriptors(needed: u64) -> Result<(), Failure> {
    let limit = getrlimit(Resource::Nofile);
    if limit.current.is_none_or(|current| current >= needed) {
        return Ok(());
    }
    let raised = Rlimit {
        current: Some(needed),
        ..limit
    };
    setrlimit(Resource::Nofile, raised).map_err(|error| {
        let most = limit.maximum.unwrap_or_default();
        Failure::new(format!(
            "{needed} open files are needed, and the hard limit is {most}: {error}"
        ))
    })
}

#[derive(Clone)]
struct Clients {
    server: SocketAddr,
    counts: Arc<Counts>,
}

impl Clients {
    async fn run(self, attack: Attack) {
        match attack {
            Attack::ByteByByte(count) => self.all(count, Self::byte_by_byte).await,
            Attack::Connections(count) => {
                let share = count.div_ceil(CONNECTORS);
                self.all(CONNECTORS, |client, _| client.connections(share))
                    .await;
            }
            Attack::Bodies(count) => self.all(count, Self::bodies).await,
        }
    }

    async fn all<F>(self, count: usize, client: impl Fn(Self, usize) -> F)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let mut clients = JoinSet::new();
        for number in 0..count {
            clients.spawn(client(self.clone(), number));
        }
        clients.join_all().await;
    }

    /// Connects, and retries while the server or the system refuses.
    async fn connect(&self) -> TcpStream {
        loop {
            let connected = async {
                let socket = TcpSocket::new_v4()?;
                socket.bind((ADDRESS, 0).into())?;
                socket.connect(self.server).await
            };
            if let Ok(stream) = connected.await {
                self.counts.connections.fetch_add(1, Ordering::Relaxed);
                return stream;
            }
            sleep(PAUSE).await;
        }
    }

    fn sent(&self, bytes: u64) {
        self.counts.bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    async fn byte_by_byte(self, _: usize) {
        loop {
            let mut stream = self.connect().await;
            let head = b"GET /leader HTTP/1.1\r\nHost: localhost\r\n".iter();
            for byte in head.chain(b"x: ".iter().chain(std::iter::repeat(&b'y'))) {
                if stream.write_all(&[*byte]).await.is_err() {
                    break;
                }
                self.sent(1);
                sleep(PAUSE).await;
            }
        }
    }

    async fn connections(self, count: usize) {
        let mut open = VecDeque::with_capacity(count);
        loop {
            if open.len() >= count {
                open.pop_front();
                sleep(REPLACED_AFTER).await;
            }
            let mut stream = self.connect().await;
            // The server may already have closed the new connection.
            if stream.write_all(b"GET /livez HT").await.is_ok() {
                self.sent(13);
            }
            open.push_back(stream);
        }
    }

    async fn bodies(self, number: usize) {
        const TARGETS: [&str; 5] = [
            "POST /stepped-down?token=7",
            "GET /leader",
            "GET /events",
            "GET /leader?wait=5m&role=follower",
            "POST /nothing",
        ];
        let block = [b'x'; 64 * 1024];
        for round in number.. {
            let mut stream = self.connect().await;
            let chunked = round % 2 == 0;
            let length = match chunked {
                true => "Transfer-Encoding: chunked".to_owned(),
                false => format!("Content-Length: {BODY}"),
            };
            let target = TARGETS[round / 2 % TARGETS.len()];
            let head = format!("{target} HTTP/1.1\r\nHost: localhost\r\n{length}\r\n\r\n");
            if stream.write_all(head.as_bytes()).await.is_err() {
                continue;
            }
            let mut sent = 0;
            while sent < BODY {
                let part = async {
                    if chunked {
                        stream.write_all(b"10000\r\n").await?;
                    }
                    stream.write_all(&block).await?;
                    match chunked {
                        true => stream.write_all(b"\r\n").await,
                        false => Ok(()),
                    }
                };
                match timeout(UNREAD_MAX, part).await {
                    Ok(Ok(())) => sent += block.len() as u64,
                    Ok(Err(_)) | Err(_) => break,
                }
                self.sent(block.len() as u64);
                self.counts.bytes_of_one.fetch_max(sent, Ordering::Relaxed);
            }
            sleep(PAUSE).await;
        }
    }
}
