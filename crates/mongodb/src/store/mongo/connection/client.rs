//! One client of a deployment: its creation and options, the verification of the deployment that it
//! reaches, and its replacement.

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
use super::{Deployment, Monitoring, SendError, StoreOptions};
use crate::calls::CALLS_MAX;
use crate::store::{Failure, RetryPolicy, StoreInfo, StoreKind};
use crate::uri::{APP_NAME_MAX, ConnectionUri, UriProblem};

/// Delay before asking for the product again if no server answered.
const RECOGNIZE_RETRY: Duration = Duration::from_secs(30);
/// Maximum size of the connection pool of one store. It covers all calls that may be in flight, the
/// change stream, and the closing of the previous stream, so a renewal never waits for another call
/// to return its connection. No client opens more at the same time.
pub(super) const CONNECTIONS_MAX: u32 = CALLS_MAX as u32 + 4;

#[derive(Clone)]
pub(super) struct ConnectedClient {
    pub(super) client: Client,
    /// False if the program has provided the client.
    pub(super) is_own: bool,
    pub(super) number: u64,
    /// The runtime that runs the driver's tasks, without which no call returns.
    runtime: runtime::Id,
    uri: String,
    pub(super) seeds: Arc<Seeds>,
    pub(super) connect_timeout: Duration,
}

impl ConnectedClient {
    /// Shuts down the client, unless the program has provided it.
    pub(super) async fn close(self) {
        if self.is_own {
            self.client.shutdown().immediate(true).await;
        }
    }
}

/// Adapts a login that the driver (3.9.1) sends in a form that servers refuse.
pub(super) fn adapt_login(options: &mut ClientOptions) {
    let Some(credential) = &mut options.credential else {
        return;
    };
    let may_be_scram = match &credential.mechanism {
        Some(AuthMechanism::MongoDbX509) => {
            // The server takes the user from the certificate.
            credential.username = None;
            return;
        }
        None | Some(AuthMechanism::ScramSha256) => true,
        // Its password is hashed together with the name, so the name cannot be escaped.
        Some(_) => false,
    };
    let name = credential.username.as_deref().unwrap_or_default();
    if may_be_scram && name.contains([',', '=']) {
        let escaped = name.replace('=', "=3D").replace(',', "=2C");
        credential.username = Some(escaped);
        credential.mechanism = Some(AuthMechanism::ScramSha256);
    }
}

/// The driver's error lacks the name.
fn record_unresolved(name: &str) -> SendError {
    let why = format!(
        "cannot resolve the SRV record of {name}: check the MongoDB URI and the name service"
    );
    SendError::unsent("connection failed", why, RetryPolicy::WaitForServer)
}

impl Deployment {
    /// Creates a deployment that connects at first use, for one store.
    pub(in crate::store::mongo) fn new(options: StoreOptions, monitoring: Monitoring) -> Arc<Self> {
        Self::with_pool(options, monitoring, CONNECTIONS_MAX)
    }

