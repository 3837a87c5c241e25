//! Finds the API server and this process's pod. Uses the configuration, the kubelet's variables,
//! and the mounted token and certificate.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use hyper::Request;
use hyper::header::{AUTHORIZATION, HeaderValue};
use hyper_rustls::HttpsConnectorBuilder;
use hyper_util::client::legacy::{self, connect::HttpConnector};
use hyper_util::rt::TokioExecutor;
use kube::client::{Body, ClientBuilder, ConfigExt};
use kube::{Client, Config};
use rustls::client::WebPkiServerVerifier;
use rustls::crypto::ring;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use rustls::{ClientConfig, RootCertStore};
use tower::{BoxError, ServiceExt};

use super::request::Pod;
use leasehold_config::KubernetesConfig;
use leasehold_host::bounded_file::read_bounded;
use leasehold_host::cause::cause;

/// Default directory of a service account.
pub const CREDENTIALS_DIRECTORY: &str = "/var/run/secrets/kubernetes.io/serviceaccount";
/// Environment variable with the API server's address.
pub const SERVICE_HOST: &str = "KUBERNETES_SERVICE_HOST";
/// Environment variable with the API server's port.
pub const SERVICE_PORT: &str = "KUBERNETES_SERVICE_PORT";
const TOKEN_FILE: &str = "token";
const CERTIFICATE_FILE: &str = "ca.crt";
const NAMESPACE_FILE: &str = "namespace";
/// A bundle of a hundred certificates is about 200 kB long.
const FILE_BYTES_MAX: usize = 1024 * 1024;
/// Timeout for opening a connection, which takes about a millisecond inside a cluster.
const CONNECT_TIME_MAX: Duration = Duration::from_secs(2);

/// An API server and the credentials for it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Access {
    pub(super) server: String,
    directory: PathBuf,
}

/// A credentials file that cannot be read or has invalid content.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unusable {
    pub(super) what: &'static str,
    pub(super) why: String,
}

impl Access {
    /// Finds the server and the credentials. The error names the first missing part.
    pub fn find(host: Option<&str>, port: Option<&str>, directory: &Path) -> Result<Self, String> {
        let variable = |name, value: Option<&str>| match value {
            Some(value) if !value.is_empty() => Ok(value.to_owned()),
            Some(_) | None => Err(format!("the environment variable {name} is not set")),
        };
        let host = variable(SERVICE_HOST, host)?;
        let port = variable(SERVICE_PORT, port)?;
        for file in [TOKEN_FILE, CERTIFICATE_FILE] {
            let path = directory.join(file);
            if let Err(error) = fs::metadata(&path) {
                let (path, kind) = (path.display(), error.kind());
                return Err(format!("{path} cannot be read ({kind})"));
            }
        }
        // A URL requires brackets around an IPv6 address.
        let server = match host.contains(':') {
            true => format!("https://[{host}]:{port}"),
            false => format!("https://{host}:{port}"),
        };
        if server.parse::<hyper::Uri>().is_err() {
            return Err(format!(
                "{SERVICE_HOST} and {SERVICE_PORT} do not form a valid address: {server}"
            ));
        }
        Ok(Self {
            server,
            directory: directory.to_owned(),
        })
    }

    /// Returns the namespace from the credentials directory, if the file exists.
    pub fn namespace(&self) -> Option<String> {
        let text = self.read(NAMESPACE_FILE).ok()?;
        let name = text.trim();
        (!name.is_empty()).then(|| name.to_owned())
    }

    /// Builds a client for one request from the current token and certificate files. Blocks if the
    /// disk with these files hangs. Connections are not reused, because a half-open connection
    /// would delay a demotion until a timeout. Dropping the client closes its connection. kube's
    /// default client is not used: it logs the text of every error, retries, and reads answers of
    /// any size, and its plugins, YAML and JSONPath would make up a fifth of the program.
    pub(super) fn client(&self) -> Result<Client, Unusable> {
        let token = self.token()?;
        let mut connector = HttpConnector::new();
        connector.enforce_http(false);
        connector.set_connect_timeout(Some(CONNECT_TIME_MAX));
        // Without TCP_NODELAY, a request waits 40 ms for the handshake's delayed acknowledgement.
        connector.set_nodelay(true);
        let connector = HttpsConnectorBuilder::new()
            .with_tls_config(self.tls()?)
            .https_only()
            .enable_http1()
            .wrap_connector(connector);
        let transport = legacy::Client::builder(TokioExecutor::new()).build::<_, Body>(connector);
        let authorized = transport.map_request(move |mut request: Request<Body>| {
            request.headers_mut().insert(AUTHORIZATION, token.clone());
            request
        });
        let stack = ServiceExt::<Request<Body>>::map_err(authorized, BoxError::from);
        let server = self.server.parse().expect("the URL was validated");
        let config = Config::new(server);
        let stack = ClientBuilder::new(stack, config.default_namespace.clone());
        Ok(stack.with_layer(&config.base_uri_layer()).build())
    }

