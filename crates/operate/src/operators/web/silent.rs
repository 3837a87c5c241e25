//! Asks the candidates of each lease with an unresponsive holder to report. Asks again at a slow
//! rate, because a candidate may start in the meantime. All browsers share the answers.

use std::collections::BTreeMap;
use std::time::Duration;

use tokio::task::JoinSet;
use tracing::debug;

use super::super::Session;
use super::super::roll_call::{ANSWER_MAX, CALLS_MAX, Roll, candidates};
use super::board::Snapshot;
use leasehold_clock::boot_now;
use leasehold_core::election::{BootTime, ResourceName, Revision};

/// Interval between checks for silent leases; limits the rate of roll calls.
const CHECKED_AFTER: Duration = Duration::from_secs(1);
/// Interval between roll calls of a silent lease.
const CALLED_AGAIN_AFTER: Duration = Duration::from_secs(30);

pub(super) struct SilentLeases {
    session: Session,
    next_check: BootTime,
    asked: BTreeMap<String, PageCall>,
    calls: JoinSet<(String, Revision, Roll)>,
}

struct PageCall {
    /// The revision of the last renewal before the silence.
    revision: Revision,
    at: BootTime,
    /// `None` while the roll call is under way.
    again_at: Option<BootTime>,
}

impl SilentLeases {
    pub(super) fn new(session: &Session) -> Self {
        Self {
            session: session.clone(),
            next_check: boot_now(),
            asked: BTreeMap::new(),
            calls: JoinSet::new(),
        }
    }

    /// Asks the candidates of each silent lease, unless they were asked recently. If the maximum
    /// number of roll calls is already under way, further leases wait for a later call of this
    /// function.
    pub(super) fn call(&mut self, board: &Snapshot) {
        let now = boot_now();
        if now < self.next_check {
            return;
        }
        self.next_check = now + CHECKED_AFTER;
        self.asked.retain(|name, _| board.get(name).is_some());
        let silent = board.silent_leases(now);
        for (name, revision) in in_turn(silent, |name| self.asked.get(name).map(|it| it.at)) {
            let is_asked = |asked: &PageCall| {
                asked.revision == revision && asked.again_at.is_none_or(|again| now < again)
            };
            if self.calls.len() >= CALLS_MAX {
                return;
            }
            // A document with an invalid name has no candidates.
            let Ok(lease) = ResourceName::new(name) else {
                continue;
            };
            if self.asked.get(name).is_some_and(is_asked) {
                continue;
            }
            let asked = PageCall {
                revision,
                at: now,
                again_at: None,
            };
            self.asked.insert(name.to_owned(), asked);
            let session = self.session.clone();
            self.calls.spawn(async move {
                let answered = candidates(&session, &lease, ANSWER_MAX, |_| false).await;
                let roll = match answered {
                    Ok(present) => Roll::Answered(present),
                    Err(failure) => {
                        debug!(%lease, why = %failure, "cannot ask the candidates to report");
                        // The page names no servers and no users.
                        Roll::NotCalled(failure.summary())
                    }
                };
                (lease.to_string(), revision, roll)
            });
        }
    }

    /// Waits for the next answer. Never returns if no roll call is under way.
    pub(super) async fn answered(&mut self) -> (String, Revision, Roll) {
        loop {
            match self.calls.join_next().await {
                Some(Ok((name, revision, roll))) => {
                    // A refused roll call is repeated too, because an operator may grant the
                    // missing right.
                    if let Some(asked) = self.asked.get_mut(&name) {
                        asked.again_at = Some(boot_now() + CALLED_AGAIN_AFTER);
                    }
                    return (name, revision, roll);
                }
                Some(Err(_)) => {}
                None => std::future::pending().await,
            }
        }
    }
}

/// Returns the leases in the order of their next roll calls: first the leases without a roll call,
/// then the lease with the oldest roll call. Every lease therefore gets its turn.
fn in_turn<'a>(
    silent: impl Iterator<Item = (&'a str, Revision)>,
    asked_at: impl Fn(&str) -> Option<BootTime>,
) -> Vec<(&'a str, Revision)> {
    let mut silent: Vec<_> = silent.collect();
    silent.sort_by_key(|(name, _)| asked_at(name));
    silent
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_of_many_unresponsive_leases_has_its_turn() {
        let leases: Vec<_> = (0..3 * CALLS_MAX + 1)
            .map(|it| format!("lease-{it:02}"))
            .collect();
        let mut asked: BTreeMap<String, BootTime> = BTreeMap::new();
        let rounds = leases.len().div_ceil(CALLS_MAX);
        for round in 1..=u64::try_from(2 * rounds).expect("few") {
            let silent = leases
                .iter()
                .map(|name| (name.as_str(), Revision::from_bytes([1; 16])));
            let turn = in_turn(silent, |name| asked.get(name).copied());
            for (name, _) in turn.into_iter().take(CALLS_MAX) {
                asked.insert(name.to_owned(), BootTime::from_nanos(round));
            }
            if round == u64::try_from(rounds).expect("few") {
                assert_eq!(
                    asked.len(),
                    leases.len(),
                    "each is asked once before any twice"
                );
            }
        }
        let oldest = asked.values().min().copied();
        let recent = u64::try_from(rounds).expect("few");
        assert!(oldest > Some(BootTime::from_nanos(recent)), "{asked:?}");
    }
}
