//! Leases and locks in a MongoDB collection. This module implements the lease.

#[cfg(test)]
mod any_bson;
#[cfg(test)]
mod any_event;
mod change_stream;
mod connection;
mod delta;
mod display;
mod document;
mod elections;
mod follow;
mod hints;
mod home;
pub mod lock;
mod lookalike;
pub mod operators;
mod options;
mod outcome;
pub mod probe;
mod refusals;
mod roll_call;
mod servers;
mod tls;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use mongodb::bson::{DateTime, Document};
use mongodb::options::{ReadPreference, SelectionCriteria};
use tokio::sync::{Notify, mpsc, watch};

pub use self::display::{CommandResult, PastHolder};
pub use self::elections::FailoverSettings;
pub use self::options::{StoreOptions, UriName, UriProvider, WatchMode};

use self::connection::{Deployment, Monitoring, PrimaryObserver, SendError};
pub(crate) use self::document::token;
use self::hints::Hints;
use self::roll_call::RollCallId;
use super::{Answer, DeploymentId, Store, StoreEvent, StoreInfo, StoreKind};
use leasehold_core::election::{Found, Operation, Outcome, ResourceName, Status, Timings};

/// A lease in a MongoDB collection.
#[derive(Debug, Clone)]
pub struct MongoStore {
    shared: Arc<LeaseInner>,
}

#[derive(Debug)]
struct LeaseInner {
    lease: ResourceName,
    deployment: Arc<Deployment>,
    news: mpsc::Sender<StoreEvent>,
    reopen: Notify,
    hints: Arc<Hints>,
    /// The newest known document. Change events update it.
    newest: Mutex<Option<Document>>,
    /// The last invalid request that was reported, as text because a NaN never equals itself.
    ignored_request: Mutex<Option<String>>,
    roll_call: watch::Sender<Option<RollCallId>>,
    /// The roll call to answer, and the candidate's status.
    answer: watch::Sender<Option<(RollCallId, watch::Receiver<Status>)>>,
    /// The workload's health, for roll calls; `None` until it is reported.
    healthy: Mutex<Option<bool>>,
}

impl MongoStore {
    /// Creates a store that sends its events to `news`. The store connects when it is first called.
    pub fn new(
        options: StoreOptions,
        lease: ResourceName,
        news: mpsc::Sender<StoreEvent>,
    ) -> (Self, watch::Receiver<Option<StoreInfo>>) {
        let hints = Arc::new(Hints::new(options.watch));
        let deployment = Deployment::new(options, Monitoring::Reports);
        let info = deployment.info.subscribe();
        deployment.observe(news.clone());
        let shared = LeaseInner {
            lease,
            deployment,
            news,
            reopen: Notify::new(),
            hints,
            newest: Mutex::new(None),
            ignored_request: Mutex::default(),
            roll_call: watch::Sender::default(),
            answer: watch::Sender::default(),
            healthy: Mutex::default(),
        };
        let store = Self {
            shared: Arc::new(shared),
        };
        (store, info)
    }

    /// Returns a receiver of the deployment, updated when its members change; `None` until known.
    pub fn deployment(&self) -> watch::Receiver<Option<DeploymentId>> {
        lock(&self.shared.deployment.home).deployment.subscribe()
    }

    /// Returns a receiver of the timings, as of the start or the last reload.
    pub fn timings(&self) -> watch::Receiver<Timings> {
        self.shared.deployment.timings.subscribe()
    }

    /// Follows the change stream indefinitely, retrying after failures, and answers roll calls.
    pub async fn watch(self) {
        let shared = Arc::clone(&self.shared);
        let watched = follow::watch(self, &shared.reopen);
        tokio::join!(
            shared.recognize(),
            watched,
            shared.report_roll_calls(),
            shared.answer_roll_calls(),
            shared.retry_hints()
        );
    }

    /// Shuts down the client, within a bounded time.
    pub async fn shut_down(&self) {
        self.shared.hints.sent().await;
        self.shared.deployment.shut_down().await;
    }

