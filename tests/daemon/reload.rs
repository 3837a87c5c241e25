//! Goal: SIGHUP applies new values, and reports values that take effect later or require a restart.
//! If the new configuration contains a mistake, SIGHUP changes nothing.

use std::path::PathBuf;

use leasehold_testbed::{Daemon, HungDisk, Scratch, skip};
use mongodb::bson::doc;
use rustix::process::Signal;
use serde_json::Value;

use crate::contest::{Contest, LONG, PROGRAM, eventually, records, token};

struct Settings {
    lease_duration: &'static str,
    level: &'static str,
    collection: &'static str,
}

const FIRST: Settings = Settings {
    lease_duration: "3s",
    level: "info",
    collection: "leases",
};

const OUT_OF_DISK_SPACE: i32 = 14031;

struct Reloaded {
    contest: Contest,
    daemon: Daemon,
    file: PathBuf,
    _scratch: Scratch,
}

impl Settings {
    fn text(&self) -> String {
        let Self {
            lease_duration,
            level,
            collection,
        } = self;
        format!(
            "[lease]\nlease_duration = \"{lease_duration}\"\nrenew_deadline = \"2s\"\n\
             renew_interval = \"300ms\"\nretry_interval = \"200ms\"\nhandoff_delay = \"0s\"\n\
             [mongodb]\noperation_timeout = \"500ms\"\ncollection = \"{collection}\"\n\
             [workload]\nloss_grace = \"200ms\"\n[log]\nlevel = \"{level}\"\n"
        )
    }
}

impl Reloaded {
    async fn start(lease: &str) -> Self {
        Self::start_with(lease, FIRST).await
    }

    async fn start_with(lease: &str, settings: Settings) -> Self {
        let contest = Contest::new(lease).await;
        let uri = contest.set().uri();
        let reloaded = Self::start_at(contest, lease, &settings, &uri);
        reloaded.daemon.wait_leads(LONG).await;
        reloaded
    }

    fn start_at(contest: Contest, lease: &str, settings: &Settings, uri: &str) -> Self {
        let scratch = Scratch::new();
        let file = scratch.path().join("leasehold.toml");
        std::fs::write(&file, settings.text()).unwrap();
        let daemon = Daemon::builder(PROGRAM)
            .lease(lease)
            .uri(uri)
            .flag(&format!("--config={}", file.display()))
            .start();
        Self {
            contest,
            daemon,
            file,
            _scratch: scratch,
        }
    }

    fn reload(&self, text: &str) {
        std::fs::write(&self.file, text).unwrap();
        self.daemon.signal(Signal::HUP);
    }

    async fn logged(&self, message: &str, key: &str) {
        let found = |line: &Value| line["message"] == message && line["key"] == key;
        eventually(message, async || {
            self.daemon.log_records().iter().any(found)
        })
        .await;
    }

    async fn declared_ms(&self) -> i64 {
        let document = self.contest.document().await;
        let holder = document.get_document("holder").unwrap();
        holder.get_i64("lease_duration_ms").unwrap()
    }
}

#[tokio::test]
async fn durations_take_effect_with_the_next_acquisition() {
    let reloaded = Reloaded::start("reload-durations").await;
    let lease_duration = "4s";
    reloaded.reload(
        &Settings {
            lease_duration,
            ..FIRST
        }
        .text(),
    );
    let message = "configuration reloaded; takes effect with the next acquisition";
    reloaded.logged(message, "lease.lease_duration").await;
    let daemon = &reloaded.daemon;
    daemon.wait_renewal(LONG).await;
    let declared = reloaded.declared_ms().await;
    assert_eq!(declared, 3_000, "the current claim keeps its durations");
    daemon.signal(Signal::USR1);
    daemon.wait_leads_with(2, LONG).await;
    assert_eq!(reloaded.declared_ms().await, 4_000);
}

