use std::time::Duration;

use crate::election::{BootTime, Randomness};
use crate::lock::mutation::planted;
use crate::lock::{
    End, FoundLock, LockContender, LockDocument, LockEffect, LockInput, LockMode, LockOperation,
    LockOutcome, Observations, Options, Standing,
};

pub(crate) fn contender(
    mut options: Options,
    now: BootTime,
    random: &mut dyn Randomness,
) -> LockContender {
    if planted!(NothingRemembered) {
        options.observations = Observations::default();
    }
    LockContender::new(options, now, random)
}

pub(crate) fn handle(
    contender: &mut LockContender,
    now: BootTime,
    mut input: LockInput,
    random: &mut dyn Randomness,
) {
    match &mut input {
        LockInput::GiveUp if planted!(GivenUpPlaceKept) => input = LockInput::Abandoned,
        LockInput::GiveUp | LockInput::Abandoned | LockInput::Release
            if planted!(AnyEndIsASuccess) =>
        {
            contender.handle(now, LockInput::Succeeded, random);
        }
        LockInput::Reply { outcome, .. } => {
            if planted!(UnknownAsFailed) && *outcome == LockOutcome::Unknown {
                *outcome = LockOutcome::Failed;
            }
            if let LockOutcome::Applied(FoundLock::Lock(lock)) = outcome {
                misread(lock, contender);
            }
        }
        _ => {}
    }
    contender.handle(now, input, random);
    if planted!(LeaveBeforeWork) && matches!(contender.status().standing, Standing::Lost(_)) {
        contender.handle(now, LockInput::Abandoned, random);
    }
}

pub(crate) fn next_effect(contender: &mut LockContender, mode: LockMode) -> Option<LockEffect> {
    Some(match contender.next_effect()? {
        LockEffect::Exit(End::Unconfirmed) if planted!(ReleaseAssumed) => {
            LockEffect::Exit(End::Released)
        }
        LockEffect::Call {
            id,
            operation:
                LockOperation::Keep {
                    claim,
                    mine,
                    success,
                    ..
                },
        } if planted!(LeaveBeforeLeastTime) => LockEffect::Call {
            id,
            operation: LockOperation::Leave {
                claim,
                mine,
                seen: contender.token_highest(),
                success,
                slots: mode.slots(),
            },
        },
        effect => effect,
    })
}

fn misread(lock: &mut LockDocument, contender: &LockContender) {
    for entry in &mut lock.holders {
        if entry.claim == contender.claim() {
            if planted!(LeastTimeUndeclared) {
                entry.min_hold = entry.min_hold.max(Duration::from_secs(1));
            }
            continue;
        }
        if planted!(GrantAsFlag) && entry.granted_revision.is_some() {
            entry.granted_revision = Some(entry.revision);
        }
        if planted!(DeathEndsLeastTime) {
            entry.min_hold = Duration::ZERO;
        }
    }
}
