//! Goal: followers notice changes equally fast with hints and with a change stream. If hints are
//! unusable, followers fall back to a change stream or polling. Method: make
//! renewals so rare that only a hint can explain an immediate reaction to a change.

use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::TryStreamExt;
use leasehold::election::{
    Identity, Operation, Outcome, ResourceName, Revision, TimingSettings, Timings, Token, Watch,
};
use leasehold::store::mongo::{MongoStore, StoreOptions, WatchMode};
use leasehold::store::{Store, StoreEvent};
use leasehold_testbed::{Daemon, DaemonTimings, ReplicaSet, Stage};
use mongodb::bson::{Binary, Document, Uuid, doc};
use rustix::process::Signal;
use tokio::sync::mpsc;

use crate::fixture::{LONG, eventually, found, set_of_one, shared_stage, stage_on};

/// A follower that has just started reads sixteen times in an interval: every 12.5 s.
const SLOW: DaemonTimings = DaemonTimings {
    lease_duration: Duration::from_secs(600),
    renew_deadline: Duration::from_secs(500),
    renew_interval: Duration::from_secs(200),
    retry_interval: Duration::from_secs(15),
    operation_timeout: Duration::from_secs(2),
    loss_grace: Duration::from_secs(3),
};
/// For tests that wait for the leader's next renewal, which declares that the leader writes hints.
const MODERATE: DaemonTimings = DaemonTimings {
    lease_duration: Duration::from_secs(120),
    renew_deadline: Duration::from_secs(100),
    renew_interval: Duration::from_secs(20),
    ..SLOW
};
/// Maximum time until a follower reacts to a hint, much less than its read interval.
const AT_ONCE: Duration = Duration::from_secs(8);
const FOLLOWS: &str = "following hints";

/// Starts the leader `a` and its follower `b`, each with its own `mongodb.watch` setting.
async fn pair(stage: &Stage, of_a: &str, of_b: &str) -> (Daemon, Daemon) {
    let watch = |watch: &str| format!("--mongodb-watch={watch}");
    let a = stage.candidate("a").flag(&watch(of_a)).leading(LONG).await;
    if of_a == "hints" {
        // If the hints collection is missing, a follower checks again only a minute later.
        following_hints(&[&a]).await;
    }
    let b = stage.candidate("b").flag(&watch(of_b));
    let b = b.following("a", LONG).await;
    (a, b)
}

/// Asserts that the follower learns of a release before its next read.
async fn receives_at_once(leader: &Daemon, follower: &Daemon) {
    let asked = Instant::now();
    leader.term();
    follower.wait_leads(LONG).await;
    let took = asked.elapsed();
    assert!(took < AT_ONCE, "{took:?}: {}", follower.logs());
}

async fn following_hints(daemons: &[&Daemon]) {
    for daemon in daemons {
        daemon.wait_logged(FOLLOWS, LONG).await;
    }
}

fn hints(stage: &Stage) -> mongodb::Collection<Document> {
    let database = stage.set().client().database(stage.database());
    database.collection(&format!("{}.hints", stage.collection()))
}

#[tokio::test]
async fn a_release_and_an_operators_request_reach_followers_of_hints_at_once() {
    let stage = shared_stage().await.timings(SLOW);
    let (a, b) = pair(&stage, "hints", "hints").await;
    following_hints(&[&a, &b]).await;
    receives_at_once(&a, &b).await;

    let a = stage.candidate("a").flag("--mongodb-watch=hints");
    let a = a.following("b", LONG).await;
    following_hints(&[&a]).await;
    let asked = Instant::now();
    let uri = stage.set().uri();
    let mut command = stage.command(&uri, &["step-down", stage.lease()]);
    let status = command.status().await.expect("the command starts");
    a.wait_leads(LONG).await;
    assert!(asked.elapsed() < AT_ONCE, "{status}, {}", a.logs());
}

#[tokio::test]
async fn if_the_standby_has_crashed_the_other_followers_learn_of_the_release_at_once() {
    let stage = stage_on(&set_of_one().await).timings(SLOW);
    let (a, b) = pair(&stage, "hints", "hints").await;
    following_hints(&[&a, &b]).await;
    is_standby(&stage, "b").await;
    b.kill();
    let c = stage.candidate("c").flag("--mongodb-watch=hints");
    let c = c.following("a", LONG).await;
    following_hints(&[&c]).await;
    let asked = Instant::now();
    a.signal(Signal::USR1);
    a.wait_operations("release", "primary_only", 1.0).await;
    c.wait_leads(LONG).await;
    assert!(asked.elapsed() < AT_ONCE, "{}", c.logs());
}

