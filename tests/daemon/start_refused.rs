//! Goal: if the machine lacks a prerequisite, the daemon exits with code 78 and names the
//! prerequisite, without affecting other daemons.

use std::net::{Ipv4Addr, TcpListener};

use serde_json::Value;

use crate::command::{Answer, Files, refused};
use crate::contest::{Contest, LONG, eventually};

const URI: (&str, &str) = ("LEASEHOLD_MONGODB__URI", "mongodb://127.0.0.1:1/");

async fn start_in(directory: &str) -> Answer {
    let arguments = ["--lease=x", "--http-listen=", "--status-directory"];
    refused(&[&arguments[..], &[directory]].concat(), &[URI]).await
}

#[tokio::test]
async fn the_error_of_a_second_daemon_names_the_status_directory() {
    let contest = Contest::new("occupied").await;
    let first = contest.candidate("first").leading(LONG).await;
    let directory = first.status_directory().to_str().unwrap().to_owned();
    let answer = start_in(&directory).await;
    answer.refuses_naming(&[&directory, &format!("process {} (", first.pid())]);
    let before = first.token();
    first.wait_renewal(LONG).await;
    assert_eq!(first.token(), before, "the first daemon keeps running");
}

#[tokio::test]
async fn the_error_about_a_taken_port_names_the_key() {
    let files = Files::new();
    let taken = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let directory = files.path("status");
    let listen = format!("--http-listen={address}");
    let place = format!("--status-directory={}", directory.display());
    let answer = refused(&["--lease=x", &listen, &place], &[URI]).await;
    answer.refuses_naming(&[&address, "http.listen"]);
    let status = directory.join("status.json");
    assert!(!status.exists(), "the daemon never contended");
}

#[tokio::test]
async fn the_error_about_a_status_directory_that_cannot_be_created_names_it() {
    let files = Files::new();
    let file = files.write("file", "in its place");
    // Not even root can create a directory in /proc.
    for directory in [file.as_str(), &format!("{file}/below"), "/proc/leasehold"] {
        let answer = start_in(directory).await;
        answer.refuses_naming(&[directory, "status directory"]);
    }
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "in its place");
}

#[tokio::test]
async fn a_status_directory_is_free_when_its_daemon_has_exited() {
    let contest = Contest::new("vacated").await;
    let first = contest.candidate("first").leading(LONG).await;
    assert_eq!(first.term_and_exit(LONG).await, 0);
    let second = contest
        .candidate("second")
        .status_directory(first.status_directory())
        .start();
    let leads = |status: &Value| status["leader"] == true;
    let leading = second.wait_until(leads, LONG).await;
    assert_eq!(leading["identity"], "second");
    eventually("the document names the holder", async || {
        contest.stored().holder().await.as_deref() == Some("second")
    })
    .await;
}
