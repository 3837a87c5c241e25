//! Goal: if the driver cannot use a client certificate, a key or a CA file, the error names only
//! that file and the cause. Method: makes one mistake at a time in certificates that other clients
//! accept.

use std::fs;

use leasehold_testbed::Certificates;

use crate::scene::Scene;

/// A SEC 1 private key with two certificates.
const SEC1_KEY: &str = include_str!("pem/sec1-key.pem");
const VERSION_1: &str = include_str!("pem/version-1.pem");
const VERSION_3: &str = include_str!("pem/version-3.pem");
/// Not a real key: tools reject it before they try to decrypt it.
const ENCRYPTED_KEY: &str =
    "-----BEGIN ENCRYPTED PRIVATE KEY-----\nMAA=\n-----END ENCRYPTED PRIVATE KEY-----\n";

fn parts(file: &std::path::Path) -> (String, String) {
    let text = fs::read_to_string(file).unwrap();
    let key = text.find("-----BEGIN PRIVATE KEY").unwrap();
    let certificate = text.find("-----BEGIN CERTIFICATE").unwrap();
    match certificate < key {
        true => (text[..key].to_owned(), text[key..].to_owned()),
        false => (
            text[certificate..].to_owned(),
            text[..certificate].to_owned(),
        ),
    }
}

#[tokio::test]
async fn the_error_about_an_unusable_file_names_the_cause() {
    let scene = Scene::new().await;
    let certificates = scene.set.certificates().unwrap();
    let (certificate, key) = parts(&certificates.client());
    let (_, another) = parts(&Certificates::new().client());
    let file = scene.path("client.pem");
    let (ca, client) = (certificates.authority(), certificates.client());
    let mut as_client = scene.set.uri();
    if !as_client.contains("tlsCertificateKeyFile") {
        as_client += &format!("&tlsCertificateKeyFile={}", client.display());
    }
    for (option, original, text, cause) in [
        (
            "tlsCertificateKeyFile",
            &client,
            key.clone(),
            "contains no PEM certificate",
        ),
        (
            "tlsCertificateKeyFile",
            &client,
            certificate.clone(),
            "contains no PEM private key",
        ),
        (
            "tlsCertificateKeyFile",
            &client,
            certificate.clone() + ENCRYPTED_KEY,
            "has an encrypted key",
        ),
        (
            "tlsCertificateKeyFile",
            &client,
            certificate + &another,
            "has a key that does not belong to its first certificate",
        ),
        (
            "tlsCertificateKeyFile",
            &client,
            SEC1_KEY.to_owned() + VERSION_1,
            "has a certificate of X.509 version 1",
        ),
        ("tlsCAFile", &ca, key, "contains no PEM certificate"),
    ] {
        fs::write(&file, text).unwrap();
        let uri = as_client.replace(
            &format!("{option}={}", original.display()),
            &format!("{option}={}", file.display()),
        );
        let answer = scene.check(&uri).flag("--timeout=3s").run().await;
        let named = format!("{} ({option}) {cause}", file.display());
        answer.says("tls", "failed", "TLS configuration refused");
        answer.says("tls", "failed", &named);
        // The driver accepts a CA file without certificates, and then trusts no server.
        if option == "tlsCertificateKeyFile" {
            answer.says("deployment", "failed", "TLS configuration refused");
            answer.says("deployment", "failed", &named);
        }
        let other = if option == "tlsCAFile" {
            "(tlsCertificateKeyFile)"
        } else {
            "(tlsCAFile)"
        };
        assert!(!answer.stdout.contains(other), "{}", answer.stdout);
    }
    fs::write(&file, SEC1_KEY.to_owned() + VERSION_3).unwrap();
    let uri = as_client.replace(&client.display().to_string(), &file.display().to_string());
    let answer = scene.check(&uri).flag("--timeout=3s").run().await;
    let refused = "TLS configuration refused";
    assert!(!answer.stdout.contains(refused), "{}", answer.stdout);
}
