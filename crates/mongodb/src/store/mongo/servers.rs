//! Knowledge about the servers of a deployment, for messages that explain why no call succeeds: the
//! settings of the connection string, and the observations of the driver's monitors.
//!
//! This module makes no decisions. The driver forgets a server that does not match the connection
//! string; this module keeps it, because it is the cause of the failure.

use std::collections::BTreeMap;
use std::io;
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

use mongodb::ServerType;
use mongodb::bson::Document;
use mongodb::error::{Error, ErrorKind};
use mongodb::event::sdam::SdamEvent;
use mongodb::options::{AuthMechanism, ClientOptions, Tls};

use super::home::canonical;
use super::tls::{NamedFile, named_files};
use super::{home, lock, outcome};
use crate::store::kind::is_router;
use crate::store::{Failure, RetryPolicy};
use leasehold_core::election::BootTime;

/// Maximum number of servers in one message. A set has at most fifty; three are enough to show the
/// cause.
const NAMED_MAX: usize = 3;

/// Time limit of a look-up. The resolver of the C library gives up earlier, unless it has more than
/// four nameservers.
const LOOKUP_MAX: Duration = Duration::from_secs(45);
/// A look-up of a name that takes longer can be the cause of failures.
pub(super) const SLOW_MIN: Duration = Duration::from_secs(1);

/// The settings of the connection string, without its password.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Asked {
    /// The user to authenticate, and the database of its credentials.
    pub(super) login: AuthMethod,
    pub(super) set: Option<String>,
    pub(super) tls: bool,
    /// True for a direct connection to one server, whatever its type is.
    pub(super) direct: bool,
    pub(super) hosts: Vec<String>,
    /// The certificate files, as options and paths.
    pub(super) files: Vec<NamedFile>,
}

/// The authentication method of a client.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) enum AuthMethod {
    #[default]
    Nobody,
    /// User name and password, kept in this database.
    Password {
        user: String,
        source: String,
    },
    Certificate,
    /// The token of the workload's identity (OIDC).
    Token,
}

/// The state of a server at its last reply, or the reason why it did not reply.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ServerState {
    /// Accepts writes.
    Writable,
    /// Accepts no writes, but may vote or take over.
    Member(&'static str),
    /// Neither; contains its description.
    Unready(&'static str),
    /// Not a member of the requested set; contains what it is instead.
    Elsewhere(String),
    /// Did not reply; contains the reason and the remedy.
    Unreachable(String),
    /// Replied, and refused the login; contains the user and the remedy.
    RefusedLogin(String),
}

#[derive(Debug, Default)]
pub(super) struct Servers(Mutex<ServerStates>);

#[derive(Debug, Default)]
struct ServerStates {
    asked: Asked,
    seen: BTreeMap<String, ServerState>,
    /// True if a server has answered before, so that the TLS settings cannot be wrong.
    answered: bool,
    /// Why servers, by canonical address, or a record of servers cannot be reached.
    causes: BTreeMap<String, Cause>,
}

/// Why a server cannot be connected to, if an examination has shown it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Cause {
    /// Its name is being resolved since then.
    Resolving(BootTime),
    /// Its name took this long to resolve.
    Resolved(Duration),
    /// It closes connections before it has read anything.
    Full,
}

impl Cause {
    /// Returns the cause in words; `None` if the name is not slow.
    fn words(self) -> Option<String> {
        let check = "check the nameservers of this host (/etc/resolv.conf)";
        Some(match self {
            Self::Resolving(since) => {
                let elapsed = leasehold_clock::boot_now().since(since);
                let seconds = elapsed.as_secs_f64();
                if elapsed < SLOW_MIN {
                    return None;
                }
                format!("its name has not been resolved for {seconds:.1} s: {check}")
            }
            Self::Resolved(took) => {
                let seconds = took.as_secs_f64();
                format!("its name took {seconds:.1} s to resolve: {check}")
            }
            Self::Full => "the server, or a proxy before it, closes each connection at once: it \
                           may have reached its limit of connections (maxConns, ulimit -n)"
                .to_owned(),
        })
    }

    /// Returns true if it can be the cause of an error.
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
    fn cause(&self, address: &str) -> Option<String> {
        self.causes.get(address).and_then(|cause| cause.words())
    }

    fn states(&self) -> BTreeMap<String, ServerState> {
        let states = self.seen.iter().map(|(address, state)| {
            let state = match (state, self.cause(address)) {
                (ServerState::Unreachable(_), Some(cause)) => ServerState::Unreachable(cause),
                (state, _) => state.clone(),
            };
            (address.clone(), state)
        });
        states.collect()
    }

