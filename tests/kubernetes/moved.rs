//! Goal: if a kustomization moves pods to another namespace or account, the pods never share a
//! lease or change other pods. `check` fails exactly in the cases where `run` refuses to start or
//! logs an error. No cluster is needed.

use std::process::{Output, Stdio};

use leasehold_testbed::{Daemon, Scratch};
use serde_json::Value;

use crate::cluster::{LONG, PROGRAM};

const RENDERED: &str = "--kubernetes-rendered-for=default/orders";
const NOWHERE: &str = "mongodb://127.0.0.1:1/";

/// Namespaces and service accounts. The manifests were rendered for the first pair.
const PLACES: [(&str, &str); 3] = [
    ("default", "orders"),
    ("prod", "orders"),
    ("default", "a-orders"),
];
/// Lease names. The first name contains the namespace, like the charts' default.
const LEASES: [&str; 2] = ["default.orders", "chosen"];

#[derive(Debug, PartialEq, Eq)]
enum Start {
    /// The daemon exits with code 78 and this text.
    Refused(String),
    /// The daemon contends, but logs this error first.
    Error(String),
    /// The daemon contends and logs no error.
    Quiet,
}

async fn run(lease: &str, flags: &[&str], place: (&str, &str)) -> Start {
    let daemon = Daemon::builder(PROGRAM)
        .lease(lease)
        .uri(NOWHERE)
        .flags(flags)
        .env("POD_NAMESPACE", place.0)
        .env("POD_ACCOUNT", place.1)
        .start();
    // A daemon that refuses to start exits before it listens or writes a file.
    let contends = daemon.try_wait_until(|_| true, LONG).await.is_ok();
    let records = daemon.log_records();
    let mut errors = records.iter().filter(|record| record["level"] == "ERROR");
    match (contends, errors.next()) {
        (true, Some(error)) => Start::Error(error.to_string()),
        (true, None) => Start::Quiet,
        (false, _) => {
            assert_eq!(daemon.wait_exit(LONG).await, 78);
            Start::Refused(daemon.logs())
        }
    }
}

async fn check(lease: &str, flags: &[&str], place: (&str, &str)) -> (String, String) {
    let scratch = Scratch::new();
    let output: Output = tokio::process::Command::new(PROGRAM)
        .args(["check", "--output=json", "--timeout=1s", "--http-listen="])
        .arg(format!("--mongodb-uri={NOWHERE}"))
        .arg(format!("--lease-name={lease}"))
        .arg(format!(
            "--status-directory={}",
            scratch.path().join("status").display()
        ))
        .args(flags)
        .env_clear()
        .envs([("POD_NAMESPACE", place.0), ("POD_ACCOUNT", place.1)])
        .stdin(Stdio::null())
        .output()
        .await
        .unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let answer: Value =
        serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}"));
    let checks = answer["checks"].as_array().unwrap();
    let mut pods = checks.iter().filter(|check| check["name"] == "pod");
    let pod = pods.next().expect("a check of the pod");
    (pod["result"].as_str().unwrap().to_owned(), pod.to_string())
}

/// Returns an error if `run` or `check` does not react to a case as expected.
fn judge(
    started: &Start,
    (result, text): (&str, &str),
    case: (&str, (&str, &str), &str),
) -> Result<(), String> {
    let (enabled, place, lease) = case;
    let (is_moved, is_named) = (place != PLACES[0], lease == LEASES[0]);
    let described = format!("{}/{}", place.0, place.1);
    let (why, part) = match (started, is_moved, is_named, enabled) {
        (Start::Refused(why), true, true, _) => (why.as_str(), "in each overlay"),
        (Start::Error(why), true, false, "auto" | "on") => (why.as_str(), "admission policies"),
        // There is no cluster, so `--kubernetes-enabled=on` would fail.
        (Start::Refused(_), false, _, "on") if result == "failed" => return Ok(()),
        (Start::Quiet, false, _, "auto" | "off") | (Start::Quiet, true, false, "off")
            if result == "skipped" =>
        {
            return Ok(());
        }
        _ => return Err(format!("run: {started:?}, check: {text}")),
    };
    if result != "failed" {
        return Err(format!("run: {started:?}, check: {text}"));
    }
    for text in [why, text] {
        for part in [&described, "default/orders", "--namespace", part] {
            if !text.contains(part) {
                return Err(format!("no {part:?} in {text}"));
            }
        }
    }
    Ok(())
}

#[tokio::test]
async fn run_and_check_agree_on_moved_pods() {
    let mut wrong = Vec::new();
    for enabled in ["auto", "on", "off"] {
        for place in PLACES {
            for lease in LEASES {
                let flags = [RENDERED, &format!("--kubernetes-enabled={enabled}")];
                let (started, (result, text)) =
                    tokio::join!(run(lease, &flags, place), check(lease, &flags, place));
                let case = (enabled, place, lease);
                if let Err(why) = judge(&started, (&result, &text), case) {
                    wrong.push(format!("{case:?}: {why}"));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
