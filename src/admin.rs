//! The HTTP endpoints: the leadership state, computed at the time of each request.
//!
//! The server makes no decisions and stores no state. Every resource is bounded, because in
//! Kubernetes it listens on the address of the pod.

mod answer;
mod page;
mod places;

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::pin::pin;
use std::time::Duration;

use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{mpsc, watch};
use tracing::{debug, warn};

use self::places::{Activity, Places};
use crate::election::{Status, Token};
use crate::publish::metrics::Metrics;
use crate::publish::occupant::{self, named};
use crate::publish::render::Identification;
use crate::publish::{StoreError, StoreInfo, Surface};

/// Maximum number of simultaneous connections. Probes, a scraper, the workload and a person with a
/// browser keep fewer than 10. With [`BUFFER_BYTES_MAX`] for reading, as much for writing and an
/// answer of at most 32 KiB (all metrics), 64 connections take at most 64 × 48 KiB = 3 MiB. Beyond
/// the limit, an older connection is evicted.
pub const CONNECTIONS_MAX: usize = 64;
/// Buffer size of a connection, which also bounds the head of a request. This is the smallest size
/// that hyper accepts, and many times what a probe sends.
pub const BUFFER_BYTES_MAX: usize = 8 * 1024;
/// Maximum length of a request body. No request needs a body, but a client that also sends the
/// token as a form is still served.
pub const BODY_BYTES_MAX: usize = 1024;
/// Maximum time from the opening of a connection, or its last answer, to the end of the next
/// request's head. Prometheus scrapes on a connection of its own every 15 s or more, so an idle
/// connection is not worth keeping longer.
pub const HEAD_TIME_MAX: Duration = Duration::from_secs(5);
/// Time during which a connection accepts new requests. Afterwards the answer in progress is
/// finished and the connection closed, so that no client keeps one of the [`CONNECTIONS_MAX`]
/// places indefinitely.
pub const CONNECTION_TIME_MAX: Duration = Duration::from_secs(60);
/// Timeout of receiving a body, and of the last answer of a connection.
pub const TRANSFER_TIME_MAX: Duration = Duration::from_secs(5);
/// Maximum number of headers in a request; browsers send about 15.
const HEADERS_MAX: usize = 64;
/// Pause after a failed accept. The usual cause is a lack of file descriptors, and without a pause
/// the loop would spin until one is free.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// Condition under which `/readyz` reports ready.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ReadyWhen {
    /// Once the store has been reached. Readiness by leadership would stall rolling updates,
    /// because the new replica waits for the old one to exit.
    #[default]
    Connected,
    /// While this candidate leads.
    Leader,
}

/// The state that the endpoints report.
#[derive(Debug, Clone)]
pub struct AdminState {
    /// The candidate.
    pub who: Identification,
    /// The newest status.
    pub status: watch::Receiver<Status>,
    /// The store, once it has been reached.
    pub store: watch::Receiver<Option<StoreInfo>>,
    /// The current error of the store, if any.
    pub store_error: watch::Receiver<Option<StoreError>>,
    /// The metrics.
    pub metrics: Metrics,
    /// The condition for readiness; may change with a reload.
    pub ready_when: watch::Receiver<ReadyWhen>,
    /// Receives the tokens of workloads that have confirmed their step-down.
    pub stepped_down: mpsc::Sender<Token>,
}

/// An address that cannot be listened on, which is a configuration error (exit 78).
#[derive(Debug, thiserror::Error)]
#[error("cannot listen on {address}: {}. {}, or to \"\" for none", self.why(), self.remedy())]
pub struct BindError {
    /// The configured address.
    pub address: SocketAddr,
    /// The cause.
    #[source]
    pub source: io::Error,
}

impl BindError {
    fn why(&self) -> String {
        match self.source.kind() {
            io::ErrorKind::AddrInUse => {
                let by = named(&occupant::of_address(self.address));
                format!("{by} listens there")
            }
            io::ErrorKind::AddrNotAvailable => "it is not an address of this machine".to_owned(),
            kind => kind.to_string(),
        }
    }

