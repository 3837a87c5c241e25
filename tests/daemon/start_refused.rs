//! Goal: if this machine cannot provide what the daemon needs at startup, the daemon exits with
//! code 78 and a message that names it, and other daemons are not harmed.

use std::net::{Ipv4Addr, TcpListener};

use crate::command::{Answer, Files, refused};
use crate::contest::{Contest, LONG, eventually};

const URI: (&str, &str) = ("LEASEHOLD_MONGODB__URI", "mongodb://127.0.0.1:1/");

async fn start_in(directory: &str) -> Answer {
    let arguments = ["--lease=x", "--http-listen=", "--status-directory"];
    refused(&[&arguments[..], &[directory]].concat(), &[URI]).await
}

#[tokio::test]
async fn a_second_daemon_on_a_status_directory_is_refused_by_name() {
    let contest = Contest::new("occupied").await;
    let first = contest.candidate("first").start();
    first.wait_leads(LONG).await;
    let directory = first.status_directory().to_str().unwrap().to_owned();
    let answer = start_in(&directory).await;
    assert_eq!(answer.code, 78, "{}", answer.stderr);
    assert!(answer.stderr.contains(&directory), "{}", answer.stderr);
    assert!(
        answer
            .stderr
            .contains(&format!("process {} (", first.pid())),
        "{}",
        answer.stderr
    );
    let deadline = |status: &serde_json::Value| status["valid_until_boottime_ns"].as_u64();
    let before = first.status();
    let after = first
        .wait_until(|status| deadline(status) > deadline(&before), LONG)
        .await;
    assert_eq!(after["token"], before["token"], "the first goes on");
}

#[tokio::test]
async fn a_port_that_is_taken_is_refused_by_key() {
    let files = Files::new();
    let taken = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let directory = files.path("status");
    let answer = refused(
        &[
            "--lease=x",
            &format!("--http-listen={address}"),
            &format!("--status-directory={}", directory.display()),
        ],
        &[URI],
    )
    .await;
    assert_eq!(answer.code, 78, "{}", answer.stderr);
    for part in [address.as_str(), "http.listen"] {
        assert!(answer.stderr.contains(part), "{part}: {}", answer.stderr);
    }
    assert!(
        !directory.join("status.json").exists(),
        "it never began to contend"
    );
}

#[tokio::test]
async fn a_status_directory_that_cannot_be_made_is_refused_by_name() {
    let files = Files::new();
    let file = files.write("file", "in its place");
    // Not even root can create a directory in /proc.
    for directory in [file.as_str(), &format!("{file}/below"), "/proc/leasehold"] {
        let answer = start_in(directory).await;
        assert_eq!(answer.code, 78, "{}", answer.stderr);
        for part in [directory, "status directory"] {
            assert!(answer.stderr.contains(part), "{part}: {}", answer.stderr);
        }
    }
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "in its place");
}

#[tokio::test]
async fn a_directory_that_was_refused_is_free_when_the_first_daemon_has_ended() {
    let contest = Contest::new("vacated").await;
    let first = contest.candidate("first").start();
    first.wait_leads(LONG).await;
    first.term();
    assert_eq!(first.wait_exit(LONG).await, 0);
    let second = contest
        .candidate("second")
        .status_directory(first.status_directory())
        .start();
    let leading = second
        .wait_until(|status| status["leader"] == true, LONG)
        .await;
    assert_eq!(leading["identity"], "second");
    eventually("the document names it", async || {
        let document = contest.document().await;
        let holder = document.get_document("holder");
        holder.is_ok_and(|holder| holder.get_str("identity").unwrap() == "second")
    })
    .await;
}
