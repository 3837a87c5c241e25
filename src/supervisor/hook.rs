//! Commands that are told of leadership, each with a limit of its own.
//!
//! Nothing waits for what they bring about, and nothing is decided by it.

use std::ffi::OsString;
use std::io;

use tokio::sync::watch;
use tracing::{info, warn};

use super::program::success;
use super::{Ordered, Phase, SupervisorOptions};
use crate::election::{BootTime, LeaseName, Terms, Token};
use crate::workload::{Ended, Workload};

/// The terms of a claim, and no longer than `until`.
pub(super) fn bounded(terms: Terms, until: BootTime) -> Terms {
    Terms {
        valid_until: terms.valid_until.min(until),
        kill_at: terms.kill_at.min(until),
    }
}

/// Starts a hook; `None`: there is none. Its guard shares the lock of the claim, as
/// that of a command does: the next daemon waits for it.
pub(super) fn start(
    options: &SupervisorOptions,
    words: &[OsString],
    token: Token,
    terms: Terms,
) -> io::Result<Option<Workload>> {
    let Some(command) = options.program.command(words, Some(token)) else {
        return Ok(None);
    };
    let lock = options.lock.try_clone()?;
    Workload::start(&command.quiet(), super::terms(terms), Some(lock)).map(Some)
}

/// Sees the hook on_lead to its end: by itself, by its limit, or because its
/// claim leads no more. A daemon that is frozen meanwhile has a guard that
/// holds the hook to the claim's deadline.
pub(super) async fn lead(
    mut hook: Workload,
    mut orders: watch::Receiver<Option<Ordered>>,
    token: Token,
    until: BootTime,
    lease: LeaseName,
) {
    loop {
        let ordered = *orders.borrow_and_update();
        let leads = |o: &Ordered| o.token == token && o.phase == Phase::Run;
        let Some(ordered) = ordered.filter(leads) else {
            // What it was to bring about has no leader any more.
            hook.kill();
            hook.ended().await;
            return;
        };
        hook.extend(super::terms(bounded(ordered.terms, until)));
        tokio::select! {
            ended = hook.ended() => return report(&lease, "on_lead", ended),
            changed = orders.changed() => if changed.is_err() {
                // Without orders the daemon ends.
                hook.kill();
                hook.ended().await;
                return;
            },
        }
    }
}

pub(super) fn report(lease: &LeaseName, hook: &'static str, ended: Ended) {
    match success(ended) {
        Ok(()) => info!(%lease, hook, "hook ended"),
        Err(why) => warn!(%lease, hook, why, "a hook failed"),
    }
}
