//! Finds the API server and the pod of this process.

use std::path::Path;

use leasehold_config::KubernetesConfig;

use super::{Access, Pod, SERVICE_HOST, SERVICE_PORT};

/// Returns the API server and the credentials for it.
///
/// # Errors
/// What is missing, as a sentence.
pub fn access(credentials: &Path) -> Result<Access, String> {
    let [host, port] = [SERVICE_HOST, SERVICE_PORT].map(|name| std::env::var(name).ok());
    Access::find(host.as_deref(), port.as_deref(), credentials).map_err(|e| e.to_string())
}

/// Returns the pod that this process runs in.
///
/// # Errors
/// What is missing, as a sentence.
pub fn pod(config: &KubernetesConfig, access: &Access) -> Result<Pod, String> {
    let given = |value: &Option<String>, key: &str, variable: &str, field: &str| {
        value.clone().ok_or_else(|| {
            format!("{key} is not set: set it, or set {variable} by the downward API from {field}")
        })
    };
    let name = given(
        &config.pod_name,
        "kubernetes.pod_name",
        "POD_NAME",
        "metadata.name",
    )?;
    let uid = given(
        &config.pod_uid,
        "kubernetes.pod_uid",
        "POD_UID",
        "metadata.uid",
    )?;
    let namespace = config
        .placement
        .namespace
        .clone()
        .or_else(|| access.namespace());
    let namespace = given(
        &namespace,
        "kubernetes.pod_namespace",
        "POD_NAMESPACE",
        "metadata.namespace",
    )?;
    Pod::new(&name, &namespace, &uid).map_err(|e| e.to_string())
}
