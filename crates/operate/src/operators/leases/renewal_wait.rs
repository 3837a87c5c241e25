//! Decides how long a command waits for renewals.

use std::time::Duration;

use super::super::observed::{ObservedDocument, lease};
use super::super::roll_call::{ANSWER_SOON, Ask, Roll, Rolls};
use leasehold_core::election::BootTime;
use leasehold_mongodb::store::mongo::operators::Present;

/// The default renewal interval plus a second.
const OBSERVE_DEFAULT: Duration = Duration::from_secs(4);

/// The maximum times to wait for renewals, which depend on the evidence from the first read.
#[derive(Debug, Clone, Copy)]
pub(in super::super) struct RenewalWait {
    /// For a holder whose last renewal is recent by the holder's clock.
    recent: Duration,
    /// For a holder whose last renewal is late, dated in the future or not dated.
    pub(super) doubtful: Duration,
    /// For a holder that seems to be gone.
    silent: Duration,
    /// True if the wait for a silent holder ends after a roll call that the holder did not answer.
    until_asked: bool,
    pub(super) ask: Ask,
}

impl RenewalWait {
    /// Returns the times for lists. By default, a list waits only for holders whose state is
    /// uncertain.
    pub(super) fn of_list(observe: Option<Duration>, ask: Ask) -> Self {
        let all = observe.unwrap_or(OBSERVE_DEFAULT);
        Self {
            recent: observe.unwrap_or_default(),
            doubtful: all,
            silent: all.min(OBSERVE_DEFAULT),
            until_asked: observe.is_none(),
            ask,
        }
    }

    /// Returns the times for one lease. If `observe` is set, it also applies to a silent holder.
    pub(in super::super) fn of_lease(observe: Option<Duration>, ask: Ask) -> Self {
        Self {
            silent: observe.unwrap_or(OBSERVE_DEFAULT),
            ..Self::of_list(observe, ask)
        }
    }

    /// A lock has no candidates to ask, and the renewal interval of its waiters is longer than the
    /// default wait. By default, the command therefore does not wait for silent entries.
    pub(in super::super) fn of_lock(observe: Option<Duration>) -> Self {
        Self {
            silent: observe.unwrap_or_default(),
            ..Self::of_lease(observe, Ask::None)
        }
    }

    pub(super) fn of(self, seen: &ObservedDocument, rolls: &Rolls, now: BootTime) -> Duration {
        let answered = |present: &[Present]| {
            let holder = lease(&seen.entry).and_then(|lease| lease.holder.as_ref());
            holder.is_some_and(|holder| present.iter().any(|it| it.identity == holder.identity))
        };
        let roll = rolls.get(&seen.entry.name);
        let is_asked =
            self.until_asked && matches!(roll, Some(Roll::Answered(present)) if !answered(present));
        let unseen = seen.holders(now).filter(|it| !it.silence.renewal_seen);
        let waits = unseen.map(|evidence| match evidence.is_silent() {
            true if is_asked => Duration::ZERO,
            true => self.silent,
            false if evidence.is_recent() => self.recent,
            false => self.doubtful,
        });
        waits.max().unwrap_or_default()
    }
}

pub(super) const ASKING: &str = "asking the candidates";

/// Returns a text that tells the user what the command waits for (renewals, or only candidates),
/// and the time limit.
pub(super) fn waiting(renewals: Option<Duration>, asks: bool) -> Option<(&'static str, Duration)> {
    let renewals = renewals.map(|limit| ("waiting for renewals", limit));
    renewals.or_else(|| asks.then_some((ASKING, ANSWER_SOON)))
}

#[cfg(test)]
mod tests {
    use mongodb::bson::{Document, doc};

    use super::*;
    use crate::operators::observed::Observed;
    use crate::operators::observed::tests::{ago, observed};
    use crate::operators::render;
    use crate::table::{Style, text};
    use leasehold_clock::boot_now;
    use leasehold_core::election::Identity;
    use leasehold_mongodb::store::Failure;
    use leasehold_mongodb::store::mongo::operators::ViewEvent;

    const SECOND: Duration = Duration::from_secs(1);

    fn answered(identities: &[&str]) -> Rolls {
        let present = identities.iter().map(|identity| Present {
            identity: Identity::new(*identity).expect("an identity"),
            version: None,
            healthy: None,
            leads_with: None,
        });
        let roll = Roll::Answered(present.collect());
        Rolls::from([("orders".to_owned(), roll)])
    }

    #[test]
    fn a_list_waits_for_a_holder_in_doubt_and_not_for_others() {
        let waits = |wait: RenewalWait, renewed_at, rolls: &Rolls| {
            let observed = observed(doc! { "renewed_at": renewed_at });
            wait.of(observed.one().expect("a lease"), rolls, boot_now())
        };
        let none = Rolls::new();
        let list = RenewalWait::of_list(None, Ask::IfUnclear);
        assert_eq!(waits(list, ago(1), &none), Duration::ZERO);
        assert_eq!(waits(list, ago(10), &none), 4 * SECOND, "late");
        assert_eq!(waits(list, ago(-60), &none), 4 * SECOND, "in the future");
        assert_eq!(waits(list, ago(60), &none), 4 * SECOND, "not asked yet");
        let others = answered(&["b"]);
        assert_eq!(waits(list, ago(60), &others), Duration::ZERO);
        let holder = answered(&["a", "b"]);
        assert_eq!(waits(list, ago(60), &holder), 4 * SECOND);
        let observe = RenewalWait::of_list(Some(30 * SECOND), Ask::IfUnclear);
        assert_eq!(waits(observe, ago(1), &none), 30 * SECOND);
        assert_eq!(waits(observe, ago(60), &others), 4 * SECOND);
        let lease = RenewalWait::of_lease(None, Ask::All);
        assert_eq!(waits(lease, ago(1), &none), Duration::ZERO);
        assert_eq!(waits(lease, ago(60), &others), Duration::ZERO);
        let lease = RenewalWait::of_lease(Some(30 * SECOND), Ask::All);
        assert_eq!(waits(lease, ago(60), &others), 30 * SECOND);
    }

