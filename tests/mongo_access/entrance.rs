//! Starts a replica set with TLS and users, and checks rules that every daemon on this set must
//! follow.

pub(crate) use leasehold_testbed::wait::{LONG, eventually};
use leasehold_testbed::{Daemon, DaemonTimings, ReplicaSet, SharedSet, Stage};

/// The password that [`leasehold_testbed::ReplicaSet::add_user`] sets, plain and percent-encoded.
const PASSWORDS: [&str; 2] = ["p@ss/word:%", "p%40ss%2Fword%3A%25"];

static GUARDED: SharedSet = SharedSet::new(|| ReplicaSet::builder().tls().auth());

pub(crate) async fn stage() -> Stage {
    let stage = Stage::new(env!("CARGO_BIN_EXE_leasehold"), GUARDED.get().await);
    // Logins take seconds on a busy machine.
    stage.timings(DaemonTimings::DEMO)
}

pub(crate) async fn stays_out(daemon: &Daemon, attempts: &str) {
    daemon.wait_operations("read", attempts, 3.0).await;
    assert_eq!(daemon.status()["role"], "unknown");
    assert_eq!(daemon.status()["leader"], false);
    let (ready, _) = daemon.http("/readyz").await.expect("an answer");
    assert_eq!(ready, 503);
    let (alive, _) = daemon.http("/livez").await.expect("an answer");
    assert_eq!(alive, 200);
    assert_eq!(daemon.exit_code(), None);
}

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
