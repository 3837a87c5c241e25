//! Simulates `mongos`, the router of a sharded cluster, in front of a real replica set.
//!
//! `mongos` is not available to the tests, so the simulation reproduces the behavior that matters
//! to a client. The simulated router speaks MongoDB's protocol, describes itself as a router, and
//! forwards each command to the current primary of the set. A client therefore sees no election:
//! its connection stays open, and its calls fail or wait for the next primary. A real router delays
//! change stream events until the shard with the fewest writes has written. The simulation can
//! delay events until the next tick of an interval. Replies to `hello` and `buildInfo` can be
//! changed to imitate other products.
//!
//! The simulation does not shard or reproduce other behavior of `mongos`.

mod backend;
mod serve;
mod wire;

use std::collections::HashMap;
use std::net::Ipv4Addr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use mongodb::bson::Document;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::{ReplicaSet, ReservedPort};

/// A simulated router. Dropping this value ends the router's thread and closes its connections.
#[derive(Debug)]
pub struct Router {
    port: ReservedPort,
    shared: Arc<Shared>,
    running: Option<watch::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug)]
struct Shared {
    members: Vec<u16>,
    state: Mutex<State>,
}

#[derive(Debug, Default, Clone)]
struct State {
    /// Interval of the ticks at which events are delivered.
    lag: Duration,
    /// The error when a client opens a change stream; `None` if this succeeds.
    no_streams: Option<(i32, &'static str)>,
    /// Replacements for reply fields, by command name.
    overlays: Vec<(&'static str, Document)>,
    commands: Vec<Document>,
    /// The open cursors. A driver may send getMore on another connection.
    cursors: HashMap<i64, Cursor>,
}

#[derive(Debug, Clone)]
struct Cursor {
    member: u16,
    is_stream: bool,
    /// The events in this reply are held until this time since the Unix epoch.
    held: Option<(Duration, Document)>,
}

impl Router {
    /// Starts a router in front of a set without TLS.
    pub fn start(set: &ReplicaSet) -> Self {
        assert!(
            set.certificates().is_none(),
            "a router does not support TLS"
        );
        let port = ReservedPort::new();
        let members = (0..set.member_count()).map(|index| set.node(index).port());
        let shared = Arc::new(Shared {
            members: members.collect(),
            state: Mutex::default(),
        });
        let listener = std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, port.number()))
            .expect("bind a reserved port");
        let nonblocking = listener.set_nonblocking(true);
        nonblocking.expect("make a socket non-blocking");
        let (running, until) = watch::channel(());
        let thread = std::thread::Builder::new()
            .name("testbed-router".to_owned())
            .spawn({
                let shared = Arc::clone(&shared);
                move || run(listener, &shared, until)
            })
            .expect("start a thread");
        Self {
            port,
            shared,
            running: Some(running),
            thread: Some(thread),
        }
    }

    /// Returns the address, as `host:port`.
    pub fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port.number())
    }

    /// Returns a connection string that names these routers.
    pub fn uri<'a>(routers: impl IntoIterator<Item = &'a Self>) -> String {
        let addresses: Vec<_> = routers.into_iter().map(Self::address).collect();
        format!("mongodb://{}/", addresses.join(","))
    }

    /// Delivers change stream events only at multiples of this interval, in whole seconds. On
    /// average, an event is delayed by half of the interval.
    pub fn delay_streams(&self, lag: Duration) {
        self.state().lag = lag;
    }

    /// Refuses to open change streams with this error.
    pub fn refuse_streams(&self, code: i32, name: &'static str) {
        self.state().no_streams = Some((code, name));
    }

    /// Changes the replies to `command` (`hello`, `buildInfo`): removes fields whose value is null,
    /// and sets the others.
    pub fn overlay(&self, command: &'static str, fields: Document) {
        self.state().overlays.push((command, fields));
    }

    /// Returns the commands that clients have sent, except monitoring commands.
    pub fn commands(&self) -> Vec<Document> {
        self.state().commands.clone()
    }

    /// Returns the number of attempts to open a change stream.
    pub fn streams_opened(&self) -> usize {
        let commands = self.commands();
        commands
            .iter()
            .filter(|c| wire::opens_change_stream(c))
            .count()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.shared.state()
    }
}

impl Drop for Router {
    fn drop(&mut self) {
        // Closing the channel ends the thread.
        self.running = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn run(listener: std::net::TcpListener, shared: &Arc<Shared>, mut until: watch::Receiver<()>) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("build the runtime");
    runtime.block_on(async {
        let listener = TcpListener::from_std(listener).expect("the runtime supports IO");
        // Dropping the tasks closes all sockets.
        let mut clients = JoinSet::new();
        loop {
            tokio::select! {
                accepted = listener.accept() => {
                    if let Ok((client, _)) = accepted {
                        clients.spawn(serve::client(client, Arc::clone(shared)));
                    }
                }
                Some(_) = clients.join_next() => {}
                _ = until.changed() => return,
            }
        }
    });
}
