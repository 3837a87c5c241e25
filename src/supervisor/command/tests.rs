use tokio::sync::{mpsc, watch};

use super::*;
use crate::workload::End;

const STOPPING: Stopping = Stopping {
    signal: 15,
    grace: Duration::from_secs(30),
};

fn at(seconds: u64) -> BootTime {
    BootTime::default() + Duration::from_secs(seconds)
}

fn terms(valid_until: u64) -> Terms {
    Terms {
        valid_until: at(valid_until),
        kill_at: at(valid_until + 10),
    }
}

fn supervised() -> (Supervised, watch::Sender<Progress>) {
    let (workload, progress) = Workload::stand_in();
    (Supervised::new(workload, STOPPING, terms(100)), progress)
}

fn ended(by_us: bool, guard_lost: bool) -> Ended {
    Ended {
        end: End::Signalled(15),
        by_us,
        interrupted: false,
        guard_lost,
    }
}

impl Supervised {
    /// Deadline of the terms and end of the grace, as ordered.
    fn ordered(&self) -> (BootTime, Option<BootTime>) {
        let order = self.workload.order();
        (order.terms.valid_until, order.stop.map(|stop| stop.kill_at))
    }
}

/// Forwards the decisions of a test.
struct Decided(mpsc::Receiver<Directive>);

impl Director for Decided {
    async fn next(&mut self) -> Directive {
        match self.0.recv().await {
            Some(directive) => directive,
            None => std::future::pending().await,
        }
    }
}

#[test]
fn the_deadline_moves_with_each_renewal_and_not_after_a_loss() {
    let (mut supervised, _progress) = supervised();
    supervised.apply(Directive::Run(terms(200)), at(50));
    assert_eq!(supervised.ordered(), (at(200), None));
    supervised.apply(Directive::Stop(terms(300)), at(60));
    assert_eq!(supervised.ordered(), (at(300), Some(at(90))));
    supervised.apply(Directive::Lost { kill_at: at(80) }, at(70));
    for late in [Directive::Run(terms(400)), Directive::Stop(terms(400))] {
        supervised.apply(late, at(71));
        assert_eq!(supervised.ordered(), (at(300), Some(at(80))), "{late:?}");
    }
}

#[test]
fn the_grace_counts_from_the_first_request_and_ends_in_a_kill() {
    let (mut supervised, _progress) = supervised();
    for now in [50, 55, 60] {
        supervised.apply(Directive::Stop(terms(200 + now)), at(now));
        assert_eq!(supervised.ordered(), (at(200 + now), Some(at(80))));
    }
    assert!(!supervised.workload.order().kill);
    supervised.apply(Directive::Kill, at(61));
    assert!(supervised.workload.order().kill);
}

#[tokio::test]
async fn it_runs_until_all_of_it_is_gone() {
    let (supervised, progress) = supervised();
    let (decide, decided) = mpsc::channel(1);
    let mut director = Decided(decided);
    let run = supervised.run(&mut director);
    tokio::pin!(run);
    decide.try_send(Directive::Kill).expect("room");
    let ended = ended(true, false);
    let stages = [
        Progress::Running { pid: 1 },
        Progress::Ending {
            end: ended.end,
            by_us: true,
        },
    ];
    for stage in stages {
        progress.send_replace(stage);
        let soon = tokio::time::timeout(Duration::from_millis(20), &mut run);
        assert!(soon.await.is_err(), "{stage:?}");
    }
    progress.send_replace(Progress::Gone(ended));
    let finished = run.await;
    assert!(finished.killed && finished.stopped_after.is_some());
    assert_eq!(finished.ended, ended);
}

#[test]
fn what_was_told_to_end_or_lost_its_authority_did_not_end_by_itself() {
    let told = [
        Directive::Stop(terms(100)),
        Directive::Lost { kill_at: at(70) },
        Directive::Kill,
    ];
    for directive in told {
        let (mut supervised, _progress) = supervised();
        supervised.apply(directive, at(60));
        let finished = supervised.finished(ended(true, false), at(65));
        assert!(!finished.by_itself(), "{directive:?}");
        assert_eq!(finished.stopped_after, Some(Duration::from_secs(5)));
        assert_eq!(finished.lost, matches!(directive, Directive::Lost { .. }));
        assert_eq!(finished.killed, directive == Directive::Kill);
    }
}

#[test]
fn a_kill_after_a_loss_is_a_loss() {
    let (mut supervised, _progress) = supervised();
    supervised.apply(Directive::Lost { kill_at: at(70) }, at(60));
    supervised.apply(Directive::Kill, at(61));
    let finished = supervised.finished(ended(true, false), at(62));
    assert!(finished.lost && !finished.killed);
}

#[test]
fn what_the_guard_ended_at_the_deadline_did_not_end_by_itself() {
    let (supervised, _progress) = supervised();
    let by_itself = |ended, now| {
        let finished = supervised.finished(ended, now);
        assert_eq!(finished.lost, !finished.by_itself());
        finished.by_itself()
    };
    for now in [at(99), at(100)] {
        assert!(by_itself(ended(false, false), now));
        assert!(!by_itself(ended(true, false), now));
    }
    assert!(by_itself(ended(true, true), at(99)), "only its guard died");
    assert!(!by_itself(ended(true, true), at(100)), "both were late");
}
