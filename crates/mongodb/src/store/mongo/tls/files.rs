//! Reads the files of authorities and of the client certificate, and explains why the driver cannot
//! use them.
//!
//! The driver's error does not name the file. So the files are read once more, and the checks of the
//! TLS library are repeated one by one.

use std::fs;
use std::path::{Path, PathBuf};

use mongodb::options::TlsOptions;
use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::sign::CertifiedKey;
use rustls::{CertificateError, Error, InconsistentKeys, RootCertStore};

/// The option that names the file of authorities.
const AUTHORITIES: &str = "tlsCAFile";
const UNREADABLE: &str = "cannot be read";
/// Markers of the two formats of encrypted keys.
const ENCRYPTED: [&str; 2] = ["ENCRYPTED PRIVATE KEY", "Proc-Type: 4,ENCRYPTED"];

/// An option of the connection string that names a file, and the path.
pub(in crate::store::mongo) type NamedFile = (&'static str, PathBuf);

/// The certificate of this client with its chain, and the key.
pub(in crate::store::mongo) type ClientIdentity =
    (Vec<CertificateDer<'static>>, PrivateKeyDer<'static>);

/// Returns the files that these options name.
pub(in crate::store::mongo) fn named_files(options: &TlsOptions) -> Vec<NamedFile> {
    let named = [
        (AUTHORITIES, &options.ca_file_path),
        ("tlsCertificateKeyFile", &options.cert_key_file_path),
    ];
    let files = named.into_iter();
    files
        .filter_map(|(option, path)| Some((option, path.clone()?)))
        .collect()
}

/// Returns the file that the driver cannot use, with the cause. Blocks while it reads the files.
pub(in crate::store::mongo) fn unusable(files: &[NamedFile]) -> String {
    let cause = |(option, path): &NamedFile| {
        let cause = match *option {
            AUTHORITIES => authorities(path).err(),
            _ => client(path).err(),
        };
        Some(format!("{} ({option}) {}", path.display(), cause?))
    };
    let found = files.iter().find_map(cause);
    found.unwrap_or_else(|| super::UNUSABLE.to_owned())
}

/// Returns the authorities in a file, or why there are none.
pub(in crate::store::mongo) fn authorities(path: &Path) -> Result<RootCertStore, &'static str> {
    let bytes = fs::read(path).map_err(|_| UNREADABLE)?;
    let mut roots = RootCertStore::empty();
    let certificates = CertificateDer::pem_slice_iter(&bytes).flatten();
    match roots.add_parsable_certificates(certificates) {
        (0, 0) => Err("has no certificate in PEM"),
        (0, _) => Err("has no certificate of X.509 version 3"),
        _ => Ok(roots),
    }
}

/// Returns the client certificate in a file, or why it is not usable.
pub(in crate::store::mongo) fn client(path: &Path) -> Result<ClientIdentity, &'static str> {
    let bytes = fs::read(path).map_err(|_| UNREADABLE)?;
    let chain = CertificateDer::pem_slice_iter(&bytes).collect::<Result<Vec<_>, _>>();
    let chain = chain.map_err(|_| "is not well-formed PEM")?;
    if chain.is_empty() {
        return Err("has no certificate in PEM");
    }
    let text = String::from_utf8_lossy(&bytes);
    let is_encrypted = ENCRYPTED.iter().any(|marker| text.contains(marker));
    let refused = |why| match is_encrypted {
        true => "has an encrypted key: decrypt it with openssl pkcs8 -topk8 -nocrypt",
        false => why,
    };
    let pem = PrivateKeyDer::from_pem_slice(&bytes);
    let pem =
        pem.map_err(|_| refused("has no private key in PEM: append it to the certificate"))?;
    let key = ring::default_provider().key_provider;
    let key = key.load_private_key(pem.clone_key()).map_err(|_| {
        refused("has a key that is not supported: use RSA (2048 bits or more), ECDSA or Ed25519")
    })?;
    match CertifiedKey::new(chain.clone(), key).keys_match() {
        Ok(()) | Err(Error::InconsistentKeys(InconsistentKeys::Unknown)) => Ok((chain, pem)),
        Err(Error::InconsistentKeys(_)) => {
            Err("has a key that does not belong to its first certificate")
        }
        Err(Error::InvalidCertificate(CertificateError::Other(error)))
            if error.0.downcast_ref() == Some(&webpki::Error::UnsupportedCertVersion) =>
        {
            Err("has a certificate of X.509 version 1: issue one of version 3")
        }
        Err(_) => Err("has a certificate that does not conform to X.509 (RFC 5280)"),
    }
}
