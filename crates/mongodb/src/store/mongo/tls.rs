//! Explains why a TLS connection to a server failed: converts the library's errors into messages
//! with a remedy.

use std::fs::{self, File};
use std::io;
use std::path::PathBuf;

use rustls::{AlertDescription, CertificateError, Error, InvalidMessage};

/// Returns why one of the files that the connection string names (as options and paths) cannot be
/// read. Only regular files are opened, because opening any other could block.
pub(super) fn unreadable(files: &[(&'static str, PathBuf)]) -> Option<String> {
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

fn cause(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::NotFound => "no such file or directory".to_owned(),
        kind => kind.to_string(),
    }
}

/// Returns the required format of the files, for a driver that cannot use them.
pub(super) fn unusable(files: &[(&'static str, PathBuf)]) -> String {
    let files: Vec<_> = files
        .iter()
        .map(|(option, path)| format!("{} ({option})", path.display()))
        .collect();
    if files.is_empty() {
        return "check the TLS options of the MongoDB URI".to_owned();
    }
    let files = files.join(" and ");
    format!("{files} must hold PEM: certificates, and the key in PKCS#8")
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
        other => format!("the TLS handshake failed: {other}"),
    })
}

fn refused_certificate(error: &CertificateError) -> String {
    match error {
        // BadSignature: the certificate is signed by another authority of the same name.
        CertificateError::UnknownIssuer | CertificateError::BadSignature => {
            "the server's certificate is not signed by a trusted authority: check tlsCAFile"
                .to_owned()
        }
        CertificateError::Expired | CertificateError::ExpiredContext { .. } => {
            "the server's certificate has expired: renew it, or check this machine's clock"
                .to_owned()
        }
        CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => {
            "the server's certificate is not valid yet: check this machine's clock".to_owned()
        }
        CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => {
            "the server's certificate does not name this host: use a host name that it names"
                .to_owned()
        }
        CertificateError::Revoked => "the server's certificate was revoked: renew it".to_owned(),
        other => format!("the server's certificate is refused: {other}"),
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
        | AlertDescription::UnsupportedCertificate => {
            format!(
                "the server refuses the client certificate ({alert:?}): check tlsCertificateKeyFile"
            )
        }
        other => format!("the server ended the TLS handshake ({other:?})"),
    }
}
