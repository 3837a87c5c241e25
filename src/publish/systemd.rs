//! Notifies systemd of readiness, status and liveness, if NOTIFY_SOCKET is set. This module opens
//! its own socket, because the sd-notify crate's socket blocks. With a blocking socket, a service
//! manager that does not read would stall the event loop.

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::time::Duration;

use sd_notify::NotifyState;
use tokio::time::sleep;
use tracing::warn;

use super::render::{authority_at, leader_name_at};
use crate::clock::boot_now;
use crate::election::{BootTime, Identity, ResourceName, Role, Status};

const NOTIFY_SOCKET: &str = "NOTIFY_SOCKET";
/// Minimum interval between watchdog pings; more pings would only cost wake-ups.
const PING_INTERVAL_MIN: Duration = Duration::from_millis(10);

/// First interval between two attempts to send a message. The queue of systemd's socket is short,
/// and is full for milliseconds.
const RETRY_INTERVAL_MIN: Duration = Duration::from_millis(100);
/// Bounds the wake-ups if nothing reads the socket.
const RETRY_INTERVAL_MAX: Duration = Duration::from_secs(10);

/// Sends notifications to systemd. The event loop sends the watchdog pings, so systemd restarts the
/// service if the loop is stuck.
#[derive(Debug)]
pub struct Systemd {
    channel: Option<(UnixDatagram, SocketAddr)>,
    watchdog: Option<Duration>,
    line: String,
    /// Messages that could not be sent yet, in order; at most one of each kind.
    unsent: Vec<String>,
    retry_at: BootTime,
    retry_interval: Duration,
    failing: bool,
}

impl Systemd {
    /// Opens a socket that sends to the address in NOTIFY_SOCKET. If the variable is unset or the
    /// socket unusable, nothing is sent.
    pub fn from_environment() -> Self {
        let address = std::env::var_os(NOTIFY_SOCKET).filter(|a| !a.is_empty());
        Self::new(address, sd_notify::watchdog_enabled())
    }

    /// Opens a socket that sends to `address`, which is a path, or `@` followed by an abstract
    /// name. `watchdog` is systemd's watchdog timeout.
    pub fn new(address: Option<OsString>, watchdog: Option<Duration>) -> Self {
        let channel = address.and_then(|address| match open(&address) {
            Ok(channel) => Some(channel),
            Err(error) => {
                warn!(kind = %error.kind(), errno = error.raw_os_error(), "systemd cannot be notified");
                None
            }
        });
        Self {
            watchdog: watchdog.filter(|patience| channel.is_some() && !patience.is_zero()),
            channel,
            line: String::new(),
            unsent: Vec::new(),
            retry_at: BootTime::default(),
            retry_interval: RETRY_INTERVAL_MIN,
            failing: false,
        }
    }

    /// Reports that the service is ready; called once the store has been reached.
    pub fn ready(&mut self) {
        self.send(&NotifyState::Ready);
    }

    /// Shows the candidate's state in `systemctl status`. Sends only changes.
    pub fn show(&mut self, status: &Status, lease: &ResourceName, me: &Identity, now: BootTime) {
        let line = describe(status, lease, me, now);
        if line != self.line {
            self.send(&NotifyState::Status(&line));
            self.line = line;
        }
    }

    /// Returns the interval for [`Systemd::ping`]: half of the watchdog timeout, as
    /// sd_watchdog_enabled(3) advises; `None` without a watchdog.
    pub fn ping_interval(&self) -> Option<Duration> {
        let half = self.watchdog.map(|patience| patience / 2);
        half.map(|half| half.max(PING_INTERVAL_MIN))
    }

    /// Reports that the event loop is running.
    pub fn ping(&mut self) {
        if self.watchdog.is_some() {
            self.send(&NotifyState::Watchdog);
        }
    }

    /// Reports that the service is about to exit.
    pub fn stopping(&mut self) {
        self.send(&NotifyState::Stopping);
    }

    /// Waits for the time of the next attempt and sends the messages that could not be sent; waits
    /// indefinitely if there are none. Cancel safe.
    pub async fn retry(&mut self) {
        match self.unsent.is_empty() {
            true => std::future::pending().await,
            false => sleep(self.retry_at.since(boot_now())).await,
        }
        self.send_all();
    }

