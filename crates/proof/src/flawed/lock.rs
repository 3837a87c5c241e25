//! A contender with a rule broken on purpose, from outside.

use std::time::Duration;

use crate::election::{BootTime, Randomness};
use crate::lock::mutation::planted;
use crate::lock::{
    Effect, End, Found, Input, LockContender, LockDocument, LockMode, Observations, Operation,
    Options, Outcome, Standing,
};

/// Creates a contender.
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

/// Passes an input to a contender. Without a planted bug it is passed as it is.
pub(crate) fn handle(
    contender: &mut LockContender,
    now: BootTime,
    mut input: Input,
    random: &mut dyn Randomness,
) {
    match &mut input {
        Input::GiveUp if planted!(GivenUpPlaceKept) => input = Input::Abandoned,
        Input::GiveUp | Input::Abandoned | Input::Release if planted!(AnyEndIsASuccess) => {
            contender.handle(now, Input::Succeeded, random);
        }
        Input::Reply { outcome, .. } => {
            if planted!(UnknownAsFailed) && *outcome == Outcome::Unknown {
                *outcome = Outcome::Failed;
            }
            if let Outcome::Applied(Found::Lock(lock)) = outcome {
                misread(lock, contender);
            }
        }
        _ => {}
    }
    contender.handle(now, input, random);
    if planted!(LeaveBeforeWork) && matches!(contender.status().standing, Standing::Lost(_)) {
        contender.handle(now, Input::Abandoned, random);
    }
}

/// Returns the next effect of a contender that wants this. Without a planted bug it is unchanged.
pub(crate) fn next_effect(contender: &mut LockContender, mode: LockMode) -> Option<Effect> {
    Some(match contender.next_effect()? {
        Effect::Exit(End::Unconfirmed) if planted!(ReleaseAssumed) => Effect::Exit(End::Released),
        Effect::Call {
            id,
            operation:
                Operation::Keep {
                    claim,
                    mine,
                    success,
                    ..
                },
        } if planted!(LeaveBeforeLeastTime) => Effect::Call {
            id,
            operation: Operation::Leave {
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

/// Changes what a document shows of the holders.
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
