//! Diagnoses why connections to a server fail if the driver's error does not show the cause.
//!
//! The driver's connect timeout includes name resolution, so an unresponsive nameserver (5 s) would
//! prevent every connection. The timeout is extended only after a slow look-up, because a long
//! timeout delays the detection of a frozen server.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use mongodb::error::{Error, ErrorKind};
use mongodb::options::ServerAddress;
use tokio::io::AsyncReadExt;
use tokio::net::TcpStream;

use super::super::home::canonical;
use super::super::servers::{Cause, SLOW_MIN};
use super::super::{lock, outcome};
use super::Deployment;
use super::client::ConnectedClient;

const EXTRA_MAX: Duration = Duration::from_secs(30);
/// Delay before a server is examined. Most servers answer earlier.
const EXAMINED_AFTER: Duration = Duration::from_millis(250);
/// A server with too many connections closes a new connection within this time.
const CLOSED_WITHIN: Duration = Duration::from_secs(1);

#[derive(Debug, Default)]
pub(super) struct Examinations {
    running: BTreeSet<String>,
    slow: BTreeMap<String, Duration>,
}

impl Examinations {
    /// Returns the extension of the connect timeout: enough for one more unresponsive nameserver.
    fn extra(&self) -> Duration {
        let slowest = self.slow.values().max().copied().unwrap_or_default();
        (slowest * 3 / 2).min(EXTRA_MAX)
    }

    fn resolved(&mut self, address: &str, took: Duration) {
        match took >= SLOW_MIN {
            true => self.slow.insert(address.to_owned(), took),
            false => self.slow.remove(address),
        };
    }
}

impl Deployment {
    pub(super) fn connect_timeout(&self) -> Duration {
        self.operation_timeout() + lock(&self.examinations).extra()
    }

    pub(super) fn examine_later(self: &Arc<Self>, servers: Vec<ServerAddress>, client: u64) {
        let deployment = Arc::downgrade(self);
        tokio::spawn(async move {
            tokio::time::sleep(EXAMINED_AFTER).await;
            for server in servers {
                let Some(deployment) = deployment.upgrade() else {
                    return;
                };
                if !deployment.servers.has_observed(&server.to_string()) {
                    deployment.examine_name(&server, client);
                }
            }
        });
    }

    pub(super) fn examine(self: &Arc<Self>, server: &ServerAddress, client: u64, error: &Error) {
        let ErrorKind::Io(error) = error.kind.as_ref() else {
            return;
        };
        match error.kind() {
            io::ErrorKind::TimedOut => self.examine_name(server, client),
            kind if outcome::is_closed(kind) => self.examine_acceptance(server),
            _ => {}
        }
    }

    fn examine_name(self: &Arc<Self>, server: &ServerAddress, client: u64) {
        let ServerAddress::Tcp { host, .. } = server else {
            return;
        };
        let address = canonical(server);
        if host.parse::<IpAddr>().is_ok() || !self.begin(&address) {
            return;
        }
        let (deployment, servers) = (Arc::downgrade(self), Arc::clone(&self.servers));
        tokio::spawn(async move {
            let lookup = tokio::net::lookup_host(&address);
            let (found, took) = servers.look_up(&address, lookup).await;
            let Some(deployment) = deployment.upgrade() else {
                return;
            };
            if let Some(Ok(_)) = found {
                lock(&deployment.examinations).resolved(&address, took);
                deployment.lengthen(client, took).await;
            }
            deployment.end(&address);
        });
    }

    fn examine_acceptance(self: &Arc<Self>, server: &ServerAddress) {
        let address = canonical(server);
        let is_known = self.servers.known().is_full(&address);
        if is_known || !matches!(server, ServerAddress::Tcp { .. }) || !self.begin(&address) {
            return;
        }
        let deployment = Arc::downgrade(self);
        tokio::spawn(async move {
            let closed = closes_at_once(&address);
            let closed = tokio::time::timeout(CLOSED_WITHIN, closed).await;
            if let Some(deployment) = deployment.upgrade() {
                let cause = closed.unwrap_or(false).then_some(Cause::Full);
                deployment.servers.found(&address, cause);
                deployment.end(&address);
            }
        });
    }

    /// Replaces an unconnected client if a look-up takes longer than the client's connect timeout.
    async fn lengthen(self: &Arc<Self>, client: u64, took: Duration) {
        let is_used = lock(&self.home).has(client);
        let needed = took + self.operation_timeout() / 2;
        let is_too_short = |connection: &ConnectedClient| {
            connection.number == client && !is_used && connection.connect_timeout < needed
        };
        if self.discard(is_too_short) {
            // Connects now, so that the next call does not wait for a look-up.
            let _ = self.connect().await;
        }
    }

    fn begin(&self, address: &str) -> bool {
        lock(&self.examinations).running.insert(address.to_owned())
    }

    fn end(&self, address: &str) {
        lock(&self.examinations).running.remove(address);
    }
}

async fn closes_at_once(address: &str) -> bool {
    let Ok(mut stream) = TcpStream::connect(address).await else {
        return false;
    };
    // A server that speaks first is not MongoDB.
    !matches!(stream.read(&mut [0]).await, Ok(1..))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slow_name_lengthens_connections_until_it_is_fast() {
        let mut examinations = Examinations::default();
        let seconds = Duration::from_secs;
        examinations.resolved("a:1", Duration::from_millis(900));
        assert_eq!(examinations.extra(), Duration::ZERO);
        examinations.resolved("a:1", seconds(6));
        examinations.resolved("b:1", seconds(2));
        assert_eq!(examinations.extra(), seconds(9));
        examinations.resolved("a:1", seconds(40));
        assert_eq!(examinations.extra(), EXTRA_MAX);
        examinations.resolved("a:1", Duration::ZERO);
        assert_eq!(examinations.extra(), seconds(3));
    }
}
