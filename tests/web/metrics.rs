//! Goal: `/metrics` never shows a lease or lock that is not in the collection, and never shows old
//! values as current. Method: real daemons and `leasehold lock` on a real replica set.

use std::time::Duration;

use leasehold_testbed::daemon::sample;
use leasehold_testbed::{ReplicaSet, Stage, pid};
use rustix::process::Signal;
use serde_json::Value;
use tokio::process::Child;

use crate::server::{Events, LONG, Server, run, shared_stage, stage_of};
use crate::visitors::token;

const BLIND: Duration = Duration::from_secs(45);

fn value(text: &str, name: &str) -> f64 {
    sample(text, name).unwrap_or_else(|| panic!("no {name} in {text}"))
}

fn lease(metric: &str) -> String {
    format!("leasehold_collection_lease_{metric}{{lease=\"orders\"}}")
}

fn lock(metric: &str, name: &str) -> String {
    format!("leasehold_collection_lock_{metric}{{lock=\"{name}\"}}")
}

async fn scrape(server: &Server) -> String {
    let answer = server.get("/metrics").await;
    assert_eq!(answer.code, 200, "{answer:?}");
    let kind = "content-type: text/plain; version=0.0.4";
    assert!(answer.head.contains(kind), "{}", answer.head);
    answer.body
}

