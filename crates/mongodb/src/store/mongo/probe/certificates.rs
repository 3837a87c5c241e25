//! Determines when certificates expire. The driver does not expose certificates, so a second
//! connection fetches each server's chain. The chain is then verified as of future dates.

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

use super::SeedList;
use crate::store::mongo::{outcome, tls};
use crate::store::{Failure, RetryPolicy};

/// A date after the expiry of all certificates: the last second of the year 9999.
const LATE: UnixTime = UnixTime::since_unix_epoch(Duration::from_secs(253_402_300_799));
/// Maximum number of dates to try. Each further date is the expiry of a certificate that would have
/// expired by the previous date.
const DATES_MAX: usize = 8;

/// The authorities and the client certificate of a connection string.
#[derive(Debug)]
pub struct Certificates {
    verifier: Arc<WebPkiServerVerifier>,
    roots: Arc<RootCertStore>,
    config: Arc<ClientConfig>,
    client: Vec<CertificateDer<'static>>,
    /// False if the connection string accepts every certificate.
    pub are_verified: bool,
}

impl SeedList {
    /// Reads the string's files outside of the event loop. Returns `None` without TLS.
    pub async fn certificates(&self) -> Result<Option<Certificates>, Failure> {
        let Some(options) = self.tls.clone() else {
            return Ok(None);
        };
        #[allow(clippy::disallowed_methods, reason = "the task only reads the files")]
        let read = tokio::task::spawn_blocking(move || Certificates::of(&options));
        let read = read.await.unwrap_or_else(|_| Err("interrupted".to_owned()));
        let read = read.map_err(|why| Failure::lasting(tls::REFUSED, why));
        read.map(Some)
    }
}

impl Certificates {
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
        let config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|_| unusable())?
            .with_webpki_verifier(Arc::clone(&verifier));
        let (config, client) = match &options.cert_key_file_path {
            Some(path) => {
                let (chain, key) = tls::client(path).map_err(|_| unusable())?;
                (config.with_client_auth_cert(chain.clone(), key), chain)
            }
            None => (Ok(config.with_no_client_auth()), Vec::new()),
        };
        Ok(Self {
            verifier,
            roots,
            config: Arc::new(config.map_err(|_| unusable())?),
            client,
            are_verified: options.allow_invalid_certificates != Some(true),
        })
    }

    /// Connects to a server, given as `host:port`. Returns the time at which the server's
    /// certificate chain expires.
    pub async fn server(&self, address: &str) -> Result<SystemTime, Failure> {
        let failed = |why: String, remedy| {
            Failure::new("TLS connection failed", remedy).of(format!("({why})"))
        };
        let host = address.rsplit_once(':').map_or(address, |(host, _)| host);
        let host = host.trim_start_matches('[').trim_end_matches(']');
        let name = ServerName::try_from(host.to_owned());
        let name = name.map_err(|_| {
            let kind = "the host name is not valid in TLS";
            Failure::new(kind, "correct the host in the MongoDB URI")
        })?;
        let stream = TcpStream::connect(address).await;
        let stream = stream.map_err(|error| failed(error.kind().to_string(), outcome::NETWORK))?;
        let connector = TlsConnector::from(Arc::clone(&self.config));
        let connected = connector.connect(name.clone(), stream).await;
        let connected = connected.map_err(|error| {
            let no_tls = "the server may not use TLS: then remove tls=true from the MongoDB URI";
            tls::refusal(&error)
                .unwrap_or_else(|| failed(error.kind().to_string(), no_tls))
                .with_retry(RetryPolicy::Reconfigure)
        })?;
        let (_, connection) = connected.get_ref();
        let chain = connection.peer_certificates().unwrap_or_default();
        let until = chain.split_first().and_then(|(end_entity, others)| {
            valid_until(|at| {
                let verifier = &self.verifier;
                let verified = verifier.verify_server_cert(end_entity, others, &name, &[], at);
                verified.map(drop)
            })
        });
        let kind = "no certificate of the server has an expiry date";
        until.ok_or_else(|| Failure::new(kind, "renew the server's certificate"))
    }

    /// Returns the expiry date of the client certificate, if there is one.
    pub fn client(&self) -> Option<SystemTime> {
        let (end_entity, others) = self.client.split_first()?;
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let verifier =
            WebPkiClientVerifier::builder_with_provider(Arc::clone(&self.roots), provider);
        let verifier = verifier.build().ok()?;
        // The verifier checks the dates before the issuer. Only the server can judge the issuer.
        valid_until(|at| {
            let verified = verifier.verify_client_cert(end_entity, others, at);
            verified.map(drop)
        })
    }
}

fn valid_until(verify: impl Fn(UnixTime) -> Result<(), Error>) -> Option<SystemTime> {
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
    Some(UNIX_EPOCH + Duration::from_secs(until?.as_secs()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn date(seconds: u64) -> UnixTime {
        UnixTime::since_unix_epoch(Duration::from_secs(seconds))
    }

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
            let until = valid_until(ending(ends)).expect("an end");
            assert_eq!(until, UNIX_EPOCH + Duration::from_secs(100));
        }
    }

    #[test]
    fn an_issuer_that_is_not_trusted_here_does_not_hide_the_end() {
        let client = |at: UnixTime| match at > date(100) {
            true => ending(&[100])(at),
            false => Err(Error::InvalidCertificate(CertificateError::UnknownIssuer)),
        };
        let until = valid_until(client).expect("an end");
        assert_eq!(until, UNIX_EPOCH + Duration::from_secs(100));
        assert_eq!(valid_until(ending(&[])), None);
    }
}
