//! Where etcd, kube-apiserver and kube-controller-manager come from.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::Failure;

/// The directory of the three programs, found or built by the script
/// `fetch-kubernetes` of this crate (`KUBEBUILDER_ASSETS`, cache, build).
///
/// # Errors
/// When there are none. The remedy is among the script's own words, on
/// standard error: a build takes minutes, and its progress is to be seen.
pub fn kubernetes_programs() -> Result<PathBuf, Failure> {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("fetch-kubernetes");
    let output = Command::new(&script)
        .stdin(Stdio::null())
        .stderr(Stdio::inherit())
        .output()
        .map_err(|error| {
            let script = script.display();
            Failure::new(format!("cannot run {script} (it needs python3): {error}"))
        })?;
    if !output.status.success() {
        return Err(Failure::new(
            "there is no Kubernetes to test with: see what fetch-kubernetes says",
        ));
    }
    let path = String::from_utf8_lossy(&output.stdout).trim().to_owned();
    Ok(PathBuf::from(path))
}
