//! Creates the situation of each runbook in docs/operations.md on a real replica set, runs the
//! runbook's commands, and compares their output with the page. Also creates the situations in a
//! runbook's table.

use std::process::Command;
use std::time::Duration;

use leasehold_testbed::wait::within;
use leasehold_testbed::{Daemon, DaemonBuilder, DaemonTimings, ReplicaSet, ReplicaSetBuilder};
use leasehold_testbed::{assert_contains, run};

use crate::page::{section, text};
use crate::session::Session;

const PAGE: &str = "docs/operations.md";
const PROGRAM: &str = env!("CARGO_BIN_EXE_leasehold");
const LONG: Duration = Duration::from_secs(60);

struct Runbook {
    heading: &'static str,
    set: ReplicaSet,
    /// Indexes of the members that the page calls db-1, db-2 and so on. Initially, the first member
    /// is the primary.
    members: Vec<usize>,
}

impl Runbook {
    async fn new(heading: &'static str, set: ReplicaSetBuilder) -> Self {
        let set = set.name("rs0").start().await;
        let primary = set.primary().await;
        let mut members: Vec<_> = (0..set.member_count()).collect();
        members.sort_by_key(|member| *member != primary);
        Self {
            heading,
            set,
            members,
        }
    }

    fn pod(&self, identity: &str) -> DaemonBuilder {
        let pod = Daemon::builder(PROGRAM).untraced().identity(identity);
        pod.uri(&self.set.uri()).timings(DaemonTimings::SHORT)
    }

    fn text(&self) -> String {
        let text = section(&text(PAGE), self.heading);
        assert!(!text.trim().is_empty(), "no section {}", self.heading);
        text
    }

    /// Runs the commands of the runbook, and compares their output with the page. The commands use
    /// the status directory of the daemon `here`, as if they ran on its host.
    fn compare(&self, pods: &[&Daemon], here: &Daemon) {
        let mut text = self.text();
        for pod in pods {
            let address = format!("127.0.0.1:{}", pod.port());
            text = text.replace(&format!("{}:9402", pod.identity()), &address);
        }
        for (number, member) in (1..).zip(&self.members) {
            let address = self.set.node(*member).address();
            text = text.replace(&format!("db-{number}:27017"), &address);
        }
        let mut session = Session::new(PAGE);
        session.may_fail();
        session.set("LEASEHOLD_MONGODB__URI", self.set.uri());
        session.set("LEASEHOLD_MONGODB__DATABASE", "leasehold");
        let directory = here.status_directory().display().to_string();
        text = text.replace("/run/leasehold/orders", &directory);
        session.set("LEASEHOLD_STATUS__DIRECTORY", directory);
        session.run_text(text);
    }

    fn output(&self, command: &[&str]) -> String {
        let output = Command::new(PROGRAM)
            .args(command)
            .env("LEASEHOLD_MONGODB__URI", self.set.uri())
            .output()
            .unwrap();
        String::from_utf8([output.stdout, output.stderr].concat()).unwrap()
    }

    /// Waits until the command prints this text, which the runbook quotes.
    async fn shows(&self, command: &[&str], quoted: &str) {
        assert_contains(&self.text(), quoted);
        let what = format!("{command:?} shows {quoted:?}");
        within(LONG, &what, async || self.output(command).contains(quoted)).await;
    }
}

const DESCRIBE: [&str; 3] = ["describe", "orders", "--candidates"];

#[test]
fn the_runbook_for_a_lease_without_a_leader_shows_real_outputs() {
    run(async {
        let heading = "`orders` has no leader";
        let runbook = Runbook::new(heading, ReplicaSet::builder().members(1)).await;
        let pod = |identity| runbook.pod(identity).timings(DaemonTimings::DEFAULT);
        let one = pod("pod-1").leading(LONG).await;
        let two = pod("pod-2").following("pod-1", LONG).await;
        // The leader names the standby in a later renewal.
        let describe = ["describe", "orders"];
        runbook.shows(&describe, "Standby:   pod-2").await;
        two.kill();
        one.kill();
        tokio::time::sleep(DaemonTimings::DEFAULT.lease_duration).await;
        runbook.compare(&[&one, &two], &one);

        let three = runbook.pod("pod-3").leading(LONG).await;
        runbook.output(&["pause", "orders"]);
        runbook.shows(&DESCRIBE, "Paused:    yes, by ").await;
        let replicas = ["replicas", &format!("127.0.0.1:{}", three.port())];
        runbook
            .shows(&replicas, "failed: paused, so no replica leads")
            .await;
        runbook.output(&["resume", "orders"]);
        assert_eq!(three.term_and_exit(LONG).await, 0);

        runbook.shows(&DESCRIBE, "Present:   none").await;
        let pod = runbook.pod("pod-1");
        let _unhealthy = pod.flag("--workload-health-command=false").start();
        runbook.shows(&DESCRIBE, "(unhealthy)").await;
        runbook.set.kill(0);
        let refused = "cannot read the document: no primary";
        runbook.shows(&DESCRIBE, refused).await;
    });
}

#[test]
fn the_runbook_for_a_lease_that_flaps_shows_real_outputs() {
    run(async {
        let heading = "`orders` flaps";
        let runbook = Runbook::new(heading, ReplicaSet::builder().members(1)).await;
        // The first three leaderships end because the command exits.
        let command = "sleep 3; [ $LEASEHOLD_TOKEN -gt 3 ] || exit 3; sleep 600";
        let crashing = |identity| {
            let pod = runbook.pod(identity).flag("--workload-on-exit=release");
            pod.workload(["sh", "-c", command])
        };
        let one = crashing("pod-1").leading(LONG).await;
        let two = crashing("pod-2").start();
        two.wait_leads_with(4, LONG).await;
        one.wait_follows("pod-2", LONG).await;
        runbook.compare(&[&one, &two], &one);
    });
}

#[test]
fn the_runbook_for_two_leaders_shows_real_outputs() {
    run(async {
        let heading = "Two of them work";
        let runbook = Runbook::new(heading, ReplicaSet::builder().members(1)).await;
        let one = runbook.pod("pod-1").leading(LONG).await;
        let other = runbook.pod("pod-2").flag("--mongodb-database=trial");
        let two = other.leading(LONG).await;
        runbook.compare(&[&one, &two], &two);
    });
}

#[test]
fn the_runbook_for_a_failover_of_mongodb_shows_real_outputs() {
    run(async {
        let heading = "MongoDB failed over";
        let set = ReplicaSet::builder().default_election();
        let runbook = Runbook::new(heading, set).await;
        let pod = |identity| runbook.pod(identity).timings(DaemonTimings::DEFAULT);
        let one = pod("pod-1").leading(LONG).await;
        let two = pod("pod-2").following("pod-1", LONG).await;
        let failed = runbook.members[0];
        runbook.set.kill(failed);
        assert_ne!(runbook.set.primary().await, failed);
        one.wait_renewal(LONG).await;
        runbook.compare(&[&one, &two], &one);
    });
}