    #[test]
    fn a_free_lease_that_no_candidate_acquires_needs_attention() {
        let style = |changes: Document, rolls: &Rolls| {
            let observed = observed(changes);
            render::rows(observed.documents(), rolls, boot_now())[1].style
        };
        let ended = |seconds| {
            let past = doc! { "acquired_at": ago(900), "ended_at": ago(seconds) };
            doc! { "history": [past] }
        };
        assert_eq!(style(ended(5), &answered(&["b"])), Style::Plain);
        assert_eq!(style(ended(5), &answered(&[])), Style::Bad);
        assert_eq!(style(ended(60), &Rolls::new()), Style::Bad);
        let mut resumed = ended(60);
        resumed.insert("actions", vec![doc! { "action": "resume", "at": ago(1) }]);
        assert_eq!(style(resumed, &Rolls::new()), Style::Plain);
        let mut paused = ended(60);
        paused.insert("paused", true);
        assert_eq!(style(paused.clone(), &Rolls::new()), Style::Warning);
        let mut hidden = observed(paused);
        hidden.apply(ViewEvent::Failed(Failure::new("no answer", "")), boot_now());
        let later = boot_now() + 10 * SECOND;
        let rows = render::rows(hidden.documents(), &answered(&[]), later);
        let shown = text(&rows, false);
        assert_eq!(rows[1].style, Style::Warning, "{shown}");
        assert!(shown.contains("unknown"), "{shown}");
        assert!(shown.contains("no answer from MongoDB for "), "{shown}");
        let stale = ["paused", "candidate"].iter().any(|it| shown.contains(it));
        assert!(!stale, "{shown}");
        assert_eq!(hidden.unled_leases(later).count(), 0);
    }

    #[test]
    fn an_outage_shows_no_late_holder_as_held_and_counts_from_the_last_answer() {
        let cells = |observed: &Observed, at: BootTime| {
            let rows = render::rows(observed.documents(), &Rolls::new(), at);
            let cells = &rows[1].cells;
            [cells[1].clone(), cells[5].clone(), cells[8].clone()]
        };
        let start = boot_now();
        let at = |seconds: u32| start + seconds * SECOND;
        // In the first case, the last renewal is dated long ago. In the second case, it is dated in
        // the future, and no renewal is observed in time.
        for renewed_at in [ago(10), ago(-60)] {
            let mut observed = observed(doc! { "renewed_at": renewed_at });
            let entries = || vec![observed.one().expect("a lease").entry.clone()];
            let again = ViewEvent::Listed {
                entries: entries(),
                at: at(18),
            };
            assert_eq!(cells(&observed, at(10))[0], "late");
            for _ in 0..2 {
                let failed = ViewEvent::Failed(Failure::new("no answer", ""));
                observed.apply(failed, at(10));
                assert_eq!(cells(&observed, at(12))[0], "late");
            }
            let [state, renewed, notes] = cells(&observed, at(17));
            assert_eq!([&*state, &*renewed], ["unknown", "-"]);
            assert_eq!(notes, "no answer from MongoDB for 7s");
            observed.apply(again, at(18));
            assert_eq!(cells(&observed, at(19))[0], "unknown");
            assert_ne!(cells(&observed, at(25))[0], "held");
        }
        let mut expired = observed(doc! { "renewed_at": ago(-60) });
        let failed = ViewEvent::Failed(Failure::new("no answer", ""));
        expired.apply(failed, at(30));
        let [state, renewed, notes] = cells(&expired, at(51));
        assert_eq!([&*state, &*renewed], ["expired", "-"]);
        assert_eq!(notes, "no answer from MongoDB for 21s");
    }

    #[test]
    fn a_date_in_the_future_does_not_show_a_holder_as_held_for_long() {
        let observed = observed(doc! { "renewed_at": ago(-3_600) });
        let cells = |seconds: u32| {
            let now = boot_now() + seconds * SECOND;
            let rows = render::rows(observed.documents(), &answered(&[]), now);
            let asked = observed.unled_leases(now).count();
            (rows[1].cells.clone(), rows[1].style, asked)
        };
        let (first, style, asked) = cells(1);
        assert_eq!((&*first[1], style, asked), ("held", Style::Plain, 0));
        let (later, style, asked) = cells(4);
        assert_eq!((&*later[1], style, asked), ("unknown", Style::Warning, 1));
        assert_eq!(later[5], "> 4s");
        let expected =
            "others take over after watching for 24s; no candidate answers; last renewal dated ";
        assert!(later[8].starts_with(expected), "{later:?}");
    }

    #[test]
    fn a_wait_for_candidates_alone_does_not_mention_renewals() {
        let renewals = ("waiting for renewals", 4 * SECOND);
        assert_eq!(waiting(Some(4 * SECOND), true), Some(renewals));
        assert_eq!(waiting(None, true), Some((ASKING, ANSWER_SOON)));
        assert_eq!(waiting(None, false), None);
    }

    #[test]
    fn the_candidates_of_a_late_holder_are_asked() {
        let asked = |seconds| {
            let observed = observed(doc! { "renewed_at": ago(seconds) });
            observed.unled_leases(boot_now()).count()
        };
        assert_eq!([asked(1), asked(10), asked(60)], [0, 1, 1]);
    }
}
