//! A TCP forwarder that delays traffic, used instead of netem.
//!
//! TCP retransmits a lost packet, so the forwarder models a loss as an additional delay of all
//! later data on the connection.

use std::net::SocketAddr;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{mpsc, watch};
use tokio::time::Instant;

use crate::Failure;

/// Linux's minimum retransmission timeout (TCP_RTO_MIN).
const RETRANSMISSION: Duration = Duration::from_millis(200);
const CHUNK: usize = 16 * 1024;

/// The delay and the loss of a route.
#[derive(Debug, Clone, Copy, Default)]
pub struct Weather {
    /// The one-way delay.
    pub latency: Duration,
    /// The probability that a piece of data is lost and retransmitted.
    pub loss: f64,
}

/// A route: connections to `listen` are forwarded to `target`.
#[derive(Debug, Clone, Copy)]
pub struct Route {
    /// The address that accepts connections.
    pub listen: SocketAddr,
    /// The address to which connections are forwarded.
    pub target: SocketAddr,
}

/// A running forwarder, on its own thread. The forwarder ends with the process.
#[derive(Debug)]
pub struct Forwarder {
    weather: Vec<watch::Sender<Weather>>,
}

impl Forwarder {
    /// Starts a forwarder without delays.
    ///
    /// # Errors
    /// If the forwarder cannot listen.
    pub fn start(routes: &[Route]) -> Result<Self, Failure> {
        let weather: Vec<_> = routes
            .iter()
            .map(|_| watch::channel(Weather::default()).0)
            .collect();
        let failed = |error| Failure::new(format!("cannot start the forwarder: {error}"));
        let mut listeners = Vec::new();
        for (route, weather) in routes.iter().zip(&weather) {
            let listener = std::net::TcpListener::bind(route.listen).map_err(failed)?;
            listener.set_nonblocking(true).map_err(failed)?;
            listeners.push((listener, route.target, weather.subscribe()));
        }
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build();
        let runtime = runtime.map_err(failed)?;
        let thread = std::thread::Builder::new().name("forwarder".to_owned());
        let run = move || runtime.block_on(serve(listeners));
        thread.spawn(run).map_err(failed)?;
        Ok(Self { weather })
    }

    /// Sets the delay and the loss of the route with this index.
    pub fn set(&self, route: usize, weather: Weather) {
        self.weather[route].send_replace(weather);
    }
}

type Listening = (std::net::TcpListener, SocketAddr, watch::Receiver<Weather>);

async fn serve(listeners: Vec<Listening>) {
    let accepting = listeners
        .into_iter()
        .map(async |(listener, target, weather)| {
            let listener = TcpListener::from_std(listener).expect("the runtime is running");
            loop {
                if let Ok((client, _)) = listener.accept().await {
                    tokio::spawn(connect(client, target, weather.clone()));
                }
            }
        });
    futures_util::future::join_all(accepting).await;
}

async fn connect(client: TcpStream, target: SocketAddr, weather: watch::Receiver<Weather>) {
    let latency = weather.borrow().latency;
    // The kernel has already completed the client's handshake, so add the handshake's round trip
    // here.
    tokio::time::sleep(2 * latency).await;
    let Ok(server) = TcpStream::connect(target).await else {
        return;
    };
    let _ = client.set_nodelay(true);
    let _ = server.set_nodelay(true);
    let (client_reads, client_writes) = client.into_split();
    let (server_reads, server_writes) = server.into_split();
    tokio::join!(
        pass(client_reads, server_writes, weather.clone()),
        pass(server_reads, client_writes, weather),
    );
}

/// Forwards data in one direction. Each piece waits until its delay has passed.
async fn pass(mut from: OwnedReadHalf, mut to: OwnedWriteHalf, weather: watch::Receiver<Weather>) {
    let (sender, mut queue) = mpsc::unbounded_channel::<(Instant, Vec<u8>)>();
    let writes = async move {
        while let Some((due, piece)) = queue.recv().await {
            tokio::time::sleep_until(due).await;
            if to.write_all(&piece).await.is_err() {
                return;
            }
        }
    };
    let reads = async move {
        let mut buffer = vec![0; CHUNK];
        let mut last = Instant::now();
        while let Ok(count @ 1..) = from.read(&mut buffer).await {
            let Weather { latency, loss } = *weather.borrow();
            let lost = fastrand::f64() < loss;
            let delay = latency
                + if lost {
                    RETRANSMISSION + latency
                } else {
                    Duration::ZERO
                };
            last = last.max(Instant::now() + delay);
            if sender.send((last, buffer[..count].to_vec())).is_err() {
                return;
            }
        }
    };
    tokio::join!(reads, writes);
}
