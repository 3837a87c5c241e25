//! Explains why no call succeeds, from the settings of the connection string and the states of the
//! servers. The driver itself forgets a server that contradicts the connection string.

use std::collections::BTreeMap;
use std::io;
use std::time::Duration;

use mongodb::bson::Document;
use mongodb::error::{Error, ErrorKind};
use mongodb::event::sdam::SdamEvent;
use mongodb::options::{AuthMechanism, ClientOptions, Tls};
use tokio::sync::watch;

use super::home::canonical;
use super::outcome::NETWORK;
use super::tls::{NamedFile, named_files};
use super::{home, outcome};
use crate::store::kind::is_router;
use crate::store::{Failure, RetryPolicy};
use leasehold_clock::duration::short;
use leasehold_core::election::BootTime;

const NAMED_MAX: usize = 3;
/// Time limit of a look-up. With up to four nameservers, the C library gives up before this limit.
const LOOKUP_MAX: Duration = Duration::from_secs(45);
/// Minimum duration of a look-up that counts as a possible cause of failures.
pub(super) const SLOW_MIN: Duration = Duration::from_secs(1);

/// The settings of the connection string, without its password.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Asked {
    pub(super) login: AuthMethod,
    pub(super) set: Option<String>,
    pub(super) tls: bool,
    /// True for a direct connection to one server, whatever the server's type.
    pub(super) direct: bool,
    pub(super) hosts: Vec<String>,
    pub(super) files: Vec<NamedFile>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) enum AuthMethod {
    #[default]
    Nobody,
    Password {
        user: String,
        source: String,
    },
    Certificate,
    /// The client logs in with a token of an OIDC provider.
    Token,
}

/// The description of [`ServerState::Uninitiated`].
pub const UNINITIATED: &str = "a member of a replica set that was not initiated";
/// The remedy for [`ServerState::Uninitiated`].
pub const INITIATE: &str = "run rs.initiate() on one member";

