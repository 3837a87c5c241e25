//! Runs this crate's scripts, which find or fetch programs that may not be installed.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;

use crate::Failure;

/// Returns the path of a mongod that runs on this machine. The script `fetch-mongod` of this crate
/// finds or fetches mongod once per process (`MONGOD`, PATH, cache, download).
///
/// # Errors
/// If the script fails. The error is the script's standard error, which names the remedy.
pub fn mongod_binary() -> Result<PathBuf, Failure> {
    static FOUND: OnceLock<Result<PathBuf, String>> = OnceLock::new();
    let fetch = || fetch("fetch-mongod", Stdio::piped());
    FOUND.get_or_init(fetch).clone().map_err(Failure::new)
}

/// Returns the path of an etcdctl. The script `fetch-etcdctl` of this crate finds or builds etcdctl
/// (`ETCDCTL`, cache, build).
///
/// # Errors
/// If the script fails. The error is the script's standard error, which names the remedy.
pub fn etcdctl_binary() -> Result<PathBuf, Failure> {
    fetch("fetch-etcdctl", Stdio::piped()).map_err(Failure::new)
}

/// Returns the directory of etcd, kube-apiserver and kube-controller-manager. The script
/// `fetch-kubernetes` of this crate finds or builds them (`KUBEBUILDER_ASSETS`, cache, build).
///
/// # Errors
/// If the programs are not available. The script prints the remedy on standard error. The script
/// inherits the test's standard error, so that the progress of a build, which takes minutes, is
/// visible.
pub fn kubernetes_programs() -> Result<PathBuf, Failure> {
    let programs = fetch("fetch-kubernetes", Stdio::inherit());
    programs.map_err(|words| match words.is_empty() {
        true => Failure::new("Kubernetes is not available: see the output of fetch-kubernetes"),
        false => Failure::new(words),
    })
}

/// Runs a script and returns the path that it prints. On failure, returns the script's standard
/// error.
fn fetch(script: &str, stderr: Stdio) -> Result<PathBuf, String> {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join(script);
    let mut command = Command::new(&script);
    let output = command.stdin(Stdio::null()).stderr(stderr).output();
    let output = output.map_err(|error| {
        let script = script.display();
        format!("cannot run {script} (it needs python3): {error}")
    })?;
    if !output.status.success() {
        return Err(String::from_utf8_lossy(&output.stderr).trim().to_owned());
    }
    let path = String::from_utf8_lossy(&output.stdout).trim().to_owned();
    Ok(PathBuf::from(path))
}
