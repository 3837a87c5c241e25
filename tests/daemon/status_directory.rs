//! Goal: other users can read a new status directory whatever the umask is. Links that other users
//! plant in the directory cannot damage this user's files. The tests need no MongoDB.

use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::Path;
use std::process::Command;

use leasehold_testbed::{Daemon, DaemonBuilder, Launch, Process, skip};

use crate::command::Files;
use crate::contest::{PROGRAM, eventually, records};

const NOWHERE: &str = "mongodb://127.0.0.1:1/";
const NOBODY: u32 = 65534;

fn daemon_on(directory: &Path) -> DaemonBuilder {
    Daemon::builder(PROGRAM)
        .uri(NOWHERE)
        .status_directory(directory)
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o777
}

#[tokio::test]
async fn a_link_of_another_user_is_not_followed() {
    if !rustix::process::geteuid().is_root() {
        skip("needs root, to act as a second user");
        return;
    }
    let files = Files::new();
    fs::set_permissions(files.path(""), Permissions::from_mode(0o755)).unwrap();
    let precious = files.write("precious", "secret");
    fs::set_permissions(&precious, Permissions::from_mode(0o600)).unwrap();
    let directory = files.path("status");
    fs::create_dir(&directory).unwrap();
    fs::set_permissions(&directory, Permissions::from_mode(0o777)).unwrap();
    chown(&directory, Some(NOBODY), None).unwrap();
    for name in [".probe", ".status.json.tmp", "status.json"] {
        let planted = Command::new("setpriv")
            .args(["--reuid", "65534", "--clear-groups", "ln", "-s", &precious])
            .arg(directory.join(name))
            .status()
            .unwrap();
        assert!(planted.success());
    }
    let daemon = daemon_on(&directory).start();
    eventually("the daemon has written its status", async || {
        fs::symlink_metadata(directory.join("status.json")).is_ok_and(|found| found.is_file())
    })
    .await;
    assert_eq!(fs::read_to_string(&precious).unwrap(), "secret");
    assert_eq!(mode(Path::new(&precious)), 0o600);
    eventually("the warning is logged", async || {
        let told = records(&daemon, "other users can write");
        told.iter().any(|line| line["level"] == "WARN")
    })
    .await;
}

#[tokio::test]
async fn a_private_directory_is_not_logged() {
    let files = Files::new();
    let directory = files.path("status");
    let daemon = daemon_on(&directory).start();
    eventually("the daemon has written its status", async || {
        daemon.try_status().is_some()
    })
    .await;
    assert!(!daemon.logs().contains("other users"), "{}", daemon.logs());
}

#[tokio::test]
async fn a_strict_umask_does_not_restrict_the_status_directory() {
    let files = Files::new();
    let directory = files.path("a").join("b");
    let _daemon = under_umask(
        "077",
        &[
            "run",
            "--lease=x",
            "--http-listen=",
            &format!("--mongodb-uri={NOWHERE}"),
            &format!("--status-directory={}", directory.display()),
        ],
        &[],
    );
    let status = directory.join("status.json");
    eventually("the daemon has written its status", async || {
        status.exists()
    })
    .await;
    assert_eq!(mode(&directory), 0o755);
    assert_eq!(mode(directory.parent().unwrap()), 0o755);
    assert_eq!(mode(&status), 0o644);
    assert_eq!(mode(&directory.join("claim")), 0o600);
}

#[tokio::test]
async fn a_lock_does_not_restrict_the_parent_of_status_directories() {
    for umask in ["022", "077"] {
        let files = Files::new();
        let root = files.path("run");
        let lock = [
            "lock",
            "x",
            &format!("--mongodb-uri={NOWHERE}"),
            "--",
            "true",
        ];
        let runtime = [("XDG_RUNTIME_DIR", root.to_str().unwrap())];
        let _lock = under_umask(umask, &lock, &runtime);
        let parent = root.join("leasehold");
        let memory = parent.join(".locks");
        eventually("the daemon records its observations", async || {
            memory.exists() && mode(&memory) == 0o700
        })
        .await;
        assert_eq!(mode(&parent), 0o755, "umask {umask}");
    }
}

fn under_umask(umask: &str, arguments: &[&str], variables: &[(&str, &str)]) -> Process {
    let script = format!("umask {umask}; exec \"$0\" \"$@\"");
    let launch = Launch::new("/bin/sh")
        .arguments(["-c", &script, PROGRAM])
        .arguments(arguments.iter().copied());
    let launch = launch.envs(variables.iter().copied());
    launch.start().unwrap()
}