    fn remedy(&self) -> &'static str {
        match self.source.kind() {
            io::ErrorKind::PermissionDenied => {
                "Ports below 1024 need CAP_NET_BIND_SERVICE: set http.listen to a higher one"
            }
            io::ErrorKind::AddrNotAvailable => "Set http.listen to an address of this machine",
            _ => "Set http.listen to a free address",
        }
    }
}

/// The server of the endpoints; see [`Admin::bind`].
#[derive(Debug)]
pub struct Admin;

/// A bound address. Connections wait in the backlog until it is served.
#[derive(Debug)]
pub struct Bound {
    listener: std::net::TcpListener,
    address: SocketAddr,
}

impl Admin {
    /// Binds the address, so that a port in use is reported before the election starts.
    ///
    /// # Errors
    /// [`BindError`] if the address is in use or does not belong to this machine.
    pub fn bind(address: SocketAddr) -> Result<Bound, BindError> {
        let error = |source| BindError { address, source };
        let listener = std::net::TcpListener::bind(address).map_err(error)?;
        listener.set_nonblocking(true).map_err(error)?;
        let address = listener.local_addr().map_err(error)?;
        Ok(Bound { listener, address })
    }
}

impl Bound {
    /// Returns the bound address; if port 0 was requested, with the port that the system chose.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Serves until the future is dropped, which closes all connections.
    ///
    /// # Errors
    /// Only on start, if the listener cannot be registered with the event loop.
    pub async fn serve(self, state: AdminState) -> io::Result<Infallible> {
        let listener = TcpListener::from_std(self.listener)?;
        let local_names_only = self.address.ip().to_canonical().is_loopback();
        let mut places = Places::default();
        let mut failing = false;
        loop {
            tokio::select! {
                // Ended connections are handled first, so that a place is free for the next one.
                biased;
                Some(ended) = places.ended() => {
                    if let Err(error) = ended {
                        warn!(%error, "HTTP connection failed");
                        state.metrics.publish_failed(Surface::Http);
                    }
                }
                accepted = listener.accept() => match accepted {
                    Ok((stream, peer)) => {
                        failing = false;
                        let state = &state;
                        let evicted = places.serve(peer.ip(), |activity| {
                            let client = Client { peer, local_names_only };
                            connection(stream, client, activity, state.clone())
                        });
                        if evicted {
                            state.metrics.http_connection_evicted();
                            debug!(%peer, "evicted an idle HTTP connection");
                        }
                        // Answer the requests that have arrived before accepting the next
                        // connection, so that a flood evicts only its own connections.
                        tokio::task::yield_now().await;
                    }
                    Err(error) => {
                        state.metrics.publish_failed(Surface::Http);
                        if !failing {
                            warn!(kind = %error.kind(), errno = error.raw_os_error(), "failed to accept an HTTP connection, retrying");
                        }
                        failing = true;
                        tokio::time::sleep(ACCEPT_PAUSE).await;
                    }
                },
            }
        }
    }
}

/// The peer of a connection, and the kind of listener that it connected to.
#[derive(Debug, Clone, Copy)]
struct Client {
    peer: SocketAddr,
    /// True if the listener is reachable from this machine only. A web page from elsewhere can have
    /// its own name resolved to a loopback address, so the `Host` header is checked then.
    local_names_only: bool,
}

async fn connection(stream: TcpStream, client: Client, activity: Activity, state: AdminState) {
    let service = service_fn(|request| {
        activity.used();
        let state = &state;
        async move { Ok::<_, Infallible>(answer::answer(request, client, state).await) }
    });
    let mut served = pin!(
        http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(HEAD_TIME_MAX)
            .max_buf_size(BUFFER_BYTES_MAX)
            .max_headers(HEADERS_MAX)
            .serve_connection(TokioIo::new(stream), service)
    );
    let ended = match tokio::time::timeout(CONNECTION_TIME_MAX, served.as_mut()).await {
        Ok(ended) => ended,
        Err(_) => {
            served.as_mut().graceful_shutdown();
            tokio::time::timeout(TRANSFER_TIME_MAX, served)
                .await
                .unwrap_or(Ok(()))
        }
    };
    if let Err(error) = ended {
        // Clients that disconnect or send garbage are not failures of this server.
        debug!(%error, "http connection ended");
    }
}
