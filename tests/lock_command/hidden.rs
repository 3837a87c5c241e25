//! Goal: another process of the same user cannot read a job's connection string. Method: runs the
//! job as a user other than root, because root may read everything.

use std::io::{BufRead, BufReader};
use std::process::Stdio;

use crate::another_user::AnotherUser;

const NOBODY: &str = "65534";

#[test]
fn a_lock_inside_itself_runs_for_a_user_other_than_root() {
    let Some(user) = AnotherUser::new(NOBODY) else {
        return;
    };
    let program = user.program.display();
    let inner = format!("{program} lock nested --wait=5s -- echo $LEASEHOLD_TOKEN inner");
    let done = user
        .job_through(&[], "nested")
        .args(["--", "sh", "-c", &inner])
        .output();
    let done = done.unwrap();
    let stdout = String::from_utf8_lossy(&done.stdout);
    assert_eq!(stdout, "1 inner\n", "{done:?}");
}

#[test]
fn another_process_of_the_user_cannot_read_the_environment_of_a_job() {
    let Some(user) = AnotherUser::new(NOBODY) else {
        return;
    };
    let mut job = user
        .job_through(&[], "hidden")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut said = String::new();
    let stdout = job.stdout.take().unwrap();
    BufReader::new(stdout).read_line(&mut said).unwrap();
    let look = |file: &str| {
        let output = user
            .command()
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
