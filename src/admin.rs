//! The HTTP endpoints: who leads, computed at the time of each request.
//!
//! It decides nothing and keeps nothing. It is bounded in every direction,
//! because in Kubernetes it listens on the address of the pod.

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
use crate::election::{Identity, LeaseName, Status, Token};
use crate::publish::metrics::Metrics;
use crate::publish::occupant::{self, named};
use crate::publish::render::Identification;
use crate::publish::{StoreError, StoreInfo, Surface};

/// Connections at once. Probes, a scraper, the workload and a person with a
/// browser keep fewer than 10; with [`BUFFER_BYTES_MAX`] for reading, as much
/// for writing and an answer of at most 32 KiB (all metrics), 64 of them take
/// 64 × 48 KiB = 3 MiB at the very worst. Beyond them an older one gives way.
pub const CONNECTIONS_MAX: usize = 64;
/// Buffer of a connection, and thereby the longest head of a request: the
/// smallest that hyper accepts, and many times what a probe sends.
pub const BUFFER_BYTES_MAX: usize = 8 * 1024;
/// The longest body that is read. No request needs one; a client that sends
/// the token as a form as well should still be understood.
pub const BODY_BYTES_MAX: usize = 1024;
/// From the opening of a connection, or the last answer on it, to the end of
/// the next request's head. Prometheus scrapes on a connection of its own
/// every 15 s or more, so an idle connection is not worth keeping longer.
pub const HEAD_TIME_MAX: Duration = Duration::from_secs(5);
/// How long a connection takes new requests. After it the answer under way is
/// finished and the connection closed, so that nobody keeps one of the
/// [`CONNECTIONS_MAX`] places for ever.
pub const CONNECTION_TIME_MAX: Duration = Duration::from_secs(60);
/// How long a body or the last answer of a connection may take.
pub const TRANSFER_TIME_MAX: Duration = Duration::from_secs(5);
/// Headers of a request; browsers send about 15.
const HEADERS_MAX: usize = 64;
/// The pause after an accept that failed, mostly for want of descriptors:
/// without one the loop would spin until there are some again.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// When `/readyz` says ready.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ReadyWhen {
    /// Once the store has been reached. Readiness by leadership would stall
    /// rolling updates: the new replica waits for the old one to go.
    #[default]
    Connected,
    /// While this candidate leads.
    Leader,
}

/// What the endpoints answer from.
#[derive(Debug, Clone)]
pub struct AdminState {
    /// The lease contended for.
    pub lease: LeaseName,
    /// This candidate.
    pub identity: Identity,
    /// The running boot.
    pub boot_id: Option<String>,
    /// The newest status.
    pub status: watch::Receiver<Status>,
    /// The store, once it is known.
    pub store: watch::Receiver<Option<StoreInfo>>,
    /// Why it does not answer.
    pub store_error: watch::Receiver<Option<StoreError>>,
    /// The metrics.
    pub metrics: Metrics,
    /// What ready means; may change with a reload.
    pub ready_when: watch::Receiver<ReadyWhen>,
    /// Takes the tokens of workloads that say they have stepped down.
    pub stepped_down: mpsc::Sender<Token>,
}

impl AdminState {
    pub(crate) fn who(&self) -> Identification {
        Identification {
            lease: self.lease.clone(),
            identity: self.identity.clone(),
            boot_id: self.boot_id.clone(),
        }
    }
}

/// An address that cannot be listened on: a configuration error (exit 78).
#[derive(Debug, thiserror::Error)]
#[error("cannot listen on {address}: {}. {}, or to \"\" for none", self.why(), self.remedy())]
pub struct BindError {
    /// The address.
    pub address: SocketAddr,
    /// Why not.
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

/// Binds and serves the endpoints.
#[derive(Debug)]
pub struct Admin;

/// A bound address. Connections wait in the backlog until it is served.
#[derive(Debug)]
pub struct Bound {
    listener: std::net::TcpListener,
    address: SocketAddr,
}

impl Admin {
    /// Takes the address, so that a port in use is told before the election starts.
    ///
    /// # Errors
    /// [`BindError`] if the address is in use or not of this machine.
    pub fn bind(address: SocketAddr) -> Result<Bound, BindError> {
        let error = |source| BindError { address, source };
        let listener = std::net::TcpListener::bind(address).map_err(error)?;
        listener.set_nonblocking(true).map_err(error)?;
        let address = listener.local_addr().map_err(error)?;
        Ok(Bound { listener, address })
    }
}

impl Bound {
    /// The address, with the port that the system chose where 0 was asked.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Serves until the future is dropped, which closes all connections.
    ///
    /// # Errors
    /// Only at once, when the listener cannot be given to the event loop.
    pub async fn serve(self, state: AdminState) -> io::Result<Infallible> {
        let listener = TcpListener::from_std(self.listener)?;
        let local_names_only = self.address.ip().to_canonical().is_loopback();
        let mut places = Places::default();
        let mut failing = false;
        loop {
            tokio::select! {
                // Ends are seen first, so that a place is free when the next comes.
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
                        // Requests that have arrived are answered before the next
                        // connection takes a place: a flood evicts only itself.
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

/// Who asks, and where.
#[derive(Debug, Clone, Copy)]
struct Client {
    peer: SocketAddr,
    /// Whether the listener is for this machine alone. A web page from elsewhere
    /// can have its own name resolved to a loopback address.
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
        // Clients that go away or send rubbish are not our failures.
        debug!(%error, "http connection ended");
    }
}