    async fn send(&self, mut operation: Operation) -> Result<Outcome, SendError> {
        let shared = &self.shared;
        let (name, deployment) = (shared.lease.as_str(), &shared.deployment);
        let StoreOptions {
            identity, address, ..
        } = &deployment.options;
        let hinted = !matches!(operation, Operation::Renew { .. } | Operation::Read { .. });
        let declares = shared.hints.declare(&mut operation);
        let write = document::write(name, &operation, identity, address.as_deref(), now());
        let Some((filter, mut update)) = write else {
            let found = match operation {
                Operation::Create { revision, token } => {
                    let document = document::create(name, revision, token);
                    deployment.insert(&document).await?;
                    shared.hints.leave(deployment, &shared.lease, None);
                    Some(document)
                }
                read => {
                    let confirm = matches!(read, Operation::Read { confirm: true });
                    deployment.read(name, projection(), confirm).await?
                }
            };
            shared.called(found.as_ref().and_then(roll_call::called));
            return Ok(Outcome::Applied(shared.found(found)));
        };
        if let (Operation::Renew { .. }, Some(declares)) = (&operation, declares) {
            document::declare(&mut update, shared.hints.interval(declares));
        }
        // A product other than MongoDB may apply writes in a different order.
        let released = match deployment.other_product() {
            None => shared.hints.announce(&operation),
            Some(_) => None,
        };
        let concern = match released {
            // A majority that acknowledges the successor's acquisition also has this earlier
            // release.
            Some(_) => connection::by_primary(),
            None => deployment.write_concern(),
        };
        let updated = deployment.update_with((filter, update.into()), projection(), concern);
        let Some(document) = updated.await? else {
            // Without a majority, the primary may be deposed, and may lack the newest renewal.
            return Ok(match released {
                Some(_) => Outcome::Unknown,
                None => Outcome::Rejected,
            });
        };
        // A leader without a change stream sees a roll call when it renews.
        shared.called(roll_call::called(&document));
        if let Some(declared) = declares {
            shared.hints.declared(declared);
        }
        if hinted {
            shared
                .hints
                .leave(deployment, &shared.lease, released.clone());
        }
        match released {
            Some(_) => Ok(Outcome::PrimaryOnly),
            None => Ok(Outcome::Applied(shared.found(Some(document)))),
        }
    }
}

impl Store for MongoStore {
    async fn perform(&self, operation: Operation) -> Answer {
        let sent = self.send(operation).await;
        self.shared.deployment.answer(sent).await
    }

    fn server(&self) -> Option<String> {
        self.shared.deployment.servers.known().writable()
    }

    fn reopen_stream(&self) {
        self.shared.reopen.notify_one();
    }

    fn set_timings(&self, timings: Timings) {
        publish(&self.shared.deployment.timings, timings);
    }

    fn set_healthy(&self, healthy: bool) {
        *lock(&self.shared.healthy) = Some(healthy);
    }

    fn answer_roll_call(&self, status: watch::Receiver<Status>) {
        let called = *self.shared.roll_call.borrow();
        let answer = called.map(|call| (call, status));
        self.shared.answer.send_replace(answer);
    }
}

impl LeaseInner {
    async fn recognize(&self) {
        let recognized = async {
            let product = self.deployment.lookalike().await;
            if let Some(product) = product {
                let _ = self.news.send(StoreEvent::Lookalike(product)).await;
            }
            product
        };
        let connected = async {
            if let Some(info) = self.deployment.described().await {
                let _ = self.news.send(StoreEvent::Connected(info)).await;
            }
        };
        let (product, ()) = tokio::join!(recognized, connected);
        if product.is_none() {
            let settings = self.deployment.failover_settings().await;
            let _ = self.news.send(StoreEvent::Failover(settings)).await;
        }
    }

    fn called(&self, call: Option<RollCallId>) {
        if call.is_some() {
            publish(&self.roll_call, call);
        }
    }

    /// Reports each roll call in order with the other events, so that the candidate answers only
    /// after it has applied the earlier pauses and requests.
    async fn report_roll_calls(&self) {
        let mut newest = self.roll_call.subscribe();
        newest.mark_changed();
        while newest.changed().await.is_ok() {
            if newest.borrow_and_update().is_some() {
                let _ = self.news.send(StoreEvent::RollCalled).await;
            }
        }
    }

    /// Answers roll calls one at a time, over one connection. If several arrive in the meantime,
    /// answers only the newest. An unanswered roll call merely omits this candidate.
    async fn answer_roll_calls(&self) {
        let (name, identity) = (self.lease.as_str(), &self.deployment.options.identity);
        let mut newest = self.answer.subscribe();
        newest.mark_changed();
        while newest.changed().await.is_ok() {
            let answer = newest.borrow_and_update().clone();
            let Some((call, status)) = answer else {
                continue;
            };
            let authority = status.borrow().at(leasehold_clock::boot_now()).authority;
            let leads_with = authority.map(|authority| authority.token);
            let healthy = *lock(&self.healthy);
            let (filter, update) = roll_call::answer(name, call, identity, healthy, leads_with);
            let projection = roll_call::projection();
            let _ = self.deployment.update(filter, update, projection).await;
        }
    }

