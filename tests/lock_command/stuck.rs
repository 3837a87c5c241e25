//! Goal: a job whose command survives SIGKILL exits without releasing the lock (I6). Method: the
//! command, or a process that it leaves behind, runs as another user, so a job without CAP_KILL
//! cannot kill it.

use std::process::Command;

use leasehold_testbed::pid::{exists, is_alive, signal};
use leasehold_testbed::skip;
use rustix::process::Signal;

use crate::job::{Job, Place, eventually, through};

/// A process that the job cannot signal. Dropping this value kills the process.
struct Foreign(u32);

impl Drop for Foreign {
    fn drop(&mut self) {
        if exists(self.0) {
            signal(self.0, Signal::KILL);
        }
    }
}

/// Runs a job without CAP_KILL, so the job can signal only processes of its own user.
fn powerless() -> Command {
    let mut powerless = Command::new("setpriv");
    powerless.args(["--bounding-set=-kill", "--inh-caps=-kill"]);
    powerless
}

fn is_foreign(pid: u32) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status"));
    status.is_ok_and(|status| status.contains("Uid:\t65534"))
}

#[test]
fn i6_a_command_that_survives_sigkill_keeps_the_lock_until_it_expires() {
    if !rustix::process::geteuid().is_root() {
        return skip("needs root, to run a command as another user");
    }
    let place = Place::new();
    let lease = "--lease-duration=6s";
    let script = format!(
        "trap '' TERM; {}; exec setpriv --reuid=65534 --clear-groups sleep 60",
        place.note("holds")
    );
    let mut job = place.command(&["lock", "stuck", lease, "--", "sh", "-c", &script]);
    job.env("LEASEHOLD_WORKLOAD__STOP_GRACE", "1s");
    let mut job = Job::start(through(powerless(), &job));
    let command = Foreign(place.wait_noted("holds")[2].parse().unwrap());
    eventually("the command runs as another user", || is_foreign(command.0));
    job.signal(Signal::TERM);
    job.wait_logged("command still runs after SIGKILL");
    // The guard keeps standard error open, so the test does not wait for end of file.
    eventually("the job has exited", || !is_alive(job.id()));
    assert!(exists(command.0), "the process is still running");
    place
        .run_under("stuck", &[lease, "--no-wait"], "true")
        .says(75, "held by");
    let next = place.run_under("stuck", &[lease], "echo token $LEASEHOLD_TOKEN");
    assert_eq!((next.code, next.stdout.trim()), (0, "token 2"), "{next:?}");
    assert!(exists(command.0), "the lock expired while the process ran");
    drop(command);
    job.output().says(76, "");
}

#[test]
fn i6_a_job_exits_although_a_lingering_process_survives() {
    if !rustix::process::geteuid().is_root() {
        return skip("needs root, to run a process as another user");
    }
    let place = Place::new();
    let left = format!(
        "sh -c '{}; exec setpriv --reuid=65534 --clear-groups sleep 60'",
        place.note("left")
    );
    let wait = format!(
        "while [ ! -e {} ]; do sleep 0.02; done",
        place.path("go").display()
    );
    let script = format!("{left} & {wait}; exit 0");
    let lease = "--lease-duration=6s";
    let mut job = place.command(&["lock", "left", lease, "--", "sh", "-c", &script]);
    job.env("LEASEHOLD_WORKLOAD__LINGER", "1s");
    let mut job = Job::start(through(powerless(), &job));
    let left = Foreign(place.wait_noted("left")[2].parse().unwrap());
    eventually("the process runs as another user", || is_foreign(left.0));
    std::fs::write(place.path("go"), "").unwrap();
    job.wait_logged("command still runs after SIGKILL");
    // The guard keeps standard error open, so the test does not wait for end of file.
    eventually("the job has exited", || !is_alive(job.id()));
    assert!(exists(left.0), "the process is still running");
    place
        .run_under("left", &[lease, "--no-wait"], "true")
        .says(75, "held by");
    let next = place.run_under("left", &[lease], "echo token $LEASEHOLD_TOKEN");
    assert_eq!((next.code, next.stdout.trim()), (0, "token 2"), "{next:?}");
    drop(left);
    job.output().says(76, "");
}
