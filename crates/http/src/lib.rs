//! A small HTTP server for a few clients: every resource that a client can take is bounded.
//!
//! A [`Site`] makes the answers: the daemon's endpoints, or the page of a collection. The server does
//! not know leases or locks, and reads no configuration.

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
pub use self::streams::StreamPlace;
pub use self::streams::Streams;

use self::places::{Activity, Lasting, Places};
use leasehold_host::occupant::{self, named};
use leasehold_host::{CommandError, exit};

/// Maximum number of simultaneous connections, apart from event streams. Probes, a scraper, the
/// workload and a browser keep fewer than 10. With [`BUFFER_BYTES_MAX`] for reading, as much for writing and an
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
/// places indefinitely. An event stream or a long poll in progress continues, because it has a
/// place of its own.
pub const CONNECTION_TIME_MAX: Duration = Duration::from_secs(60);
/// Timeout of receiving a body, and of the last answer of a connection.
pub const TRANSFER_TIME_MAX: Duration = Duration::from_secs(5);
/// Size of a socket's send buffer. Otherwise the kernel grows it to megabytes for a client that
/// does not read. The largest answer, all metrics, has 32 KiB.
const SEND_BUFFER_BYTES: usize = 16 * 1024;
/// Time after which the kernel closes a connection whose peer has taken nothing, because it is gone
/// or does not read.
const UNREAD_TIME_MAX: Duration = Duration::from_secs(10);
/// Maximum number of connections that wait to be accepted; the kernel lowers it to
/// `net.core.somaxconn`. The kernel drops further ones, and a dropped client tries again after 1 s,
/// 3 s and 7 s, which is longer than the timeout of a probe. The standard library's 128 are fewer
/// than a flood opens at once.
const BACKLOG: i32 = 4096;
/// Maximum number of headers in a request; browsers send about 15.
const HEADERS_MAX: usize = 64;
/// Pause after a failed accept. The usual cause is a lack of file descriptors, and without a pause
/// the loop would spin until one is free.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// The answers of a server, and the counters of its failures. Clones share them.
pub trait Site: Clone + Send + Sync + 'static {
    /// Answers a request.
    fn answer(
        &self,
        request: Request<Incoming>,
        client: &Client,
    ) -> impl Future<Output = Answer> + Send;

    /// Counts a connection that failed, or was not accepted.
    fn failed(&self);

    /// Counts an idle connection that was closed for a new one.
    fn evicted(&self);
}

/// The key or flag that sets an address, for errors.
#[derive(Debug, Clone, Copy)]
pub struct AddressSetting {
    /// Its name.
    pub name: &'static str,
    /// A remedy other than another address, after a comma; empty if there is none.
    pub instead: &'static str,
}

/// The key that sets the address of a daemon's endpoints.
pub const HTTP_LISTEN: AddressSetting = AddressSetting {
    name: "http.listen",
    instead: ", or to \"\" for none",
};

/// Returns the error for an address that cannot be listened on, which is a configuration error.
pub fn cannot_listen(
    address: SocketAddr,
    setting: AddressSetting,
    error: &io::Error,
) -> CommandError {
    let AddressSetting { name, instead } = setting;
    let cause = match error.kind() {
        io::ErrorKind::AddrInUse => {
            let by = named(&occupant::of_address(address));
            format!("{by} listens there")
        }
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

/// A bound address. Connections wait in the backlog until it is served.
#[derive(Debug)]
pub struct Bound {
    listener: std::net::TcpListener,
    address: SocketAddr,
    streams: Streams,
}

impl Bound {
    /// Binds an address, which `setting` sets, for a server with at most this many event streams.
    ///
    /// # Errors
    /// If the address is in use or does not belong to this machine.
    pub fn new(
        address: SocketAddr,
        setting: AddressSetting,
        streams_max: usize,
    ) -> Result<Self, CommandError> {
        let listen = || {
            let listener = std::net::TcpListener::bind(address)?;
            rustix::net::listen(&listener, BACKLOG)?;
            listener.set_nonblocking(true)?;
            let address = listener.local_addr()?;
            Ok((listener, address))
        };
        let (listener, address) =
            listen().map_err(|error| cannot_listen(address, setting, &error))?;
        Ok(Self {
            listener,
            address,
            streams: Streams::new(streams_max),
        })
    }

    /// Returns the bound address; if port 0 was requested, with the port that the system chose.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns the event streams of this server, to be closed before the exit.
    pub fn streams(&self) -> Streams {
        self.streams.clone()
    }

    /// Serves a site until the future is dropped, which closes all connections.
    ///
    /// # Errors
    /// Only on start, if the listener cannot be registered with the event loop.
    pub async fn serve(self, site: impl Site) -> io::Result<Infallible> {
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
                        // Answer the requests that have arrived before accepting the next
                        // connection, so that a flood evicts only its own connections.
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

/// Checks that the address can be bound, without listening on it, so that a daemon that starts
/// meanwhile can bind it.
///
/// # Errors
/// The error of the operating system.
pub fn probe(address: SocketAddr) -> io::Result<()> {
    let family = match address {
        SocketAddr::V4(_) => AddressFamily::INET,
        SocketAddr::V6(_) => AddressFamily::INET6,
    };
    let socket = socket_with(family, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
    // The standard library sets this option for listeners too.
    sockopt::set_socket_reuseaddr(&socket, true)?;
    Ok(rustix::net::bind(&socket, &address)?)
}

/// A connection, as the answers to its requests see it.
#[derive(Debug)]
pub struct Client {
    /// The peer.
    pub peer: SocketAddr,
    /// True if the listener is reachable from this machine only. A web page from elsewhere can have
    /// its own name resolved to a loopback address, so the `Host` header is checked then.
    pub local_names_only: bool,
    activity: Activity,
    /// The event streams of the server.
    pub streams: Streams,
    /// Notified if another event stream needs the place of this one.
    evicted: Arc<Notify>,
}

impl Client {
    /// Marks the answer in progress as long-lived, until the value is dropped. The
    /// caller bounds the number of such answers.
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

/// Limits what the kernel buffers for a client that does not read, and for how long.
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
