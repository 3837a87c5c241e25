//! Creates certificates for TLS servers.

use std::net::{IpAddr, Ipv4Addr};
use std::path::{Path, PathBuf};

use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa,
    Issuer, KeyPair, KeyUsagePurpose, SanType, date_time_ymd,
};

use crate::Scratch;

const ORGANISATION: &str = "leasehold testbed";

/// A certificate authority, a server certificate for 127.0.0.1 and localhost, and a client
/// certificate, as PEM files. The server and client certificates are valid until the year 2050.
///
/// The files with a key contain the certificate and its PKCS#8 key, the format that both mongod and
/// the driver accept as a `certificateKeyFile`.
#[derive(Debug)]
pub struct Certificates {
    addresses: Vec<Ipv4Addr>,
    directory: Scratch,
    issuer: Issuer<'static, KeyPair>,
}

impl Certificates {
    /// Creates the authority and both certificates.
    pub fn new() -> Self {
        Self::at(&[Ipv4Addr::LOCALHOST])
    }

    /// Like [`new`](Self::new), for servers at these addresses.
    pub fn at(addresses: &[Ipv4Addr]) -> Self {
        let key = KeyPair::generate().expect("generate a key");
        let mut authority = CertificateParams::default();
        authority.distinguished_name = name("authority", "leasehold testbed CA");
        authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        authority.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        let certificate = authority.self_signed(&key).expect("sign the authority");
        let directory = Scratch::new();
        write(&directory.path().join("ca.pem"), &certificate.pem());
        let certificates = Self {
            addresses: addresses.to_vec(),
            directory,
            issuer: Issuer::new(authority, key),
        };
        // If a client's O, OU and DC match the server's O, OU and DC, mongod treats the client as a
        // cluster member and refuses its login as a user. The two certificates therefore have
        // different organizational units (OU).
        certificates.renew_server();
        certificates.issue("client", "clients", "leasehold");
        certificates
    }

    /// Replaces the server's certificate and key with a new pair from the same authority.
    pub fn renew_server(&self) {
        self.issue("server", "servers", "leasehold server");
    }

    /// Returns the file with the authority's certificate (`tlsCAFile`).
    pub fn authority(&self) -> PathBuf {
        self.file("ca")
    }

    /// Returns the file with the server's certificate and key.
    pub fn server(&self) -> PathBuf {
        self.file("server")
    }

    /// Returns the file with the client's certificate and key (`tlsCertificateKeyFile`).
    pub fn client(&self) -> PathBuf {
        self.file("client")
    }

    /// Returns the client's subject as MongoDB writes it in the user name.
    pub fn client_subject(&self) -> String {
        format!("CN=leasehold,OU=clients,O={ORGANISATION}")
    }

    /// Returns connection string options that trust this authority. With `as_client`, the options
    /// include the client's certificate.
    pub fn uri_options(&self, as_client: bool) -> String {
        let mut options = format!("tls=true&tlsCAFile={}", self.authority().display());
        if as_client {
            options += &format!("&tlsCertificateKeyFile={}", self.client().display());
        }
        options
    }

    fn file(&self, stem: &str) -> PathBuf {
        self.directory.path().join(format!("{stem}.pem"))
    }

    /// Issues a server certificate that is also an authority (CA:TRUE), as `openssl req -x509` does
    /// by default. mongod starts with this certificate, but clients refuse the certificate.
    pub fn authority_as_server(&self) -> PathBuf {
        self.issue_with("authority-as-server", "servers", "leasehold server", |it| {
            it.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        });
        self.file("authority-as-server")
    }

    /// Issues a server certificate whose extended key usage allows only clients. Clients refuse
    /// this certificate.
    pub fn client_as_server(&self) -> PathBuf {
        self.issue_with("client-as-server", "servers", "leasehold server", |it| {
            it.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        });
        self.file("client-as-server")
    }

    fn issue(&self, stem: &str, unit: &str, common_name: &str) {
        self.issue_with(stem, unit, common_name, |_| {});
    }

    fn issue_with(
        &self,
        stem: &str,
        unit: &str,
        common_name: &str,
        change: impl FnOnce(&mut CertificateParams),
    ) {
        let key = KeyPair::generate().expect("generate a key");
        let mut params = CertificateParams::new(vec!["localhost".to_owned()])
            .expect("localhost is a valid name");
        let addresses = self.addresses.iter().copied().map(IpAddr::V4);
        let names = addresses.map(SanType::IpAddress);
        params.subject_alt_names.extend(names);
        params.distinguished_name = name(unit, common_name);
        // The certificate is valid until 2050, so that a test can set a client's clock to a later
        // time.
        params.not_after = date_time_ymd(2050, 1, 1);
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        // Members also connect to each other as clients.
        params.extended_key_usages = vec![
            ExtendedKeyUsagePurpose::ServerAuth,
            ExtendedKeyUsagePurpose::ClientAuth,
        ];
        change(&mut params);
        let certificate = params
            .signed_by(&key, &self.issuer)
            .expect("the authority signs");
        write(
            &self.file(stem),
            &(certificate.pem() + &key.serialize_pem()),
        );
    }
}

impl Default for Certificates {
    fn default() -> Self {
        Self::new()
    }
}

fn name(unit: &str, common_name: &str) -> DistinguishedName {
    let mut name = DistinguishedName::new();
    name.push(DnType::OrganizationName, ORGANISATION);
    name.push(DnType::OrganizationalUnitName, unit);
    name.push(DnType::CommonName, common_name);
    name
}

fn write(path: &Path, text: &str) {
    std::fs::write(path, text).expect("write a file in the scratch directory");
}
