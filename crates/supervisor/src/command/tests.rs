use tokio::sync::watch;

use super::*;
use leasehold_guard::{CommandEnd, StopScope};

const GRACE: Duration = Duration::from_secs(30);
const LEFTOVER_GRACE: Duration = Duration::from_millis(1);

fn after(seconds: u64) -> BootTime {
    clock::boot_now() + Duration::from_secs(seconds)
}

fn terms(valid_until: BootTime) -> Terms {
    Terms {
        valid_until,
        kill_at: valid_until + Duration::from_secs(10),
    }
}

fn supervised() -> (SupervisedCommand, watch::Sender<CommandProgress>) {
    let (workload, progress) = GuardedCommand::stand_in();
    let stopping = StopMethod {
        scope: StopScope::Group,
        linger: Duration::ZERO,
        signal: 15,
        grace: GRACE,
    };
    (
        SupervisedCommand::new(workload, stopping, LEFTOVER_GRACE),
        progress,
    )
}

fn ended(by_us: bool, guard_lost: bool) -> Termination {
    Termination {
        end: CommandEnd::Signalled(15),
        by_us,
        interrupted: false,
        lingered: false,
        guard_lost,
    }
}

impl SupervisedCommand {
    fn kill_at(&self) -> Option<BootTime> {
        self.workload.desired().stop.map(|stop| stop.kill_at)
    }
}

#[test]
fn the_deadline_moves_with_renewals_until_a_loss() {
    let (mut command, _progress) = supervised();
    let renewed = terms(after(7200));
    command.extend(renewed);
    command.stop();
    assert_eq!(command.terms(), renewed);
    let lost = after(5);
    command.lose(lost);
    let revived = DesiredState::run(terms(after(9000)));
    let stop = command.stopping.requested_now();
    for state in [revived, revived.stopped(stop)] {
        command.apply(state);
        assert_eq!(command.terms(), renewed, "{state:?}");
        assert_eq!(command.kill_at(), Some(lost), "{state:?}");
    }
}

#[test]
fn the_grace_counts_from_the_first_request_and_ends_in_a_kill() {
    let (mut command, _progress) = supervised();
    let before = clock::boot_now();
    command.stop();
    let kill_at = command.kill_at().expect("ordered");
    assert!((before + GRACE..=clock::boot_now() + GRACE).contains(&kill_at));
    command.stop();
    assert_eq!(command.kill_at(), Some(kill_at));
    assert!(!command.workload.desired().kill);
    command.kill();
    command.apply(DesiredState::run(terms(after(9000))));
    assert!(command.workload.desired().kill, "not revoked");
    assert_eq!(command.kill_at(), Some(kill_at));
}

#[tokio::test]
async fn a_command_is_gone_only_with_its_descendants() {
    for told in [false, true] {
        let (mut command, progress) = supervised();
        if told {
            command.stop();
        }
        let by_us = told;
        progress.send_replace(CommandProgress::Running { pid: 1 });
        assert_eq!(command.next().await, CommandEvent::Started { pid: 1 });
        let end = CommandEnd::Exited(0);
        progress.send_replace(CommandProgress::Ending {
            end,
            by_us,
            lingers: false,
        });
        let soon = tokio::time::timeout(Duration::from_millis(20), command.next());
        assert_eq!(soon.await.ok(), (!told).then_some(CommandEvent::Exited));
        progress.send_replace(CommandProgress::Gone(ended(by_us, false)));
        let CommandEvent::Gone(finished) = command.next().await else {
            panic!("expected the end of the command");
        };
        assert_eq!(finished.by_itself(), !told);
        assert_eq!(finished.stopped_after.is_some(), told);
    }
}

