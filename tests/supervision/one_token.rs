//! Goal: two commands never run at once or with the same token (I3), even if daemons are killed,
//! restarted or stepped down, or primaries are deposed or killed. Method: inject random faults at
//! random times, on a separate replica set. Every command records its token and its process.

use std::hash::{BuildHasher, RandomState};
use std::time::Duration;

use leasehold_testbed::{Daemon, DaemonTimings, ReplicaSet};
use mongodb::bson::doc;
use rustix::process::Signal;

use crate::contest::{PROGRAM, eventually};
use crate::journal::{Behaviour, Journal};

/// Number of faults. A fault takes between a few milliseconds and two seconds (an election); all
/// faults together take less than a minute.
const FAULTS: u32 = 16;

/// Generates random times and targets. A weak generator suffices.
struct Rng(u64);

impl Rng {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        (self.0 >> 33) % limit
    }

    fn one_of(&mut self, count: usize) -> usize {
        usize::try_from(self.below(count as u64)).unwrap()
    }
}

async fn one_leads(daemons: &[Daemon]) {
    eventually("a daemon leads", async || daemons.iter().any(Daemon::leads)).await;
}

#[tokio::test]
async fn i3_each_token_belongs_to_one_command_whatever_fails() {
    let (set, journal) = (ReplicaSet::start().await, Journal::new());
    let seed = RandomState::new().hash_one(());
    let mut rng = Rng(seed);
    let start = |identity: &str| {
        Daemon::builder(PROGRAM)
            .lease("one-token")
            .identity(identity)
            .uri(&set.uri())
            .timings(DaemonTimings::SHORT)
            .flag("--workload-on-exit=release")
            .workload(journal.command(&Behaviour::Obedient))
            .start()
    };
    let mut daemons = ["a", "b", "c"].map(start);
    journal.wait("start", 1).await;
    let mut done = Vec::new();
    for _ in 0..FAULTS {
        if rng.below(3) > 0 {
            one_leads(&daemons).await;
        }
        // The random delay lets the fault hit any moment of an acquisition, a renewal or a
        // step-down.
        tokio::time::sleep(Duration::from_millis(rng.below(600))).await;
        let leader = daemons.iter().position(Daemon::leads);
        let victim = leader.filter(|_| rng.below(2) == 0);
        let victim = victim.unwrap_or_else(|| rng.one_of(3));
        let fault = ["restart", "replace", "step down", "depose", "crash"][rng.one_of(5)];
        done.push((fault, victim));
        match fault {
            "restart" => daemons[victim].restart_same_directory(),
            "replace" => {
                daemons[victim].kill();
                let identity = daemons[victim].identity().to_owned();
                daemons[victim] = start(&identity);
            }
            "step down" => daemons[victim].signal(Signal::USR1),
            "depose" => {
                let primary = set.primary().await;
                let command = doc! {
                    "replSetStepDown": 2, "secondaryCatchUpPeriodSecs": 1, "force": true,
                };
                // The server may close the connection before it answers.
                let _ = set.command(primary, command).await;
            }
            _ => {
                let primary = set.primary().await;
                set.kill(primary);
                set.restart(primary).await;
            }
        }
    }
    let before = journal.of("start").len();
    daemons[0].restart_same_directory();
    one_leads(&daemons).await;
    let starts = journal.of("start");
    for pair in starts.windows(2) {
        assert!(
            pair[0].token < pair[1].token,
            "{pair:?} after {done:?} (seed {seed})"
        );
    }
    assert!(before > 2, "{before} commands in {done:?}");
    journal.assert_one_after_the_other();
}
