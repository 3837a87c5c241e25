//! Goal: if labels are required, a missing prerequisite is named at startup; otherwise it is not an
//! error. No cluster is needed.

use std::process::{Command, Output, Stdio};

use leasehold_testbed::{Daemon, Scratch, process};

use crate::cluster::{LONG, PROGRAM};

fn refused(scratch: &Scratch, arguments: &[&str], environment: &[(&str, &str)]) -> (i32, String) {
    let named = arguments
        .iter()
        .find(|argument| argument.starts_with("--lease-name="));
    let output: Output = Command::new(PROGRAM)
        .args(["run", "--http-listen=", "--kubernetes-enabled=on"])
        .arg("--mongodb-uri=mongodb://127.0.0.1:1/")
        .arg(format!(
            "--status-directory={}",
            scratch.path().join("status").display()
        ))
        .arg(format!(
            "--kubernetes-credentials={}",
            scratch.path().display()
        ))
        .args(named.is_none().then_some("--lease=x"))
        .args(arguments)
        .env_clear()
        .envs(environment.iter().copied())
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let text = String::from_utf8(output.stderr).unwrap();
    (process::exit_code(output.status), text)
}

#[test]
fn a_missing_required_key_is_named_with_exit_78() {
    let scratch = Scratch::new();
    let server = [
        ("KUBERNETES_SERVICE_HOST", "127.0.0.1"),
        ("KUBERNETES_SERVICE_PORT", "443"),
    ];
    type Case<'a> = (&'a [&'a str], &'a [(&'a str, &'a str)], &'a str);
    let cases: [Case<'_>; 5] = [
        (&[], &[], "KUBERNETES_SERVICE_HOST"),
        (&[], &server, "token"),
        (&[], &server, "POD_NAME"),
        (&["--kubernetes-pod-name=a"], &server, "POD_UID"),
        (
            &[
                "--kubernetes-pod-name=a/b",
                "--kubernetes-pod-uid=1",
                "--kubernetes-pod-namespace=x",
            ],
            &server,
            "a/b",
        ),
    ];
    for (index, (arguments, environment, named)) in cases.into_iter().enumerate() {
        if index == 2 {
            for file in ["token", "ca.crt"] {
                std::fs::write(scratch.path().join(file), "x").unwrap();
            }
        }
        let (code, text) = refused(&scratch, arguments, environment);
        assert_eq!(code, 78, "{text}");
        assert!(
            text.contains(named) && text.contains("kubernetes"),
            "{named}: {text}"
        );
    }
}

#[tokio::test]
async fn outside_of_a_cluster_labels_are_off_and_one_line_says_so() {
    let daemon = Daemon::builder(PROGRAM)
        .lease("outside")
        .uri("mongodb://127.0.0.1:1/")
        .flag("--log-level=debug")
        .start();
    // The daemon listens before it writes its first file.
    daemon.wait_until(|_| true, LONG).await;
    let (_, page) = daemon.http("/metrics").await.unwrap();
    assert!(!page.contains("leasehold_label_in_sync"), "{page}");
    let logs = daemon.logs();
    let lines = logs
        .lines()
        .filter(|line| line.contains("not in a Kubernetes cluster"));
    assert_eq!(lines.count(), 1, "{logs}");
}

#[test]
fn a_default_lease_name_of_another_namespace_or_account_is_refused_with_a_remedy() {
    let scratch = Scratch::new();
    for (namespace, account) in [("prod", "orders"), ("default", "a-orders")] {
        let (code, text) = refused(
            &scratch,
            &[
                "--lease-name=default.orders",
                "--kubernetes-rendered-for=default/orders",
            ],
            &[("POD_NAMESPACE", namespace), ("POD_ACCOUNT", account)],
        );
        assert_eq!(code, 78, "{text}");
        for part in [
            &format!("{namespace}/{account}"),
            "default/orders",
            "--namespace",
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
    }
}

#[tokio::test]
async fn manifests_of_another_namespace_give_no_label_and_an_error() {
    let daemon = Daemon::builder(PROGRAM)
        .lease("chosen")
        .uri("mongodb://127.0.0.1:1/")
        .flag("--kubernetes-rendered-for=default/orders")
        .env("POD_NAMESPACE", "prod".to_owned())
        .env("POD_ACCOUNT", "orders".to_owned())
        .start();
    daemon.wait_until(|_| true, LONG).await;
    let (_, page) = daemon.http("/metrics").await.unwrap();
    assert!(!page.contains("leasehold_label_in_sync"), "{page}");
    let logs = daemon.logs();
    let mut lines = logs.lines();
    let line = lines.find(|line| line.contains("rendered for another namespace"));
    assert!(
        line.is_some_and(|line| line.contains("ERROR") || line.contains("error")),
        "{logs}"
    );
}
