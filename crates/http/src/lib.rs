//! An HTTP server that bounds every resource a client can take. A [`Site`] answers the requests:
//! the daemon's endpoints, or the page of a collection.

#![forbid(unsafe_code)]

mod answer;
mod hosts;
mod places;
mod streams;

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use hyper::Request;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use rustix::net::sockopt;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Notify;
use tokio::time::timeout;
use tracing::{debug, warn};

pub use self::answer::{
    Answer, EventBody, Feed, HTML, event_body, event_stream, full, json, respond, retry_later, text,
};
pub use self::hosts::is_misdirected;
pub use self::streams::{StreamPlace, Streams};

use self::places::{Activity, Lasting, Places};
use leasehold_host::occupant::{self, named};
use leasehold_host::{CommandError, exit};

/// Maximum number of simultaneous connections, apart from event streams. At the limit, a new
/// connection evicts an older connection. Each has two buffers of [`BUFFER_BYTES_MAX`] and an
/// answer of at most 32 KiB (all metrics): 3 MiB in total.
pub const CONNECTIONS_MAX: usize = 64;
/// Buffer size of a connection, hyper's minimum. Also the maximum length of a request's head.
pub const BUFFER_BYTES_MAX: usize = 8 * 1024;
/// Maximum length of a request body. No request needs a body, but a client may send a form.
pub const BODY_BYTES_MAX: usize = 1024;
/// Timeout for receiving the head of the next request, including idle time. A slightly longer
/// timeout would gain nothing, because Prometheus scrapes at intervals of 15 s or more.
pub const HEAD_TIME_MAX: Duration = Duration::from_secs(5);
/// Maximum age at which a connection accepts new requests. Prevents a client from keeping one of
/// the [`CONNECTIONS_MAX`] places indefinitely. An event stream or a long poll may last longer.
pub const CONNECTION_TIME_MAX: Duration = Duration::from_secs(60);
/// Timeout for receiving a body, and for sending the last answer of a connection.
pub const TRANSFER_TIME_MAX: Duration = Duration::from_secs(5);
/// Size of a socket's send buffer. The default can grow to megabytes if the client does not read.
const SEND_BUFFER_BYTES: usize = 16 * 1024;
/// Time after which the kernel closes a connection whose peer reads nothing.
const UNREAD_TIME_MAX: Duration = Duration::from_secs(10);
/// Maximum number of connections that wait to be accepted, also limited by `net.core.somaxconn`.
/// The kernel drops further connections. Their clients retry only after 1 s, too late for a probe.
const BACKLOG: i32 = 4096;
/// Browsers send about 15 headers.
const HEADERS_MAX: usize = 64;
/// Pause after a failed accept, so that the loop does not spin while no file descriptor is free.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Answers the requests of a server and counts its failures.
pub trait Site: Clone + Send + Sync + 'static {
    /// Answers a request.
    fn answer(
        &self,
        request: Request<Incoming>,
        client: &Client,
    ) -> impl Future<Output = Answer> + Send;

    /// Counts a connection that failed or could not be accepted.
    fn failed(&self);

    /// Counts an idle connection that was closed for a new connection.
    fn evicted(&self);
}

/// The key or flag that sets an address, for error messages.
#[derive(Debug, Clone, Copy)]
pub struct AddressSetting {
    /// Name of the key or flag.
    pub name: &'static str,
    /// Text that names another remedy and begins with a comma; may be empty.
    pub instead: &'static str,
}

/// The key that sets the address of a daemon's endpoints.
pub const HTTP_LISTEN: AddressSetting = AddressSetting {
    name: "http.listen",
    instead: ", or to \"\" for none",
};

/// Returns the configuration error for a failure to listen on this address.
pub fn cannot_listen(
    address: SocketAddr,
    setting: AddressSetting,
    error: &io::Error,
) -> CommandError {
    let AddressSetting { name, instead } = setting;
    let cause = match error.kind() {
        io::ErrorKind::AddrInUse => named(&occupant::of_address(address)) + " listens there",
        io::ErrorKind::AddrNotAvailable => "it is not an address of this machine".to_owned(),
        kind => kind.to_string(),
    };
    let remedy = match error.kind() {
        io::ErrorKind::PermissionDenied => {
            format!("give this process CAP_NET_BIND_SERVICE, or set {name} to a port above 1023")
        }
        io::ErrorKind::AddrNotAvailable => format!("set {name} to an address of this machine"),
        _ => format!("set {name} to a free address"),
    };
    CommandError::new(exit::CONFIGURATION, format!("cannot listen on {address}"))
        .because(cause)
        .to_fix(remedy + instead)
}

/// A bound address. Connections wait in the backlog until a site is served.
#[derive(Debug)]
pub struct Bound {
    listener: std::net::TcpListener,
    address: SocketAddr,
    streams: Streams,
}

impl Bound {
    /// Binds an address for a server with at most this many event streams.
    pub fn new(
        address: SocketAddr,
        setting: AddressSetting,
        streams_max: usize,
    ) -> Result<Self, CommandError> {
        let bind = || {
            let listener = std::net::TcpListener::bind(address)?;
            rustix::net::listen(&listener, BACKLOG)?;
            listener.set_nonblocking(true)?;
            Ok(Self {
                address: listener.local_addr()?,
                listener,
                streams: Streams::new(streams_max),
            })
        };
        bind().map_err(|error| cannot_listen(address, setting, &error))
    }

