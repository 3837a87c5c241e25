//! Goal: hooks run when leadership begins and ends, in order, and never hold up a deadline.

use std::time::Duration;

use leasehold_testbed::DaemonTimings;
use leasehold_testbed::daemon::{boottime_ns, nanos};

use crate::contest::{Contest, LONG, eventually};
use crate::journal::{Behaviour, Journal};

/// A hook that writes one line into the journal.
fn hook(journal: &Journal, what: &str, more: &str) -> String {
    let journal = journal.path("journal").display().to_string();
    let script = format!(
        "read -r up _ < /proc/uptime; echo \"${{up%.*}}${{up#*.}} {what} $LEASEHOLD_TOKEN \
         $LEASEHOLD_IDENTITY $$\" >> {journal}; {more}"
    );
    serde_json::to_string(&["sh", "-c", &script]).unwrap()
}

#[tokio::test]
async fn hooks_are_run_when_leadership_begins_and_before_the_release() {
    let (contest, journal) = (Contest::new("hooks").await, Journal::new());
    let start = |identity| {
        contest
            .candidate(identity)
            .flag(&format!("--hooks-on-lead={}", hook(&journal, "lead", "")))
            .flag(&format!(
                "--hooks-on-step-down={}",
                hook(&journal, "down", "sleep 0.3")
            ))
            .start()
    };
    let a = start("a");
    assert_eq!(journal.wait("lead", 1).await.token, 1);
    let b = start("b");
    b.wait_follows("a", LONG).await;
    a.term();
    let (down, lead) = (journal.wait("down", 1).await, journal.wait("lead", 2).await);
    assert_eq!((down.token, lead.token), (1, 2));
    assert_eq!(lead.identity, "b");
    assert!(
        lead.at >= down.at + nanos(Duration::from_millis(290)),
        "its end was waited for"
    );
    assert_eq!(a.wait_exit(LONG).await, 0);
}

#[tokio::test]
async fn a_hook_that_hangs_is_killed_and_holds_up_nothing_beyond_its_time() {
    let (contest, journal) = (Contest::new("hanging-hooks").await, Journal::new());
    let a = contest
        .candidate("a")
        .flag(&format!(
            "--hooks-on-lead={}",
            hook(&journal, "lead", "sleep 1000")
        ))
        .flag(&format!(
            "--hooks-on-step-down={}",
            hook(&journal, "down", "sleep 1000")
        ))
        .flag("--hooks-timeout=2s")
        .leading(LONG)
        .await;
    let lead = journal.wait("lead", 1).await;
    eventually("it is killed", async || {
        !std::path::Path::new(&format!("/proc/{}", lead.pid)).exists()
    })
    .await;
    assert!(a.leads(), "leadership goes on");
    assert_eq!(a.term_and_exit(LONG).await, 0);
    assert_eq!(contest.last_ended().await.reason, "shutdown");
    assert!(a.logs().contains("a hook failed"), "{}", a.logs());
}

#[tokio::test]
async fn i5_a_frozen_daemons_hook_has_no_more_than_the_deadline_and_the_other_is_run_on_waking() {
    let (contest, journal) = (Contest::new("frozen-hooks").await, Journal::new());
    let timings = DaemonTimings::SHORT;
    let a = contest
        .candidate_at("a", timings)
        .flag(&format!(
            "--hooks-on-lead={}",
            hook(&journal, "lead", "sleep 1000")
        ))
        .flag(&format!(
            "--hooks-on-step-down={}",
            hook(&journal, "down", "")
        ))
        .flag("--hooks-timeout=1h")
        .start();
    let lead = journal.wait("lead", 1).await;
    a.stop();
    let stopped = boottime_ns();
    eventually("it is killed", async || {
        !std::path::Path::new(&format!("/proc/{}", lead.pid)).exists()
    })
    .await;
    let bound = stopped + nanos(timings.renew_deadline + timings.loss_grace);
    assert!(boottime_ns() < bound + nanos(Duration::from_secs(1)));
    assert_eq!(journal.of("down"), []);
    a.cont();
    assert_eq!(journal.wait("down", 1).await.token, 1);
}

#[tokio::test]
async fn hooks_stand_beside_a_command() {
    let (contest, journal) = (Contest::new("both").await, Journal::new());
    let a = contest
        .candidate("a")
        .flag(&format!(
            "--hooks-on-step-down={}",
            hook(&journal, "down", "")
        ))
        .workload(journal.command(&Behaviour::Obedient))
        .start();
    journal.wait("start", 1).await;
    assert_eq!(a.term_and_exit(LONG).await, 0);
    let (end, down) = (journal.wait("end", 1).await, journal.wait("down", 1).await);
    assert!(down.at >= end.at, "when the command is gone");
}
