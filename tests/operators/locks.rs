//! Goal: one command shows who holds a lock and why, who waits for the lock, how long a minimum
//! hold lasts, and when a job last succeeded.

use std::time::{Duration, SystemTime};

use leasehold_testbed::Stage;
use mongodb::bson::{DateTime, Document, doc};
use tokio::process::Child;

use crate::command::{LONG, eventually, leasehold, shared_stage, start};

/// Starts a job that holds the lock until it is killed.
async fn holder(stage: &Stage, lock: &str, identity: &str, flags: &[&str]) -> Child {
    let identity = format!("--identity={identity}");
    let job = ["lock", lock, &identity];
    let job = [&job[..], flags, &["--", "sleep", "1000"]].concat();
    start(stage, &job)
}

async fn wait_listed(stage: &Stage, text: &str) {
    eventually(&format!("{text} is listed"), async || {
        let listed = leasehold(stage, &["locks"]).await.expect(0, &[]);
        listed.stdout.contains(text)
    })
    .await;
}

async fn done(stage: &Stage, lock: &str, flags: &[&str]) {
    let job = [&["lock", lock][..], flags, &["--", "true"]].concat();
    leasehold(stage, &job).await.expect(0, &[]);
}

#[tokio::test]
async fn a_lock_is_described_with_its_waiters_history_and_successes() {
    let stage = shared_stage().await;
    let once = ["--once-per=1h", "--key=orders", "--identity=first"];
    done(&stage, "nightly", &once).await;
    let _holder = holder(&stage, "nightly", "second", &[]).await;
    wait_listed(&stage, "second").await;
    let _waiter = holder(&stage, "nightly", "third", &[]).await;
    wait_listed(&stage, "third").await;
    let _last = holder(&stage, "nightly", "fourth", &["--shared"]).await;
    wait_listed(&stage, "fourth").await;

    let described = leasehold(&stage, &["describe", "nightly"])
        .await
        .expect(0, &["Lock:      nightly\n", "State:     held, 2 waiting\n"]);
    let words: Vec<Vec<_>> = described
        .stdout
        .lines()
        .map(|line| line.split_whitespace().collect())
        .collect();
    let row = |first: &[&str]| {
        let found = words.iter().find(|words| words.starts_with(first));
        found
            .unwrap_or_else(|| panic!("{first:?}: {described:?}"))
            .join(" ")
    };
    let held = row(&["2", "held", "exclusive", "second"]);
    assert!(held.ends_with(" ago works"), "{held}");
    let third = row(&["1", "exclusive", "third"]);
    assert!(third.ends_with("behind second (exclusive)"), "{third}");
    let fourth = row(&["2", "shared", "fourth"]);
    assert!(fourth.ends_with("behind third (exclusive)"), "{fourth}");
    row(&["orders"]);
    let first = row(&["1", "first", "-"]);
    assert!(first.ends_with("released exit 0"), "{first}");

    let observed = leasehold(&stage, &["locks", "--observe", "30s", "-o", "json"]).await;
    let observed = observed.expect(0, &[]).json();
    let seen = &observed[0]["holders"][0]["renewal_seen"];
    assert_eq!(*seen, true, "{observed}");

    let json = leasehold(&stage, &["describe", "nightly", "-o", "json"]).await;
    let json = json.expect(0, &[]).json();
    let holder = &json["holders"][0];
    // A recent write by the holder's clock is enough, so the command does not wait for a renewal.
    assert_eq!(holder["state"], "held", "{json}");
    assert!(holder["last_write_ago_by_store_ms"].is_u64(), "{json}");
    assert_eq!(json["queue"][1]["place"], 2, "{json}");
    assert_eq!(json["queue"][0]["waits_for"], "behind second (exclusive)");
    assert_eq!(json["history"][0]["reason"], "released", "{json}");
    assert_eq!(json["history"][0]["exit_code"], 0, "{json}");
    assert!(json["successes"][0]["ago_ms"].is_u64(), "{json}");

    leasehold(&stage, &["describe", "nightly", "--candidates"])
        .await
        .expect(78, &["only leases have candidates"]);
}

#[tokio::test]
async fn a_minimum_hold_shows_when_it_ends() {
    let stage = shared_stage().await;
    done(&stage, "minutely", &["--at-least=1h", "--identity=quick"]).await;
    let listed = leasehold(&stage, &["locks"]).await.expect(0, &[]).stdout;
    let row = listed.lines().nth(1).expect("a row");
    assert!(
        row.contains(" kept ") && row.contains("kept until "),
        "{row}"
    );
    assert!(row.contains(" UTC (in 59m"), "{row}");
    // A minimum hold is not renewed, so the command does not wait for a renewal.
    let began = std::time::Instant::now();
    let described = leasehold(&stage, &["describe", "minutely", "--observe", "30s"]).await;
    let described = described.expect(
        0,
        &[
            "State:     kept, 0 waiting\n",
            "\nLast successes: none recorded (only runs with --once-per are recorded)\n",
            "the work has ended (--at-least); kept until ",
        ],
    );
    assert!(began.elapsed() < Duration::from_secs(20), "{described:?}");
    let json = leasehold(&stage, &["locks", "-o", "json"]).await.json();
    let kept = &json[0]["holders"][0];
    assert_eq!(kept["state"], "kept", "{json}");
    let until = kept["kept_until"].as_str().expect("a date");
    let until = humantime::parse_rfc3339(until).expect("a date");
    let rest = until.duration_since(SystemTime::now()).expect("later");
    assert!(rest > Duration::from_secs(3_500), "{json}");
    let at_least = kept["at_least_ms"].as_u64().expect("a number");
    assert!((3_500_000..3_600_000).contains(&at_least), "{json}");

    // An hour later, the entry still exists, but the lock is free.
    let then = DateTime::from_system_time(SystemTime::now() - Duration::from_secs(3_700));
    let database = stage.set().client().database(stage.database());
    let collection = database.collection::<Document>(stage.collection());
    let ended = doc! { "$set": { "holders.0.over_at": then } };
    let ended = collection
        .update_one(doc! { "_id": "minutely" }, ended)
        .await;
    assert_eq!(ended.expect("written").modified_count, 1);
    let listed = leasehold(&stage, &["locks"]).await.expect(0, &[]).stdout;
    let row = listed.lines().nth(1).expect("a row");
    assert!(row.contains(" ended "), "{row}");
    let free = "State:     free, 0 waiting\n";
    leasehold(&stage, &["describe", "minutely"])
        .await
        .expect(0, &[free, "the work and its minimum hold have ended"]);
}

