//! Goal: if waiting for a lock times out because MongoDB refuses writes, the error names MongoDB's
//! refusal, not former holders. Method: block writes on a real server until the holder has lost the
//! lock and the waiter has timed out.

use std::time::Duration;

use leasehold::election::{Identity, ResourceName, Timings};
use leasehold::lock::scaled;
use leasehold::locker::{Lock, LockError, LockGuard};
use leasehold::store::mongo::StoreOptions;
use leasehold_testbed::{Scratch, Stage};
use mongodb::bson::doc;

use crate::cast::{FREE, Job, ran};
use crate::fixture::{LONG, eventually, set_of_one, stage_on};

const LEASE: Duration = Duration::from_secs(3);
/// Timeout of the waiter, several lease durations long.
const WAIT: Duration = Duration::from_secs(15);
/// Code of `UserWritesBlocked`.
const BLOCKED: i32 = 371;

fn lock(stage: &Stage, name: &str) -> Lock {
    let identity = Identity::new("program").expect("legal");
    let mut options = StoreOptions::new(stage.set().uri(), identity);
    options.database = stage.database().to_owned();
    options.collection = stage.collection().to_owned();
    options.timings = scaled(&Timings::default(), LEASE).expect("the durations satisfy the rules");
    Lock::new(options, ResourceName::new(name).expect("legal"))
}

#[track_caller]
fn is_refused(acquired: Result<LockGuard, LockError>) {
    match acquired {
        Err(LockError::Unreachable {
            failure: Some(failure),
        }) => assert_eq!(failure.code, Some(BLOCKED), "{failure}"),
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn a_wait_that_ends_while_writes_are_blocked_names_the_refusal() {
    let set = set_of_one().await;
    let stage = stage_on(&set);
    let scratch = Scratch::new();
    let held = scratch.path().join("held");
    let lease = format!("--lease-duration={}s", LEASE.as_secs());
    let wait = format!("--wait={}s", WAIT.as_secs());
    let job = |identity: &str, flags: &[&str], script: &str| {
        let name = format!("--identity={identity}");
        let command = [
            &["lock", "held", &name, &lease],
            flags,
            &["--", "sh", "-c", script],
        ];
        let command = stage.command(&set.uri(), &command.concat());
        Job::start(command, scratch.path().join(identity))
    };
    let script = format!(": > {}; exec sleep 1000", held.display());
    let mut holder = job("holder", &[], &script);
    eventually("the lock is held", async || held.exists()).await;
    let mut waiter = job("waiter", &[&wait, "-E", "0"], "true");
    waiter.wait_logged(&["waiting for the lock"], 1).await;
    let program = lock(&stage, "held");
    let behind = tokio::spawn(async move { program.acquire_within(WAIT).await });
    let (free, tried) = (lock(&stage, "free"), lock(&stage, "tried"));
    let known = free.acquire_within(LONG).await.expect("the lock is free");
    known
        .release()
        .await
        .expect("the lock was held until its release");

    let block = doc! { "setUserWriteBlockMode": 1, "global": true };
    set.command(0, block).await.expect("writes are blocked");
    let (free, tried) = tokio::join!(free.acquire_within(LEASE), tried.try_acquire());
    is_refused(free);
    is_refused(tried);
    assert_eq!(holder.exits().await.code(), Some(76), "{}", holder.log());
    let exit = waiter.exits().await;
    let log = waiter.log();
    assert_eq!(exit.code(), Some(69), "{log}");
    let last = log.lines().last().unwrap_or_default();
    assert!(
        last.contains("gave up after") && last.contains("UserWritesBlocked"),
        "{log}"
    );
    is_refused(behind.await.expect("no panic"));
}

#[tokio::test]
async fn a_lock_on_a_set_of_one_that_is_addressed_directly_waits_for_the_election() {
    let set = set_of_one().await;
    let stage = stage_on(&set);
    let step_down = doc! { "replSetStepDown": 5, "force": true };
    // The server may close the connection before it answers.
    let _ = set.command(0, step_down).await;
    let job = ran(stage.command(&set.direct_uri(0), &["lock", FREE, "--", "true"])).await;
    assert_eq!(job.code, Some(0), "{}", job.error);
}
