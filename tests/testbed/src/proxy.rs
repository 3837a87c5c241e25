//! A TCP proxy that can stall, cut or lose the traffic between one client and a replica set. The
//! proxy does not parse commands or terminate TLS.
//!
//! A driver asks the members for their addresses and then connects to these addresses, bypassing
//! any simple proxy. This proxy therefore has one port for each member, and replaces the members'
//! ports in replies. Discovery and streaming monitoring then pass through the proxy. All ports have
//! five digits, so lengths do not change, and these MongoDB messages have no checksum. Each daemon
//! can have its own proxy, so a test can stall the leader's connections while other daemons'
//! connections work. The proxy cannot rewrite TLS traffic, so with TLS it supports only direct
//! connections.
//!
//! The proxy runs on its own thread, so that a test that blocks briefly does not delay the daemons
//! under observation.

mod message;

use std::net::Ipv4Addr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;

use crate::ReservedPort;
use message::{Framing, Rewrite};

/// Maximum number of messages held on one connection. A client waits for a reply before its next
/// request, so a stalled client sends very few messages.
const HELD_MAX: usize = 10_000;
/// Time that the server's side of a connection stays open after the client's side has closed. The
/// server can then execute a request in flight, as on a slow network.
const LINGER: Duration = Duration::from_secs(1);

/// A proxy with one port for each member of a replica set. Ends on drop.
#[derive(Debug)]
pub struct Proxy {
    ports: Vec<ReservedPort>,
    targets: Vec<u16>,
    mode: Option<watch::Sender<Mode>>,
    held: Arc<Held>,
    thread: Option<JoinHandle<()>>,
}

impl Proxy {
    /// Starts a proxy in front of the ports `targets` on 127.0.0.1. With `tls`, replies are not
    /// rewritten.
    pub fn start(targets: &[u16], tls: bool) -> Self {
        let ports: Vec<_> = targets.iter().map(|_| ReservedPort::new()).collect();
        let numbers: Vec<_> = ports.iter().map(ReservedPort::number).collect();
        let rewrites = numbers.iter().zip(targets).map(|(ours, theirs)| {
            Rewrite::new(&format!("127.0.0.1:{theirs}"), &format!("127.0.0.1:{ours}"))
        });
        let framing = if tls {
            Framing::None
        } else {
            Framing::Messages(rewrites.collect())
        };
        let (mode, receiver) = watch::channel(Mode::default());
        let held = Arc::new(Held::default());
        let link = Link {
            framing: Arc::new(framing),
            mode: receiver,
            held: Arc::clone(&held),
        };
        let listeners: Vec<_> = numbers.iter().map(|port| listener(*port)).collect();
        let routes: Vec<_> = listeners.into_iter().zip(targets.iter().copied()).collect();
        let thread = std::thread::Builder::new()
            .name("testbed-proxy".to_owned())
            .spawn(move || run(routes, &link))
            .expect("start a thread");
        Self {
            ports,
            targets: targets.to_vec(),
            mode: Some(mode),
            held,
            thread: Some(thread),
        }
    }

    /// Returns the port that is forwarded to member `index`.
    pub fn port(&self, index: usize) -> u16 {
        self.ports[index].number()
    }

    /// Returns `uri` with this proxy in place of the members.
    pub fn uri(&self, uri: &str) -> String {
        let pairs = self.targets.iter().zip(&self.ports);
        pairs.fold(uri.to_owned(), |uri, (theirs, ours)| {
            uri.replace(
                &format!("127.0.0.1:{theirs}"),
                &format!("127.0.0.1:{}", ours.number()),
            )
        })
    }

    /// Holds all traffic in both directions. Connections stay open, and new connections are
    /// accepted. [`resume`](Self::resume) delivers held data, even if the sender has given up, so a
    /// request arrives late.
    pub fn stall(&self) {
        self.set(Gate::Closed, Gate::Closed);
    }

    /// Passes requests but holds the replies, so a write is applied without an acknowledgement.
    pub fn hold_replies(&self) {
        self.set(Gate::Open, Gate::Closed);
    }

    /// Holds requests that contain `text`, such as a command's name, and later requests on their
    /// connections. Monitoring continues.
    pub fn hold_requests_containing(&self, text: &str) {
        self.set(Gate::ClosedFor(text.into()), Gate::Open);
    }

    /// Holds replies that contain `text`, such as `lastErrorObject`, which each reply to
    /// findAndModify contains. Monitoring continues.
    pub fn hold_replies_containing(&self, text: &str) {
        self.set(Gate::Open, Gate::ClosedFor(text.into()));
    }

    /// Closes all connections, discards the held traffic, and closes new connections immediately,
    /// until [`resume`](Self::resume).
    pub fn cut(&self) {
        self.replace(|mode| Mode {
            cut: true,
            cuts: mode.cuts + 1,
            ..Mode::default()
        });
    }

    /// Passes all traffic again, held traffic first.
    pub fn resume(&self) {
        self.replace(|mode| Mode {
            cuts: mode.cuts,
            ..Mode::default()
        });
    }

    /// Returns the number of requests held now.
    pub fn held_requests(&self) -> usize {
        self.held.requests.load(Ordering::SeqCst)
    }

    /// Returns the number of replies held now.
    pub fn held_replies(&self) -> usize {
        self.held.replies.load(Ordering::SeqCst)
    }

    fn set(&self, requests: Gate, replies: Gate) {
        self.replace(|mode| Mode {
            requests,
            replies,
            cut: false,
            cuts: mode.cuts,
        });
    }

