//! Hooks: commands that run when leadership begins and ends, each with its own timeout. Their exit
//! codes have no effect, with one exception: a hook that stops the workload confirms the stop by
//! exiting 0.

use std::ffi::OsString;
use std::io;
use std::time::Duration;

use tracing::{error, info, warn};

use super::program::{KILLED_WITHIN, LeftoverProcess, success};
use super::{DesiredStates, RECORDED_WITHIN, SupervisorOptions};
use leasehold_clock as clock;
use leasehold_core::election::{BootTime, ResourceName, Terms, Token};
use leasehold_guard::claim_share::ClaimPlace;
use leasehold_guard::{DesiredState, GuardedCommand, Termination};

pub(super) fn bounded(terms: Terms, until: BootTime) -> Terms {
    Terms {
        valid_until: terms.valid_until.min(until),
        kill_at: terms.kill_at.min(until),
    }
}

pub(super) const ON_LEAD: &str = "on_lead";
pub(super) const ON_STEP_DOWN: &str = "on_step_down";

/// A hook. It does not start again until its previous run has ended.
pub(super) struct Hook {
    name: &'static str,
    place: ClaimPlace,
    words: Vec<OsString>,
    pub(super) left: LeftoverProcess,
}

impl Hook {
    pub(super) fn new(name: &'static str, place: ClaimPlace, words: &[OsString]) -> Self {
        Self {
            name,
            place,
            words: words.to_vec(),
            left: LeftoverProcess::default(),
        }
    }

    /// Starts the hook. Returns `None` if no hook is configured or the start failed; a failure is
    /// logged. The hook's guard shares the claim's lock, so that the next daemon waits for the
    /// hook.
    pub(super) async fn start(
        &mut self,
        options: &SupervisorOptions,
        token: Token,
        terms: Terms,
    ) -> Option<GuardedCommand> {
        let command = options.program.command(&self.words, Some(token))?;
        let started = if self.left.remains() {
            Err(io::ErrorKind::ResourceBusy.into())
        } else {
            let claim = options.claims.share(self.place, RECORDED_WITHIN).await;
            claim.and_then(|claim| GuardedCommand::start(&command.quiet(), terms, Some(claim)))
        };
        let (lease, hook) = (&options.program.lease, self.name);
        let failed = |error: &io::Error| {
            error!(%lease, hook, kind = %error.kind(), "failed to start a hook");
        };
        started.inspect_err(failed).ok()
    }
}

/// Runs the on_lead hook until it exits or times out, or until its claim no longer leads. If the
/// daemon freezes, the guard of the hook enforces the deadline of the claim.
pub(super) async fn lead(
    mut hook: GuardedCommand,
    mut states: DesiredStates,
    token: Token,
    until: BootTime,
    lease: ResourceName,
) -> LeftoverProcess {
    let overdue = tokio::time::sleep(until.since(clock::boot_now()) + KILLED_WITHIN);
    tokio::pin!(overdue);
    loop {
        let desired = super::desired(&states.borrow_and_update(), token);
        let Some(desired) = desired.filter(DesiredState::runs) else {
            break;
        };
        hook.extend(bounded(desired.terms, until));
        tokio::select! {
            ended = hook.ended() => {
                report(&lease, ON_LEAD, Some(ended));
                return LeftoverProcess::default();
            }
            // The guard has already killed the overdue hook.
            () = &mut overdue => break,
            changed = states.changed() => if changed.is_err() {
                // The daemon is exiting.
                break;
            },
        }
    }
    hook.kill();
    let mut left = LeftoverProcess::default();
    if left.outlast(hook, Duration::ZERO).await.is_none() {
        report(&lease, ON_LEAD, None);
    }
    left
}

/// Logs the end of a hook. `ended` is `None` if the hook survived SIGKILL. Returns true if the hook
/// exited 0.
pub(super) fn report(lease: &ResourceName, hook: &'static str, ended: Option<Termination>) -> bool {
    let unkillable = || Err("it survived SIGKILL".to_owned());
    let ended = ended.map_or_else(unkillable, success);
    match &ended {
        Ok(()) => info!(%lease, hook, "hook ended"),
        Err(why) => warn!(%lease, hook, why, "a hook failed"),
    }
    ended.is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn an_unkillable_hook_is_left_behind_after_a_second() {
        let lease = ResourceName::new("orders").expect("legal");
        let (_sender, states) = tokio::sync::watch::channel(None);
        // The channel contains no desired state, so the claim no longer leads.
        let (hook, _progress) = GuardedCommand::stand_in();
        let until = clock::boot_now() + Duration::from_secs(3600);
        let ends = lead(hook, states, Token::ZERO, until, lease);
        let ended = tokio::time::timeout(KILLED_WITHIN * 10, ends).await;
        assert!(ended.expect("the hook is left running").remains());
    }
}
