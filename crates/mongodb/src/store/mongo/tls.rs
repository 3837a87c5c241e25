//! Explains why a TLS connection failed: an unusable file, or the meaning of the library's error.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use mongodb::options::TlsOptions;
use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::sign::CertifiedKey;
use rustls::{
    AlertDescription, CertificateError, Error, InconsistentKeys, InvalidMessage, RootCertStore,
};

use super::refusals::SEE_LOG;
use crate::store::Failure;

pub(super) const UNUSABLE: &str = "check the TLS options of the MongoDB URI";
pub(super) const REFUSED: &str = "TLS configuration refused";
pub(super) const UNREAD: &str = "TLS files unavailable";
const TOO_OLD: (&str, &str) = (
    "the server and this client have no TLS version and cipher in common",
    "the server must accept TLS 1.2 or 1.3",
);
const NOT_FOR_SERVERS: (&str, &str) = (
    "is not valid for servers",
    "issue one with the extended key usage serverAuth",
);
const ISSUE_ANOTHER: &str = "issue a new certificate; for details: openssl verify -verbose";
const AUTHORITIES: &str = "tlsCAFile";
const UNREADABLE: &str = "cannot be read";
const ENCRYPTED: [&str; 2] = ["ENCRYPTED PRIVATE KEY", "Proc-Type: 4,ENCRYPTED"];

/// A connection string option that names a file, and the file's path.
pub(super) type NamedFile = (&'static str, PathBuf);

pub(super) type ClientIdentity = (Vec<CertificateDer<'static>>, PrivateKeyDer<'static>);

pub(super) fn named_files(options: &TlsOptions) -> Vec<NamedFile> {
    let named = [
        (AUTHORITIES, &options.ca_file_path),
        ("tlsCertificateKeyFile", &options.cert_key_file_path),
    ];
    let named = named.into_iter();
    named
        .filter_map(|(option, path)| Some((option, path.clone()?)))
        .collect()
}

/// Returns why one of these files cannot be read; `None` if all are readable. Opens only regular
/// files, because opening a pipe could block.
pub(super) fn unreadable(files: &[NamedFile]) -> Option<String> {
    files.iter().find_map(|(option, path)| {
        let why = match fs::metadata(path) {
            Ok(found) if !found.is_file() => "it is not a regular file".to_owned(),
            Ok(_) => cause(&File::open(path).err()?),
            Err(error) => cause(&error),
        };
        let path = path.display();
        Some(format!(
            "cannot read {path}: {why}; correct {option}, or let this user read that file"
        ))
    })
}

pub(super) fn unread(files: &[NamedFile]) -> String {
    let files = files.iter();
    let files: Vec<_> = files
        .map(|(option, path)| format!("{} ({option})", path.display()))
        .collect();
    let files = files.join(" and ");
    format!("{files} cannot be read: the disk or network share does not answer")
}

fn cause(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::NotFound => "no such file or directory".to_owned(),
        kind => kind.to_string(),
    }
}

/// Returns the file that the driver cannot use, with the cause. The driver's error may not name the
/// file, so the checks of the TLS library are repeated. Blocks while it reads the files.
pub(super) fn unusable(files: &[NamedFile]) -> String {
    let cause = |(option, path): &NamedFile| {
        let cause = match *option {
            AUTHORITIES => authorities(path).err(),
            _ => client(path).err(),
        };
        Some(format!("{} ({option}) {}", path.display(), cause?))
    };
    let found = files.iter().find_map(cause);
    found.unwrap_or_else(|| UNUSABLE.to_owned())
}

pub(super) fn authorities(path: &Path) -> Result<RootCertStore, &'static str> {
    let bytes = fs::read(path).map_err(|_| UNREADABLE)?;
    let mut roots = RootCertStore::empty();
    let certificates = CertificateDer::pem_slice_iter(&bytes).flatten();
    match roots.add_parsable_certificates(certificates) {
        (0, 0) => Err("contains no PEM certificate"),
        (0, _) => Err("contains no certificate that can be parsed"),
        _ => Ok(roots),
    }
}