    fn send(&mut self, state: &NotifyState<'_>) {
        let message = format!("{state}\n");
        let kind = |message: &str| message.split('=').next().map(str::to_owned);
        self.unsent.retain(|unsent| kind(unsent) != kind(&message));
        self.unsent.push(message);
        self.send_all();
    }

    fn send_all(&mut self) {
        let Some((socket, manager)) = &self.channel else {
            self.unsent.clear();
            return;
        };
        while let Some(message) = self.unsent.first() {
            // The socket is not connected, because the manager may recreate its own socket when it
            // restarts.
            if let Err(error) = socket.send_to_addr(message.as_bytes(), manager) {
                if !self.failing {
                    warn!(kind = %error.kind(), errno = error.raw_os_error(), "systemd cannot be notified, retrying");
                    self.retry_interval = RETRY_INTERVAL_MIN;
                }
                self.failing = true;
                let now = boot_now();
                if self.retry_at <= now {
                    self.retry_at = now + self.retry_interval;
                    self.retry_interval = (self.retry_interval * 2).min(RETRY_INTERVAL_MAX);
                }
                return;
            }
            self.failing = false;
            self.unsent.remove(0);
        }
    }
}

fn open(address: &OsStr) -> io::Result<(UnixDatagram, SocketAddr)> {
    let manager = match address.as_bytes().strip_prefix(b"@") {
        Some(name) => SocketAddr::from_abstract_name(name)?,
        None => SocketAddr::from_pathname(address)?,
    };
    let socket = UnixDatagram::unbound()?;
    socket.set_nonblocking(true)?;
    Ok((socket, manager))
}

