//! Creates and replaces the client, and verifies the deployment that it reaches.

use std::sync::Arc;
use std::time::Duration;

use mongodb::Client;
use mongodb::bson::doc;
use mongodb::error::ErrorKind;
use mongodb::event::EventHandler;
use mongodb::event::sdam::{SdamEvent, ServerDescriptionChangedEvent};
use mongodb::options::{AuthMechanism, ClientOptions};
use tokio::runtime::{self, Handle};

use super::super::servers::Asked;
use super::super::{home, lock, lookalike, outcome, primary, publish, refusals};
use super::files::made;
use super::seeds::Seeds;
use super::{Deployment, Monitoring, SendError, StoreOptions, URI_REFUSED};
use crate::calls::CALLS_MAX;
use crate::store::{Failure, RetryPolicy, StoreInfo, StoreKind};
use crate::uri::{APP_NAME_MAX, ConnectionUri, LOAD_BALANCED, UriProblem};
use leasehold_core::election::{BootTime, Timings};

const LOGIN_INTERVAL_MAX: Duration = Duration::from_secs(30);
/// Delay before the client asks again which product the server is, if no server answered.
const RECOGNIZE_RETRY: Duration = Duration::from_secs(30);
/// Maximum size of one store's connection pool. The size suffices for all calls in flight, the
/// change stream, and the previous stream while it closes, so that a renewal never waits for a
/// connection.
pub(super) const CONNECTIONS_MAX: u32 = CALLS_MAX as u32 + 4;

#[derive(Clone)]
pub(super) struct ConnectedClient {
    pub(super) client: Client,
    /// False if the program provided the client.
    pub(super) is_own: bool,
    pub(super) number: u64,
    /// The runtime that runs the driver's tasks. After the runtime has ended, calls never return.
    runtime: runtime::Id,
    uri: String,
    pub(super) seeds: Arc<Seeds>,
    pub(super) connect_timeout: Duration,
}

impl ConnectedClient {
    pub(super) async fn close(self) {
        if self.is_own {
            self.client.shutdown().immediate(true).await;
        }
    }
}

/// Time of the last repeated login, and the minimum interval until the next. The client logs in
/// again when a right seems to be missing. The driver keeps the connections of a user that was
/// dropped; calls on these connections fail as if a right were missing.
#[derive(Debug, Default)]
pub(super) struct Logins(Option<(BootTime, Duration)>);

impl Logins {
    /// True if a login is due: first immediately, then after `retry_interval`, then at doubling
    /// intervals. After a pause of two maximum intervals, the schedule starts over.
    pub(super) fn is_due(&mut self, now: BootTime, timings: Timings) -> bool {
        let first = timings.retry_interval().min(LOGIN_INTERVAL_MAX);
        let next = match self.0 {
            Some((last, interval)) if now.since(last) < interval => return false,
            Some((last, interval)) if now.since(last) < LOGIN_INTERVAL_MAX * 2 => {
                (interval * 2).min(LOGIN_INTERVAL_MAX)
            }
            _ => first,
        };
        self.0 = Some((now, next));
        true
    }
}

/// Rewrites logins that the driver (3.9.1) would send in a form that servers refuse.
pub(super) fn adapt_login(options: &mut ClientOptions) {
    let Some(credential) = &mut options.credential else {
        return;
    };
    match credential.mechanism {
        // The server takes the user from the certificate.
        Some(AuthMechanism::MongoDbX509) => credential.username = None,
        None | Some(AuthMechanism::ScramSha256) => {
            let name = credential.username.as_deref().unwrap_or_default();
            if name.contains([',', '=']) {
                let escaped = name.replace('=', "=3D").replace(',', "=2C");
                credential.username = Some(escaped);
                credential.mechanism = Some(AuthMechanism::ScramSha256);
            }
        }
        // SCRAM-SHA-1 hashes the password together with the name, so the name cannot be escaped.
        Some(_) => {}
    }
}