    /// Returns the causes that were found, with their servers.
    fn caused(&self) -> Vec<String> {
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
            Some(credential) if credential.mechanism == Some(AuthMechanism::MongoDbX509) => {
                AuthMethod::Certificate
            }
            Some(credential) if credential.mechanism == Some(AuthMechanism::MongoDbOidc) => {
                AuthMethod::Token
            }
            Some(credential) => AuthMethod::Password {
                user: credential.username.clone().unwrap_or_default(),
                source: credential.source.clone().unwrap_or("admin".to_owned()),
            },
        };
        let tls = match &options.tls {
            Some(Tls::Enabled(tls)) => Some(tls),
            Some(Tls::Disabled) | None => None,
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
    /// Records the settings of a new client. Observations made under other settings are discarded.
    pub(super) fn ask(&self, asked: Asked) {
        let mut known = self.known();
        if known.asked != asked {
            let causes = std::mem::take(&mut known.causes);
            *known = ServerStates {
                asked,
                causes,
                ..ServerStates::default()
            };
        }
    }

    pub(super) fn asked(&self) -> Asked {
        self.known().asked.clone()
    }

    pub(super) fn record_event(&self, event: &SdamEvent) {
        let mut known = self.known();
        let (address, seen) = match event {
            SdamEvent::ServerHeartbeatSucceeded(event) => {
                let address = canonical(&event.server_address);
                known.answered = true;
                known.causes.remove(&address);
                (address, state_of(&event.reply, &known.asked))
            }
            SdamEvent::ServerDescriptionChanged(event) => {
                let now = &event.new_description;
                let Some(error) = now.error() else { return };
                debug_assert_eq!(now.server_type(), ServerType::Unknown);
                let address = canonical(now.address());
                let cause = known.causes.get(&address);
                if cause.is_some_and(|cause| !cause.explains(error)) {
                    known.causes.remove(&address);
                }
                let Some(words) = outcome::unreachable(error, &known.asked, known.answered) else {
                    return;
                };
                let state = match outcome::refuses_login(error) {
                    true => ServerState::RefusedLogin(words),
                    false => ServerState::Unreachable(words),
                };
                (address, state)
            }
            _ => return,
        };
        known.seen.insert(address, seen);
    }

    pub(super) fn states(&self) -> BTreeMap<String, ServerState> {
        self.known().states()
    }

    /// Returns true if a server has answered, or could not be reached.
    pub(super) fn has_observed(&self, address: &str) -> bool {
        let known = self.known();
        known.answered || known.seen.contains_key(&canonical(address))
    }

    /// Records why a server or a record cannot be reached; `None` if that is not known.
    pub(super) fn found(&self, address: &str, cause: Option<Cause>) {
        let mut known = self.known();
        match cause {
            Some(cause) => known.causes.insert(address.to_owned(), cause),
            None => known.causes.remove(address),
        };
    }

    /// Looks up a name of this server or record, within a time limit. Returns the result, and the time
    /// that the look-up took. Meanwhile, and afterwards if it was slow, the name counts as a cause.
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

    /// Returns true if a server is known to close connections.
    pub(super) fn is_full(&self, address: &str) -> bool {
        self.known().causes.get(address) == Some(&Cause::Full)
    }

    /// Describes why a server cannot be used, if an examination or the error shows that.
    pub(super) fn explain(&self, error: &Error) -> Option<String> {
        let known = self.known();
        let mut causes = known.causes.values();
        let cause = causes.find(|cause| cause.explains(error));
        let cause = cause.and_then(|cause| cause.words());
        cause.or_else(|| outcome::unreachable(error, &known.asked, known.answered))
    }

    pub(super) fn causes(&self) -> String {
        self.known().caused().join("; ")
    }

    /// Returns the addresses of the servers that accepted writes at their last reply: one primary, or
    /// several routers.
    pub(super) fn writable(&self) -> Option<String> {
        let known = self.known();
        let writable = known.seen.iter().filter_map(|(address, seen)| match seen {
            ServerState::Writable => Some(address.as_str()),
            _ => None,
        });
        let addresses: Vec<_> = writable.take(NAMED_MAX).collect();
        (!addresses.is_empty()).then(|| addresses.join(", "))
    }

    /// Returns why no server accepts a call.
    pub(super) fn no_primary(&self) -> Failure {
        let known = self.known();
        let asked = &known.asked;
        let elsewhere = |seen: &ServerState| matches!(seen, ServerState::Elsewhere(_));
        let wrong = known.seen.values().any(elsewhere);
        // Other servers may be down at the same time; the wrong setting is more important.
        let states = known.states();
        let states = states
            .iter()
            .filter(|(_, state)| !wrong || elsewhere(state));
        let shown = states.filter_map(|(address, state)| match state {
            ServerState::Writable => None,
            ServerState::Member(what) | ServerState::Unready(what) => {
                Some(format!("{address} is {what}"))
            }
            ServerState::Elsewhere(what) => Some(format!("{address} {what}")),
            ServerState::Unreachable(why) | ServerState::RefusedLogin(why) => {
                Some(format!("{address}: {why}"))
            }
        });
        let mut shown: Vec<_> = shown.take(NAMED_MAX).collect();
        if known.seen.is_empty() {
            shown.extend(known.caused());
        }
        if shown.is_empty() && known.seen.is_empty() && !asked.hosts.is_empty() {
            let hosts: Vec<_> = asked.hosts.iter().take(NAMED_MAX).cloned().collect();
            shown.push(format!(
                "no answer from {}: check the host, the network and the firewalls between",
                hosts.join(", ")
            ));
        }
        let remedy = match wrong {
            true => "; correct replicaSet or the hosts in the MongoDB URI",
            false => "",
        };
        // The driver stops asking these servers. If the string names no others, a retry cannot
        // succeed.
        let mut hosts = asked.hosts.iter();
        let hopeless = wrong && hosts.all(|host| known.seen.get(host).is_some_and(elsewhere));
        let retry = match hopeless {
            true => RetryPolicy::Reconfigure,
            false => RetryPolicy::WaitForServer,
        };
        Failure::new("no primary", shown.join("; ") + remedy).with_retry(retry)
    }

    fn known(&self) -> MutexGuard<'_, ServerStates> {
        lock(&self.0)
    }
}

