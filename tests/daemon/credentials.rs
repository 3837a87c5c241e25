//! Goal (I12): no output shows a credential, valid or invalid.

use leasehold_testbed::{Daemon, DaemonTimings, ReplicaSet};
use mongodb::bson::doc;
use rustix::process::Signal;

use crate::command::leasehold;
use crate::contest::{LONG, PROGRAM};

/// The password that the testbed sets, plain and percent-encoded.
const PASSWORD: [&str; 2] = ["p@ss/word:%", "p%40ss%2Fword%3A%25"];
const WRONG: &str = "correct-horse";

#[tokio::test]
async fn i12_no_output_shows_a_credential() {
    let set = ReplicaSet::builder().standalone().auth().start().await;
    let role = doc! { "role": "readWrite", "db": "leasehold" };
    let user = set.add_user("operator", vec![role.into()]).await;
    let uri = set.uri_for(&user);
    assert!(uri.contains(PASSWORD[1]), "the test knows the password");
    let start = |identity: &str, uri: &str| {
        Daemon::builder(PROGRAM)
            .lease("secret")
            .identity(identity)
            .uri(uri)
            .timings(DaemonTimings::SHORT)
            .flag("--log-level=trace")
            .handoff_delay("0s")
            .start()
    };
    let right = start("right", &uri);
    let wrong = start("wrong", &uri.replace(PASSWORD[1], WRONG));
    right.wait_leads(LONG).await;
    wrong.wait_logged("MongoDB read failed", LONG).await;
    wrong.wait_role("unknown", LONG).await;
    for daemon in [&right, &wrong] {
        daemon.signal(Signal::USR2);
        daemon.signal(Signal::HUP);
        for path in ["/", "/status", "/metrics", "/leader", "/readyz"] {
            let (_, body) = daemon.http(path).await.unwrap();
            assert_secret(path, &body);
        }
        daemon.wait_logged("reloaded", LONG).await;
        assert_eq!(daemon.term_and_exit(LONG).await, 0);
        assert_secret("log", &daemon.logs());
        for file in ["status.json", "status.env", "claim"] {
            let path = daemon.status_directory().join(file);
            assert_secret(file, &std::fs::read_to_string(path).unwrap());
        }
    }
    // Every user of the machine can see arguments, so the URI is passed in a variable.
    for output in ["toml", "json"] {
        let arguments = ["config", "--lease=a", "--output", output];
        let answer = leasehold(&arguments, &[("LEASEHOLD_MONGODB__URI", &uri)]);
        assert_eq!(answer.code, 0, "{}", answer.stderr);
        assert!(answer.stdout.contains("uri"), "{}", answer.stdout);
        assert_secret("leasehold config", &answer.stdout);
        assert_secret("leasehold config", &answer.stderr);
    }
}

#[tokio::test]
async fn four_actions_on_one_collection_suffice() {
    let set = ReplicaSet::builder().auth().start().await;
    let actions = ["find", "insert", "update", "changeStream"];
    let user = set
        .add_user_with_actions("least", "leasehold", "leases", &actions)
        .await;
    let start = |identity: &str| {
        Daemon::builder(PROGRAM)
            .identity(identity)
            .uri(&set.uri_for(&user))
            .timings(DaemonTimings::DEMO)
            .handoff_delay("0s")
    };
    let old = start("old").leading(LONG).await;
    let new = start("new").following("old", LONG).await;
    new.wait_stream().await;
    assert_eq!(old.term_and_exit(LONG).await, 0);
    let leading = new.wait_leads(LONG).await;
    assert_eq!(leading["token"], 2);

    let nobody = set.add_user_with_actions("nobody", "leasehold", "other", &["find"]);
    let nobody = nobody.await;
    let refused = Daemon::builder(PROGRAM)
        .identity("refused")
        .uri(&set.uri_for(&nobody))
        .timings(DaemonTimings::DEMO)
        .start();
    refused.wait_logged("MongoDB read failed", LONG).await;
    refused.wait_operations("read", "unknown", 3.0).await;
    assert_eq!(refused.exit_code(), None, "rights can be granted");
    assert_eq!(refused.status()["role"], "unknown");
    assert!(refused.logs().contains("13"), "{}", refused.logs());
}

fn assert_secret(place: &str, text: &str) {
    for secret in PASSWORD.iter().chain(&[WRONG]) {
        assert!(!text.contains(secret), "{place} shows {secret}: {text}");
    }
}