async fn scraped(server: &Server, what: &str, wanted: impl Fn(&str) -> bool) -> String {
    let mut last = String::new();
    let waits = async {
        loop {
            last = scrape(server).await;
            if wanted(&last) {
                return;
            }
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    };
    let waited = tokio::time::timeout(2 * LONG, waits).await;
    assert!(waited.is_ok(), "not in time: {what}: {last}");
    last
}

fn spawn_lock(stage: &Stage, arguments: &[&str]) -> Child {
    let arguments = [&["lock"], arguments].concat();
    let mut command = stage.command(&stage.set().uri(), &arguments);
    command.spawn().expect("it starts")
}

async fn run_lock(stage: &Stage, arguments: &[&str]) {
    let arguments = [&["lock"], arguments].concat();
    let (code, text) = run(stage.command(&stage.set().uri(), &arguments)).await;
    assert_eq!(code, 0, "{text}");
}

#[tokio::test]
async fn a_scrape_shows_leases_and_locks() {
    let stage = shared_stage().await;
    let a = stage.candidate("a").leading(LONG).await;
    let _b = stage.candidate("b").following("a", LONG).await;
    run_lock(
        &stage,
        &["nightly", "--once-per=1h", "--key=eu", "--", "true"],
    )
    .await;
    run_lock(
        &stage,
        &["kept", "--at-least=10m", "--identity=done", "--", "true"],
    )
    .await;
    let server = Server::start(&stage, &[]).await;
    let held = [lease("held"), lease("standby")];
    let text = scraped(&server, "a leads and b stands by", |text| {
        held.iter().all(|name| sample(text, name) == Some(1.0))
    })
    .await;
    assert_eq!(value(&text, "leasehold_collection_live"), 1.0);
    assert!(value(&text, "leasehold_collection_last_answer_age_seconds") < 15.0);
    assert_eq!(value(&text, &lease("silent")), 0.0);
    assert_eq!(value(&text, &lease("paused")), 0.0);
    assert_eq!(value(&text, &lease("token")), 1.0);
    let since = value(&text, &lease("leader_since_timestamp_seconds"));
    let epoch = std::time::UNIX_EPOCH.elapsed().unwrap().as_secs_f64();
    assert!((0.0..300.0).contains(&(epoch - since)), "{since}");
    assert!(value(&text, &lease("last_write_age_by_holder_clock_seconds")) < 30.0);
    assert!(value(&text, &lease("last_change_age_seconds")) < 30.0);
    let holder = "leasehold_collection_holder_info{identity=\"a\",lease=\"orders\",lock=\"\"}";
    assert_eq!(value(&text, holder), 1.0);
    assert!(!text.contains("lease_candidates"), "no roll call: {text}");

    let success = "leasehold_collection_lock_last_success_age_seconds{key=\"eu\",lock=\"nightly\"}";
    assert!(value(&text, success) < 300.0);
    assert_eq!(value(&text, &lock("holders", "nightly")), 0.0);
    assert_eq!(value(&text, &lock("held_seconds", "nightly")), 0.0);
    assert_eq!(value(&text, &lock("holders", "kept")), 1.0);
    assert_eq!(value(&text, &lock("kept", "kept")), 1.0);
    assert_eq!(value(&text, &lock("silent", "kept")), 0.0);
    assert_eq!(
        value(&text, &lock("held_seconds", "kept")),
        0.0,
        "its work has ended"
    );

    let mut one = spawn_lock(
        &stage,
        &[
            "import",
            "--slots=1",
            "--identity=one",
            "--",
            "sleep",
            "600",
        ],
    );
    scraped(&server, "one holds", |text| {
        sample(text, &lock("holders", "import")) == Some(1.0)
    })
    .await;
    let mut two = spawn_lock(
        &stage,
        &[
            "import",
            "--slots=1",
            "--identity=two",
            "--",
            "sleep",
            "600",
        ],
    );
    let text = scraped(&server, "two waits, and both times grow", |text| {
        sample(text, &lock("waiters", "import")) == Some(1.0)
            && ["held_seconds", "wait_seconds"]
                .iter()
                .all(|it| sample(text, &lock(it, "import")) > Some(1.0))
    })
    .await;
    assert_eq!(value(&text, &lock("slots", "import")), 1.0);
    assert_eq!(value(&text, &lock("token", "import")), 1.0);
    assert_eq!(value(&text, &lock("silent", "import")), 0.0);
    let kind = |kind| format!("leasehold_collection_documents{{kind=\"{kind}\"}}");
    assert_eq!(value(&text, &kind("lease")), 1.0);
    assert_eq!(value(&text, &kind("lock")), 3.0);
    for child in [&mut two, &mut one] {
        let id = child.id().unwrap();
        pid::signal(id, Signal::TERM);
        child.wait().await.unwrap();
    }

    let described = stage.command(&stage.set().uri(), &["describe", "orders", "--candidates"]);
    assert_eq!(run(described).await.0, 0);
    scraped(&server, "the roll call is counted", |text| {
        sample(text, &lease("candidates")) == Some(2.0)
            && sample(text, &lease("candidates_age_seconds")).is_some()
    })
    .await;

    // The standby takes over, so the exporter must not report the lease as silent for long.
    a.kill();
    scraped(&server, "b leads", |text| {
        text.contains("identity=\"b\",lease=\"orders\"")
            && sample(text, &lease("token")) == Some(2.0)
    })
    .await;
}

#[tokio::test]
async fn a_leader_that_died_alone_and_a_free_lease_are_not_held() {
    let stage = shared_stage().await;
    let a = stage.candidate("a").leading(LONG).await;
    let server = Server::start(&stage, &["--metrics-only"]).await;
    scraped(&server, "a leads", |text| {
        sample(text, &lease("held")) == Some(1.0)
    })
    .await;
    a.kill();
    scraped(&server, "a is silent", |text| {
        sample(text, &lease("silent")) == Some(1.0) && sample(text, &lease("held")) == Some(0.0)
    })
    .await;
    // When an exporter starts, it knows only the date of the last write.
    let second = Server::start(&stage, &["--metrics-only"]).await;
    second.wait_ready().await;
    let text = scrape(&second).await;
    assert_eq!(sample(&text, &lease("silent")), Some(1.0), "{text}");
    let b = stage.candidate("b").leading(LONG).await;
    scraped(&server, "b leads", |text| {
        sample(text, &lease("held")) == Some(1.0)
    })
    .await;
    b.term();
    let text = scraped(&server, "the lease is free", |text| {
        sample(text, &lease("held")) == Some(0.0) && sample(text, &lease("silent")) == Some(0.0)
    })
    .await;
    assert_eq!(
        sample(&text, &lease("leader_since_timestamp_seconds")),
        None
    );
    let paused = stage.command(&stage.set().uri(), &["pause", "orders"]);
    assert_eq!(run(paused).await.0, 0);
    let text = scraped(&server, "it is paused", |text| {
        sample(text, &lease("paused")) == Some(1.0)
    })
    .await;
    let since = value(&text, &lease("paused_since_timestamp_seconds"));
    let epoch = std::time::UNIX_EPOCH.elapsed().unwrap().as_secs_f64();
    assert!((0.0..300.0).contains(&(epoch - since)), "{since}");
    let resumed = stage.command(&stage.set().uri(), &["resume", "orders", "--no-wait"]);
    assert_eq!(run(resumed).await.0, 0);
    scraped(&server, "it is not paused", |text| {
        sample(text, &lease("paused")) == Some(0.0)
            && sample(text, &lease("paused_since_timestamp_seconds")).is_none()
    })
    .await;
}

#[tokio::test]
async fn a_lock_counts_a_killed_holder_until_a_waiter_removes_it() {
    let stage = shared_stage().await;
    let server = Server::start(&stage, &["--metrics-only"]).await;
    let hold = |identity| {
        let arguments = [
            "import",
            identity,
            "--lease-duration=4s",
            "--",
            "sleep",
            "600",
        ];
        spawn_lock(&stage, &arguments)
    };
    let counts = |text: &str| {
        let count = |metric| sample(text, &lock(metric, "import"));
        let works = count("held_seconds").map(|held| f64::from(u8::from(held > 0.0)));
        [count("holders"), count("silent"), count("kept"), works]
    };
    let renews = [Some(1.0), Some(0.0), Some(0.0), Some(1.0)];
    let silent = [Some(1.0), Some(1.0), Some(0.0), Some(0.0)];
    let mut one = hold("--identity=one");
    scraped(&server, "one renews", |text| counts(text) == renews).await;
    pid::signal(one.id().unwrap(), Signal::KILL);
    one.wait().await.unwrap();
    scraped(&server, "one is silent", |text| counts(text) == silent).await;
    // When an exporter starts, it knows only the date of the last write.
    let second = Server::start(&stage, &["--metrics-only"]).await;
    second.wait_ready().await;
    let text = scrape(&second).await;
    assert_eq!(counts(&text), silent, "{text}");
    let mut two = hold("--identity=two");
    scraped(&server, "two has removed one", |text| {
        text.contains("identity=\"two\",lease=\"\",lock=\"import\"") && counts(text) == renews
    })
    .await;
    pid::signal(two.id().unwrap(), Signal::TERM);
    two.wait().await.unwrap();
}

#[tokio::test]
async fn a_holder_whose_work_and_minimum_hold_have_ended_is_not_counted() {
    let stage = shared_stage().await;
    let server = Server::start(&stage, &["--metrics-only"]).await;
    let arguments = ["quick", "--at-least=3s", "--identity=done", "--", "true"];
    run_lock(&stage, &arguments).await;
    let text = scraped(&server, "the minimum hold has ended", |text| {
        sample(text, &lock("holders", "quick")) == Some(0.0)
    })
    .await;
    for metric in ["kept", "silent", "held_seconds"] {
        assert_eq!(value(&text, &lock(metric, "quick")), 0.0, "{metric}");
    }
    assert!(!text.contains("identity=\"done\""), "{text}");
    let client = stage.set().client();
    let locks = client
        .database(stage.database())
        .collection::<mongodb::bson::Document>(stage.collection());
    let named = mongodb::bson::doc! { "_id": "quick" };
    let document = locks.find_one(named).await.unwrap().unwrap();
    let holders = document.get_array("holders").unwrap();
    assert_eq!(holders.len(), 1, "the next contender removes it");
}

#[tokio::test]
async fn an_exporter_without_mongodb_reports_that_it_is_disconnected() {
    let stage = stage_of(ReplicaSet::builder().members(1).start().await);
    let a = stage.candidate("a").leading(LONG).await;
    let server = Server::start(&stage, &["--metrics-only"]).await;
    scraped(&server, "a leads", |text| {
        sample(text, &lease("held")) == Some(1.0)
    })
    .await;
    let mut dead = stage.stored().get().await;
    dead.insert("_id", "dead");
    let then = mongodb::bson::DateTime::from_millis(1_000);
    let holder = dead.get_document_mut("holder").unwrap();
    holder.insert("renewed_at", then);
    let client = stage.set().client();
    let documents = client
        .database(stage.database())
        .collection::<mongodb::bson::Document>(stage.collection());
    documents.insert_one(dead).await.unwrap();
    let arguments = ["import", "--lease-duration=4s", "--", "sleep", "600"];
    let mut killed = spawn_lock(&stage, &arguments);
    let holders = lock("holders", "import");
    scraped(&server, "it holds", |text| {
        sample(text, &holders) == Some(1.0)
    })
    .await;
    pid::signal(killed.id().unwrap(), Signal::KILL);
    killed.wait().await.unwrap();
    let dead = |metric| format!("leasehold_collection_lease_{metric}{{lease=\"dead\"}}");
    let gone = |text: &str| {
        let silent = [dead("silent"), lock("silent", "import")];
        silent.iter().all(|name| sample(text, name) == Some(1.0))
            && sample(text, &dead("held")) == Some(0.0)
    };
    scraped(&server, "both dead holders are silent", gone).await;
    // An outage begins with the last answer, so an answer must follow the silence.
    let silent_at = std::time::Instant::now();
    scraped(&server, "MongoDB answers after that", |text| {
        let age = value(text, "leasehold_collection_last_answer_age_seconds");
        silent_at.elapsed().as_secs() >= 1 && age < 0.5 && gone(text)
    })
    .await;
    stage.set().stop(0);
    let stopped = std::time::Instant::now();
    let mut is_hidden = false;
    let text = loop {
        let text = scrape(&server).await;
        if value(&text, "leasehold_collection_live") == 0.0 {
            break text;
        }
        assert!(gone(&text), "revived by the outage: {text}");
        let states = [lease("held"), lease("silent")].map(|name| sample(&text, &name));
        is_hidden |= states == [None, None];
        assert!(is_hidden || states == [Some(1.0), Some(0.0)], "{text}");
        assert!(stopped.elapsed() < BLIND, "{text}");
        tokio::time::sleep(Duration::from_millis(500)).await;
    };
    assert!(!text.contains("leasehold_collection_lease_"), "{text}");
    assert!(!text.contains("leasehold_collection_lock_"), "{text}");
    assert!(!text.contains("leasehold_collection_documents"), "{text}");
    assert!(value(&text, "leasehold_collection_last_answer_age_seconds") >= 30.0);
    assert!(is_hidden, "the outage does not hide whether a renews");
    a.kill();
    stage.set().cont(0);
    scraped(&server, "it sees that a is silent", |text| {
        assert_ne!(sample(text, &lease("held")), Some(1.0), "a is dead: {text}");
        sample(text, "leasehold_collection_live") == Some(1.0)
            && sample(text, &lease("silent")) == Some(1.0)
            && sample(text, &lease("held")) == Some(0.0)
    })
    .await;
}

#[tokio::test]
async fn names_limit_the_series_and_the_rest_is_counted() {
    let stage = shared_stage().await;
    let leases = stage
        .set()
        .client()
        .database(stage.database())
        .collection("leases");
    let history = [mongodb::bson::doc! { "token": 1_i64 }];
    let lock = |name: String| mongodb::bson::doc! { "_id": name, "schema": 1, "kind": "lock", "token": 1_i64, "history": history.clone() };
    let mut documents: Vec<_> = (0..600).map(|n| lock(format!("nightly-{n:03}"))).collect();
    documents.push(lock("orders".to_owned()));
    documents.push(mongodb::bson::doc! { "_id": "strange", "schema": 1 });
    leases.insert_many(documents).await.unwrap();
    let skipped = |text: &str| {
        ["names", "maximum", "foreign"].map(|why| {
            value(
                text,
                &format!("leasehold_collection_documents_not_shown{{reason=\"{why}\"}}"),
            )
        })
    };
    let series = |text: &str| text.matches("\nleasehold_collection_lock_token{").count();
    for (names, shown, left_out) in [
        (&[][..], 500, [0.0, 101.0, 1.0]),
        (
            &["--metrics-names=orders,nightly-00*"],
            11,
            [590.0, 0.0, 1.0],
        ),
        (&["--metrics-names=*-1*9"], 10, [591.0, 0.0, 1.0]),
    ] {
        let server = Server::start(&stage, names).await;
        server.wait_ready().await;
        let text = scrape(&server).await;
        assert_eq!(series(&text), shown, "{names:?}");
        assert_eq!(skipped(&text), left_out, "{names:?}");
        assert!(text.len() < 700_000, "{}", text.len());
    }
    let bad = stage.command(&stage.set().uri(), &["web", "--metrics-names=orders,,x"]);
    let (code, text) = run(bad).await;
    assert_eq!(code, 64, "{text}");
    assert!(text.contains("such as orders,nightly-*"), "{text}");
}

#[tokio::test]
async fn a_pruned_lock_leaves_the_page_and_the_metrics_until_its_next_acquisition() {
    let stage = shared_stage().await;
    run_lock(&stage, &["unused", "--", "true"]).await;
    let server = Server::start(&stage, &[]).await;
    server.wait_ready().await;
    let (mut events, token) = (server.events().await, lock("token", "unused"));
    let is_on_the_page = |events: &Events, _: &Value| events.documents.contains_key("unused");
    events.until("it is listed", is_on_the_page).await;
    scraped(&server, "a series", |text| {
        sample(text, &token) == Some(1.0)
    })
    .await;
    let prune = ["locks", "prune", "--unused-for=0s"];
    let (code, text) = run(stage.command(&stage.set().uri(), &prune)).await;
    assert_eq!(code, 0, "{text}");
    events
        .until("it leaves", |events, event| !is_on_the_page(events, event))
        .await;
    scraped(&server, "no series", |text| sample(text, &token).is_none()).await;
    // A page that is opened now does not show the lock either.
    let mut later = server.events().await;
    run_lock(&stage, &["used", "--", "true"]).await;
    let is_used = |events: &Events, _: &Value| events.documents.contains_key("used");
    later.until("another lock is listed", is_used).await;
    assert!(!later.documents.contains_key("unused"));
    run_lock(&stage, &["unused", "--", "true"]).await;
    events.until("it is back", is_on_the_page).await;
    scraped(&server, "token 2", |text| sample(text, &token) == Some(2.0)).await;
}

#[tokio::test]
async fn without_a_page_only_metrics_and_health_are_served() {
    let stage = shared_stage().await;
    let server = Server::start(&stage, &["--metrics-only"]).await;
    server.wait_ready().await;
    for path in ["/metrics", "/livez", "/readyz"] {
        assert_eq!(server.get(path).await.code, 200, "{path}");
        assert_eq!(
            server.request("POST", path, &[], "").await.code,
            405,
            "{path}"
        );
    }
    for path in [
        "/",
        "/events",
        "/document?name=orders",
        "/actions",
        "/login",
        "/x",
    ] {
        server.get(path).await.expect(404, "--metrics-only");
    }
    let actions = stage.command(
        &stage.set().uri(),
        &["web", "--metrics-only", "--allow-actions"],
    );
    assert_eq!(run(actions).await.0, 64);
    let open = stage.command(
        &stage.set().uri(),
        &["web", "--metrics-only", "--listen=0.0.0.0:0"],
    );
    let (code, text) = run(open).await;
    assert_eq!(code, 64, "{text}");
    assert!(text.contains("--token-file"), "{text}");
}

#[tokio::test]
async fn prometheus_sends_the_token_of_the_page() {
    let stage = shared_stage().await;
    let directory = tempfile::tempdir().unwrap();
    let file = token(directory.path(), "secret\n", 0o600);
    let flag = format!("--token-file={}", file.display());
    for more in [&[][..], &["--metrics-only"]] {
        let server = Server::start(&stage, &[&[flag.as_str()], more].concat()).await;
        server.wait_ready().await;
        assert_eq!(server.get("/metrics").await.code, 401);
        for (token, code) in [("Bearer secret", 200), ("Bearer secreT", 401)] {
            let headers = [("Authorization", token)];
            let answer = server.request("GET", "/metrics", &headers, "").await;
            assert_eq!(answer.code, code, "{token}");
        }
    }
}