async fn is_standby(stage: &Stage, identity: &str) {
    let leases = stage.set().client().database(stage.database());
    let leases = leases.collection::<Document>(stage.collection());
    let registered = doc! { "_id": stage.lease(), "standby.identity": identity };
    eventually("the candidate is the standby", async || {
        let found = leases.find_one(registered.clone()).await;
        found.is_ok_and(|lease| lease.is_some())
    })
    .await;
}

#[tokio::test]
async fn with_hints_the_primary_alone_acknowledges_a_release_for_the_standby() {
    let set = Arc::new(ReplicaSet::builder().start().await);
    let stage = stage_on(&set).timings(DaemonTimings::DEFAULT);
    let (a, b) = pair(&stage, "hints", "hints").await;
    following_hints(&[&a, &b]).await;
    is_standby(&stage, "b").await;
    // The reply shows the standby to the leader.
    a.wait_renewal(LONG).await;
    let primary = set.primary().await;
    let others: Vec<_> = (0..3).filter(|member| *member != primary).collect();
    others.iter().for_each(|member| set.stop(*member));
    a.signal(Signal::USR1);
    a.wait_operations("release", "primary_only", 1.0).await;
    assert!(!b.leads(), "no majority has the acquisition");
    others.iter().for_each(|member| set.cont(*member));
    let thawed = Instant::now();
    b.wait_leads(LONG).await;
    assert!(thawed.elapsed() < AT_ONCE, "{}", b.logs());
}

#[tokio::test]
async fn by_default_candidates_create_the_collection_and_follow_hints() {
    let stage = stage_on(&set_of_one().await).timings(MODERATE);
    let (a, b) = pair(&stage, "auto", "auto").await;
    following_hints(&[&a, &b]).await;
    receives_at_once(&a, &b).await;
    let names = stage.set().client().database(stage.database());
    let capped = names
        .list_collections()
        .filter(doc! { "options.capped": true });
    let found: Vec<_> = capped
        .await
        .expect("listed")
        .try_collect()
        .await
        .expect("read");
    assert_eq!(found.len(), 1);
}

#[tokio::test]
async fn an_uncapped_hints_collection_is_not_used() {
    let stage = shared_stage().await.timings(SLOW);
    let ours = doc! { "_id": "somebody's" };
    hints(&stage).insert_one(&ours).await.expect("stored");
    let (a, b) = pair(&stage, "auto", "auto").await;
    b.wait_logged("the collection of hints is not capped", LONG)
        .await;
    b.wait_stream().await;
    receives_at_once(&a, &b).await;
    let count = hints(&stage).count_documents(doc! {}).await;
    assert_eq!(count.expect("counted"), 1);
}

#[tokio::test]
async fn without_the_privilege_for_hints_followers_use_a_change_stream_or_poll() {
    let set = ReplicaSet::builder().members(1).auth().start().await;
    let stage = stage_on(&Arc::new(set)).timings(DaemonTimings::DEFAULT);
    let actions = ["find", "insert", "update", "changeStream"];
    let (database, collection) = (stage.database(), stage.collection());
    let user = stage.set();
    let user = user
        .add_user_with_actions("modest", database, collection, &actions)
        .await;
    let stage_of_user = stage_on_user(&stage, &user);
    let (a, b) = pair(&stage_of_user, "auto", "auto").await;
    b.wait_stream().await;
    let instead = "hints unavailable, following a change stream";
    for daemon in [&a, &b] {
        daemon.wait_logged(instead, LONG).await;
        daemon.wait_logged("no right to use hints", LONG).await;
    }
    a.term();
    b.wait_leads(LONG).await;

    let c = stage_of_user.candidate("c").flag("--mongodb-watch=hints");
    let c = c.following("b", LONG).await;
    c.wait_logged("no right to use hints", LONG).await;
    c.wait_logged("insert and convertToCapped on", LONG).await;
    b.term();
    c.wait_leads(LONG).await;
    assert_eq!(c.metric("leasehold_watch_connected").await, 0.0);
}

/// Checks that the role in docs/mongodb.md is sufficient, and that each of its privileges is
/// necessary.
#[tokio::test]
async fn the_documented_rights_create_the_collection_of_hints() {
    let set = Arc::new(ReplicaSet::builder().members(1).auth().start().await);
    let stage = stage_on(&set).timings(DaemonTimings::DEFAULT);
    let (database, collection) = (stage.database(), stage.collection());
    let of_leases = ["find", "insert", "update", "changeStream"];
    let of_hints = documented_rights();
    for missing in of_hints.iter().map(Some).chain([None]) {
        let rights = of_hints.iter().filter(|right| Some(*right) != missing);
        let rights: Vec<_> = rights.map(String::as_str).collect();
        let name = missing.map_or("complete", String::as_str);
        let user = set
            .add_user_with_actions(name, database, collection, &of_leases)
            .await;
        let of_them = format!("{collection}.hints");
        set.grant(name, database, &of_them, &rights).await;
        // Drop the hints collection. An earlier candidate may have created the collection and then
        // failed, because it lacked another privilege.
        hints(&stage).drop().await.expect("dropped");
        let candidate = stage_on_user(&stage, &user).candidate("a");
        let candidate = candidate.flag("--mongodb-watch=hints").start();
        match missing {
            Some(_) => candidate.wait_logged("no right to use hints", LONG).await,
            None => following_hints(&[&candidate]).await,
        }
    }
}