pub(super) fn client(path: &Path) -> Result<ClientIdentity, &'static str> {
    let bytes = fs::read(path).map_err(|_| UNREADABLE)?;
    let chain = CertificateDer::pem_slice_iter(&bytes).collect::<Result<Vec<_>, _>>();
    let chain = chain.map_err(|_| "is not well-formed PEM")?;
    if chain.is_empty() {
        return Err("contains no PEM certificate");
    }
    let text = String::from_utf8_lossy(&bytes);
    let is_encrypted = ENCRYPTED.iter().any(|marker| text.contains(marker));
    let refused = |why| match is_encrypted {
        true => "has an encrypted key: decrypt it with openssl pkcs8 -topk8 -nocrypt",
        false => why,
    };
    let pem = PrivateKeyDer::from_pem_slice(&bytes);
    let pem =
        pem.map_err(|_| refused("contains no PEM private key: append it to the certificate"))?;
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

/// Describes why this client or the server refused the TLS connection; `None` for other errors.
pub(super) fn refusal(error: &io::Error) -> Option<Failure> {
    let error = error.get_ref()?.downcast_ref::<Error>()?;
    let (kind, remedy) = match error {
        Error::InvalidCertificate(certificate) => return Some(refused_certificate(certificate)),
        Error::AlertReceived(alert) => return Some(refused_by_server(*alert)),
        Error::InvalidMessage(InvalidMessage::InvalidContentType) => (
            "the server does not use TLS",
            "remove tls=true from the MongoDB URI",
        ),
        Error::InvalidMessage(_) => ("the server sent an invalid TLS message", SEE_LOG),
        Error::PeerIncompatible(_) => TOO_OLD,
        other => {
            let failed = Failure::new("the TLS handshake failed", SEE_LOG);
            return Some(failed.of(format!("({other})")));
        }
    };
    Some(Failure::new(kind, remedy))
}

fn refused_certificate(error: &CertificateError) -> Failure {
    let (what, remedy) = match error {
        // BadSignature means that another authority with the same name signed the certificate.
        CertificateError::UnknownIssuer | CertificateError::BadSignature => {
            ("is not signed by a trusted authority", "check tlsCAFile")
        }
        CertificateError::Expired | CertificateError::ExpiredContext { .. } => {
            ("has expired", "renew it, or check this machine's clock")
        }
        CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => {
            ("is not valid yet", "check this machine's clock")
        }
        CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => (
            "does not name this host",
            "use a host name in the certificate",
        ),
        CertificateError::Revoked => ("was revoked", "renew it"),
        CertificateError::UnknownRevocationStatus
        | CertificateError::ExpiredRevocationList
        | CertificateError::ExpiredRevocationListContext { .. }
        | CertificateError::InvalidOcspResponse => (
            "cannot be checked for revocation",
            "renew the revocation list or OCSP response",
        ),
        CertificateError::BadEncoding => ("is not well-formed", ISSUE_ANOTHER),
        CertificateError::UnhandledCriticalExtension => (
            "has a critical extension that is not supported",
            "issue one without it",
        ),
        #[allow(deprecated, reason = "older versions of the verifier return it")]
        CertificateError::UnsupportedSignatureAlgorithm
        | CertificateError::UnsupportedSignatureAlgorithmContext { .. }
        | CertificateError::UnsupportedSignatureAlgorithmForPublicKeyContext { .. } => (
            "has a signature algorithm that is not supported",
            "issue one signed with Ed25519, or with SHA-256 and RSA (2048 bits or more) or ECDSA",
        ),
        CertificateError::InvalidPurpose | CertificateError::InvalidPurposeContext { .. } => {
            NOT_FOR_SERVERS
        }
        CertificateError::ApplicationVerificationFailure => ("is refused", "check tlsCAFile"),
        CertificateError::Other(error) => match error.0.downcast_ref() {
            Some(error) => refused_chain(error),
            None => ("is refused by the verifier", ISSUE_ANOTHER),
        },
        _ => ("is refused by the verifier", ISSUE_ANOTHER),
    };
    Failure::new("the server's certificate", remedy).of(what)
}

