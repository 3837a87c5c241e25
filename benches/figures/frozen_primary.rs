//! Measures how long leaders cannot renew their leases after the primary freezes: from SIGSTOP to
//! the next acknowledged renewal. Uses MongoDB's default election settings and two heartbeat
//! intervals of the driver.

use std::path::PathBuf;
use std::time::Duration;

use futures_util::future::join_all;
use leasehold_testbed::daemon::boottime_ns;
use leasehold_testbed::{Daemon, ReplicaSet, Scratch};
use mongodb::bson::doc;

use crate::launch::{Setup, directories, seconds, watching};
use crate::observer::Observer;
use crate::report::{Row, Unit};

const LEADS_MAX: Duration = Duration::from_secs(90);
/// Number of leases, each with its own leader. All leaders experience the same freeze, each at a
/// different phase of its heartbeats and renewals.
const LEASES_PER_HEARTBEAT: usize = 5;
const HEARTBEATS: [&str; 2] = ["10s", "2s"];
const SPREAD: Duration = Duration::from_millis(317);
/// Time for the old primary to become a secondary again, and for the drivers to notice.
const SETTLE: Duration = Duration::from_secs(15);

pub(crate) async fn measure(setup: Setup) -> Vec<Row> {
    let set = setup.set_of(ReplicaSet::builder().default_election()).await;
    let mut rows = freezes(&setup, &set, "default election settings").await;
    // A new primary first tries to catch up with all other members. The new primary waits for the
    // frozen member until a heartbeat times out, after 10 s by default.
    limit_catch_up(&set).await;
    rows.extend(freezes(&setup, &set, "catchUpTimeoutMillis 2000").await);
    rows
}

async fn freezes(setup: &Setup, set: &ReplicaSet, settings: &str) -> Vec<Row> {
    let mut waited = vec![Vec::new(); HEARTBEATS.len()];
    let mut lost = vec![0.0; HEARTBEATS.len()];
    for round in 0..setup.count(3, 1) {
        // Each round uses new daemons, because a daemon that misses its deadline twice within ten
        // minutes lets other candidates go first.
        let scratch = Scratch::new();
        let paths = directories(scratch.path(), HEARTBEATS.len() * LEASES_PER_HEARTBEAT);
        let mut observer = Observer::start(&paths);
        let name = format!("{}-{round}", settings.replace(' ', "-"));
        let daemons = leaders(setup, set, &name, &paths).await;
        tokio::time::sleep(SETTLE).await;
        for freeze in freeze(set, &daemons, &mut observer).await {
            let group = freeze.index / LEASES_PER_HEARTBEAT;
            waited[group].push(freeze.waited);
            lost[group] += f64::from(u8::from(freeze.lost));
        }
    }
    let mut rows = Vec::new();
    for ((heartbeat, series), lost) in HEARTBEATS.iter().zip(&waited).zip(&lost) {
        let what = format!("SIGSTOP → next renewal, heartbeat {heartbeat}, {settings}");
        rows.push(Row::new("frozen_primary", what, Unit::Time, series, &[]));
        let what = format!("leaderships lost, of {}: the same", series.len());
        rows.push(Row::new("frozen_primary", what, Unit::Count, &[*lost], &[]));
    }
    rows
}

struct Freeze {
    index: usize,
    waited: f64,
    lost: bool,
}

async fn freeze(set: &ReplicaSet, daemons: &[Daemon], observer: &mut Observer) -> Vec<Freeze> {
    let before: Vec<_> = daemons.iter().map(Daemon::status).collect();
    let primary = set.primary().await;
    observer.forget();
    let stopped_ns = boottime_ns();
    set.stop(primary);
    let mut freezes: Vec<Freeze> = Vec::new();
    while freezes.len() < daemons.len() {
        let seen = observer
            .find("all renew again", LEADS_MAX, |seen| {
                // A renewal that was in flight when the primary froze does not count.
                let until = before[seen.index]["valid_until_boottime_ns"].as_u64();
                seconds(stopped_ns, seen.at_ns) > 0.5 && seen.leads_until_ns() > until
            })
            .await;
        if freezes.iter().all(|freeze| freeze.index != seen.index) {
            freezes.push(Freeze {
                index: seen.index,
                waited: seconds(stopped_ns, seen.at_ns),
                lost: seen.token() != before[seen.index]["token"].as_i64(),
            });
        }
    }
    set.cont(primary);
    freezes
}

async fn leaders(setup: &Setup, set: &ReplicaSet, name: &str, paths: &[PathBuf]) -> Vec<Daemon> {
    join_all(paths.iter().enumerate().map(async |(index, path)| {
        let heartbeat = HEARTBEATS[index / LEASES_PER_HEARTBEAT];
        tokio::time::sleep(SPREAD * u32::try_from(index).expect("few")).await;
        let daemon = setup
            .daemon(&format!("{name}-{index}"), &format!("d{index}"), &set.uri())
            .status_directory(path)
            .flag(&format!("--mongodb-heartbeat={heartbeat}"))
            .leading(LEADS_MAX)
            .await;
        watching(&daemon).await;
        daemon
    }))
    .await
}

async fn limit_catch_up(set: &ReplicaSet) {
    let primary = set.primary().await;
    let answer = set.command(primary, doc! { "replSetGetConfig": 1 }).await;
    let answer = answer.expect("the primary knows the configuration");
    let mut config = answer.get_document("config").cloned().expect("a document");
    let version = config.get_i32("version").expect("a number");
    config.insert("version", version + 1);
    let settings = config.get_document_mut("settings").expect("a document");
    settings.insert("catchUpTimeoutMillis", 2_000);
    let done = set.command(primary, doc! { "replSetReconfig": config });
    done.await.expect("the primary accepts the configuration");
}