/// With a lease of 30 s, an idle change stream may send nothing for up to 10 s. The new lease
/// duration is shorter than these 10 s.
#[tokio::test]
async fn an_idle_follower_stays_connected_with_a_shorter_lease_duration() {
    let lease_duration = "30s";
    let long = Settings {
        lease_duration,
        ..FIRST
    };
    let reloaded = Reloaded::start_with("reload-idle", long).await;
    let daemon = &reloaded.daemon;
    daemon.wait_stream().await;
    reloaded.contest.stored().set(doc! { "paused": true }).await;
    daemon.wait_role("paused", LONG).await;
    reloaded.reload(&FIRST.text());
    let message = "configuration reloaded; takes effect with the next acquisition";
    reloaded.logged(message, "lease.lease_duration").await;
    // The follower reads once per lease duration. The test waits for four reads.
    let reads = daemon.operations("read", "applied").await;
    daemon.wait_operations("read", "applied", reads + 4.0).await;
    let unknown = |line: &Value| line["to"] == "unknown";
    assert!(
        !daemon.log_records().iter().any(unknown),
        "{}",
        daemon.logs()
    );
}

/// The daemon shows a write's error for one lease duration after the last attempt.
#[tokio::test]
async fn an_error_of_mongodb_is_shown_for_the_new_lease_duration() {
    const LEASE: &str = "reload-error";
    let contest = Contest::new(LEASE).await;
    let uri = contest.set().uri();
    let first = Daemon::builder(PROGRAM).lease(LEASE).uri(&uri);
    let first = first.leading(LONG).await;
    assert_eq!(first.term_and_exit(LONG).await, 0);
    let primary = contest.set().primary().await;
    let (writes, full) = (
        ["findAndModify", "update"],
        doc! { "errorCode": OUT_OF_DISK_SPACE },
    );
    contest
        .set()
        .fail_commands_of((primary, LEASE), &writes, "alwaysOn", full)
        .await;
    let lease_duration = "300s";
    let long = Settings {
        lease_duration,
        ..FIRST
    };
    let uri = format!("{uri}&appName={LEASE}");
    let reloaded = Reloaded::start_at(contest, LEASE, &long, &uri);
    let (contest, daemon) = (&reloaded.contest, &reloaded.daemon);
    // The test waits for two failures, because a successful read clears a single failure.
    daemon.wait_operations("acquire", "unknown", 2.0).await;
    let error = async || daemon.http_json("/status").await.1["store_error"].clone();
    eventually("the error is shown", async || error().await.is_object()).await;
    // While the lease is paused, the daemon does not try to acquire it.
    contest.stored().set(doc! { "paused": true }).await;
    daemon.wait_role("paused", LONG).await;
    daemon.wait_stream().await;
    assert!(error().await.is_object(), "a read must not clear the error");
    reloaded.reload(&FIRST.text());
    eventually("the error is cleared", async || error().await.is_null()).await;
    contest.set().clear_fail_point(primary).await;
}

#[tokio::test]
async fn the_log_level_changes_at_once() {
    let reloaded = Reloaded::start("reload-level").await;
    let debug = || {
        let records = reloaded.daemon.log_records();
        records.iter().filter(|l| l["level"] == "DEBUG").count()
    };
    assert_eq!(debug(), 0);
    let level = "debug";
    reloaded.reload(&Settings { level, ..FIRST }.text());
    reloaded.logged("configuration reloaded", "log.level").await;
    eventually("renewals are logged", async || debug() > 2).await;
    reloaded.reload(&FIRST.text());
    eventually("the file was read again", async || {
        let records = reloaded.daemon.log_records();
        let reloads = records.iter().filter(|line| line["key"] == "log.level");
        reloads.count() == 2
    })
    .await;
}

#[tokio::test]
async fn a_mistake_is_logged_and_changes_nothing() {
    let reloaded = Reloaded::start("reload-mistake").await;
    let daemon = &reloaded.daemon;
    let mistaken = Settings {
        lease_duration: "5s",
        level: "loud",
        ..FIRST
    };
    reloaded.reload(&mistaken.text());
    let refusals = || records(daemon, "reload rejected");
    eventually("the mistake is logged", async || !refusals().is_empty()).await;
    let [line] = &refusals()[..] else {
        panic!("each mistake has one line: {:?}", refusals());
    };
    assert_eq!(line["level"], "ERROR");
    let problem = line["problem"].as_str().unwrap();
    for part in ["log.level", "loud", "leasehold.toml"] {
        assert!(problem.contains(part), "{problem}");
    }
    // The daemon does not apply the valid value in the rejected file either.
    daemon.signal(Signal::USR1);
    daemon.wait_leads_with(2, LONG).await;
    assert_eq!(reloaded.declared_ms().await, 3_000);
    reloaded.reload("[lease\n");
    eventually("the syntax error is logged", async || refusals().len() == 2).await;
    assert!(daemon.leads());
}