#[tokio::test]
async fn stopping_leftovers_does_not_change_the_exit_code() {
    for lingers in [false, true] {
        let (mut command, progress) = supervised();
        let end = CommandEnd::Exited(3);
        let by_us = false;
        progress.send_replace(CommandProgress::Ending {
            end,
            by_us,
            lingers,
        });
        let soon = tokio::time::timeout(Duration::from_millis(20), command.next());
        assert_eq!(soon.await.ok(), (!lingers).then_some(CommandEvent::Exited));
        // Outside this test, a step-down or an operator requests this stop.
        command.stop();
        progress.send_replace(CommandProgress::Gone(ended(by_us, false)));
        let CommandEvent::Gone(finished) = command.next().await else {
            panic!("expected the end of the command");
        };
        assert!(finished.by_itself() && finished.stopped_after.is_none());
    }
}

#[tokio::test]
async fn a_cut_off_linger_is_not_an_exit_by_itself() {
    let linger = |lingers| CommandProgress::Ending {
        end: CommandEnd::Exited(0),
        by_us: false,
        lingers,
    };
    let cut: [fn(&mut SupervisedCommand); 3] = [
        |command| command.lose(after(5)),
        SupervisedCommand::kill,
        // After a freeze, the daemon sometimes does not call `lose`; then only the passed deadline
        // shows the loss.
        |command| command.extend(terms(clock::boot_now())),
    ];
    for (number, cut) in cut.into_iter().enumerate() {
        for noticed in [true, false] {
            let (mut command, progress) = supervised();
            command.stopping.linger = GRACE;
            progress.send_replace(linger(true));
            if noticed {
                let soon = Duration::from_millis(20);
                let event = tokio::time::timeout(soon, command.next()).await;
                assert_eq!(event.ok(), None);
            }
            cut(&mut command);
            if !noticed {
                let soon = Duration::from_millis(20);
                let event = tokio::time::timeout(soon, command.next()).await;
                assert_eq!(event.ok(), None);
            }
            progress.send_replace(CommandProgress::Gone(ended(false, false)));
            let CommandEvent::Gone(finished) = command.next().await else {
                panic!("expected the end of the command");
            };
            assert!(finished.cut_off && !finished.by_itself(), "{number}");
            assert_eq!(finished.lost, !finished.killed, "{number}");
        }
    }
    // Once the linger time is over, a loss of authority no longer cuts it off.
    let (mut command, progress) = supervised();
    progress.send_replace(linger(false));
    assert_eq!(command.next().await, CommandEvent::Exited);
    command.lose(after(5));
    progress.send_replace(CommandProgress::Gone(ended(false, false)));
    let CommandEvent::Gone(finished) = command.next().await else {
        panic!("expected the end of the command");
    };
    assert!(!finished.cut_off && finished.by_itself());
}

#[tokio::test]
async fn unkillable_leftovers_make_the_command_stuck() {
    let (mut command, progress) = supervised();
    progress.send_replace(CommandProgress::Ending {
        end: CommandEnd::Exited(0),
        by_us: false,
        lingers: false,
    });
    assert_eq!(command.next().await, CommandEvent::Exited);
    assert_eq!(command.next().await, CommandEvent::Stuck);
}

#[test]
fn a_kill_after_a_loss_is_a_loss() {
    let (mut command, _progress) = supervised();
    command.kill();
    let finished = command.finished(ended(true, false));
    assert!(finished.killed && !finished.lost && !finished.by_itself());
    let (mut command, _progress) = supervised();
    command.lose(after(5));
    command.kill();
    let finished = command.finished(ended(true, false));
    assert!(finished.lost && !finished.killed);
}

#[test]
fn an_end_by_the_guard_is_not_an_exit_by_itself() {
    for expired in [false, true] {
        let (mut command, _progress) = supervised();
        if expired {
            command.extend(terms(clock::boot_now()));
        }
        let by_itself = |ended| {
            let finished = command.finished(ended);
            assert_eq!(finished.lost, !finished.by_itself());
            finished.by_itself()
        };
        assert!(by_itself(ended(false, false)));
        assert!(!by_itself(ended(true, false)));
        assert_eq!(by_itself(ended(true, true)), !expired, "the guard was lost");
    }
}
