//! Goal: when the process limit is reached, a job runs under the lock or not at all. The job's exit
//! code and message blame the limit, not the command. Method: runs jobs as a separate user with a
//! low process limit, because no limit applies to root.

use crate::another_user::AnotherUser;

/// A user that no other test uses, because all processes of a user count towards the limit.
const USER: &str = "64242";

#[test]
fn at_a_process_limit_the_command_runs_under_the_lock_or_the_limit_is_reported() {
    let Some(user) = AnotherUser::new(USER) else {
        return;
    };
    let (mut ran, mut reported) = (0, 0);
    for limit in [1, 2, 3, 4, 6, 32] {
        let job = user
            .job_through(
                &["prlimit", &format!("--nproc={limit}"), "--"],
                &format!("under-{limit}"),
            )
            .args(["--wait=30s", "--", "echo", "ran"])
            .output()
            .unwrap();
        let stdout = String::from_utf8_lossy(&job.stdout);
        let stderr = String::from_utf8_lossy(&job.stderr);
        match job.status.code() {
            Some(0) => assert_eq!(stdout, "ran\n", "{limit}: {job:?}"),
            code => {
                assert_eq!(stdout, "", "{limit}: {job:?}");
                let said = "process limit reached (EAGAIN)";
                assert_eq!(
                    (code, stderr.contains(said)),
                    (Some(71), true),
                    "{limit}: {stderr}"
                );
            }
        }
        ran += u32::from(job.status.success());
        reported += u32::from(!job.status.success());
    }
    assert!(
        ran > 0 && reported > 0,
        "{ran} ran, {reported} did not: adjust the limits"
    );
}
