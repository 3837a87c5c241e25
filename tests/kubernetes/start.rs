//! Goal: if labels are required and a prerequisite is missing, the daemon names the prerequisite
//! and exits. If labels are optional, the daemon starts. No cluster is needed.

use std::process::{Command, Output, Stdio};

use leasehold_testbed::{Daemon, Scratch, process};

use crate::cluster::{LONG, PROGRAM};

fn refused(scratch: &Scratch, arguments: &[&str], environment: &[(&str, &str)]) -> (i32, String) {
    let output: Output = Command::new(PROGRAM)
        .args([
            "run",
            "--http-listen=",
            "--kubernetes-enabled=on",
            "--lease=x",
        ])
        .arg("--mongodb-uri=mongodb://127.0.0.1:1/")
        .arg(format!(
            "--status-directory={}",
            scratch.path().join("status").display()
        ))
        .arg(format!(
            "--kubernetes-credentials={}",
            scratch.path().display()
        ))
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
async fn outside_of_a_cluster_labels_are_off_and_one_line_reports_it() {
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
