//! Goal: the connection string of a job cannot be read by another process of the same user.
//! Method: the job runs as a user other than root, because root may read everything.

use std::fs::{self, Permissions};
use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use leasehold_testbed::skip;
use leasehold_testbed::trace::VARIABLE;

use crate::job::{PROGRAM, Place};

const AS_NOBODY: [&str; 3] = ["--reuid=65534", "--clear-groups", "--"];

/// A place in which another user can run the program.
struct Shared {
    place: Place,
    program: PathBuf,
}

impl Shared {
    /// `None` without the rights to become another user.
    fn new() -> Option<Self> {
        if !rustix::process::geteuid().is_root() {
            skip("needs root, to be another user");
            return None;
        }
        let place = Place::new();
        let program = place.path("leasehold");
        fs::set_permissions(place.path(""), Permissions::from_mode(0o755)).unwrap();
        // By another process: what this one has open for writing, a process that another test
        // starts at this time has open too, and such a program cannot be executed.
        let mut copy = Command::new("install");
        let copied = copy.arg("-m755").arg(PROGRAM).arg(&program).status();
        assert!(copied.unwrap().success());
        // The program stores its memory of the lock there.
        fs::create_dir(place.path("tmp")).unwrap();
        fs::set_permissions(place.path("tmp"), Permissions::from_mode(0o777)).unwrap();
        fs::write(place.trace(), "").unwrap();
        fs::set_permissions(place.trace(), Permissions::from_mode(0o666)).unwrap();
        Some(Self { place, program })
    }

    /// A job of another user that takes the lock.
    fn job(&self, lock: &str) -> Command {
        let [_, database] = self.place.store();
        let mut job = Command::new("setpriv");
        job.args(AS_NOBODY)
            .arg(&self.program)
            .args(["lock", lock, &database])
            .env_clear()
            .env("PATH", std::env::var_os("PATH").unwrap())
            .env("TMPDIR", self.place.path("tmp"))
            .env("LEASEHOLD_MONGODB__URI", self.place.set.uri())
            .env(VARIABLE, self.place.trace());
        job
    }
}

#[test]
fn a_lock_inside_itself_runs_for_a_user_other_than_root() {
    let Some(shared) = Shared::new() else { return };
    let program = shared.program.display();
    let inner = format!("{program} lock nested --wait=5s -- echo $LEASEHOLD_TOKEN inner");
    let done = shared
        .job("nested")
        .args(["--", "sh", "-c", &inner])
        .output();
    let done = done.unwrap();
    let stdout = String::from_utf8_lossy(&done.stdout);
    assert_eq!(stdout, "1 inner\n", "{done:?}");
}

#[test]
fn the_environment_of_a_job_cannot_be_read_by_its_user() {
    let Some(shared) = Shared::new() else { return };
    let mut job = shared
        .job("hidden")
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
    let end = job.wait().unwrap();
    assert!(end.success(), "{end}");
    assert!(said.contains("\"lock\":\"hidden\""), "{said}");
    assert_eq!(name.stdout, b"leasehold\n");
    let refused = String::from_utf8_lossy(&environment.stderr);
    assert!(refused.contains("Permission denied"), "{refused}");
    assert!(environment.stdout.is_empty());
}
