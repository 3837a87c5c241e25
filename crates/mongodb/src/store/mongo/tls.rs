//! Explains why a TLS connection to a server failed: converts the library's errors into messages
//! with a remedy.

mod files;

use std::fs::{self, File};
use std::io;

use rustls::{AlertDescription, CertificateError, Error, InvalidMessage};

pub(super) use self::files::{NamedFile, authorities, client, named_files, unusable};

/// Why a client cannot be made, if no file is the cause.
pub(super) const UNUSABLE: &str = "check the TLS options of the MongoDB URI";
/// Kind of the failure of a client that cannot be made, because its TLS files or options are not
/// usable.
pub(super) const REFUSED: &str = "TLS configuration refused";
/// Kind of the failure of a client whose TLS files were not read in time.
pub(super) const UNREAD: &str = "TLS files unavailable";
/// Server and client have no TLS version or cipher in common.
const TOO_OLD: &str = "the server and this client have no TLS version and cipher in common: the \
                       server must accept TLS 1.2 or 1.3";
const NOT_FOR_SERVERS: (&str, &str) = (
    "is not for servers",
    "issue one with the extended key usage serverAuth",
);
/// The remedy for a certificate that no client accepts.
const ISSUE_ANOTHER: &str = "issue another one, and see openssl verify -verbose";

/// Returns why one of the files that the connection string names (as options and paths) cannot be
/// read. Only regular files are opened, because opening any other could block.
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

/// Returns the files that were not read in time, for a disk that hangs.
pub(super) fn unread(files: &[NamedFile]) -> String {
    let files: Vec<_> = files.iter().map(named).collect();
    let files = files.join(" and ");
    format!("{files} cannot be read: the disk or network share does not answer")
}

fn named((option, path): &NamedFile) -> String {
    format!("{} ({option})", path.display())
}

fn cause(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::NotFound => "no such file or directory".to_owned(),
        kind => kind.to_string(),
    }
}

/// Returns a message for a connection error, if TLS caused it.
pub(super) fn refusal(error: &io::Error) -> Option<String> {
    let error = error.get_ref()?.downcast_ref::<Error>()?;
    Some(match error {
        Error::InvalidCertificate(certificate) => refused_certificate(certificate),
        Error::AlertReceived(alert) => refused_by_server(*alert),
        Error::InvalidMessage(InvalidMessage::InvalidContentType) => {
            "the server does not use TLS: remove tls=true from the MongoDB URI".to_owned()
        }
        Error::InvalidMessage(_) => "the server sent an invalid TLS message".to_owned(),
        Error::PeerIncompatible(_) => TOO_OLD.to_owned(),
        other => format!("the TLS handshake failed: {other}"),
    })
}

fn refused_certificate(error: &CertificateError) -> String {
    let (what, remedy) = match error {
        // BadSignature: the certificate is signed by another authority of the same name.
        CertificateError::UnknownIssuer | CertificateError::BadSignature => {
            ("is not signed by a trusted authority", "check tlsCAFile")
        }
        CertificateError::Expired | CertificateError::ExpiredContext { .. } => {
            ("has expired", "renew it, or check this machine's clock")
        }
        CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => {
            ("is not valid yet", "check this machine's clock")
        }
        CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => {
            ("does not name this host", "use a host name that it names")
        }
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
            "is signed by an algorithm that is not supported",
            "issue a certificate signed by RSA (2048 bits or more), ECDSA or Ed25519 with SHA-256",
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
    format!("the server's certificate {what}: {remedy}")
}

/// Returns the cause and the remedy of a refusal that has no name in the TLS library.
fn refused_chain(error: &webpki::Error) -> (&'static str, &'static str) {
    match error {
        webpki::Error::CaUsedAsEndEntity => (
            "belongs to a certificate authority (CA:TRUE)",
            "issue one for the server (CA:FALSE), signed by that authority",
        ),
        webpki::Error::EndEntityUsedAsCa => (
            "is signed by a certificate that is not an authority's (CA:FALSE)",
            "sign it with an authority of tlsCAFile",
        ),
        webpki::Error::NameConstraintViolation | webpki::Error::MalformedNameConstraint => (
            "has a name that its authority must not certify",
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

fn refused_by_server(alert: AlertDescription) -> String {
    match alert {
        AlertDescription::CertificateRequired => {
            "the server demands a client certificate: set tlsCertificateKeyFile".to_owned()
        }
        AlertDescription::UnknownCA
        | AlertDescription::BadCertificate
        | AlertDescription::CertificateExpired
        | AlertDescription::CertificateRevoked
        | AlertDescription::CertificateUnknown
        | AlertDescription::UnsupportedCertificate => format!(
            "the server refuses the client certificate ({alert:?}): check tlsCertificateKeyFile"
        ),
        AlertDescription::ProtocolVersion
        | AlertDescription::HandshakeFailure
        | AlertDescription::InsufficientSecurity => TOO_OLD.to_owned(),
        AlertDescription::UnrecognisedName => {
            "the server does not know this host name: use a host name of its certificate".to_owned()
        }
        other => format!("the server ended the TLS handshake ({other:?}): see its log"),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use rustls::OtherError;

    use super::*;

    #[test]
    fn a_refused_certificate_is_described_in_words() {
        let other = |error: webpki::Error| CertificateError::Other(OtherError(Arc::new(error)));
        let refused = |error: &CertificateError| refused_certificate(error);
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