/// Returns the line for `systemctl status`. The line omits the remaining time, which would change
/// constantly.
fn describe(status: &Status, lease: &ResourceName, me: &Identity, now: BootTime) -> String {
    if let Some(authority) = authority_at(status, now) {
        return format!("leader of {lease}, token {}", authority.token);
    }
    let role = status.at(now).role;
    let unconfirmed = status.holder.as_ref().is_some_and(|h| h.unconfirmed);
    match (role, leader_name_at(status, me, now)) {
        (Role::Follower | Role::Leader, Some(name)) => match unconfirmed {
            true => format!("follower of {lease}, last recorded holder {name}"),
            false => format!("follower of {lease}, {name} leads"),
        },
        (Role::Follower | Role::Leader, None) => format!("follower of {lease}, no leader"),
        (Role::Paused, _) => format!("{lease} is paused, no leader"),
        (Role::Stopping, _) => format!("stepping down from {lease}"),
        (Role::Unknown, _) => format!("waiting for MongoDB (lease {lease})"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::election::HolderView;
    use crate::publish::fixture::{at, leader, status, token, who};

    fn names() -> (ResourceName, Identity) {
        let who = who("me");
        (who.lease, who.identity)
    }

    fn receive(socket: &UnixDatagram) -> String {
        let mut buffer = [0; 512];
        socket
            .set_read_timeout(Some(Duration::from_secs(5)))
            .unwrap();
        let length = socket.recv(&mut buffer).unwrap();
        String::from_utf8(buffer[..length].to_vec()).unwrap()
    }

    #[test]
    fn systemd_is_notified_of_readiness_roles_pings_and_the_end() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("notify");
        let manager = UnixDatagram::bind(&path).unwrap();
        let (lease, me) = names();
        let mut systemd = Systemd::new(Some(path.into()), Some(Duration::from_secs(3)));
        assert_eq!(systemd.ping_interval(), Some(Duration::from_millis(1500)));

        systemd.ready();
        assert_eq!(receive(&manager), "READY=1\n");
        systemd.show(&leader(7, at(10)), &lease, &me, at(1));
        systemd.show(&leader(7, at(10)), &lease, &me, at(2));
        systemd.ping();
        assert_eq!(receive(&manager), "STATUS=leader of orders, token 7\n");
        assert_eq!(receive(&manager), "WATCHDOG=1\n", "no second STATUS");
        systemd.show(&leader(7, at(10)), &lease, &me, at(10));
        let line = receive(&manager);
        assert_eq!(line, "STATUS=follower of orders, no leader\n");
        systemd.stopping();
        assert_eq!(receive(&manager), "STOPPING=1\n");
    }

    #[test]
    fn an_abstract_socket_works() {
        let name = format!("leasehold-test-{}", std::process::id());
        let address = SocketAddr::from_abstract_name(name.as_bytes()).unwrap();
        let manager = UnixDatagram::bind_addr(&address).unwrap();
        let mut systemd = Systemd::new(Some(format!("@{name}").into()), None);
        assert_eq!(systemd.ping_interval(), None);
        systemd.ping();
        systemd.stopping();
        assert_eq!(receive(&manager), "STOPPING=1\n", "no ping was sent");
    }

    #[test]
    fn an_unresponsive_manager_does_not_block() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("notify");
        let _manager = UnixDatagram::bind(&path).unwrap();
        let mut systemd = Systemd::new(Some(path.into()), Some(Duration::from_secs(1)));
        for _ in 0..10_000 {
            systemd.ping();
        }
        assert!(systemd.failing);
    }

    #[test]
    fn messages_that_find_the_queue_full_are_sent_later() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("notify");
        let manager = UnixDatagram::bind(&path).unwrap();
        manager.set_nonblocking(true).unwrap();
        let other = UnixDatagram::unbound().unwrap();
        other.set_nonblocking(true).unwrap();
        while other.send_to(b"x", &path).is_ok() {}
        let (lease, me) = names();
        let mut systemd = Systemd::new(Some(path.into()), Some(Duration::from_secs(3)));
        systemd.ready();
        systemd.show(&leader(7, at(10)), &lease, &me, at(1));
        systemd.ping();
        systemd.show(&leader(7, at(10)), &lease, &me, at(10));
        systemd.ping();
        systemd.stopping();
        while manager.recv(&mut [0; 8]).is_ok() {}
        manager.set_nonblocking(false).unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .build();
        runtime.unwrap().block_on(async {
            let retried = tokio::time::timeout(Duration::from_secs(30), systemd.retry());
            retried.await.expect("a retry");
        });
        let received = [(); 4].map(|()| receive(&manager));
        let expected = [
            "READY=1\n",
            "STATUS=follower of orders, no leader\n",
            "WATCHDOG=1\n",
            "STOPPING=1\n",
        ];
        assert_eq!(received, expected);
        assert!(systemd.unsent.is_empty());
    }

    #[test]
    fn a_zero_watchdog_is_ignored_and_a_short_one_limited() {
        let interval = |patience| {
            let socket = Some("/nonexistent/notify".into());
            Systemd::new(socket, Some(patience)).ping_interval()
        };
        assert_eq!(interval(Duration::ZERO), None);
        assert_eq!(interval(Duration::from_micros(1)), Some(PING_INTERVAL_MIN));
        let long = Duration::from_micros(u64::MAX);
        assert_eq!(interval(long), Some(long / 2));
    }

    #[test]
    fn without_a_socket_nothing_happens() {
        let mut systemd = Systemd::new(None, Some(Duration::from_secs(1)));
        assert_eq!(systemd.ping_interval(), None);
        systemd.ready();
        let mut systemd = Systemd::new(Some("/nonexistent/notify".into()), None);
        systemd.ready();
        assert!(systemd.failing);
    }

    #[test]
    fn every_role_has_a_line() {
        let (lease, me) = names();
        let line = |role| describe(&status(role), &lease, &me, at(1));
        assert_eq!(line(Role::Paused), "orders is paused, no leader");
        assert_eq!(line(Role::Stopping), "stepping down from orders");
        assert_eq!(line(Role::Unknown), "waiting for MongoDB (lease orders)");
        for (unconfirmed, expected) in [
            (false, "follower of orders, other leads"),
            (true, "follower of orders, last recorded holder other"),
        ] {
            let follower = Status {
                holder: Some(HolderView {
                    identity: Identity::new("other").unwrap(),
                    token: token(8),
                    until: at(5),
                    unconfirmed,
                }),
                ..status(Role::Follower)
            };
            assert_eq!(describe(&follower, &lease, &me, at(1)), expected);
        }
    }
}