/// Returns the actions on the hints collection that the role in docs/mongodb.md grants.
fn documented_rights() -> Vec<String> {
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/mongodb.md");
    let page = std::fs::read_to_string(page).expect("the page");
    let (_, role) = page
        .split_once("collection: \"leases.hints\" }, actions: ")
        .expect("the role");
    let (rights, _) = role.split_once(" }").expect("a list");
    serde_json::from_str(rights).expect("a list")
}

fn stage_on_user(stage: &Stage, user: &leasehold_testbed::User) -> Stage {
    stage.clone().uri(stage.set().uri_for(user))
}

#[tokio::test]
async fn a_poller_opens_nothing() {
    let stage = shared_stage().await.timings(DaemonTimings::DEFAULT);
    let (a, b) = pair(&stage, "poll", "poll").await;
    a.term();
    b.wait_leads(LONG).await;
    assert_eq!(b.metric("leasehold_watch_connected").await, 0.0);
}

#[tokio::test]
async fn a_collection_of_hints_that_is_dropped_is_replaced_by_a_change_stream() {
    let stage = stage_on(&set_of_one().await).timings(DaemonTimings::DEFAULT);
    let (a, b) = pair(&stage, "hints", "auto").await;
    following_hints(&[&a, &b]).await;
    let before = b.logged(FOLLOWS);
    hints(&stage).drop().await.expect("dropped");
    // `a` recreates the collection at its next attempt. `b` may already have switched to a stream,
    // so any of three log lines may appear.
    eventually(
        "the cursor is reopened, or replaced by a stream",
        async || {
            let stream = b.logged("following a change stream") > 0;
            stream || b.logged("hints unavailable") > 0 || b.logged(FOLLOWS) > before
        },
    )
    .await;
    eventually("the follower is connected again", async || {
        b.metric("leasehold_watch_connected").await == 1.0
    })
    .await;
    a.term();
    b.wait_leads(LONG).await;
}

#[tokio::test]
async fn the_hints_cursor_is_reopened_when_the_primary_steps_down() {
    let set = Arc::new(ReplicaSet::start().await);
    let stage = stage_on(&set).timings(SLOW);
    let (a, b) = pair(&stage, "hints", "hints").await;
    following_hints(&[&a, &b]).await;
    let before = b.logged(FOLLOWS);
    set.step_down_primary().await;
    for daemon in [&a, &b] {
        eventually("the follower uses hints again", async || {
            daemon.logged(FOLLOWS) > before
        })
        .await;
    }
    receives_at_once(&a, &b).await;
}

#[tokio::test]
async fn followers_of_a_leader_without_hints_use_a_change_stream() {
    let stage = shared_stage().await.timings(MODERATE);
    // The collection exists, but the next leader writes no hints, like an earlier version.
    let (a, b) = pair(&stage, "hints", "stream").await;
    following_hints(&[&a]).await;
    let c = stage.candidate("c").flag("--mongodb-watch=auto");
    let c = c.following("a", LONG).await;
    following_hints(&[&c]).await;
    a.term();
    let (leader, other) = found("b or c leads", async || match () {
        () if b.leads() => Some((&b, &c)),
        () if c.leads() => Some((&c, &b)),
        () => None,
    })
    .await;
    // The other follower has used a change stream from the start.
    if other.identity() == "c" {
        let changed = "following a change stream instead of hints";
        other.wait_logged(changed, LONG).await;
    }
    other.wait_stream().await;
    other.wait_follows(leader.identity(), LONG).await;
    receives_at_once(leader, other).await;
}