fn refused_chain(error: &webpki::Error) -> (&'static str, &'static str) {
    match error {
        webpki::Error::CaUsedAsEndEntity => (
            "belongs to a certificate authority (CA:TRUE)",
            "issue one for the server (CA:FALSE), signed by that authority",
        ),
        webpki::Error::EndEntityUsedAsCa => (
            "is signed by a certificate that does not belong to an authority (CA:FALSE)",
            "issue one signed by an authority in tlsCAFile",
        ),
        webpki::Error::NameConstraintViolation | webpki::Error::MalformedNameConstraint => (
            "has a name outside its authority's name constraints",
            "check the name constraints of the authority",
        ),
        webpki::Error::PathLenConstraintViolated | webpki::Error::MaximumPathDepthExceeded => (
            "has too many authorities above it",
            "send a shorter chain of certificates",
        ),
        webpki::Error::UnsupportedCertVersion => {
            ("is not an X.509 certificate of version 3", ISSUE_ANOTHER)
        }
        webpki::Error::EmptyEkuExtension => NOT_FOR_SERVERS,
        webpki::Error::MalformedDnsIdentifier | webpki::Error::UnsupportedNameType => (
            "has a name that is not a host name or an address",
            "issue one with DNS names or addresses only",
        ),
        _ => ("does not conform to X.509 (RFC 5280)", ISSUE_ANOTHER),
    }
}

fn refused_by_server(alert: AlertDescription) -> Failure {
    let (kind, remedy) = match alert {
        AlertDescription::CertificateRequired => (
            "the server requires a client certificate",
            "set tlsCertificateKeyFile",
        ),
        AlertDescription::UnknownCA
        | AlertDescription::BadCertificate
        | AlertDescription::CertificateExpired
        | AlertDescription::CertificateRevoked
        | AlertDescription::CertificateUnknown
        | AlertDescription::UnsupportedCertificate => (
            "the server refuses the client certificate",
            "check tlsCertificateKeyFile",
        ),
        AlertDescription::ProtocolVersion
        | AlertDescription::HandshakeFailure
        | AlertDescription::InsufficientSecurity => TOO_OLD,
        AlertDescription::UnrecognisedName => (
            "the server does not know this host name",
            "use a host name in its certificate",
        ),
        _ => ("the server ended the TLS handshake", SEE_LOG),
    };
    Failure::new(kind, remedy).of(format!("({alert:?})"))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use rustls::OtherError;

    use super::*;

    #[test]
    fn a_refused_certificate_is_described_in_words() {
        let other = |error: webpki::Error| CertificateError::Other(OtherError(Arc::new(error)));
        let refused = |error: &CertificateError| refused_certificate(error).to_string();
        assert_eq!(
            refused(&other(webpki::Error::CaUsedAsEndEntity)),
            "the server's certificate belongs to a certificate authority (CA:TRUE): issue one for the server \
             (CA:FALSE), signed by that authority"
        );
        for error in [
            CertificateError::BadEncoding,
            CertificateError::Expired,
            CertificateError::NotValidYet,
            CertificateError::Revoked,
            CertificateError::UnhandledCriticalExtension,
            CertificateError::UnknownIssuer,
            CertificateError::UnknownRevocationStatus,
            CertificateError::ExpiredRevocationList,
            CertificateError::BadSignature,
            CertificateError::NotValidForName,
            CertificateError::InvalidPurpose,
            CertificateError::InvalidOcspResponse,
            CertificateError::ApplicationVerificationFailure,
            other(webpki::Error::EndEntityUsedAsCa),
            other(webpki::Error::EmptyEkuExtension),
            other(webpki::Error::ExtensionValueInvalid),
            other(webpki::Error::InvalidSerialNumber),
            other(webpki::Error::MalformedDnsIdentifier),
            other(webpki::Error::NameConstraintViolation),
            other(webpki::Error::PathLenConstraintViolated),
            other(webpki::Error::UnsupportedCertVersion),
            CertificateError::Other(OtherError(Arc::new(io::Error::other("x")))),
        ] {
            let words = refused(&error);
            let start = "the server's certificate ";
            assert!(words.starts_with(start) && words.contains(": "), "{words}");
            let name = format!("{error:?}");
            assert!(!words.contains(name.trim_end_matches("})")), "{words}");
            for sign in ["Other", "Error", "{", "::"] {
                assert!(!words.contains(sign), "{sign} in {words}");
            }
        }
    }
}
