//! The guarded set, and checks that apply to every daemon in front of it.

use std::time::{Duration, Instant};

use leasehold_testbed::{Daemon, ReplicaSet, SharedSet, Stage};

/// Timeout of waits, which end as soon as their condition holds.
pub(crate) const LONG: Duration = Duration::from_secs(60);

/// The password that [`leasehold_testbed::ReplicaSet::add_user`] sets, and its form in a connection
/// string.
const PASSWORDS: [&str; 2] = ["p@ss/word:%", "p%40ss%2Fword%3A%25"];

static GUARDED: SharedSet = SharedSet::new(|| ReplicaSet::builder().tls().auth());

/// A database of the guarded set.
pub(crate) async fn stage() -> Stage {
    Stage::new(env!("CARGO_BIN_EXE_leasehold"), GUARDED.get().await)
}

/// Waits until the log contains `text`.
pub(crate) async fn says(daemon: &Daemon, text: &str) {
    eventually(text, async || daemon.logs().contains(text), daemon).await;
}

/// Waits until `condition` holds.
pub(crate) async fn eventually(
    what: &str,
    mut condition: impl AsyncFnMut() -> bool,
    daemon: &Daemon,
) {
    let end = Instant::now() + LONG;
    while !condition().await {
        let logs = || daemon.logs();
        assert!(Instant::now() < end, "not so: {what}; the log:\n{}", logs());
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// Number of reads with this outcome.
pub(crate) async fn reads(daemon: &Daemon, outcome: &str) -> f64 {
    let page = daemon.http("/metrics").await.map(|(_, text)| text);
    let outcome = format!("outcome=\"{outcome}\"");
    let sample = page.unwrap_or_default().lines().find_map(|line| {
        let ours = line.starts_with("leasehold_store_operations_total")
            && line.contains("operation=\"read\"")
            && line.contains(&outcome);
        ours.then(|| line.rsplit(' ').next()?.parse().ok())
            .flatten()
    });
    sample.unwrap_or_default()
}

/// Asserts that the daemon keeps trying, reports that on its surfaces, and does not exit.
pub(crate) async fn stays_out(daemon: &Daemon, attempts: &str) {
    eventually(
        "it tries again and again",
        async || reads(daemon, attempts).await >= 3.0,
        daemon,
    )
    .await;
    assert_eq!(daemon.status()["role"], "unknown");
    assert_eq!(daemon.status()["leader"], false);
    let (ready, _) = daemon.http("/readyz").await.expect("an answer");
    assert_eq!(ready, 503);
    let (alive, _) = daemon.http("/livez").await.expect("an answer");
    assert_eq!(alive, 200);
    assert_eq!(daemon.exit_code(), None);
}

/// Asserts that no password is in the log, on a page or in a file (I12).
pub(crate) async fn keeps_secrets(daemon: &Daemon, more: &[&str]) {
    let mut said = vec![("log".to_owned(), daemon.logs())];
    for page in ["/status", "/metrics", "/leader", "/readyz", "/"] {
        if let Ok((_, text)) = daemon.http(page).await {
            said.push((page.to_owned(), text));
        }
    }
    for entry in std::fs::read_dir(daemon.status_directory()).expect("a directory") {
        let path = entry.expect("an entry").path();
        let bytes = std::fs::read(&path).unwrap_or_default();
        let text = String::from_utf8_lossy(&bytes).into_owned();
        said.push((path.display().to_string(), text));
    }
    for (place, text) in said {
        for secret in PASSWORDS.iter().chain(more) {
            assert!(!text.contains(secret), "{secret} is in {place}:\n{text}");
        }
    }
}