    fn read(&self, file: &str) -> Result<String, Unusable> {
        let unusable = |why: &str| self.unusable(file, why);
        match read_bounded(&self.directory.join(file), FILE_BYTES_MAX) {
            Ok(Some(bytes)) => String::from_utf8(bytes).map_err(|_| unusable("not text")),
            Ok(None) => Err(unusable("larger than 1 MiB")),
            Err(error) => Err(unusable(&cause(&error))),
        }
    }

    fn token(&self) -> Result<HeaderValue, Unusable> {
        let token = self.read(TOKEN_FILE)?;
        let token = token.trim();
        let unusable = |why| self.unusable(TOKEN_FILE, why);
        if token.is_empty() {
            return Err(unusable("empty"));
        }
        let bearer = format!("Bearer {token}");
        let mut value = HeaderValue::try_from(bearer).map_err(|_| unusable("not a token"))?;
        value.set_sensitive(true);
        Ok(value)
    }

    fn tls(&self) -> Result<ClientConfig, Unusable> {
        let bundle = self.read(CERTIFICATE_FILE)?;
        let unusable = |why| self.unusable(CERTIFICATE_FILE, why);
        let mut roots = RootCertStore::empty();
        for certificate in CertificateDer::pem_slice_iter(bundle.as_bytes()) {
            let certificate = certificate.map_err(|_| unusable("not in PEM format"))?;
            let added = roots.add(certificate);
            added.map_err(|_| unusable("not a CA certificate"))?;
        }
        // Passed explicitly, because the MongoDB driver may have installed a different default
        // provider.
        let provider = Arc::new(ring::default_provider());
        let verifier =
            WebPkiServerVerifier::builder_with_provider(Arc::new(roots), Arc::clone(&provider))
                .build();
        let verifier = verifier.map_err(|_| unusable("contains no certificate"))?;
        let config =
            ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
        let config = config.map_err(|_| unusable("TLS cannot be configured"))?;
        Ok(config.with_webpki_verifier(verifier).with_no_client_auth())
    }

    fn unusable(&self, file: &str, why: &str) -> Unusable {
        let what = match file {
            TOKEN_FILE => "the token file cannot be used",
            _ => "the certificate of the API server cannot be used",
        };
        let why = format!("{}: {why}", self.directory.join(file).display());
        Unusable { what, why }
    }
}

/// Returns the API server and its credentials. The error names the missing part.
pub fn access(credentials: &Path) -> Result<Access, String> {
    let [host, port] = [SERVICE_HOST, SERVICE_PORT].map(|name| std::env::var(name).ok());
    Access::find(host.as_deref(), port.as_deref(), credentials)
}

/// Returns the pod of this process. The error names the missing part.
pub fn pod(config: &KubernetesConfig, access: &Access) -> Result<Pod, String> {
    let given = |value: &Option<String>, field: &str| {
        value.clone().ok_or_else(|| {
            let variable = field.to_ascii_uppercase();
            format!(
                "kubernetes.pod_{field} is not set: set it, or set POD_{variable} with the downward \
                 API from metadata.{field}"
            )
        })
    };
    let name = given(&config.pod_name, "name")?;
    let uid = given(&config.pod_uid, "uid")?;
    let namespace = config.placement.namespace.clone();
    let namespace = given(&namespace.or_else(|| access.namespace()), "namespace")?;
    Pod::new(&name, &namespace, &uid)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn directory(files: &[&str]) -> tempfile::TempDir {
        let directory = tempfile::tempdir().unwrap();
        for file in files {
            std::fs::write(directory.path().join(file), "x\n").unwrap();
        }
        directory
    }

    #[test]
    fn a_process_outside_of_a_cluster_reports_the_missing_parts() {
        let all = directory(&["token", "ca.crt"]);
        let no_token = directory(&["ca.crt"]);
        let cases = [
            (None, Some("443"), &all, "KUBERNETES_SERVICE_HOST"),
            (Some("h"), Some(""), &all, "KUBERNETES_SERVICE_PORT"),
            (Some("h"), Some("443"), &no_token, "token"),
            (
                Some("h h"),
                Some("443"),
                &all,
                "do not form a valid address",
            ),
        ];
        for (host, port, directory, named) in cases {
            let error = Access::find(host, port, directory.path()).unwrap_err();
            assert!(error.contains(named), "{error}");
        }
    }

    #[test]
    fn addresses_of_both_kinds_make_a_url() {
        let directory = directory(&["token", "ca.crt", "namespace"]);
        for (host, server) in [
            ("10.96.0.1", "https://10.96.0.1:6443"),
            ("fd00::1", "https://[fd00::1]:6443"),
        ] {
            let access = Access::find(Some(host), Some("6443"), directory.path()).unwrap();
            assert_eq!(access.server, server);
            assert_eq!(access.namespace().as_deref(), Some("x"));
        }
    }
}