/// The state of a server in its last reply, or the reason why it did not reply.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ServerState {
    /// The server accepts writes.
    Writable,
    /// The server does not accept writes, but may vote or become primary.
    Member(&'static str),
    /// The server is in any other state. Contains its description.
    Unready(&'static str),
    /// The server waits for the initiation of its replica set.
    Uninitiated,
    /// The server is not a member of the requested set. Contains the server's description.
    Elsewhere(String),
    /// The server did not reply, for this reason.
    Unreachable(Failure),
    /// The server refused the login.
    RefusedLogin(Failure),
}

#[derive(Debug, Default)]
pub(super) struct Servers(watch::Sender<ServerStates>);

#[derive(Debug, Default)]
pub(super) struct ServerStates {
    asked: Asked,
    seen: BTreeMap<String, ServerState>,
    /// True once a server has answered, which proves the TLS settings correct.
    answered: bool,
    /// The key is a server's canonical address, or the name of an SRV record.
    causes: BTreeMap<String, Cause>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Cause {
    /// Start of a look-up of the server's name that is still running.
    Resolving(BootTime),
    /// Duration of the last look-up of the server's name.
    Resolved(Duration),
    /// The server has too many connections, so it closes each new connection without reading from
    /// it.
    Full,
}

impl Cause {
    /// Describes the cause; `None` for a look-up that is not slow.
    fn describe(self) -> Option<Failure> {
        let slow = match self {
            Self::Resolving(since) => {
                let elapsed = leasehold_clock::boot_now().since(since);
                let slow = format!("has not been resolved for {}", short(elapsed));
                Some(slow).filter(|_| elapsed >= SLOW_MIN)?
            }
            Self::Resolved(took) => format!("took {} to resolve", short(took)),
            Self::Full => {
                let kind =
                    "the server, or a proxy in front of it, closes each connection immediately";
                let limit = "it may have reached its limit of connections (maxConns, ulimit -n)";
                return Some(Failure::new(kind, limit));
            }
        };
        let check = "check the nameservers of this host (/etc/resolv.conf)";
        Some(Failure::new("its name", check).of(slow))
    }

    fn explains(self, error: &Error) -> bool {
        let ErrorKind::Io(error) = error.kind.as_ref() else {
            return false;
        };
        match self {
            Self::Resolving(_) | Self::Resolved(_) => error.kind() == io::ErrorKind::TimedOut,
            Self::Full => outcome::is_closed(error.kind()),
        }
    }
}

impl ServerStates {
    fn cause(&self, address: &str) -> Option<Failure> {
        self.causes.get(address).and_then(|cause| cause.describe())
    }

    pub(super) fn states(&self) -> BTreeMap<String, ServerState> {
        let states = self.seen.iter().map(|(address, state)| {
            let state = match (state, self.cause(address)) {
                (ServerState::Unreachable(_), Some(cause)) => ServerState::Unreachable(cause),
                (state, _) => state.clone(),
            };
            (address.clone(), state)
        });
        states.collect()
    }

    pub(super) fn caused(&self) -> Vec<String> {
        let caused = self.causes.keys().filter_map(|address| {
            let cause = self.cause(address)?;
            Some(format!("{address}: {cause}"))
        });
        caused.take(NAMED_MAX).collect()
    }
}

impl Asked {
    pub(super) fn of(options: &ClientOptions) -> Self {
        let login = match &options.credential {
            None => AuthMethod::Nobody,
            Some(credential) => match credential.mechanism {
                Some(AuthMechanism::MongoDbX509) => AuthMethod::Certificate,
                Some(AuthMechanism::MongoDbOidc) => AuthMethod::Token,
                _ => AuthMethod::Password {
                    user: credential.username.clone().unwrap_or_default(),
                    source: credential.source.clone().unwrap_or("admin".to_owned()),
                },
            },
        };
        let tls = match &options.tls {
            Some(Tls::Enabled(tls)) => Some(tls),
            _ => None,
        };
        Self {
            login,
            set: options.repl_set_name.clone(),
            tls: tls.is_some(),
            direct: options.direct_connection == Some(true),
            hosts: options.hosts.iter().map(canonical).collect(),
            files: tls.map(named_files).unwrap_or_default(),
        }
    }
}

impl Servers {
    /// Applies new settings, and discards observations that were made under other settings.
    pub(super) fn ask(&self, asked: Asked) {
        self.0.send_if_modified(|known| {
            let is_new = known.asked != asked;
            if is_new {
                let causes = std::mem::take(&mut known.causes);
                *known = ServerStates {
                    asked,
                    causes,
                    ..ServerStates::default()
                };
            }
            is_new
        });
    }

    /// Returns the states. The reference must not be held during a call to another method.
    pub(super) fn known(&self) -> watch::Ref<'_, ServerStates> {
        self.0.borrow()
    }

    pub(super) fn asked(&self) -> Asked {
        self.known().asked.clone()
    }

    pub(super) fn record_event(&self, event: &SdamEvent) {
        self.0.send_modify(|known| known.record_event(event));
    }

    /// True if any server has answered, or if this server was found unreachable.
    pub(super) fn has_observed(&self, address: &str) -> bool {
        let known = self.known();
        known.answered || known.seen.contains_key(&canonical(address))
    }

    pub(super) fn found(&self, address: &str, cause: Option<Cause>) {
        self.0.send_modify(|known| {
            match cause {
                Some(cause) => known.causes.insert(address.to_owned(), cause),
                None => known.causes.remove(address),
            };
        });
    }

    /// Looks up a name within [`LOOKUP_MAX`]. Returns the result, if any, and the duration. While
    /// the look-up runs, and later if the look-up was slow, the name is listed as a possible cause.
    pub(super) async fn look_up<T>(
        &self,
        address: &str,
        lookup: impl Future<Output = T>,
    ) -> (Option<T>, Duration) {
        let began = leasehold_clock::boot_now();
        self.found(address, Some(Cause::Resolving(began)));
        let found = tokio::time::timeout(LOOKUP_MAX, lookup).await.ok();
        let took = leasehold_clock::boot_now().since(began);
        self.found(address, (took >= SLOW_MIN).then_some(Cause::Resolved(took)));
        (found, took)
    }

    pub(super) fn explain(&self, error: &Error) -> Option<Failure> {
        let known = self.known();
        let mut causes = known.causes.values();
        let cause = causes.find(|cause| cause.explains(error));
        let cause = cause.and_then(|cause| cause.describe());
        cause.or_else(|| outcome::unreachable(error, &known.asked, known.answered))
    }

    /// Waits until no retry can succeed because the servers refuse the connection string.
    pub(super) async fn refused(&self) -> Failure {
        let mut states = self.0.subscribe();
        loop {
            {
                let known = states.borrow_and_update();
                let failure = known.no_primary();
                if known.writable().is_none() && failure.retry == RetryPolicy::Reconfigure {
                    return failure;
                }
            }
            // Cannot fail, because `self` owns the sender.
            let _ = states.changed().await;
        }
    }
}

impl ServerStates {
    fn record_event(&mut self, event: &SdamEvent) {
        let (address, seen) = match event {
            SdamEvent::ServerHeartbeatSucceeded(event) => {
                let address = canonical(&event.server_address);
                self.answered = true;
                self.causes.remove(&address);
                (address, state_of(&event.reply, &self.asked))
            }
            SdamEvent::ServerDescriptionChanged(event) => {
                let now = &event.new_description;
                let Some(error) = now.error() else { return };
                let address = canonical(now.address());
                let cause = self.causes.get(&address);
                if cause.is_some_and(|cause| !cause.explains(error)) {
                    self.causes.remove(&address);
                }
                let Some(why) = outcome::unreachable(error, &self.asked, self.answered) else {
                    return;
                };
                let state = match outcome::refuses_login(error) {
                    true => ServerState::RefusedLogin(why),
                    false => ServerState::Unreachable(why),
                };
                (address, state)
            }
            _ => return,
        };
        self.seen.insert(address, seen);
    }

    pub(super) fn is_full(&self, address: &str) -> bool {
        self.causes.get(address) == Some(&Cause::Full)
    }

    pub(super) fn writable(&self) -> Option<String> {
        let writable = self.seen.iter().filter_map(|(address, seen)| match seen {
            ServerState::Writable => Some(address.as_str()),
            _ => None,
        });
        let addresses: Vec<_> = writable.take(NAMED_MAX).collect();
        (!addresses.is_empty()).then(|| addresses.join(", "))
    }

    /// Returns why a server refused the login. The driver does not report the type of this server.
    pub(super) fn refused_login(&self) -> Option<Failure> {
        self.seen.values().find_map(|seen| match seen {
            ServerState::RefusedLogin(failure) => Some(failure.clone()),
            _ => None,
        })
    }

    pub(super) fn no_primary(&self) -> Failure {
        if let Some(failure) = self.refused_login() {
            return failure;
        }
        let elsewhere = |seen: &ServerState| matches!(seen, ServerState::Elsewhere(_));
        let wrong = self.seen.values().any(elsewhere);
        // A wrong setting is more important to report than servers that are down.
        let states = self.states();
        let states = states
            .iter()
            .filter(|(_, state)| !wrong || elsewhere(state));
        let described = states.filter_map(|(address, state)| match state {
            ServerState::Writable => None,
            ServerState::Member(what) | ServerState::Unready(what) => {
                Some((address, format!(" is {what}")))
            }
            ServerState::Uninitiated => Some((address, format!(" is {UNINITIATED}"))),
            ServerState::Elsewhere(what) => Some((address, format!(" {what}"))),
            ServerState::Unreachable(why) | ServerState::RefusedLogin(why) => {
                Some((address, format!(": {why}")))
            }
        });
        let mut grouped: Vec<(String, String)> = Vec::new();
        for (address, what) in described.take(NAMED_MAX) {
            let mut equal = grouped.iter_mut().filter(|(_, known)| *known == what);
            match equal.next().filter(|_| what.starts_with(':')) {
                Some((addresses, _)) => *addresses += &format!(", {address}"),
                None => grouped.push((address.clone(), what)),
            }
        }
        let shown = grouped
            .into_iter()
            .map(|(addresses, what)| addresses + &what);
        let mut shown: Vec<_> = shown.collect();
        let mut hosts = self.asked.hosts.iter();
        if self.seen.is_empty() {
            shown.extend(self.caused());
            if shown.is_empty() && hosts.len() > 0 {
                let hosts: Vec<_> = hosts.clone().take(NAMED_MAX).cloned().collect();
                shown.push(format!("no answer from {}: {NETWORK}", hosts.join(", ")));
            }
        }
        let remedy = match wrong {
            true => "; correct replicaSet or the hosts in the MongoDB URI".to_owned(),
            false
                if self
                    .seen
                    .values()
                    .any(|state| *state == ServerState::Uninitiated) =>
            {
                format!("; {INITIATE}")
            }
            false => String::new(),
        };
        // The driver never uses these servers. If there are no others, a retry cannot succeed.
        let hopeless = wrong && hosts.all(|host| self.seen.get(host).is_some_and(elsewhere));
        let retry = match hopeless {
            true => RetryPolicy::Reconfigure,
            false => RetryPolicy::WaitForServer,
        };
        Failure::new("no primary", shown.join("; ") + &remedy).with_retry(retry)
    }
}

fn state_of(reply: &Document, asked: &Asked) -> ServerState {
    let is = |field: &str| reply.get_bool(field).unwrap_or(false);
    if is("isreplicaset") {
        return ServerState::Uninitiated;
    }
    if let Some(asked) = &asked.set {
        let what = match reply.get_str("setName") {
            Ok(set) if set == asked => None,
            Ok(set) => Some(format!("in replica set {set:?}, not")),
            Err(_) if is_router(reply) => Some("a mongos, not in replica set".to_owned()),
            Err(_) => Some("a standalone server, not in replica set".to_owned()),
        };
        if let Some(what) = what {
            return ServerState::Elsewhere(format!("is {what} {asked:?}"));
        }
    }
    if home::is_writable(reply) {
        ServerState::Writable
    } else if is("secondary") {
        ServerState::Member("a secondary")
    } else if is("arbiterOnly") {
        ServerState::Member("an arbiter")
    } else {
        ServerState::Unready("starting or recovering")
    }
}

#[cfg(test)]
mod tests;
