//! The certificates of TLS connections, and how long they are valid.
//!
//! The driver does not show the certificates that it accepts, so each server is connected to once
//! more, with the authorities and the client certificate of the connection string. The end of a
//! chain's validity is found by verifying the chain at later dates, with the verifier that accepts
//! connections. This covers every certificate of the chain, and needs no second parser.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use mongodb::options::TlsOptions;
use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::ServerCertVerifier;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::WebPkiClientVerifier;
use rustls::{CertificateError, ClientConfig, Error, RootCertStore};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use crate::store::mongo::tls;
use crate::store::{Failure, RetryPolicy};

/// A date after the end of all certificates: the last second of the year 9999.
const LATE: UnixTime = UnixTime::since_unix_epoch(Duration::from_secs(253_402_300_799));
/// Maximum number of dates that are tried. Each one is the end of another certificate of a chain,
/// and chains have fewer than five.
const DATES_MAX: usize = 8;

/// The end of a chain's validity.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Validity {
    /// The first certificate of the chain expires then.
    pub until: SystemTime,
}

/// The authorities and the client certificate of a connection string.
pub struct Certificates {
    verifier: Arc<WebPkiServerVerifier>,
    /// The authorities of `verifier`.
    roots: Arc<RootCertStore>,
    connector: TlsConnector,
    /// The certificate of this client and its chain; empty if there is none.
    client: Vec<CertificateDer<'static>>,
    /// False with `tlsAllowInvalidCertificates`.
    verified: bool,
}

impl fmt::Debug for Certificates {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Certificates")
            .field("verified", &self.verified)
            .finish_non_exhaustive()
    }
}

impl Certificates {
    /// Reads the files that the options name, outside the event loop, because a hanging disk would
    /// block it.
    pub(super) async fn read(options: TlsOptions) -> Result<Self, Failure> {
        #[allow(clippy::disallowed_methods, reason = "it ends with the files read")]
        let read = tokio::task::spawn_blocking(move || Self::of(&options));
        let refused = |why| Failure::lasting(tls::REFUSED, why);
        read.await
            .unwrap_or_else(|_| Err("interrupted".to_owned()))
            .map_err(refused)
    }

