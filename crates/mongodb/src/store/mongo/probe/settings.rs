//! The parts of a connection string that may be shown, and the servers that it names.

use std::io;
use std::net::IpAddr;

use mongodb::options::{AuthMechanism, ClientOptions, ConnectionString, HostInfo, Tls};

use super::super::home::canonical;
use super::certificates::Certificates;
use crate::store::Failure;
use crate::uri::{ConnectionUri, UriNotice};

/// The settings of a connection string, without its password.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UriSettings {
    /// The servers; with `mongodb+srv://`, the name of the record.
    pub hosts: Vec<String>,
    /// True if the servers are in an SRV record.
    pub srv: bool,
    /// The replica set.
    pub set: Option<String>,
    /// The user that logs in with a password.
    pub user: Option<String>,
    /// True if a certificate logs in.
    pub certificate_login: bool,
    /// True for a connection to one server only, whatever it is.
    pub direct: bool,
    /// True if connections are encrypted.
    pub tls: bool,
    /// The options that are not applied as written, and those that have a risk.
    pub notices: Vec<UriNotice>,
}

impl UriSettings {
    /// Parses a connection string without network access; `None` if it is refused.
    pub fn of(uri: &str) -> Option<Self> {
        let uri = ConnectionUri::parse(uri).ok()?;
        let parsed = ConnectionString::parse(uri.driver()).ok()?;
        let (hosts, srv) = match parsed.host_info {
            HostInfo::HostIdentifiers(hosts) => {
                let hosts = hosts.iter().map(canonical).collect();
                (hosts, false)
            }
            HostInfo::DnsRecord(name) => (vec![name], true),
            _ => (Vec::new(), false),
        };
        let credential = parsed.credential.unwrap_or_default();
        // An SRV record turns TLS on, unless the string turns it off.
        let tls = match parsed.tls {
            Some(Tls::Enabled(_)) => true,
            Some(Tls::Disabled) => false,
            None => srv,
        };
        Some(Self {
            hosts,
            srv,
            set: parsed.replica_set,
            user: credential.username,
            certificate_login: credential.mechanism == Some(AuthMechanism::MongoDbX509),
            direct: parsed.direct_connection == Some(true),
            tls,
            notices: uri.notices().to_vec(),
        })
    }
}

/// The servers that a connection string names, and how they are reached.
#[derive(Debug, Clone)]
pub struct SeedList {
    options: ClientOptions,
}

impl SeedList {
    pub(super) fn of(options: &ClientOptions) -> Self {
        Self {
            options: options.clone(),
        }
    }

    /// Returns the canonical addresses, as `host:port`.
    pub fn addresses(&self) -> Vec<String> {
        let hosts = self.options.hosts.iter();
        hosts.map(canonical).collect()
    }

    /// Returns the name of the replica set that the connection string demands.
    pub fn set(&self) -> Option<&str> {
        self.options.repl_set_name.as_deref()
    }

    /// Returns the certificates and authorities of TLS connections; `None` without TLS.
    ///
    /// # Errors
    /// If a file that the connection string names is not usable.
    pub async fn certificates(&self) -> Result<Option<Certificates>, Failure> {
        match &self.options.tls {
            Some(Tls::Enabled(tls)) => Certificates::read(tls.clone()).await.map(Some),
            Some(Tls::Disabled) | None => Ok(None),
        }
    }
}

/// Returns the addresses of a host, given as `host:port`.
///
/// # Errors
/// The error of the name service.
pub async fn resolve(address: &str) -> io::Result<Vec<IpAddr>> {
    let found = tokio::net::lookup_host(address).await?;
    let mut found: Vec<_> = found.map(|address| address.ip()).collect();
    found.dedup();
    match found.is_empty() {
        true => Err(io::ErrorKind::NotFound.into()),
        false => Ok(found),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_settings_have_no_password() {
        let uri = "mongodb://me:hunter2@a,b:27018/?replicaSet=rs0&tls=true";
        let settings = UriSettings::of(uri).expect("a connection string");
        let expected = UriSettings {
            hosts: vec!["a:27017".to_owned(), "b:27018".to_owned()],
            srv: false,
            set: Some("rs0".to_owned()),
            user: Some("me".to_owned()),
            certificate_login: false,
            direct: false,
            tls: true,
            notices: Vec::new(),
        };
        assert_eq!(settings, expected);
        assert!(!format!("{settings:?}").contains("hunter2"));
    }

    #[test]
    fn a_record_of_servers_turns_tls_on() {
        let settings = UriSettings::of("mongodb+srv://c.example.net/").expect("a string");
        assert_eq!((settings.srv, settings.tls), (true, true));
        assert_eq!(settings.hosts, ["c.example.net"]);
    }
}