/// Classifies a server by its reply to `hello`.
fn state_of(reply: &Document, asked: &Asked) -> ServerState {
    let is = |field: &str| reply.get_bool(field).unwrap_or(false);
    let set = reply.get_str("setName").ok();
    match (&asked.set, set) {
        (Some(asked), Some(set)) if asked != set => {
            return ServerState::Elsewhere(format!("is in replica set {set:?}, not {asked:?}"));
        }
        (Some(asked), None) if is_router(reply) => {
            return ServerState::Elsewhere(format!("is a mongos, not in replica set {asked:?}"));
        }
        (Some(_), None) if is("isreplicaset") => {
            return ServerState::Unready("a member of a replica set that was not initiated");
        }
        (Some(asked), None) => {
            return ServerState::Elsewhere(format!(
                "is a standalone server, not in replica set {asked:?}"
            ));
        }
        _ => {}
    }
    if home::is_writable(reply) {
        ServerState::Writable
    } else if is("secondary") {
        ServerState::Member("a secondary")
    } else if is("arbiterOnly") {
        ServerState::Member("an arbiter")
    } else if is("isreplicaset") {
        ServerState::Unready("a member of a replica set that was not initiated")
    } else {
        ServerState::Unready("starting or recovering")
    }
}

#[cfg(test)]
mod tests {
    use mongodb::bson::doc;

    use super::*;

    fn asked(set: Option<&str>) -> Asked {
        Asked {
            set: set.map(str::to_owned),
            hosts: vec!["a:1".to_owned(), "b:1".to_owned()],
            ..Asked::default()
        }
    }

    fn servers(seen: &[(&str, ServerState)]) -> Servers {
        let servers = Servers::default();
        servers.ask(asked(Some("rs0")));
        let seen = seen.iter().map(|(a, s)| ((*a).to_owned(), s.clone()));
        servers.known().seen.extend(seen);
        servers
    }

    #[test]
    fn the_replies_of_servers_are_compared_with_the_connection_string() {
        let of = |reply| state_of(&reply, &asked(Some("rs0")));
        let elsewhere = |what: &str| ServerState::Elsewhere(what.to_owned());
        assert_eq!(
            of(doc! { "setName": "rs0", "isWritablePrimary": true }),
            ServerState::Writable
        );
        assert_eq!(
            of(doc! { "setName": "rsa", "isWritablePrimary": true }),
            elsewhere(r#"is in replica set "rsa", not "rs0""#)
        );
        assert_eq!(
            of(doc! { "isWritablePrimary": true }),
            elsewhere(r#"is a standalone server, not in replica set "rs0""#)
        );
        assert_eq!(
            of(doc! { "msg": "isdbgrid" }),
            elsewhere(r#"is a mongos, not in replica set "rs0""#)
        );
        let secondary = ServerState::Member("a secondary");
        assert_eq!(of(doc! { "setName": "rs0", "secondary": true }), secondary);
    }

    #[test]
    fn a_set_of_another_name_is_final_only_where_no_server_is_left() {
        let elsewhere = ServerState::Elsewhere(r#"is in replica set "rsa", not "rs0""#.to_owned());
        let away = ServerState::Unreachable("connection refused".to_owned());
        let one = servers(&[("a:1", elsewhere.clone()), ("b:1", away)]).no_primary();
        assert_eq!(
            one.to_string(),
            r#"no primary: a:1 is in replica set "rsa", not "rs0"; correct replicaSet or the hosts in the MongoDB URI"#
        );
        assert_eq!(
            one.retry,
            RetryPolicy::WaitForServer,
            "the other may come back"
        );
        let both = servers(&[("a:1", elsewhere.clone()), ("b:1", elsewhere)]).no_primary();
        assert_eq!(both.retry, RetryPolicy::Reconfigure);
    }

    #[test]
    fn hosts_without_an_answer_yet_are_named() {
        let failure = servers(&[]).no_primary();
        assert_eq!(
            failure.to_string(),
            "no primary: no answer from a:1, b:1: check the host, the network and the firewalls \
             between"
        );
    }
}
