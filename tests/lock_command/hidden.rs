//! Goal: the connection string of a job cannot be read by another process of the same user.
//! Method: the job runs as a user other than root, because root may read everything.

#![allow(clippy::print_stderr, reason = "a test that cannot run here says so")]

use std::fs::{self, Permissions};
use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Stdio};

use leasehold_testbed::run;

use crate::job::{PROGRAM, Place};

const AS_NOBODY: [&str; 3] = ["--reuid=65534", "--clear-groups", "--"];

#[test]
fn the_environment_of_a_job_cannot_be_read_by_its_user() {
    if !rustix::process::geteuid().is_root() {
        assert!(std::env::var_os("CI").is_none(), "needs root");
        eprintln!("skipped: needs root, to be another user");
        return;
    }
    let place = run(Place::new());
    // A location at which another user may execute the program.
    let program = place.path("leasehold");
    fs::copy(PROGRAM, &program).unwrap();
    let open = Permissions::from_mode(0o755);
    fs::set_permissions(place.path(""), open.clone()).unwrap();
    fs::set_permissions(&program, open).unwrap();
    // The program stores its memory of the lock there.
    let temporary = place.path("tmp");
    fs::create_dir(&temporary).unwrap();
    fs::set_permissions(&temporary, Permissions::from_mode(0o777)).unwrap();
    let [_, database] = place.store();
    let mut job = Command::new("setpriv")
        .args(AS_NOBODY)
        .arg(&program)
        .args(["lock", "hidden", &database])
        .env_clear()
        .env("PATH", std::env::var_os("PATH").unwrap())
        .env("TMPDIR", temporary)
        .env("LEASEHOLD_MONGODB__URI", place.set.uri())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut said = String::new();
    let stdout = job.stdout.take().unwrap();
    BufReader::new(stdout).read_line(&mut said).unwrap();
    let look = |file: &str| {
        let output = Command::new("setpriv")
            .args(AS_NOBODY)
            .arg("cat")
            .arg(format!("/proc/{}/{file}", job.id()))
            .output();
        output.unwrap()
    };
    let (name, environment) = (look("comm"), look("environ"));
    // Closing standard input releases the lock.
    drop(job.stdin.take());
    assert!(job.wait().unwrap().success());
    assert!(said.contains("\"lock\":\"hidden\""), "{said}");
    assert_eq!(name.stdout, b"leasehold\n");
    let refused = String::from_utf8_lossy(&environment.stderr);
    assert!(refused.contains("Permission denied"), "{refused}");
    assert!(environment.stdout.is_empty());
}