    fn of(options: &TlsOptions) -> Result<Self, String> {
        let files = tls::named_files(options);
        if let Some(why) = tls::unreadable(&files) {
            return Err(why);
        }
        let unusable = || tls::unusable(&files);
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        // The authorities that the driver trusts.
        let roots = match &options.ca_file_path {
            Some(path) => tls::authorities(path).map_err(|_| unusable())?,
            None => webpki_roots::TLS_SERVER_ROOTS.iter().cloned().collect(),
        };
        let roots = Arc::new(roots);
        let verifier =
            WebPkiServerVerifier::builder_with_provider(Arc::clone(&roots), Arc::clone(&provider));
        let verifier = verifier.build().map_err(|_| unusable())?;
        let client = match &options.cert_key_file_path {
            Some(path) => Some(tls::client(path).map_err(|_| unusable())?),
            None => None,
        };
        let chain = client.as_ref().map(|(chain, _)| chain.clone());
        let config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|_| unusable())?
            .with_webpki_verifier(Arc::clone(&verifier));
        let config = match client {
            Some((chain, key)) => config.with_client_auth_cert(chain, key),
            None => Ok(config.with_no_client_auth()),
        };
        let config = config.map_err(|_| unusable())?;
        Ok(Self {
            verifier,
            roots,
            connector: TlsConnector::from(Arc::new(config)),
            client: chain.unwrap_or_default(),
            verified: options.allow_invalid_certificates != Some(true),
        })
    }

    /// Returns false if the connection string accepts every certificate.
    pub fn are_verified(&self) -> bool {
        self.verified
    }

    /// Connects to a server, given as `host:port`, and returns the validity of its chain.
    ///
    /// # Errors
    /// If the server cannot be reached, or its certificate is refused.
    pub async fn server(&self, address: &str) -> Result<Validity, Failure> {
        let failed = |why: String| Failure::new("TLS connection failed", why);
        let host = address.rsplit_once(':').map_or(address, |(host, _)| host);
        let host = host.trim_start_matches('[').trim_end_matches(']');
        let name = ServerName::try_from(host.to_owned());
        let name = name.map_err(|_| failed("the host name is not valid in TLS".to_owned()))?;
        let stream = TcpStream::connect(address).await;
        let stream = stream.map_err(|error| failed(error.kind().to_string()))?;
        let connected = self.connector.connect(name.clone(), stream).await;
        let connected = connected.map_err(|error| {
            let why = tls::refusal(&error);
            failed(why.unwrap_or_else(|| error.kind().to_string()))
                .with_retry(RetryPolicy::Reconfigure)
        })?;
        let (_, connection) = connected.get_ref();
        let chain = connection.peer_certificates().unwrap_or_default();
        let until = chain.split_first().and_then(|(end_entity, others)| {
            valid_until(|at| {
                let verified = self
                    .verifier
                    .verify_server_cert(end_entity, others, &name, &[], at);
                verified.map(drop)
            })
        });
        until.ok_or_else(|| failed("no certificate of the server has an expiry date".to_owned()))
    }

    /// Returns the validity of the client certificate; `None` if there is none.
    pub fn client(&self) -> Option<Validity> {
        let (end_entity, others) = self.client.split_first()?;
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let verifier =
            WebPkiClientVerifier::builder_with_provider(Arc::clone(&self.roots), provider);
        let verifier = verifier.build().ok()?;
        // The server decides on the issuer. The dates are checked before it.
        valid_until(|at| {
            verifier
                .verify_client_cert(end_entity, others, at)
                .map(drop)
        })
    }
}

/// Returns the first end of the certificates that `verify` checks; `None` if it reports none.
fn valid_until(verify: impl Fn(UnixTime) -> Result<(), Error>) -> Option<Validity> {
    let mut at = LATE;
    let mut until = None;
    for _ in 0..DATES_MAX {
        match verify(at) {
            Err(Error::InvalidCertificate(CertificateError::ExpiredContext {
                not_after, ..
            })) if not_after < at => {
                at = not_after;
                until = Some(not_after);
            }
            Ok(()) | Err(_) => break,
        }
    }
    let until = UNIX_EPOCH + Duration::from_secs(until?.as_secs());
    Some(Validity { until })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn date(seconds: u64) -> UnixTime {
        UnixTime::since_unix_epoch(Duration::from_secs(seconds))
    }

    /// Verifies like a chain whose certificates end at these dates, in the order in which they are
    /// checked.
    fn ending(ends: &[u64]) -> impl Fn(UnixTime) -> Result<(), Error> {
        move |at| {
            let expired = ends.iter().find(|end| at > date(**end));
            expired.map_or(Ok(()), |end| {
                let not_after = date(*end);
                let expired = CertificateError::ExpiredContext {
                    time: at,
                    not_after,
                };
                Err(Error::InvalidCertificate(expired))
            })
        }
    }

    #[test]
    fn the_first_certificate_of_a_chain_that_expires_counts() {
        for ends in [&[300, 200, 100][..], &[100, 200], &[100]] {
            let validity = valid_until(ending(ends)).expect("an end");
            assert_eq!(validity.until, UNIX_EPOCH + Duration::from_secs(100));
        }
    }

    #[test]
    fn an_issuer_that_is_not_trusted_here_does_not_hide_the_end() {
        let client = |at: UnixTime| match at > date(100) {
            true => ending(&[100])(at),
            false => Err(Error::InvalidCertificate(CertificateError::UnknownIssuer)),
        };
        let validity = valid_until(client).expect("an end");
        assert_eq!(validity.until, UNIX_EPOCH + Duration::from_secs(100));
        assert_eq!(valid_until(ending(&[])), None);
    }
}