impl Deployment {
    pub(in crate::store::mongo) fn new(options: StoreOptions, monitoring: Monitoring) -> Arc<Self> {
        Self::with_pool(options, monitoring, CONNECTIONS_MAX)
    }

    pub(in crate::store::mongo) async fn lookalike(self: &Arc<Self>) -> Option<&'static str> {
        loop {
            if let Ok(connection) = self.connect().await {
                let admin = connection.client.database("admin");
                let info = admin.run_command(doc! { "buildInfo": 1 }).await;
                // Other errors, such as a refused login, do not show the product.
                let has_answered = info.as_ref().map_or_else(outcome::lacks_command, |_| true);
                self.note_product(info.ok().as_ref().and_then(lookalike::by_build));
                // The reply to `hello` was noted when the client chose the server.
                let product = self.other_product();
                if has_answered || product.is_some() {
                    return product;
                }
            }
            tokio::time::sleep(RECOGNIZE_RETRY).await;
        }
    }

    /// Returns the name of a product other than MongoDB, which may return unconfirmed data.
    pub(in crate::store::mongo) fn other_product(&self) -> Option<&'static str> {
        *lock(&self.other_product)
    }

    pub(super) fn note_product(&self, product: Option<&'static str>) {
        if product.is_some() {
            *lock(&self.other_product) = product;
        }
    }

    pub(super) async fn connect(self: &Arc<Self>) -> Result<ConnectedClient, SendError> {
        if let Some(connection) = self.current() {
            return Ok(connection);
        }
        // Only callers that need a new client wait for this lock.
        let _creating = self.creating.lock().await;
        if let Some(connection) = self.current() {
            return Ok(connection);
        }
        let uri = self.uri().await?;
        let uri = lock(&self.home).instead_of(uri);
        let number = *self.clients.borrow() + 1;
        let mut options = self.client_options(&uri).await?;
        let seeds = self.seeds_of(&options);
        // Keeps a product that `buildInfo` showed earlier, because `buildInfo` is requested only
        // once.
        self.note_product(lookalike::by_host(seeds.addresses()));
        self.servers.ask(Asked::of(&options));
        let connect_timeout = options.connect_timeout.unwrap_or_default();
        let client = match &self.options.client {
            Some(client) => client.clone(),
            None => {
                self.listen(&mut options, (number, &uri), &seeds);
                self.examine_later(options.hosts.clone(), number);
                made(options, &self.tls_files).await?
            }
        };
        let connection = ConnectedClient {
            client,
            is_own: self.options.client.is_none(),
            number,
            runtime: Handle::current().id(),
            uri,
            seeds,
            connect_timeout,
        };
        // Calls in flight on another runtime keep the previous client open.
        *lock(&self.connection) = Some(connection.clone());
        self.clients.send_replace(number);
        Ok(connection)
    }

    /// Returns the client if this runtime runs its tasks. A client on another runtime may be
    /// unusable, because that runtime may have ended.
    fn current(&self) -> Option<ConnectedClient> {
        let runtime = Handle::current().id();
        let connection = lock(&self.connection).clone();
        connection.filter(|connection| connection.runtime == runtime)
    }

    /// Verifies, before any other call, that the primary belongs to the known deployment.
    pub(super) async fn verify(
        self: &Arc<Self>,
        connection: &ConnectedClient,
    ) -> Result<(), SendError> {
        let (seeds, uri, number) = (&connection.seeds, &connection.uri, connection.number);
        let admin = connection.client.database("admin");
        let hello = admin.run_command(home::question());
        let hello = hello.selection_criteria(primary()).into_future();
        let hello = match connection.is_own {
            true => hello.await,
            // The timeout of the program's client may be longer than the caller waits.
            false => {
                let limit = self.operation_timeout() * 9 / 10;
                let hello = tokio::time::timeout(limit, hello).await;
                hello.map_err(|_| self.late())?
            }
        };
        let hello = hello.map_err(SendError::Unverified)?;
        let Some(found) = home::identify(&hello, seeds.addresses()) else {
            return Err(SendError::Unsent(match self.servers.asked().direct {
                true => outcome::not_primary(home::is_replaceable(&hello)),
                false => Failure::new("the primary has just stepped down", refusals::ELECTING)
                    .with_retry(RetryPolicy::WaitForServer),
            }));
        };
        let primary = home::address(&hello);
        let (is_new, again) = {
            let home = lock(&self.home);
            (home.is_new(uri), home.has(number))
        };
        let compared = self.compare(seeds, (&found, &primary), is_new).await;
        let (set, id) = (found.set.clone(), found.id.clone());
        let admitted = match compared {
            Ok(()) => lock(&self.home).admit(number, uri, (found, &primary)),
            Err(why) => lock(&self.home).refuse(uri, Failure::lasting(URI_REFUSED, why)),
        };
        if let Err(why) = admitted {
            self.discard(|connection| connection.number == number);
            return Err(SendError::Elsewhere(why));
        }
        if !again {
            self.keep_comparing(connection, &primary);
        }
        self.note_product(lookalike::by_hello(&hello));
        self.note_primary((set, id), StoreKind::of_hello(&hello));
        Ok(())
    }

    /// Records whether a server answered a call. Returns true if no server has answered for a lease
    /// duration. The client is then replaced, to read certificate files and resolve names again.
    pub(super) fn is_given_up(&self, answered: bool) -> bool {
        let mut since = lock(&self.unanswered_since);
        if answered {
            *since = None;
            return false;
        }
        let now = leasehold_clock::boot_now();
        let began = *since.get_or_insert(now);
        let lease_duration = self.timings().lease_duration();
        since
            .take_if(|_| now.since(began) >= lease_duration)
            .is_some()
    }

    /// After a failure, discards the client if its connection string has changed, or if `useless`
    /// is true.
    pub(super) async fn renew_connection(&self, useless: bool) {
        let Some(known) = self.current() else {
            return;
        };
        let changed = matches!(
            self.uri().await,
            Ok(uri) if uri != known.uri && !lock(&self.home).is_refused(&uri)
        );
        if changed || useless {
            // The condition keeps a client that another call created in the meantime.
            self.discard(|connection| connection.number == known.number);
        }
    }

    pub(super) fn discard(&self, condition: impl FnOnce(&ConnectedClient) -> bool) -> bool {
        let discarded = lock(&self.connection).take_if(|connection| condition(connection));
        let closing = discarded.map(|connection| tokio::spawn(connection.close()));
        closing.is_some()
    }

    pub(in crate::store::mongo) async fn client_options(
        self: &Arc<Self>,
        uri: &str,
    ) -> Result<ClientOptions, SendError> {
        let parsed = ConnectionUri::parse(uri)?;
        let mut options = self.resolved(&parsed).await?;
        if options.load_balanced == Some(true) {
            // `ConnectionUri::parse` refuses this option in the string, so only the host's TXT
            // record can have set the option.
            return Err(UriProblem::Refused("loadBalanced", LOAD_BALANCED).into());
        }
        let timeout = self.operation_timeout();
        if options.app_name.is_none() {
            let mut name = format!("leasehold/{}", self.options.identity);
            name.truncate(name.floor_char_boundary(APP_NAME_MAX));
            options.app_name = Some(name);
        }
        // A retry by the driver could come too late for the election.
        options.retry_writes = Some(false);
        options.retry_reads = Some(false);
        options.max_adaptive_retries = Some(0);
        // Shorter than the caller's timeout, so that in an outage the call counts as "never sent".
        options.server_selection_timeout = Some(timeout * 9 / 10);
        options.connect_timeout = Some(self.connect_timeout());
        let (heartbeat, timings) = (self.options.heartbeat, self.timings());
        self.monitoring.apply(&mut options, heartbeat, &timings);
        options.max_pool_size = Some(self.connections_max);
        options.max_connecting = Some(CONNECTIONS_MAX);
        Ok(options)
    }

    async fn resolved(&self, parsed: &ConnectionUri) -> Result<ClientOptions, SendError> {
        let options = ClientOptions::parse(parsed.for_driver()).into_future();
        let Some(record) = parsed.record() else {
            return Ok(options.await?);
        };
        match self.servers.look_up(record, options).await.0 {
            Some(Ok(options)) => Ok(options),
            Some(Err(error)) if !matches!(*error.kind, ErrorKind::DnsResolve { .. }) => {
                Err(error.into())
            }
            // The driver's error lacks the name of the record.
            Some(Err(_)) | None => {
                let why = format!(
                    "cannot resolve the SRV record of {record}: check the MongoDB URI and DNS"
                );
                let kind = "connection failed";
                Err(SendError::unsent(kind, why, RetryPolicy::WaitForServer))
            }
        }
    }

    fn listen(
        self: &Arc<Self>,
        options: &mut ClientOptions,
        (number, uri): (u64, &str),
        seeds: &Arc<Seeds>,
    ) {
        let (deployment, uri) = (Arc::downgrade(self), uri.to_owned());
        let seeds = Arc::clone(seeds);
        options.sdam_event_handler = Some(EventHandler::callback(move |event| {
            let Some(deployment) = deployment.upgrade() else {
                return;
            };
            deployment.servers.record_event(&event);
            // These events update a known home only if this client's primary was verified.
            match event {
                SdamEvent::ServerHeartbeatSucceeded(event) => {
                    deployment.note_product(lookalike::by_hello(&event.reply));
                    seeds.replied(&event.server_address, &event.reply);
                    if let Some(found) = home::identify(&event.reply, seeds.addresses()) {
                        let primary = home::address(&event.reply);
                        lock(&deployment.home).observe(number, &uri, (found, &primary));
                    }
                }
                SdamEvent::ServerHeartbeatFailed(event) => {
                    seeds.unreachable(&event.server_address);
                    deployment.examine(&event.server_address, number, &event.failure);
                }
                SdamEvent::ServerDescriptionChanged(event) => {
                    deployment.server_changed(&event, number, &uri);
                    let now = &event.new_description;
                    if let Some(error) = now.error() {
                        deployment.examine(now.address(), number, error);
                    }
                }
                _ => {}
            }
        }));
    }

    fn server_changed(&self, event: &ServerDescriptionChangedEvent, client: u64, uri: &str) {
        let now = &event.new_description;
        let was = StoreKind::of_server(event.previous_description.server_type()).is_some();
        let kind = StoreKind::of_server(now.server_type());
        let (is_home, is_refused) = {
            let mut home = lock(&self.home);
            if was && kind.is_none() {
                home.doubt(client);
            }
            (home.has(client), home.is_refused(uri))
        };
        if let (Some(kind), false) = (kind, was) {
            if is_home {
                let set = now.replica_set_name().map(str::to_owned);
                self.note_primary((set, None), kind);
            }
            // This report leads to a call, which verifies the server. A refused server is verified
            // at the next retry.
            if !is_refused {
                self.primary_changed();
            }
        }
    }

    pub(super) fn note_primary(
        &self,
        (set, id): (Option<String>, Option<String>),
        kind: StoreKind,
    ) {
        let before = self.info.borrow().clone();
        let before = before.filter(|before| before.set == set);
        let info = StoreInfo {
            kind,
            set_id: id.or(before.and_then(|before| before.set_id)),
            set,
            database: self.options.database.clone(),
            collection: self.options.collection.clone(),
        };
        publish(&self.info, Some(info));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn logins_are_repeated_at_growing_intervals() {
        let (mut logins, timings) = (Logins::default(), Timings::default());
        let mut at = |seconds| {
            let now = BootTime::default() + Duration::from_secs(seconds);
            logins.is_due(now, timings)
        };
        let due: Vec<_> = (0..100).filter(|second| at(*second)).collect();
        assert_eq!(due, [0, 1, 3, 7, 15, 31, 61, 91]);
        assert!(at(152) && at(153), "a new refusal starts over");
    }
}
