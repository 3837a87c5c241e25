//! Goal: for invalid input, the daemon reports the mistake and its location, exits with the
//! documented code, and never echoes a connection string.

use leasehold_testbed::DaemonTimings;
use mongodb::bson::doc;

use crate::command::{Files, refused};
use crate::contest::{Contest, LONG, eventually};

const PASSWORD: &str = "hunter2";
const URI: (&str, &str) = ("LEASEHOLD_MONGODB__URI", "mongodb://127.0.0.1:1/");

async fn refused_naming(arguments: &[&str], environment: &[(&str, &str)], parts: &[&str]) {
    let files = Files::new();
    let directory = format!("--status-directory={}", files.path("status").display());
    let arguments = [&[directory.as_str(), "--http-listen="], arguments].concat();
    let answer = refused(&arguments, environment).await;
    answer.refuses_naming(parts);
    assert!(!answer.stderr.contains(PASSWORD), "{}", answer.stderr);
    assert!(
        !files.path("status").exists(),
        "the daemon created no status directory"
    );
}

#[tokio::test]
async fn a_lease_name_that_is_not_a_label_value_is_refused() {
    let long = "x".repeat(64);
    for name in ["", "-a", "a-", "a b", "a/b", "ä", &long] {
        let flag = format!("--lease={name}");
        refused_naming(&[&flag], &[URI], &["lease.name"]).await;
    }
    refused_naming(&[], &[URI], &["lease.name"]).await;
}

#[tokio::test]
async fn all_invalid_timings_are_reported_at_once() {
    let arguments = [
        "--lease=a",
        "--lease-duration=10s",
        "--lease-renew-deadline=9s",
        "--lease-renew-interval=8s",
    ];
    let parts = ["lease.renew_deadline", "lease.lease_duration", "9s", "10s"];
    refused_naming(&arguments, &[URI], &parts).await;
    let arguments = ["--lease=a", "--lease-duration=2h"];
    refused_naming(&arguments, &[URI], &["lease.lease_duration", "2h", "1h"]).await;
}

#[tokio::test]
async fn a_toml_syntax_error_is_reported_with_file_and_line() {
    let files = Files::new();
    let file = files.write("bad.toml", "[lease]\nname = \"a\"\nlease_duration = = 1\n");
    refused_naming(&["--config", &file], &[URI], &[&file, "3"]).await;
    let absent = files.path("absent.toml").display().to_string();
    refused_naming(&["--config", &absent, "--lease=a"], &[URI], &[&absent]).await;
}

#[tokio::test]
async fn i12_a_connection_string_with_unescaped_characters_is_never_echoed() {
    let files = Files::new();
    for uri in [
        format!("mongodb://operator:{PASSWORD}/x@db.example.net/"),
        format!("mongodb://operator:{PASSWORD}@x:y@db.example.net/"),
        format!("mongodb://operator:{PASSWORD}%zz@db.example.net/"),
        format!("postgres://operator:{PASSWORD}@db.example.net/"),
        format!("mongodb://operator:{PASSWORD}@db.example.net/?proxyHost=h"),
    ] {
        let variable = [("LEASEHOLD_MONGODB__URI", uri.as_str())];
        refused_naming(&["--lease=a"], &variable, &["mongodb.uri"]).await;
        let flag = format!("--mongodb-uri={uri}");
        refused_naming(&["--lease=a", &flag], &[], &["mongodb.uri"]).await;
        let file = files.write("uri", &uri);
        let flag = format!("--mongodb-uri-file={file}");
        refused_naming(&["--lease=a", &flag], &[], &["--mongodb-uri-file", &file]).await;
    }
}

#[tokio::test]
async fn a_missing_or_duplicate_connection_string_is_refused() {
    let files = Files::new();
    let absent = files.path("absent").display().to_string();
    let flag = format!("--mongodb-uri-file={absent}");
    let parts = ["mongodb.uri_file", absent.as_str()];
    refused_naming(&["--lease=a", &flag], &[], &parts).await;
    let file = files.write("uri", URI.1);
    let flag = format!("--mongodb-uri-file={file}");
    let inline = format!("--mongodb-uri={}", URI.1);
    refused_naming(&["--lease=a", &flag, &inline], &[], &["mongodb.uri"]).await;
    refused_naming(&["--lease=a"], &[], &["mongodb.uri"]).await;
}

#[tokio::test]
async fn an_unknown_key_is_refused_and_foreign_variables_are_not() {
    let variable = ("LEASEHOLD_LEASE__NMAE", "a");
    let parts = ["LEASEHOLD_LEASE__NMAE"];
    refused_naming(&["--lease=a"], &[URI, variable], &parts).await;
    let files = Files::new();
    let file = files.write("a.toml", "[lease]\nnmae = \"a\"\n[nonsense]\nkey = \"b\"\n");
    let parts = ["lease.nmae", "nonsense"];
    refused_naming(&["--lease=a", "--config", &file], &[URI], &parts).await;

    // Kubernetes injects such variables into pods if a Service is named leasehold, so they must not
    // count as mistakes.
    let contest = Contest::new("service-links").await;
    contest
        .candidate("a")
        .env("LEASEHOLD_PORT", "tcp://10.0.0.1:9402")
        .env("LEASEHOLD_SERVICE_HOST", "10.0.0.1")
        .leading(LONG)
        .await;
}

#[tokio::test]
async fn with_an_invalid_configuration_the_command_does_not_run() {
    let files = Files::new();
    let witness = files.path("witness").display().to_string();
    let arguments = ["--lease=a", "--log-level=loud", "--", "touch", &witness];
    let answer = refused(&arguments, &[URI]).await;
    assert_eq!(answer.code, 78, "{}", answer.stderr);
    assert!(
        !files.path("witness").exists(),
        "the command was not started"
    );
}

#[tokio::test]
async fn i11_a_document_of_another_format_is_not_changed() {
    let contest = Contest::new("foreign").await;
    let foreign = doc! { "_id": "foreign", "schema": 99, "kind": "lease", "precious": true };
    contest.stored().replace(&foreign).await;
    let daemon = contest.candidate_at("a", DaemonTimings::SHORT).start();
    let said = || {
        let records = daemon.log_records();
        let errors = records.into_iter().filter(|line| line["level"] == "ERROR");
        errors.collect::<Vec<_>>()
    };
    eventually("the log reports the mistake", async || !said().is_empty()).await;
    let before = daemon.operations("read", "applied").await;
    daemon
        .wait_operations("read", "applied", before + 5.0)
        .await;
    let errors = said();
    assert_eq!(errors.len(), 1, "once: {errors:?}");
    assert!(errors[0]["why"].as_str().unwrap().contains("99"));
    assert!(!daemon.leads());
    assert_eq!(contest.document().await, foreign);
}
