//! The deployment of a candidate, stored next to the claim record. Without this record, a daemon
//! with a changed connection string could lead on a second replica set while another candidate
//! leads on the first.

use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::place::{read_ours, replace_file, temporary};
use super::{DEPLOYMENT_FILE, StatusDirectory};
use leasehold_mongodb::store::DeploymentId;

/// Maximum length of the file. Fifty members with the longest host names take 13 KiB.
const BYTES_MAX: u64 = 1 << 16;
const SCHEMA: u32 = 1;

#[derive(Serialize, Deserialize)]
struct DeploymentRecord<T> {
    schema: u32,
    #[serde(flatten)]
    deployment: T,
}

impl StatusDirectory {
    /// Returns the path of the file that records the deployment.
    pub fn deployment_file(&self) -> PathBuf {
        self.path().join(DEPLOYMENT_FILE)
    }

    /// Records the deployment atomically.
    pub fn remember_deployment(&self, deployment: &DeploymentId) -> io::Result<()> {
        let text = serde_json::to_vec(&DeploymentRecord {
            schema: SCHEMA,
            deployment,
        })?;
        let path = self.deployment_file();
        replace_file(&path, &temporary(&path), 0o600, &text)
    }
}

/// Returns the recorded deployment, if any. Fails if the file is not readable or not valid.
pub fn recorded_deployment(directory: &Path) -> io::Result<Option<DeploymentId>> {
    let text = match read_ours(&directory.join(DEPLOYMENT_FILE), BYTES_MAX) {
        Ok(text) => text,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    let record: DeploymentRecord<DeploymentId> = serde_json::from_slice(&text)?;
    match record.schema {
        SCHEMA => Ok(Some(record.deployment)),
        other => Err(io::Error::other(format!("schema {other} is not known"))),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::super::tests::orders;
    use super::*;

    fn deployment() -> DeploymentId {
        DeploymentId {
            set: Some("rs0".to_owned()),
            id: Some("6b080f2e09f6138a1d2e9c4c".to_owned()),
            members: ["a:1", "b:1"].map(str::to_owned).into(),
            seeds: ["a:1".to_owned()].into(),
        }
    }

    #[test]
    fn the_deployment_is_recorded_for_the_next_process() {
        let place = tempfile::tempdir().unwrap();
        let (directory, _) = StatusDirectory::open(place.path(), &orders()).unwrap();
        assert_eq!(recorded_deployment(directory.path()).unwrap(), None);
        directory.remember_deployment(&deployment()).unwrap();
        assert_eq!(
            recorded_deployment(directory.path()).unwrap(),
            Some(deployment())
        );
        let text = fs::read_to_string(directory.deployment_file()).unwrap();
        let expected = r#"{"schema":1,"set":"rs0","id":"6b080f2e09f6138a1d2e9c4c","members":["a:1","b:1"],"seeds":["a:1"]}"#;
        assert_eq!(text, expected);
    }

    #[test]
    fn an_unusable_deployment_file_is_ignored_without_a_delay() {
        let place = tempfile::tempdir().unwrap();
        let (directory, _) = StatusDirectory::open(place.path(), &orders()).unwrap();
        let file = directory.deployment_file();
        for damaged in ["", "{", r#"{"schema":1}"#, r#"{"schema":2,"members":[]}"#] {
            fs::write(&file, damaged).unwrap();
            assert!(recorded_deployment(directory.path()).is_err(), "{damaged}");
        }
        fs::remove_file(&file).unwrap();
        let elsewhere = place.path().join("elsewhere");
        let text = serde_json::to_string(&DeploymentRecord {
            schema: SCHEMA,
            deployment: deployment(),
        });
        fs::write(&elsewhere, text.unwrap()).unwrap();
        symlink(&elsewhere, &file).unwrap();
        let why = recorded_deployment(directory.path())
            .unwrap_err()
            .to_string();
        assert_eq!(why, "it is a symbolic link; to fix: remove it");
        fs::write(&elsewhere, "precious").unwrap();
        fs::remove_file(&file).unwrap();
        let made = std::process::Command::new("mkfifo").arg(&file).status();
        assert!(made.unwrap().success());
        assert!(recorded_deployment(directory.path()).is_err());
        directory.remember_deployment(&deployment()).unwrap();
        assert_eq!(
            recorded_deployment(directory.path()).unwrap(),
            Some(deployment())
        );
        assert_eq!(fs::read_to_string(elsewhere).unwrap(), "precious");
    }
}
