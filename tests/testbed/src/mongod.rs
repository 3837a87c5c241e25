//! Locates the mongod binary.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;

use crate::Failure;

/// Returns the path of a mongod that runs on this machine. The script `fetch-mongod` of this crate
/// finds or fetches it once per process (`MONGOD`, PATH, cache, download).
///
/// # Errors
/// The last output of the script, which names the remedy.
pub fn mongod_binary() -> Result<PathBuf, Failure> {
    static FOUND: OnceLock<Result<PathBuf, String>> = OnceLock::new();
    FOUND.get_or_init(fetch).clone().map_err(Failure::new)
}

fn fetch() -> Result<PathBuf, String> {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("fetch-mongod");
    let output = Command::new(&script)
        .stdin(Stdio::null())
        .output()
        .map_err(|error| {
            format!(
                "cannot run {} (it needs python3): {error}",
                script.display()
            )
        })?;
    if !output.status.success() {
        return Err(String::from_utf8_lossy(&output.stderr).trim().to_owned());
    }
    let path = String::from_utf8_lossy(&output.stdout).trim().to_owned();
    Ok(PathBuf::from(path))
}