#[tokio::test]
async fn a_small_file_that_would_grow_to_gigabytes_is_refused() {
    let contest = Contest::new("reload-bomb").await;
    let scratch = Scratch::new();
    let file = scratch.path().join("leasehold.yaml");
    std::fs::write(&file, "lease:\n  handoff_delay: 0s\n").unwrap();
    let daemon = contest
        .candidate("a")
        .flag(&format!("--config={}", file.display()))
        .leading(LONG)
        .await;
    let mut bomb = "a0: &a0 [x, x, x, x, x, x, x, x, x]\n".to_owned();
    for level in 1..11 {
        let aliases = vec![format!("*a{}", level - 1); 9].join(", ");
        bomb += &format!("a{level}: &a{level} [{aliases}]\n");
    }
    std::fs::write(&file, bomb).unwrap();
    daemon.signal(Signal::HUP);
    daemon.wait_logged("it has an alias in line 2", LONG).await;
    assert_eq!(daemon.http("/livez").await.unwrap().0, 200);
    assert_eq!(token(&daemon.status()), 1, "the same leadership");
}

#[tokio::test]
async fn a_key_that_requires_a_restart_is_named() {
    let reloaded = Reloaded::start("reload-restart").await;
    let collection = "elsewhere";
    reloaded.reload(
        &Settings {
            collection,
            ..FIRST
        }
        .text(),
    );
    let message = "configuration change requires a restart";
    reloaded.logged(message, "mongodb.collection").await;
    let (_, body) = reloaded.daemon.http("/status").await.unwrap();
    let status: Value = serde_json::from_str(&body).unwrap();
    assert_eq!(status["store"]["collection"], "leases");
    assert!(reloaded.daemon.leads());
}

#[tokio::test]
async fn a_new_connection_string_is_used_for_the_next_connection() {
    let contest = Contest::new("reload-uri").await;
    let scratch = Scratch::new();
    let file = scratch.path().join("leasehold.toml");
    let settings = |uri: &str| {
        let text = FIRST.text();
        text.replace("[mongodb]\n", &format!("[mongodb]\nuri = \"{uri}\"\n"))
    };
    std::fs::write(&file, settings("mongodb://127.0.0.1:1/")).unwrap();
    let daemon = Daemon::builder(PROGRAM)
        .lease("reload-uri")
        .flag(&format!("--config={}", file.display()))
        .start();
    daemon.wait_logged("MongoDB read failed", LONG).await;
    std::fs::write(&file, settings(&contest.set().uri())).unwrap();
    daemon.signal(Signal::HUP);
    let message = "configuration reloaded; takes effect when leasehold reconnects to MongoDB";
    daemon.wait_logged(message, LONG).await;
    daemon.wait_leads(LONG).await;
    assert_eq!(daemon.logged("requires a restart"), 0, "{}", daemon.logs());
}

/// If the leader waited for the disk, it would lose its lease of 3 s.
#[tokio::test]
async fn i1_a_configuration_file_on_a_hanging_disk_delays_no_renewal() {
    let reloaded = Reloaded::start("reload-hung").await;
    let daemon = &reloaded.daemon;
    let before = token(&daemon.status());
    let Some(hung) = HungDisk::over(reloaded.file.parent().unwrap()) else {
        return skip("needs FUSE and permission to mount");
    };
    daemon.signal(Signal::HUP);
    for _ in 0..20 {
        daemon.wait_renewal(LONG).await;
    }
    assert_eq!(daemon.logged("reload rejected"), 0, "{}", daemon.logs());
    drop(hung);
    daemon.wait_logged("reload rejected", LONG).await;
    reloaded.reload(&FIRST.text());
    daemon.wait_logged("configuration reloaded", LONG).await;
    assert_eq!(token(&daemon.status()), before);
}