#[tokio::test]
async fn writes_to_other_collections_do_not_wake_a_follower_of_hints() {
    let set = set_of_one().await;
    let stage = stage_on(&set).timings(DaemonTimings::DEFAULT);
    let (a, b) = pair(&stage, "hints", "hints").await;
    following_hints(&[&a, &b]).await;
    let client = set.client();
    let getmores = async || {
        let admin = client.database("admin");
        let status = admin.run_command(doc! { "serverStatus": 1, "wiredTiger": 0 });
        let status = status.await.expect("serverStatus");
        let metrics = status.get_document("metrics").cloned();
        let commands = metrics.and_then(|m| m.get_document("commands").cloned());
        let getmore = commands.and_then(|c| c.get_document("getMore").cloned());
        let total = getmore.and_then(|g| g.get_i64("total"));
        total.expect("a count")
    };
    let before = getmores().await;
    let began = Instant::now();
    let foreign = client.database("shop").collection::<Document>("orders");
    for number in 0..500 {
        let order = doc! { "number": number };
        foreign.insert_one(order).await.expect("stored");
    }
    let woken = getmores().await - before;
    // Without hints, each getMore waits for 8 s. The testbed's own client opens no cursor.
    let own = 4 + i64::try_from(began.elapsed().as_secs() / 2).expect("short");
    assert!(woken <= own, "{woken} getMores for 500 unrelated writes");
}

fn following(stage: &Stage) -> StoreOptions {
    let mut options = StoreOptions::new(stage.set().uri(), Identity::new("a").expect("legal"));
    options.database = stage.database().to_owned();
    options.collection = stage.collection().to_owned();
    options.watch = WatchMode::Hints;
    options
}

#[tokio::test]
async fn the_hint_of_a_release_reaches_only_its_successor() {
    let stage = stage_on(&set_of_one().await);
    let (news, mut events) = mpsc::channel(100);
    let lease = ResourceName::new(stage.lease()).expect("legal");
    let (store, _) = MongoStore::new(following(&stage), lease, news);
    let following = tokio::spawn(store.clone().watch());
    let mut next = async || {
        let found = async {
            loop {
                if let Some(StoreEvent::Watch(
                    event @ (Watch::HintsOpened | Watch::Hint | Watch::Released(_)),
                )) = events.recv().await
                {
                    return event;
                }
            }
        };
        let found = tokio::time::timeout(LONG, found).await;
        found.expect("the store reports the event")
    };
    assert!(matches!(next().await, Watch::HintsOpened));
    let id = |number| Binary::from(Uuid::from_bytes([number; 16]));
    let release = |successor: &str| {
        let released = doc! { "claim": id(1), "revision": id(2), "reserved_for": successor };
        doc! { "name": stage.lease(), "released": released }
    };
    let plain = doc! { "name": stage.lease() };
    // The second hint shows that the first one would have arrived.
    for hint in [release("b"), plain] {
        hints(&stage).insert_one(hint).await.expect("stored");
    }
    assert!(matches!(next().await, Watch::Hint));
    let own = release("a");
    hints(&stage).insert_one(own).await.expect("stored");
    assert!(matches!(next().await, Watch::Released(_)));
    following.abort();
}

#[tokio::test]
async fn a_hint_does_not_recreate_a_dropped_collection() {
    let stage = stage_on(&set_of_one().await);
    let (news, mut events) = mpsc::channel(100);
    let mut options = following(&stage);
    // A cursor that is lost is reopened after `retry_interval`, and then creates the collection.
    let timings = Timings::new(TimingSettings {
        lease_duration: SLOW.lease_duration,
        renew_deadline: SLOW.renew_deadline,
        renew_interval: SLOW.renew_interval,
        retry_interval: SLOW.retry_interval,
        ..TimingSettings::default()
    });
    options.timings = timings.expect("the durations satisfy the rules");
    let lease = ResourceName::new(stage.lease()).expect("legal");
    let (store, _) = MongoStore::new(options, lease, news);
    let following = tokio::spawn(store.clone().watch());
    let mut wait_for = async |wanted: fn(&Watch) -> bool| {
        let found = async {
            loop {
                if let Some(StoreEvent::Watch(event)) = events.recv().await
                    && wanted(&event)
                {
                    return;
                }
            }
        };
        let found = tokio::time::timeout(LONG, found).await;
        found.expect("the store reports the event");
    };
    wait_for(|event| matches!(event, Watch::HintsOpened)).await;
    hints(&stage).drop().await.expect("dropped");
    wait_for(|event| matches!(event, Watch::Lost)).await;
    let create = Operation::Create {
        revision: Revision::from_bytes([1; 16]),
        token: Token::ZERO,
    };
    let created = store.perform(create).await;
    assert!(matches!(created.outcome, Outcome::Applied(_)));
    // Waits until the hint is sent.
    store.shut_down().await;
    following.abort();
    let database = stage.set().client().database(stage.database());
    let named = doc! { "name": hints(&stage).name() };
    let found = database.list_collections().filter(named).await;
    let found: Vec<_> = found.expect("listed").try_collect().await.expect("read");
    let capped = found.iter().all(|found| found.options.capped == Some(true));
    assert!(capped, "{found:?}");
}