    /// Returns the product if the server is recognized as not being MongoDB. Retries until a server
    /// answers.
    pub(in crate::store::mongo) async fn lookalike(self: &Arc<Self>) -> Option<&'static str> {
        loop {
            if let Ok(connection) = self.connect().await {
                let admin = connection.client.database("admin");
                let has_answered = match admin.run_command(doc! { "buildInfo": 1 }).await {
                    Ok(info) => {
                        self.note_product(lookalike::by_build(&info));
                        true
                    }
                    Err(error) => outcome::is_reply(&error),
                };
                // The reply to `hello` came first, since the client chose the server by it.
                let product = self.other_product();
                if has_answered || product.is_some() {
                    return product;
                }
            }
            tokio::time::sleep(RECOGNIZE_RETRY).await;
        }
    }

    /// Returns the server's product if it was recognized and is not MongoDB: its events and replies
    /// may show data that no majority has.
    pub(in crate::store::mongo) fn other_product(&self) -> Option<&'static str> {
        *lock(&self.other_product)
    }

    fn note_product(&self, product: Option<&'static str>) {
        if product.is_some() {
            *lock(&self.other_product) = product;
        }
    }

    pub(super) async fn connect(self: &Arc<Self>) -> Result<ConnectedClient, SendError> {
        if let Some(connection) = self.current() {
            return Ok(connection);
        }
        // Only callers that need a new client wait for the files and names that it requires.
        let _creating = self.creating.lock().await;
        if let Some(connection) = self.current() {
            return Ok(connection);
        }
        let uri = self.uri().await?;
        let uri = lock(&self.home).instead_of(uri);
        let number = *self.clients.borrow() + 1;
        let mut options = self.client_options(&uri).await?;
        let seeds = self.seeds_of(&options);
        *lock(&self.other_product) = lookalike::by_host(seeds.addresses());
        let asked = Asked::of(&options);
        self.servers.ask(asked.clone());
        let connect_timeout = options.connect_timeout.unwrap_or_default();
        let provided = self.options.client.clone();
        let is_own = provided.is_none();
        let client = match provided {
            Some(client) => client,
            None => {
                self.listen(&mut options, (number, &uri), &seeds);
                self.examine_later(options.hosts.clone(), number);
                made(options, &asked, &self.tls_files).await?
            }
        };
        let connection = ConnectedClient {
            client,
            is_own,
            number,
            runtime: Handle::current().id(),
            uri,
            seeds,
            connect_timeout,
        };
        // Calls that another runtime has in flight by the previous client keep it open.
        *lock(&self.connection) = Some(connection.clone());
        self.clients.send_replace(number);
        Ok(connection)
    }

    /// Returns the client, if this runtime runs its tasks. Tasks of another runtime may have ended.
    fn current(&self) -> Option<ConnectedClient> {
        let runtime = Handle::current().id();
        let connection = lock(&self.connection).clone();
        connection.filter(|connection| connection.runtime == runtime)
    }

    /// Asks the primary that a client found whether it belongs to the known deployment. Nothing
    /// else is sent to it before.
    pub(super) async fn verify(
        self: &Arc<Self>,
        connection: &ConnectedClient,
    ) -> Result<(), SendError> {
        let ConnectedClient {
            client,
            is_own,
            number,
            uri,
            seeds,
            ..
        } = connection;
        let admin = client.database("admin");
        let hello = admin.run_command(home::question());
        let hello = hello.selection_criteria(primary()).into_future();
        let hello = match is_own {
            true => hello.await,
            // Its own timeout may be longer than the caller waits.
            false => {
                let limit = self.operation_timeout() * 9 / 10;
                let hello = tokio::time::timeout(limit, hello).await;
                hello.map_err(|_| self.late())?
            }
        };
        let hello = hello.map_err(SendError::Unverified)?;
        let Some(found) = home::identify(&hello, seeds.addresses()) else {
            return Err(SendError::Unsent(match self.servers.asked().direct {
                true => outcome::not_primary(),
                false => Failure::new("the primary has just stepped down", refusals::ELECTING)
                    .with_retry(RetryPolicy::WaitForServer),
            }));
        };
        let primary = home::address(&hello);
        let (is_new, again) = {
            let home = lock(&self.home);
            (home.is_new(uri), home.has(*number))
        };
        let compared = self.compare(seeds, (&found, &primary), is_new).await;
        let (set, id) = (found.set.clone(), found.id.clone());
        let admitted = {
            let mut home = lock(&self.home);
            match compared {
                Ok(()) => home.admit(*number, uri, (found, &primary)),
                Err(why) => {
                    home.refuse(uri, &why);
                    Err(why)
                }
            }
        };
        let Err(why) = admitted else {
            if !again {
                self.keep_comparing(connection, &primary);
            }
            self.note_product(lookalike::by_hello(&hello));
            self.note_primary((set, id), StoreKind::of_hello(&hello));
            return Ok(());
        };
        self.discard(|connection| connection.number == *number);
        Err(SendError::Elsewhere(why))
    }

    /// Records whether a server answered a call; returns true if none has answered for too long.
    pub(super) fn is_given_up(&self, answered: bool) -> bool {
        let mut since = lock(&self.unanswered_since);
        if answered {
            *since = None;
            return false;
        }
        let now = leasehold_clock::boot_now();
        let given_up = now.since(*since.get_or_insert(now)) >= self.timings().lease_duration();
        if given_up {
            *since = None;
        }
        given_up
    }

    /// Discards an unusable connection if the connection string has changed or if it is `useless`,
    /// since certificates and addresses can change behind an unchanged string.
    pub(super) async fn renew_connection(&self, useless: bool) {
        let Some(known) = self.current() else {
            return;
        };
        let changed = matches!(
            self.uri().await,
            Ok(uri) if uri != known.uri && !lock(&self.home).is_refused(&uri)
        );
        if changed || useless {
            // Another call may have replaced it meanwhile.
            self.discard(|connection| connection.number == known.number);
        }
    }

    /// Closes the current connection if the condition is true; returns true if it was.
    pub(super) fn discard(&self, condition: impl FnOnce(&ConnectedClient) -> bool) -> bool {
        let discarded = lock(&self.connection).take_if(|connection| condition(connection));
        match discarded {
            Some(connection) => {
                tokio::spawn(connection.close());
                true
            }
            None => false,
        }
    }

    pub(in crate::store::mongo) async fn client_options(
        self: &Arc<Self>,
        uri: &str,
    ) -> Result<ClientOptions, SendError> {
        let parsed = ConnectionUri::parse(uri)?;
        let mut options = self.resolved(&parsed).await?;
        if options.load_balanced == Some(true) {
            // The record of the host sets it, because the string cannot.
            return Err(UriProblem::load_balanced().into());
        }
        let timeout = self.operation_timeout();
        if options.app_name.is_none() {
            let mut name = format!("leasehold/{}", self.options.identity);
            name.truncate(name.floor_char_boundary(APP_NAME_MAX));
            options.app_name = Some(name);
        }
        // A write that the driver retries on its own would be sent later than the election assumes.
        options.retry_writes = Some(false);
        options.retry_reads = Some(false);
        options.max_adaptive_retries = Some(0);
        // Shorter than the caller's own timeout, so that an outage is reported as "never sent"
        // instead of "unknown".
        options.server_selection_timeout = Some(timeout * 9 / 10);
        options.connect_timeout = Some(self.connect_timeout());
        let (heartbeat, timings) = (self.options.heartbeat, self.timings());
        self.monitoring.apply(&mut options, heartbeat, &timings);
        options.max_pool_size = Some(self.connections_max);
        options.max_connecting = Some(CONNECTIONS_MAX);
        Ok(options)
    }

    async fn resolved(&self, parsed: &ConnectionUri) -> Result<ClientOptions, SendError> {
        let options = ClientOptions::parse(parsed.driver()).into_future();
        let Some(record) = parsed.record() else {
            return Ok(options.await?);
        };
        match self.servers.look_up(record, options).await.0 {
            Some(Ok(options)) => Ok(options),
            Some(Err(error)) if !matches!(*error.kind, ErrorKind::DnsResolve { .. }) => {
                Err(error.into())
            }
            Some(Err(_)) | None => Err(record_unresolved(record)),
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
            // Events of a client that was not verified do not change a known home.
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
        let (before, now) = (&event.previous_description, &event.new_description);
        let (before, kind) = (before.server_type(), now.server_type());
        let (was, kind) = (
            StoreKind::of_server(before).is_some(),
            StoreKind::of_server(kind),
        );
        let is = kind.is_some();
        let (is_home, is_refused) = {
            let mut home = lock(&self.home);
            if was && !is {
                home.doubt(client);
            }
            (home.has(client), home.is_refused(uri))
        };
        if let (Some(kind), false) = (kind, was) {
            if is_home {
                let set = now.replica_set_name().map(str::to_owned);
                self.note_primary((set, None), kind);
            }
            // The next call verifies the server if necessary. A refused server is verified by a new
            // client, at the pace of the retries.
            if !is_refused {
                self.primary_changed();
            }
        }
    }

    /// Records the set's name and, if known, its id.
    pub(super) fn note_primary(
        &self,
        (set, id): (Option<String>, Option<String>),
        kind: StoreKind,
    ) {
        let before = self
            .info
            .borrow()
            .clone()
            .filter(|before| before.set == set);
        let info = StoreInfo {
            kind,
            // Monitors do not ask for the id.
            set_id: id.or(before.and_then(|before| before.set_id)),
            set,
            database: self.options.database.clone(),
            collection: self.options.collection.clone(),
        };
        publish(&self.info, Some(info));
    }
}
