//! Locates etcd, kube-apiserver and kube-controller-manager.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::Failure;

/// Returns the directory of the three programs. The script `fetch-kubernetes` of this crate finds
/// or builds them (`KUBEBUILDER_ASSETS`, cache, build).
///
/// # Errors
/// If the programs are not available. The script prints the remedy on standard error, which is
/// inherited because a build takes minutes and its progress should be visible.
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
