//! Goal: the daemon verifies the server's certificate and can log in with a client certificate
//! (X.509). Method: generate real certificates for each run.
//!
//! The connection string for X.509 contains no user name, because driver 3.9.1 would send the name
//! in a field that the server rejects.

use std::path::Path;

use leasehold_testbed::{Certificates, Daemon, LeaderMonitor, Scratch, Stage};
use mongodb::bson::doc;

use crate::entrance::{LONG, keeps_secrets, stage, stays_out};

#[tokio::test]
async fn a_certificate_lets_its_user_in() {
    let stage = stage().await;
    let role = doc! { "role": "readWrite", "db": stage.database() };
    let user = stage.set().add_certificate_user(vec![role.into()]).await;
    let uri = stage.set().uri_for(&user);
    assert!(uri.contains("MONGODB-X509"));
    let a = stage.candidate("a").uri(&uri).leading(LONG).await;
    let b = stage.candidate("b").uri(&uri).following("a", LONG).await;
    let monitor = LeaderMonitor::of([&a, &b]);
    b.wait_stream().await;
    a.term();
    b.wait_leads(LONG).await;
    assert_eq!(monitor.leaders(), ["a", "b"]);
    keeps_secrets(&b, &["PRIVATE KEY"]).await;
}

async fn trusting(stage: &Stage, user: &str, authority: &Path) -> Daemon {
    let set = stage.set();
    let user = set.add_user(user, vec!["root".into()]).await;
    let certificates = set.certificates().expect("a set with TLS");
    let ours = certificates.authority().display().to_string();
    let uri = set.uri_for(&user);
    let uri = uri.replace(&ours, &authority.display().to_string());
    stage.candidate("a").uri(&uri).start()
}

#[tokio::test]
async fn a_server_with_an_untrusted_authority_is_refused() {
    let (stage, others) = (stage().await, Certificates::new());
    let a = trusting(&stage, "truster", &others.authority()).await;
    a.wait_logged("is not signed by a trusted authority", LONG)
        .await;
    stays_out(&a, "failed").await;
    a.wait_logged("certificate", LONG).await;
    keeps_secrets(&a, &[]).await;
}

#[tokio::test]
async fn replaced_certificates_are_used_without_a_restart() {
    let stage = stage().await;
    let scratch = Scratch::new();
    let path = scratch.path().join("ca.pem");
    std::fs::copy(Certificates::new().authority(), &path).expect("a file");
    let a = trusting(&stage, "rotator", &path).await;
    a.wait_logged("is not signed by a trusted authority", LONG)
        .await;
    stays_out(&a, "failed").await;
    let replacement = scratch.path().join("new.pem");
    let certificates = stage.set().certificates().expect("a set with TLS");
    std::fs::copy(certificates.authority(), &replacement).expect("a file");
    std::fs::rename(&replacement, &path).expect("the file is replaced");
    a.wait_leads(LONG).await;
}

#[tokio::test]
async fn a_missing_certificate_file_is_named_as_the_cause() {
    let stage = stage().await;
    let a = trusting(&stage, "pathless", Path::new("/nonexistent/ca.pem")).await;
    a.wait_logged("tlsCAFile", LONG).await;
    assert_eq!(a.exit_code(), None);
    keeps_secrets(&a, &[]).await;
}
