//! Creates the content of a pod's projected volume: a token, the CA certificate and the namespace.

use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use k8s_openapi::api::authentication::v1::{BoundObjectReference, TokenRequest, TokenRequestSpec};
use k8s_openapi::api::core::v1::{Pod, ServiceAccount};
use kube::Client;
use kube::api::{Api, PostParams};

use crate::Scratch;

/// The expiration that the chart requests. The API server grants at least ten minutes.
const EXPIRATION_SECONDS: i64 = 3600;
const FILES: [&str; 3] = ["token", "ca.crt", "namespace"];

/// A directory with `token`, `ca.crt` and `namespace`, with the layout that a kubelet creates: each
/// file is a symlink into `..data`, which is a symlink to the newest directory. Removed on drop.
pub struct Credentials {
    client: Client,
    pod: Pod,
    authority: Vec<u8>,
    directory: Scratch,
    generation: u32,
}

impl Credentials {
    pub(super) async fn new(client: Client, pod: &Pod, authority: &Path) -> Self {
        let authority = std::fs::read(authority).expect("read the authority's file");
        let directory = Scratch::new();
        for name in FILES {
            symlink(Path::new("..data").join(name), directory.path().join(name))
                .expect("create a link in the scratch directory");
        }
        let mut credentials = Self {
            client,
            pod: pod.clone(),
            authority,
            directory,
            generation: 0,
        };
        credentials.rotate().await;
        credentials
    }

    /// Returns the directory, to be used instead of
    /// `/var/run/secrets/kubernetes.io/serviceaccount`.
    pub fn directory(&self) -> &Path {
        self.directory.path()
    }

    /// Returns the file with the token, which [`rotate`](Self::rotate) replaces.
    pub fn token_file(&self) -> PathBuf {
        self.directory().join("token")
    }

    /// Returns the token in the file.
    pub fn token(&self) -> String {
        std::fs::read_to_string(self.token_file()).expect("read the token")
    }

    /// Replaces the token with a new token. The old token stays valid.
    ///
    /// # Panics
    /// If the API server does not issue a token.
    pub async fn rotate(&mut self) {
        let token = self.request_token().await;
        self.publish(&token);
    }

    /// Replaces the token with any text, which the API server may refuse.
    pub fn publish(&mut self, token: &str) {
        let namespace = self.pod.metadata.namespace.as_deref().unwrap_or_default();
        self.generation += 1;
        let fresh = format!("..generation-{}", self.generation);
        let contents = [token.as_bytes(), &self.authority, namespace.as_bytes()];
        let root = self.directory.path();
        let written: std::io::Result<()> = (|| {
            std::fs::create_dir(root.join(&fresh))?;
            for (name, content) in FILES.iter().zip(contents) {
                std::fs::write(root.join(&fresh).join(name), content)?;
            }
            let old = std::fs::read_link(root.join("..data")).ok();
            symlink(&fresh, root.join("..data_tmp"))?;
            std::fs::rename(root.join("..data_tmp"), root.join("..data"))?;
            old.map_or(Ok(()), |old| std::fs::remove_dir_all(root.join(old)))
        })();
        written.expect("write credentials in the scratch directory");
    }

    async fn request_token(&self) -> String {
        let metadata = &self.pod.metadata;
        let namespace = metadata.namespace.as_deref().unwrap_or_default();
        let account = self.pod.spec.as_ref().and_then(|spec| {
            let name = spec.service_account_name.as_deref();
            name.filter(|name| !name.is_empty())
        });
        let request = TokenRequest {
            spec: TokenRequestSpec {
                // An empty list means the audience of the API server itself.
                audiences: Vec::new(),
                expiration_seconds: Some(EXPIRATION_SECONDS),
                bound_object_ref: Some(BoundObjectReference {
                    api_version: Some("v1".to_owned()),
                    kind: Some("Pod".to_owned()),
                    name: metadata.name.clone(),
                    uid: metadata.uid.clone(),
                }),
            },
            ..TokenRequest::default()
        };
        let accounts: Api<ServiceAccount> = Api::namespaced(self.client.clone(), namespace);
        let parameters = PostParams::default();
        let answer = accounts
            .create_token_request(account.unwrap_or("default"), &parameters, &request)
            .await
            .unwrap_or_else(|error| panic!("request a token: {error}"));
        let status = answer.status.expect("an answered request has a status");
        status.token
    }
}
