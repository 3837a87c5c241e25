//! Goal: the command names certificates that expire soon (with the remaining days), have expired,
//! or are signed by another authority. Method: runs the command under a faked wall clock, with real
//! certificates that expire in 2050.

use leasehold_testbed::{Certificates, FakeClock, ReplicaSet};

use crate::scene::{Answer, Check, Scene};

async fn at(scene: &Scene, date: &str, timeout: &str) -> Answer {
    let clock = FakeClock::offset(date).unwrap_or_else(|failure| panic!("{failure}"));
    let variables = clock.variables().iter().cloned();
    let check = scene.check(&scene.set.uri());
    let check = variables.fold(check, |check, (name, value)| check.env(&name, value));
    check.flag(timeout).run().await
}

#[tokio::test]
async fn a_certificate_that_expires_soon_causes_a_warning() {
    let scene = Scene::new().await;
    let answer = at(&scene, "@2049-12-25 12:00:00", "--timeout=30s").await;
    let chains = answer.all("tls");
    assert_eq!(chains.len(), 3);
    for check in chains.iter().chain(&answer.all("client-certificate")) {
        assert_eq!(check["result"], "warning", "{check:#}");
        assert_eq!(check["days"], 6, "{check:#}");
        assert!(
            check["remedy"].as_str().unwrap().contains("renew"),
            "{check:#}"
        );
    }
    answer.says("find", "ok", "");
    assert_eq!(answer.code, 1, "{}", answer.stdout);
}

#[tokio::test]
async fn an_expired_certificate_is_named_as_the_cause() {
    let scene = Scene::new().await;
    let answer = at(&scene, "@2050-02-01 12:00:00", "--timeout=3s").await;
    for check in answer.all("tls") {
        assert_eq!(check["result"], "failed", "{check:#}");
        assert!(
            check["detail"].as_str().unwrap().contains("has expired"),
            "{check:#}"
        );
    }
    for check in answer.all("server") {
        assert!(
            check["detail"].as_str().unwrap().contains("has expired"),
            "{check:#}"
        );
    }
    answer.says("client-certificate", "failed", "expired 31 days ago");
    assert_eq!(answer.code, 2);
}

async fn with(scene: &Scene, from: &str, to: &str) -> Answer {
    let uri = scene.set.uri();
    assert!(uri.contains(from), "{from}");
    let check: Check = scene.check(&uri.replace(from, to));
    let answer = check.flag("--timeout=3s").run().await;
    assert_eq!(answer.code, 2);
    answer
}

#[tokio::test]
async fn untrusted_authorities_and_missing_files_are_named() {
    let scene = Scene::new().await;
    let certificates = scene.set.certificates().unwrap();
    let ours = certificates.authority().display().to_string();
    let others = Certificates::new();
    let answer = with(&scene, &ours, &others.authority().display().to_string()).await;
    for check in answer.all("tls") {
        assert_eq!(check["result"], "failed", "{check:#}");
        let detail = check["detail"].as_str().unwrap();
        assert!(
            detail.contains("not signed by a trusted authority"),
            "{check:#}"
        );
        assert_eq!(check["remedy"], "check tlsCAFile");
    }
    let answer = with(&scene, &ours, "/nowhere/ca.pem").await;
    answer.says("tls", "failed", "cannot read /nowhere/ca.pem");
    answer.says("tls", "failed", "correct tlsCAFile");
    for check in answer.all("server") {
        assert_eq!(check["result"], "skipped", "{check:#}");
        let detail = "the TLS configuration is refused, see tls";
        assert_eq!(check["detail"], detail, "{check:#}");
    }
}

#[tokio::test]
async fn a_server_without_tls_is_named_if_the_uri_requires_tls() {
    let scene = Scene::new().await;
    let set = ReplicaSet::builder().members(1).start().await;
    let certificates = scene.set.certificates().unwrap();
    let uri = format!("{}&{}", set.uri(), certificates.uri_options(false));
    let answer = scene.check(&uri).flag("--timeout=3s").run().await;
    answer.says("tls", "failed", "TLS connection failed");
    answer.says("server", "failed", "it may not use TLS");
    let plain = scene.check(&set.uri()).run().await;
    plain.says("tls", "ok", "not used, over loopback");
    plain.says("deployment", "warning", "data-bearing members: 1");
}
