//! Goal: a program with many acquisitions does not exhaust the server's connections. All
//! acquisitions of a lock share one client per runtime. Leases and locks can use the program's own
//! client, which stays open. Method: reads the server's list of connections by application name,
//! and the events of the program's client.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use leasehold::election::{ResourceName, Timings};
use leasehold::elector::{Elector, ElectorOptions};
use leasehold::lock::{LockMode, OncePer, WorkKey};
use leasehold::locker::{Lock, LockError, Locker, LockerOptions};
use leasehold::store::mongo::StoreOptions;
use leasehold::store::mongo::operators::{MongoCollection, Scope};
use leasehold::store::{DeploymentId, KnownHome};
use leasehold_testbed::Stage;
use mongodb::Client;
use mongodb::bson::{Bson, doc};
use mongodb::event::EventHandler;
use mongodb::event::command::CommandEvent;
use mongodb::options::ClientOptions;
use tokio::task::JoinSet;

use crate::fixture::{LONG, NAME, eventually, read, shared_stage, store, store_options};

fn name() -> ResourceName {
    ResourceName::new(NAME).expect("legal")
}

async fn connections(stage: &Stage, app: &str) -> BTreeSet<i64> {
    let admin = stage.set().client().database("admin");
    let pipeline = [
        doc! { "$currentOp": { "allUsers": true, "idleConnections": true } },
        doc! { "$match": { "appName": app } },
    ];
    let mut found = admin.aggregate(pipeline).await.expect("permitted");
    let mut ids = BTreeSet::new();
    while found.advance().await.expect("readable") {
        let found = found.deserialize_current().expect("a document");
        match found.get("connectionId") {
            Some(Bson::Int32(id)) => ids.insert(i64::from(*id)),
            Some(Bson::Int64(id)) => ids.insert(*id),
            _ => false,
        };
    }
    ids
}

#[tokio::test]
async fn the_acquisitions_of_a_lock_share_a_client_and_close_it() {
    let stage = shared_stage().await;
    let lock = Lock::new(store_options(&stage, "shares-one"), name());
    let app = "leasehold/shares-one";
    let acquire = async |lock: &Lock| {
        let guard = lock.acquire_within(LONG).await;
        let guard = guard.unwrap_or_else(|error| panic!("{error}"));
        guard.release().await.expect("the lock was held");
    };
    acquire(&lock).await;
    let first = connections(&stage, app).await;
    assert!(!first.is_empty(), "the client stays connected");
    for _ in 0..5 {
        acquire(&lock.clone()).await;
    }
    let last = connections(&stage, app).await;
    assert!(!first.is_disjoint(&last), "{first:?} and {last:?}");
    drop(lock);
    eventually("the client is closed", async || {
        connections(&stage, app).await.is_empty()
    })
    .await;
}