    /// While hints cannot be used, reopens the source from time to time, because the cause may be
    /// gone.
    async fn retry_hints(&self) {
        loop {
            tokio::time::sleep(hints::RETRY).await;
            if self.may_create_hints() && self.hints.should_create() {
                self.reopen.notify_one();
            }
        }
    }

    /// Returns true on a replica set of MongoDB. Cursors on hints were tried with no other server.
    fn may_create_hints(&self) -> bool {
        let is_set = self.deployment.kind() == Some(StoreKind::ReplicaSet);
        is_set && self.deployment.other_product().is_none()
    }

    /// Interprets a document, and keeps it for updates by change events.
    fn found(&self, document: Option<Document>) -> Found {
        let found = document.as_ref().map_or(Found::Missing, document::read);
        if let (Found::Lease(_), Some(lease)) = (&found, &document)
            && let Some(why) = newly_ignored(&mut lock(&self.ignored_request), lease)
        {
            // This event is informational, so it is dropped if the queue is full.
            let _ = self.news.try_send(StoreEvent::RequestIgnored(why));
        }
        *lock(&self.newest) = document;
        self.choose_source();
        found
    }

    /// Switches between change stream and hints if the newest known holder requires the switch.
    fn choose_source(&self) {
        if lock(&self.newest)
            .as_ref()
            .is_some_and(|lease| self.hints.should_change(lease))
        {
            self.reopen.notify_one();
        }
    }
}

/// Returns why the request in a lease document is invalid; `None` if it is valid or was reported.
fn newly_ignored(reported: &mut Option<String>, lease: &Document) -> Option<&'static str> {
    let why = document::request(lease).err()?;
    let request = Some(format!("{:?}", lease.get("request")));
    (std::mem::replace(reported, request.clone()) != request).then_some(why)
}

fn projection() -> Document {
    let mut projection = document::projection();
    projection.extend(roll_call::projection());
    projection
}

fn now() -> DateTime {
    DateTime::from_system_time(leasehold_clock::wall_now())
}

pub(crate) fn primary() -> SelectionCriteria {
    SelectionCriteria::ReadPreference(ReadPreference::Primary)
}

impl<W: Send> PrimaryObserver for mpsc::Sender<StoreEvent<W>> {
    /// Reports a new primary. If the queue is full, the events in it wake the reader anyway.
    fn primary_changed(&self) {
        let _ = self.try_send(StoreEvent::PrimaryChanged);
    }

    fn is_gone(&self) -> bool {
        self.is_closed()
    }
}

pub(crate) fn publish<T: PartialEq>(channel: &watch::Sender<T>, value: T) {
    channel.send_if_modified(|newest| {
        let is_new = *newest != value;
        *newest = value;
        is_new
    });
}

/// Locks a mutex. Poisoning is ignored, because the values are consistent at every instant.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use mongodb::bson::{Bson, doc};

    use super::*;

    #[test]
    fn an_invalid_request_is_reported_once() {
        let mut newest = None;
        let mut check = |lease: &Document| newly_ignored(&mut newest, lease);
        for (request, why) in [
            (Bson::Double(f64::NAN), "not a document"),
            (Bson::Document(doc! { "kind": "step_down" }), "token"),
            (
                Bson::Document(doc! { "kind": "step_down", "token": 7.0 }),
                "token",
            ),
            (
                Bson::Document(doc! { "kind": "stepdown", "token": 7 }),
                "kind",
            ),
            (
                Bson::Document(doc! { "kind": "transfer", "token": 7 }),
                "to",
            ),
        ] {
            let lease = doc! { "request": request };
            let reported = check(&lease);
            assert!(
                reported.is_some_and(|reported| reported.contains(why)),
                "{lease}: {reported:?}"
            );
            assert_eq!(check(&lease), None, "{lease}");
            // An acquisition clears the request, so setting it again is a new request.
            assert_eq!(check(&doc! { "request": null }), None);
            assert_eq!(check(&lease), None, "{lease}");
        }
    }

    #[test]
    fn a_valid_request_is_not_reported() {
        let mut reported = None;
        for request in [
            doc! { "kind": "step_down", "token": 7 },
            doc! { "kind": "transfer", "token": 7_i64, "to": "b", "newer": 1 },
        ] {
            assert_eq!(
                newly_ignored(&mut reported, &doc! { "request": request }),
                None
            );
        }
        assert_eq!(newly_ignored(&mut reported, &doc! {}), None);
    }
}