#[tokio::test]
async fn an_expired_holder_is_marked_immediately() {
    let stage = shared_stage().await;
    let mut killed = holder(&stage, "dead", "gone", &[]).await;
    wait_listed(&stage, "gone").await;
    killed.kill().await.expect("killed");
    let then = SystemTime::now() - Duration::from_secs(372);
    let then = DateTime::from_system_time(then);
    let database = stage.set().client().database(stage.database());
    let collection = database.collection::<Document>(stage.collection());
    let dated = doc! { "$set": { "holders.0.renewed_at": then } };
    let dated = collection.update_one(doc! { "_id": "dead" }, dated).await;
    assert_eq!(dated.expect("written").modified_count, 1);

    let listed = leasehold(&stage, &["locks"]).await.expect(0, &[]).stdout;
    let row = listed.lines().nth(1).expect("a row");
    for part in [" silent ", " ~6m1", "others take over after watching for "] {
        assert!(row.contains(part), "{part}: {row}");
    }
    let describe = ["describe", "dead", "--observe", "0s"];
    leasehold(&stage, &describe).await.expect(
        0,
        &[
            "State:     silent, 0 waiting\n",
            "silent; last renewal 6m1",
            "s ago by the holder's clock; the next contender removes it after watching it for ",
            "; to remove it: leasehold locks break dead",
        ],
    );
    let json = leasehold(&stage, &["locks", "-o", "json"]).await.json();
    let gone = &json[0]["holders"][0];
    assert_eq!(
        (&gone["state"], &gone["silent"]),
        (&"silent".into(), &true.into())
    );
    assert!(
        gone["silent_ms"].as_i64() >= Some(372_000)
            && gone["last_write_ago_ms"].as_i64() >= Some(372_000),
        "{json}"
    );
    // The view removes nothing: a contender removes the entry after its own observation.
    assert_eq!(gone["renewal_seen"], false, "{json}");
}

#[tokio::test]
async fn a_watch_prints_each_change_of_a_lock_and_no_renewal() {
    let stage = shared_stage().await;
    done(&stage, "watched", &[]).await;
    let (mut watch, mut lines) = crate::live::watch(&stage, &["locks", "--watch"]);
    let present = crate::live::line(&mut lines).await;
    assert_eq!(
        (&present["event"], &present["lock"]),
        (&"present".into(), &"watched".into())
    );
    let flags = ["--lease-duration=4s"];
    let mut killed = holder(&stage, "watched", "gone", &flags).await;
    let mut last = present;
    while last["holders"][0]["state"] != "held" {
        last = crate::live::line(&mut lines).await;
    }
    assert_eq!(last["holders"][0]["identity"], "gone");
    // Several renewals happen, but no line is printed. On a busy machine, a renewal may be late.
    let changed = async {
        loop {
            let before = last["holders"][0]["state"].clone();
            last = crate::live::line(&mut lines).await;
            if before != "late" && last["holders"][0]["state"] != "late" {
                return;
            }
        }
    };
    let changed = tokio::time::timeout(Duration::from_secs(2), changed).await;
    assert!(changed.is_err(), "{last}");
    killed.kill().await.expect("killed");
    // An expiry is a change without a write.
    while last["holders"][0]["state"] != "expired" {
        last = crate::live::line(&mut lines).await;
    }
    let broken = [
        "locks", "break", "watched", "--force", "--yes", "-o", "json",
    ];
    let broken = leasehold(&stage, &broken).await.expect(0, &[]).json();
    assert_eq!(
        (&broken["lock"], &broken["result"]),
        (&"watched".into(), &"done".into())
    );
    let again = ["locks", "break", "watched", "--output=json"];
    let again = leasehold(&stage, &again).await.expect(1, &[]).json();
    assert_eq!(
        (&again["result"], &again["message"]),
        (&"refused".into(), &"no holder".into())
    );
    while last["holders"][0].is_object() {
        last = crate::live::line(&mut lines).await;
    }
    drop(lines);
    let ended = tokio::time::timeout(LONG, watch.wait()).await;
    let ended = ended.expect("it ends").expect("wait for the child");
    assert_eq!(ended.code(), Some(0));
}