/// Holds the lock while `number` contenders of the same `Lock` wait. Then each contender acquires
/// the lock in turn.
async fn held_while_many_wait(stage: &Stage, lock: Lock, number: usize) {
    let guard = lock.acquire_within(LONG).await;
    let guard = guard.unwrap_or_else(|error| panic!("{error}"));
    let mut waiters = JoinSet::new();
    for _ in 0..number {
        let lock = lock.clone();
        waiters.spawn(async move {
            let guard = lock.acquire_within(4 * LONG).await?;
            guard.release().await
        });
    }
    let store = store(stage);
    eventually("all wait", async || {
        read(&store).await.queue.len() == number
    })
    .await;
    let timings = Timings::default();
    // A busy machine delays only one or two renewals. Without a free connection, no renewal would
    // be acknowledged.
    let late = timings.renew_interval();
    let end = Instant::now() + timings.renew_deadline();
    while Instant::now() < end {
        let authority = guard.authority().expect("the lock is held");
        let left = authority.valid_until.since(leasehold_clock::boot_now());
        assert!(left > late, "{left:?}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    guard.release().await.expect("the lock was held");
    while let Some(acquired) = waiters.join_next().await {
        acquired
            .expect("no panic")
            .expect("the waiter acquires the lock");
    }
}

#[tokio::test]
async fn many_waiters_on_one_lock_do_not_delay_its_holder_or_each_other() {
    let stage = shared_stage().await;
    let lock = Lock::new(store_options(&stage, "has-many"), name());
    // More waiters than the connection pool of a single store permits.
    held_while_many_wait(&stage, lock, 40).await;
}

#[tokio::test]
async fn a_pool_with_one_connection_per_waiter_and_twenty_more_suffices() {
    let stage = shared_stage().await;
    // More waiters than connections in the driver's default pool.
    let waiters = 15;
    let mut options = ClientOptions::parse(stage.set().uri())
        .await
        .expect("legal");
    options.max_pool_size = Some(waiters + 20);
    let client = Client::with_options(options).expect("legal");
    let own = store_options(&stage, "has-a-pool").with_client(client);
    let waiters = usize::try_from(waiters).expect("small");
    held_while_many_wait(&stage, Lock::new(own, name()), waiters).await;
}

fn on_a_runtime<T>(work: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    runtime.expect("a runtime").block_on(work)
}

#[test]
fn a_lock_can_be_acquired_and_listed_on_several_runtimes() {
    let stage = on_a_runtime(shared_stage());
    let lock = Lock::new(store_options(&stage, "has-runtimes"), name());
    let locks = MongoCollection::brief(store_options(&stage, "has-runtimes"));
    for _ in 0..3 {
        on_a_runtime(async {
            let guard = lock.acquire_within(LONG).await;
            let guard = guard.unwrap_or_else(|error| panic!("{error}"));
            let listed = locks.list(&Scope::Locks).await;
            let listed = listed.unwrap_or_else(|failure| panic!("{failure}"));
            assert_eq!(listed.len(), 1);
            guard.release().await.expect("the lock was held");
        });
    }
}

#[tokio::test]
async fn a_holder_is_unaffected_by_a_contender_on_another_runtime() {
    let stage = shared_stage().await;
    let lock = Lock::new(store_options(&stage, "has-two"), name());
    let guard = lock.acquire_within(LONG).await;
    let guard = guard.unwrap_or_else(|error| panic!("{error}"));
    let other = lock.clone();
    let other = tokio::task::spawn_blocking(|| {
        on_a_runtime(async move { other.try_acquire().await.map(drop) })
    });
    let other = other.await.expect("no panic");
    assert!(matches!(other, Err(LockError::Busy { .. })), "{other:?}");
    guard.release().await.expect("the lock was held");
}

/// A program's own client, with the number of commands that it has sent, by command name.
struct Own {
    client: Client,
    sent: Arc<Mutex<BTreeMap<String, usize>>>,
}

impl Own {
    async fn of(uri: &str) -> Self {
        let mut options = ClientOptions::parse(uri).await.expect("legal");
        options.app_name = Some("own-client".to_owned());
        let sent: Arc<Mutex<BTreeMap<String, usize>>> = Arc::default();
        let counted = Arc::clone(&sent);
        options.command_event_handler = Some(EventHandler::callback(move |event| {
            if let CommandEvent::Started(event) = event {
                let mut sent = counted.lock().expect("no panic");
                *sent.entry(event.command_name).or_default() += 1;
            }
        }));
        let client = Client::with_options(options).expect("legal");
        Self { client, sent }
    }

    fn sent(&self, command: &str) -> usize {
        let sent = self.sent.lock().expect("no panic");
        sent.get(command).copied().unwrap_or(0)
    }

    fn options(&self, stage: &Stage, identity: &str) -> StoreOptions {
        store_options(stage, identity).with_client(self.client.clone())
    }
}

#[tokio::test]
async fn a_lock_and_a_lease_use_the_client_of_the_program_and_leave_it_open() {
    let stage = shared_stage().await;
    let own = Own::of(&stage.set().uri()).await;
    let lock = Lock::new(own.options(&stage, "uses-own"), name());
    let guard = lock.acquire_within(LONG).await;
    let guard = guard.unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(read(&store(&stage)).await.holders.len(), 1);
    assert!(own.sent("findAndModify") > 0);
    assert!(own.sent("hello") > 0, "the client queries the set's name");
    let waiter = lock.clone();
    let waiter = tokio::spawn(async move { waiter.acquire_within(LONG).await });
    eventually(
        "the contender waits with the program's client",
        async || read(&store(&stage)).await.queue.len() == 1,
    )
    .await;
    guard.release().await.expect("the lock was held");
    let next = waiter.await.expect("no panic");
    next.expect("the contender is granted the lock")
        .release()
        .await
        .expect("held");
    let mut options = ElectorOptions::new(
        own.options(&stage, "uses-own"),
        ResourceName::new("own-client").expect("legal"),
    );
    options.handoff_delay = Duration::ZERO;
    let elector = Elector::start(options);
    let mut status = elector.status();
    while elector.authority().is_none() {
        status.changed().await.expect("the status is published");
    }
    elector.stop().await.expect("no fault");
    drop(lock);
    assert!(connections(&stage, "leasehold/uses-own").await.is_empty());
    let admin = own.client.database("admin");
    let pong = admin.run_command(doc! { "ping": 1 }).await;
    pong.expect("the client is open");
}

#[tokio::test]
async fn a_client_of_another_deployment_is_refused() {
    let stage = shared_stage().await;
    let own = Own::of(&stage.set().uri()).await;
    let mut options = own.options(&stage, "a");
    let elsewhere = DeploymentId {
        set: Some("elsewhere".to_owned()),
        id: None,
        members: ["elsewhere.invalid:27017".to_owned()].into(),
        seeds: BTreeSet::new(),
    };
    options.home = Some(KnownHome {
        file: "/deployment".into(),
        deployment: Some(elsewhere),
    });
    match Lock::new(options, name()).acquire_within(LONG).await {
        Err(LockError::Refused { failure }) => {
            let why = failure.to_string();
            assert!(why.contains("belongs to replica set elsewhere"), "{why}");
        }
        other => panic!("{other:?}"),
    }
    assert_eq!(own.sent("findAndModify"), 0, "nothing was written");
}

#[tokio::test]
async fn work_once_per_period_requires_an_exclusive_lock() {
    let stage = shared_stage().await;
    let mut options = LockerOptions::new(store_options(&stage, "a"), name());
    options.mode = LockMode::Shared;
    options.once_per = Some(OncePer {
        period: Duration::from_secs(60),
        key: WorkKey::default(),
    });
    let started = Locker::start(options, ());
    assert!(matches!(started, Err(LockError::NotExclusive)));
}
