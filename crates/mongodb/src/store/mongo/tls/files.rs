//! Explains why the driver cannot use the files of authorities and of the client certificate.
//!
//! The driver's error does not name the file. So the files are read once more, and the checks of the
//! TLS library are repeated one by one.

use std::fs;
use std::path::{Path, PathBuf};

use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::sign::CertifiedKey;
use rustls::{CertificateError, Error, InconsistentKeys, RootCertStore};

/// Markers of the two formats of encrypted keys.
const ENCRYPTED: [&str; 2] = ["ENCRYPTED PRIVATE KEY", "Proc-Type: 4,ENCRYPTED"];

/// Returns the file that the driver cannot use, with the cause. Blocks while it reads the files.
pub(in crate::store::mongo) fn unusable(files: &[(&'static str, PathBuf)]) -> String {
    let cause = |(option, path): &(&'static str, PathBuf)| {
        let cause = match *option {
            "tlsCAFile" => authorities(path),
            _ => client(path),
        };
        Some(format!("{} ({option}) {}", path.display(), cause?))
    };
    let found = files.iter().find_map(cause);
    found.unwrap_or_else(|| super::UNUSABLE.to_owned())
}

fn authorities(path: &Path) -> Option<&'static str> {
    let bytes = fs::read(path).ok()?;
    let mut roots = RootCertStore::empty();
    let certificates = CertificateDer::pem_slice_iter(&bytes).flatten();
    match roots.add_parsable_certificates(certificates) {
        (0, 0) => Some("has no certificate in PEM"),
        (0, _) => Some("has no certificate of X.509 version 3"),
        _ => None,
    }
}

fn client(path: &Path) -> Option<&'static str> {
    let bytes = fs::read(path).ok()?;
    let chain = CertificateDer::pem_slice_iter(&bytes).collect::<Result<Vec<_>, _>>();
    let Ok(chain) = chain else {
        return Some("is not well-formed PEM");
    };
    if chain.is_empty() {
        return Some("has no certificate in PEM");
    }
    let text = String::from_utf8_lossy(&bytes);
    if ENCRYPTED.iter().any(|marker| text.contains(marker)) {
        return Some("has an encrypted key: decrypt it with openssl pkcs8 -topk8 -nocrypt");
    }
    let Ok(key) = PrivateKeyDer::from_pem_slice(&bytes) else {
        return Some("has no private key in PEM: append it to the certificate");
    };
    let provider = ring::default_provider();
    let Ok(key) = provider.key_provider.load_private_key(key) else {
        return Some(
            "has a key that is not supported: use RSA (2048 bits or more), ECDSA or Ed25519",
        );
    };
    match CertifiedKey::new(chain, key).keys_match() {
        Ok(()) | Err(Error::InconsistentKeys(InconsistentKeys::Unknown)) => None,
        Err(Error::InconsistentKeys(_)) => {
            Some("has a key that does not belong to its first certificate")
        }
        Err(Error::InvalidCertificate(CertificateError::Other(error)))
            if error.0.downcast_ref() == Some(&webpki::Error::UnsupportedCertVersion) =>
        {
            Some("has a certificate of X.509 version 1: issue one of version 3")
        }
        Err(_) => Some("has a certificate that does not conform to X.509 (RFC 5280)"),
    }
}