    /// Returns the bound address, with the port that the system chose for port 0.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns the event streams. The caller closes them before it exits.
    pub fn streams(&self) -> Streams {
        self.streams.clone()
    }

    /// Serves a site until the future is dropped, which closes all connections. Fails only if the
    /// listener cannot be registered with the event loop.
    pub async fn serve(self, site: impl Site) -> io::Result<Infallible> {
        let listener = TcpListener::from_std(self.listener)?;
        let local_names_only = self.address.ip().to_canonical().is_loopback();
        let mut places = Places::default();
        let mut failing = false;
        loop {
            tokio::select! {
                // Handle ended connections first, because they free places.
                biased;
                Some(ended) = places.ended() => {
                    if let Err(error) = ended {
                        warn!(%error, "HTTP connection failed");
                        site.failed();
                    }
                }
                accepted = listener.accept() => match accepted {
                    Ok((stream, peer)) => {
                        failing = false;
                        let evicted = places.serve(peer.ip(), |activity| {
                            let client = Client {
                                peer,
                                local_names_only,
                                activity,
                                streams: self.streams.clone(),
                                evicted: Arc::default(),
                            };
                            connection(stream, client, site.clone())
                        });
                        if evicted {
                            site.evicted();
                            debug!(%peer, "evicted an idle HTTP connection");
                        }
                        // Serve this connection first, so a flood evicts only its own connections.
                        tokio::task::yield_now().await;
                    }
                    Err(error) => {
                        site.failed();
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

/// Checks that the address can be bound. Does not listen, so a daemon can still bind the address.
pub fn probe(address: SocketAddr) -> io::Result<()> {
    let family = match address {
        SocketAddr::V4(_) => AddressFamily::INET,
        SocketAddr::V6(_) => AddressFamily::INET6,
    };
    let socket = socket_with(family, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
    // The standard library also sets this option for its listeners.
    sockopt::set_socket_reuseaddr(&socket, true)?;
    Ok(rustix::net::bind(&socket, &address)?)
}

/// The connection of a request.
#[derive(Debug)]
pub struct Client {
    /// The peer.
    pub peer: SocketAddr,
    /// True if only this machine can reach the listener; see [`is_misdirected`].
    pub local_names_only: bool,
    activity: Activity,
    /// The event streams of the server.
    pub streams: Streams,
    /// Notified when the server ends this event stream in favor of another stream.
    evicted: Arc<Notify>,
}

impl Client {
    /// Marks the answer in progress as long-lived, until the returned value is dropped.
    pub fn lasts(&self) -> Lasting {
        self.activity.lasts()
    }
}

async fn connection(stream: TcpStream, client: Client, site: impl Site) {
    if let Err(error) = limit_unread(&stream) {
        debug!(%error, "failed to limit an HTTP connection");
    }
    let service = service_fn(|request| {
        client.activity.used();
        let (client, site) = (&client, &site);
        async move { Ok::<_, Infallible>(site.answer(request, client).await) }
    });
    let mut served = pin!(
        http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(HEAD_TIME_MAX)
            .max_buf_size(BUFFER_BYTES_MAX)
            .max_headers(HEADERS_MAX)
            .serve_connection(TokioIo::new(stream), service)
    );
    let limited = async {
        if let Ok(ended) = timeout(CONNECTION_TIME_MAX, served.as_mut()).await {
            return ended;
        }
        served.as_mut().graceful_shutdown();
        loop {
            match timeout(TRANSFER_TIME_MAX, served.as_mut()).await {
                Ok(ended) => return ended,
                Err(_) if client.activity.is_lasting() => {}
                Err(_) => return Ok(()),
            }
        }
    };
    let ended = tokio::select! {
        ended = limited => ended,
        () = client.evicted.notified() => Ok(()),
    };
    if let Err(error) = ended {
        // Clients that disconnect or send garbage are not failures of this server.
        debug!(%error, "http connection ended");
    }
}

/// Limits the unsent data and the lifetime of a connection whose client does not read.
fn limit_unread(stream: &TcpStream) -> io::Result<()> {
    let millis = u32::try_from(UNREAD_TIME_MAX.as_millis()).unwrap_or(u32::MAX);
    sockopt::set_tcp_user_timeout(stream, millis)?;
    sockopt::set_socket_send_buffer_size(stream, SEND_BUFFER_BYTES)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, TcpStream};

    use super::*;

    #[test]
    fn a_flood_of_connections_waits_and_none_is_dropped() {
        const FLOOD: usize = 512;
        let limit = std::fs::read_to_string("/proc/sys/net/core/somaxconn").expect("a limit");
        let limit: usize = limit.trim().parse().expect("a number");
        // Nothing accepts the connections.
        let bound = Bound::new((Ipv4Addr::LOCALHOST, 0).into(), HTTP_LISTEN, 1).expect("bound");
        let waiting: Vec<_> = (0..FLOOD.min(limit))
            .map(|number| {
                let opened = TcpStream::connect_timeout(&bound.address(), HEAD_TIME_MAX);
                opened.unwrap_or_else(|error| panic!("connection {number}: {error}"))
            })
            .collect();
        assert_eq!(waiting.len(), FLOOD.min(limit));
    }
}
