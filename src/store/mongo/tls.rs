//! Why a TLS connection to a server failed: from the library's errors to words
//! with a remedy.

use std::fs::File;
use std::io;
use std::path::PathBuf;

use rustls::{AlertDescription, CertificateError, Error, InvalidMessage};

use crate::cause::cause;

/// What is wrong with the files that the connection string names, as options and
/// paths, when one of them cannot be used.
pub(super) fn unusable(files: &[(&'static str, PathBuf)]) -> String {
    let unreadable = files.iter().find_map(|(option, path)| {
        let why = cause(&File::open(path).err()?);
        let path = path.display();
        Some(format!(
            "cannot read {path}: {why}; correct {option}, or let this user read that file"
        ))
    });
    unreadable.unwrap_or_else(|| {
        let files: Vec<_> = files
            .iter()
            .map(|(option, path)| format!("{} ({option})", path.display()))
            .collect();
        let files = files.join(" and ");
        format!("{files} must hold PEM: certificates, and the key in PKCS#8")
    })
}

/// Words for an error of a connection, if TLS is what failed.
pub(super) fn refusal(error: &io::Error) -> Option<String> {
    let error = error.get_ref()?.downcast_ref::<Error>()?;
    Some(match error {
        Error::InvalidCertificate(certificate) => refused_certificate(certificate),
        Error::AlertReceived(alert) => refused_by_server(*alert),
        Error::InvalidMessage(InvalidMessage::InvalidContentType) => {
            "the server does not speak TLS: remove tls=true from the MongoDB URI".to_owned()
        }
        Error::InvalidMessage(_) => "the server does not speak TLS as it should".to_owned(),
        other => format!("the TLS handshake failed: {other}"),
    })
}

fn refused_certificate(error: &CertificateError) -> String {
    match error {
        // BadSignature: of another authority that has the same name.
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