    fn replace(&self, next: impl FnOnce(&Mode) -> Mode) {
        let sender = self.mode.as_ref().expect("only drop takes the sender");
        sender.send_modify(|mode| *mode = next(mode));
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        // Closing the channel ends the thread.
        self.mode = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

#[derive(Debug, Default, Clone)]
struct Mode {
    requests: Gate,
    replies: Gate,
    cut: bool,
    /// Number of cuts so far. Each connection compares this number with the number at its start, so
    /// a resume right after a cut still closes every old connection.
    cuts: u64,
}

#[derive(Debug, Default, Clone)]
enum Gate {
    #[default]
    Open,
    Closed,
    ClosedFor(Vec<u8>),
}

impl Gate {
    fn passes(&self, message: &[u8]) -> bool {
        match self {
            Self::Open => true,
            Self::Closed => false,
            Self::ClosedFor(text) => !message::contains(message, text),
        }
    }
}

#[derive(Debug, Default)]
struct Held {
    requests: AtomicUsize,
    replies: AtomicUsize,
}

#[derive(Debug, Clone, Copy)]
enum Direction {
    Request,
    Reply,
}

#[derive(Debug, Clone)]
struct Link {
    framing: Arc<Framing>,
    mode: watch::Receiver<Mode>,
    held: Arc<Held>,
}

fn listener(port: u16) -> std::net::TcpListener {
    let listener =
        std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, port)).expect("bind a reserved port");
    listener
        .set_nonblocking(true)
        .expect("make a socket non-blocking");
    listener
}

fn run(routes: Vec<(std::net::TcpListener, u16)>, link: &Link) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("build the runtime");
    runtime.block_on(async {
        let mut tasks = JoinSet::new();
        for (listener, target) in routes {
            tasks.spawn(accept(listener, target, link.clone()));
        }
        // Dropping the tasks closes all sockets.
        let mut mode = link.mode.clone();
        while mode.changed().await.is_ok() {}
    });
}

async fn accept(listener: std::net::TcpListener, target: u16, link: Link) {
    let listener = TcpListener::from_std(listener).expect("the runtime supports IO");
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => {
                let Ok((client, _)) = accepted else { continue };
                if !link.mode.borrow().cut {
                    connections.spawn(connect(client, target, link.clone()));
                }
            }
            Some(_) = connections.join_next() => {}
        }
    }
}

async fn connect(client: TcpStream, target: u16, link: Link) {
    let mut mode = link.mode.clone();
    let cuts = mode.borrow().cuts;
    let Ok(server) = TcpStream::connect((Ipv4Addr::LOCALHOST, target)).await else {
        return;
    };
    let _ = (client.set_nodelay(true), server.set_nodelay(true));
    let (from_client, to_client) = client.into_split();
    let (from_server, to_server) = server.into_split();
    let requests = pass(
        from_client,
        to_server,
        link.clone(),
        Direction::Request,
        cuts,
    );
    let replies = pass(from_server, to_client, link, Direction::Reply, cuts);
    let both = async {
        tokio::pin!(replies);
        tokio::select! {
            // `requests` returns the write half of the server's connection, so that the connection
            // stays open for this time.
            _to_server = requests => { let _ = tokio::time::timeout(LINGER, replies).await; }
            _ = &mut replies => {}
        }
    };
    tokio::select! {
        _ = mode.wait_for(|mode| mode.cuts != cuts) => {}
        () = both => {}
    }
}

/// Passes messages in order until the sender closes and all messages are passed. Keeps reading
/// while messages are held, so that no data is lost if the sender disconnects.
async fn pass(
    mut from: OwnedReadHalf,
    mut to: OwnedWriteHalf,
    link: Link,
    direction: Direction,
    cuts: u64,
) -> OwnedWriteHalf {
    let Link {
        framing,
        mut mode,
        held,
    } = link;
    let held = match direction {
        Direction::Request => &held.requests,
        Direction::Reply => &held.replies,
    };
    let (sender, mut messages) = mpsc::channel::<Vec<u8>>(HELD_MAX);
    let read = async {
        let sender = sender;
        while let Some(mut message) = framing.read(&mut from).await {
            if matches!(direction, Direction::Reply) {
                framing.rewrite(&mut message);
            }
            if sender.send(message).await.is_err() {
                break;
            }
        }
    };
    let write = async {
        let mut open = true;
        while let Some(message) = messages.recv().await {
            let gate = |mode: &Mode| {
                let gate = match direction {
                    Direction::Request => &mode.requests,
                    Direction::Reply => &mode.replies,
                };
                // A cut opens the gates, but held messages must not pass.
                mode.cuts == cuts && gate.passes(&message)
            };
            let passes = gate(&mode.borrow());
            if !passes {
                let count = Count::one(held);
                if mode.wait_for(|mode| gate(mode)).await.is_err() {
                    return;
                }
                drop(count);
            }
            // If the receiver has disconnected, keep reading, so that the other direction
            // continues.
            open = open
                && tokio::io::AsyncWriteExt::write_all(&mut to, &message)
                    .await
                    .is_ok();
        }
    };
    tokio::join!(read, write);
    to
}

/// Counts a held message until dropped, so that the messages of an aborted connection no longer
/// count.
struct Count<'a>(&'a AtomicUsize);

impl<'a> Count<'a> {
    fn one(counter: &'a AtomicUsize) -> Self {
        counter.fetch_add(1, Ordering::SeqCst);
        Self(counter)
    }
}

impl Drop for Count<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}
