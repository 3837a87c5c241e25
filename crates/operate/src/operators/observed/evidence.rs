//! Evidence on whether a holder is alive: the time since its last renewal, measured on this
//! command's own clock, and the date of this renewal, taken from the holder's wall clock. Evidence
//! is informational.

use std::time::{Duration, UNIX_EPOCH};

use leasehold_clock as clock;
use leasehold_core::election::{BootTime, Revision, WallMillis};

/// Records when a holder last renewed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Silence {
    pub(super) revision: Option<Revision>,
    pub(super) since: BootTime,
    /// True if this command observed the last renewal. If false, the elapsed time is a lower bound.
    pub(crate) renewal_seen: bool,
    /// Start of the current outage, during which the document may have changed.
    pub(super) blind_since: Option<BootTime>,
    /// True if the holder seemed to be gone when the current outage began.
    pub(super) was_gone: bool,
    pub(super) recovery: Recovery,
}

/// Renewals of a holder since the last outage of MongoDB, which may have kept the holder from
/// renewing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Recovery {
    /// There was no outage, or the holder has renewed since the outage.
    #[default]
    Complete,
    /// One renewal was read after the outage, but the holder may have sent it before the outage.
    Renewed,
    /// No renewal has been read since the outage began.
    Unrenewed,
}

/// Smallest clock difference that is shown, in milliseconds.
pub(crate) const SKEW_MIN: i64 = 1_000;
/// If the last renewal is dated in the future, its date counts as evidence only for this long,
/// which exceeds the default renewal interval. The time is shorter for a short lease duration.
const MISDATED_AFTER: Duration = Duration::from_secs(4);
/// A renewal during an outage counts as observed if the outage lasts at most this long.
const BLIND_TOLERATED: Duration = Duration::from_secs(3);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Liveness {
    Renews,
    /// No renewal was observed for longer than a renewal interval, and the last renewal is dated
    /// far in the future. The date proves nothing, so the holder may be gone.
    Misdated,
    /// No renewal for more than a quarter of the lease duration.
    Late,
    /// No renewal was observed, and the date of the last renewal is older than the lease duration.
    Silent,
    /// No renewal for the lease duration, so another candidate may take over.
    Expired,
    /// MongoDB does not answer, so the document may have changed.
    Unseen,
}

pub(crate) fn wall() -> WallMillis {
    let now = clock::wall_now().duration_since(UNIX_EPOCH).ok();
    WallMillis(
        now.and_then(|now| i64::try_from(now.as_millis()).ok())
            .unwrap_or(0),
    )
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Evidence {
    pub(crate) liveness: Liveness,
    pub(crate) lease_duration: Duration,
    /// Difference between this machine's wall clock and the date of the last renewal, in
    /// milliseconds. Negative if the date is in the future; `None` if the document has no date or
    /// cannot be read.
    pub(crate) last_write_ago: Option<i64>,
    /// Time until the lease expires for a candidate that has watched the holder for as long as this
    /// command.
    pub(crate) expires_in: Duration,
    pub(crate) silence: Silence,
}

impl Evidence {
    /// Returns the evidence for a command that reads the document once.
    pub(crate) fn at_first_look(renewed_at: WallMillis, lease_duration: Duration) -> Self {
        let now = clock::boot_now();
        let silence = Silence::new(None, now);
        Self::new(silence, renewed_at, lease_duration, now, wall())
    }

    /// `renewed_at` is the date of the holder's last renewal.
    pub(crate) fn new(
        silence: Silence,
        renewed_at: WallMillis,
        lease_duration: Duration,
        now: BootTime,
        wall: WallMillis,
    ) -> Self {
        let is_known = !silence.is_blind(now) || silence.was_gone;
        let is_dated = is_known && renewed_at.0 > 0;
        let last_write_ago = is_dated.then(|| wall.0.saturating_sub(renewed_at.0));
        let age = last_write_ago.and_then(|millis| u64::try_from(millis).ok());
        let age = age
            .map(Duration::from_millis)
            .filter(|_| !silence.renewal_seen);
        let is_ahead = is_far_ahead(last_write_ago, lease_duration);
        let is_due = silence.watched(now) >= MISDATED_AFTER.min(lease_duration / 6);
        let liveness = match (silence.liveness(lease_duration, now), age) {
            _ if silence.is_blind(now) && !silence.was_gone => Liveness::Unseen,
            (Liveness::Expired, _) => Liveness::Expired,
            // A live holder may not have renewed yet since the outage.
            (Liveness::Renews, _) if silence.recovery == Recovery::Unrenewed => Liveness::Unseen,
            (Liveness::Renews, Some(age))
                if silence.recovery == Recovery::Renewed && age > lease_duration / 4 =>
            {
                Liveness::Unseen
            }
            (_, Some(age)) if age >= lease_duration => Liveness::Silent,
            (_, Some(age)) if age > lease_duration / 4 => Liveness::Late,
            (Liveness::Renews, None) if !silence.renewal_seen && is_ahead && is_due => {
                Liveness::Misdated
            }
            (liveness, _) => liveness,
        };
        Self {
            liveness,
            lease_duration,
            last_write_ago,
            expires_in: lease_duration.saturating_sub(silence.watched(now)),
            silence,
        }
    }

    /// Returns true if, by the holder's clock, the last renewal is recent: at most a quarter of the
    /// lease duration ago.
    pub(crate) fn is_recent(&self) -> bool {
        let is_past = self.last_write_ago.is_some_and(|ago| ago > -SKEW_MIN);
        is_past && self.liveness == Liveness::Renews
    }

    pub(crate) fn is_silent(&self) -> bool {
        matches!(self.liveness, Liveness::Silent | Liveness::Expired)
    }

    /// Returns true if the holder may be gone: its renewal is late, or it seems to be gone.
    pub(crate) fn is_doubtful(&self) -> bool {
        self.is_silent() || matches!(self.liveness, Liveness::Late | Liveness::Misdated)
    }

    /// Returns true if the date of the last renewal is so far in the future that it proves nothing.
    pub(crate) fn is_ahead(&self) -> bool {
        is_far_ahead(self.last_write_ago, self.lease_duration)
    }

    /// Returns how far in the future the last renewal is dated.
    pub(crate) fn dated_ahead(&self) -> Option<Duration> {
        let ago = self.last_write_ago.filter(|ago| *ago <= -SKEW_MIN);
        ago.map(|ago| Duration::from_millis(ago.unsigned_abs()))
    }
}

/// Returns true if a date is too far in the future for a live holder's clock.
fn is_far_ahead(last_write_ago: Option<i64>, lease_duration: Duration) -> bool {
    let ahead = last_write_ago.map(|ago| Duration::from_millis(ago.min(0).unsigned_abs()));
    ahead.is_some_and(|ahead| ahead > lease_duration / 4)
}

impl Silence {
    pub(crate) fn new(revision: Option<Revision>, since: BootTime) -> Self {
        Self {
            revision,
            since,
            renewal_seen: false,
            blind_since: None,
            was_gone: false,
            recovery: Recovery::Complete,
        }
    }

    pub(crate) fn observe(&mut self, revision: Option<Revision>, at: BootTime) {
        let was_gone = std::mem::take(&mut self.was_gone);
        let blind = self.blind_since.take().map(|since| at.since(since));
        let after_outage = blind.is_some_and(|blind| blind > BLIND_TOLERATED);
        let renewed = self.revision != revision;
        if renewed || after_outage && !was_gone {
            *self = Self {
                // The server may apply a renewal just after the outage, although the holder sent it
                // earlier and has stopped since then.
                renewal_seen: renewed && !after_outage && self.recovery == Recovery::Complete,
                recovery: match renewed {
                    _ if !after_outage => Recovery::Complete,
                    true => Recovery::Renewed,
                    false => Recovery::Unrenewed,
                },
                ..Self::new(revision, at)
            };
        }
    }

    /// Records an outage, and measures the time without a renewal from `now`.
    pub(crate) fn lose_sight(&mut self, now: BootTime) {
        *self = Self {
            blind_since: self.blind_since.or(Some(now)),
            ..Self::new(self.revision, now)
        };
    }

    /// Records an outage that began at `from`. `is_gone` is true if the holder seemed to be gone at
    /// that time. If `from` is earlier than in all previous calls, replaces their values.
    pub(super) fn hide(&mut self, from: BootTime, is_gone: bool) {
        if self.blind_since.is_none_or(|since| from < since) {
            (self.blind_since, self.was_gone) = (Some(from), is_gone);
        }
    }

    pub(crate) fn blind_for(self, now: BootTime) -> Duration {
        self.blind_since
            .map_or(Duration::ZERO, |since| now.since(since))
    }

    pub(crate) fn is_blind(self, now: BootTime) -> bool {
        self.blind_for(now) > BLIND_TOLERATED
    }

    /// Returns the time since a renewal was last seen, or since the watch began.
    pub(crate) fn lasts(self, now: BootTime) -> Duration {
        now.since(self.since)
    }

    /// Returns how long the holder was watched without a renewal. An outage does not count.
    pub(crate) fn watched(self, now: BootTime) -> Duration {
        let until = self.blind_since.filter(|blind| self.since < *blind);
        until.unwrap_or(now).min(now).since(self.since)
    }

    pub(crate) fn expires(self, lease_duration: Duration) -> BootTime {
        self.since + lease_duration
    }

    pub(crate) fn liveness(self, lease_duration: Duration, now: BootTime) -> Liveness {
        match self.watched(now) {
            silence if silence >= lease_duration => Liveness::Expired,
            silence if silence > lease_duration / 4 => Liveness::Late,
            _ => Liveness::Renews,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LASTS: Duration = Duration::from_secs(24);
    const WALL: WallMillis = WallMillis(1_000_000_000);

    fn at(seconds: u64) -> BootTime {
        BootTime::from_nanos((100 + seconds) * 1_000_000_000)
    }

    fn seen(silence: Silence, ago: i64, now: BootTime) -> Evidence {
        Evidence::new(silence, WallMillis(WALL.0 - ago), LASTS, now, WALL)
    }

    #[test]
    fn a_last_write_before_the_lease_duration_is_evidence_at_the_first_look() {
        let first = Silence::new(None, at(0));
        for (ago, liveness) in [
            (372_000, Liveness::Silent),
            (24_000, Liveness::Silent),
            (23_999, Liveness::Late),
            (6_000, Liveness::Renews),
            (-60_000, Liveness::Renews),
        ] {
            let evidence = seen(first, ago, at(1));
            assert_eq!(evidence.liveness, liveness, "{ago}");
            assert_eq!(evidence.last_write_ago, Some(ago));
            assert_eq!(evidence.expires_in, Duration::from_secs(23));
        }
        assert_eq!(seen(first, 0, at(7)).liveness, Liveness::Late);
        for (ago, seconds, liveness) in [
            (-3_600_000, 3, Liveness::Renews),
            (-3_600_000, 4, Liveness::Misdated),
            (-3_600_000, 7, Liveness::Late),
            (-2_000, 5, Liveness::Renews),
        ] {
            let evidence = seen(first, ago, at(seconds));
            assert_eq!(evidence.liveness, liveness, "{ago} {seconds}");
        }
        let expired = seen(first, 0, at(24));
        assert_eq!(expired.liveness, Liveness::Expired);
        assert_eq!(expired.expires_in, Duration::ZERO);
        let undated = Evidence::new(first, WallMillis(0), LASTS, at(1), WALL);
        assert_eq!(undated.last_write_ago, None);
        assert_eq!(undated.liveness, Liveness::Renews);
    }

    #[test]
    fn a_renewal_counts_more_than_the_date_of_a_wrong_clock() {
        let mut silence = Silence::new(None, at(0));
        silence.observe(Some(Revision::from_bytes([1; 16])), at(2));
        assert_eq!(seen(silence, 372_000, at(3)).liveness, Liveness::Renews);
        assert_eq!(seen(silence, -60_000, at(7)).liveness, Liveness::Renews);
        assert_eq!(seen(silence, 0, at(26)).liveness, Liveness::Expired);
    }

    #[test]
    fn a_document_that_cannot_be_read_is_not_judged_by_its_date() {
        let mut silence = Silence::new(None, at(0));
        silence.lose_sight(at(5));
        assert_eq!(seen(silence, 1_000, at(6)).liveness, Liveness::Renews);
        silence.lose_sight(at(8));
        let blind = seen(silence, 372_000, at(9));
        assert_eq!(blind.liveness, Liveness::Unseen);
        assert_eq!(blind.last_write_ago, None);
        silence.observe(None, at(10));
        let again = seen(silence, 24_500, at(12));
        assert_eq!(again.liveness, Liveness::Unseen, "not due to renew yet");
        assert_eq!(seen(silence, 33_000, at(17)).liveness, Liveness::Silent);
        silence.observe(Some(Revision::from_bytes([3; 16])), at(13));
        assert_eq!(seen(silence, 0, at(13)).liveness, Liveness::Renews);
    }

    #[test]
    fn an_outage_that_began_earlier_restores_the_evidence_from_then() {
        let mut silence = Silence::new(None, at(0));
        silence.hide(at(25), true);
        silence.hide(at(23), false);
        let liveness = |silence, now| seen(silence, 1_000, now).liveness;
        assert_eq!(liveness(silence, at(60)), Liveness::Unseen);
        silence.hide(at(26), true);
        assert_eq!(
            liveness(silence, at(60)),
            Liveness::Unseen,
            "it began at 23"
        );
    }

    #[test]
    fn an_outage_does_not_revive_a_holder_that_was_gone() {
        let renewed = Some(Revision::from_bytes([1; 16]));
        let mut expired = Silence::new(None, at(0));
        expired.observe(renewed, at(1));
        let mut silent = Silence::new(renewed, at(30));
        for (silence, ago, liveness) in [
            (&mut expired, 40_000, Liveness::Expired),
            (&mut silent, 372_000, Liveness::Silent),
        ] {
            let before = seen(*silence, ago, at(40));
            assert_eq!(before.liveness, liveness);
            for lost in 40..90 {
                silence.hide(at(lost), true);
                assert_eq!(seen(*silence, ago, at(lost)).liveness, liveness, "{lost}");
            }
            assert_eq!(seen(*silence, ago, at(90)).expires_in, before.expires_in);
            silence.observe(renewed, at(90));
            assert_eq!(seen(*silence, ago, at(90)).liveness, Liveness::Expired);
            silence.hide(at(91), true);
            silence.observe(Some(Revision::from_bytes([2; 16])), at(96));
            assert!(
                !silence.renewal_seen,
                "a renewal during the outage may be old"
            );
            assert_eq!(seen(*silence, 2_000, at(97)).liveness, Liveness::Renews);
        }
    }

    #[test]
    fn a_renewal_during_an_outage_is_not_a_renewal_that_was_seen() {
        let renewed = Some(Revision::from_bytes([1; 16]));
        let mut silence = Silence::new(None, at(0));
        silence.lose_sight(at(1));
        silence.observe(renewed, at(3));
        assert!(silence.renewal_seen, "a blind time of 2 s");
        silence.lose_sight(at(5));
        silence.lose_sight(at(300));
        silence.observe(Some(Revision::from_bytes([2; 16])), at(301));
        assert!(!silence.renewal_seen);
        assert_eq!(seen(silence, 60_000, at(302)).liveness, Liveness::Unseen);
        assert_eq!(seen(silence, 66_000, at(308)).liveness, Liveness::Silent);
        assert_eq!(seen(silence, 2_000, at(302)).liveness, Liveness::Renews);
        silence.observe(renewed, at(303));
        assert!(
            !silence.renewal_seen,
            "the outage may have delayed the write"
        );
        assert_eq!(seen(silence, 33_000, at(304)).liveness, Liveness::Silent);
        assert_eq!(seen(silence, 1_000, at(304)).liveness, Liveness::Renews);
        silence.observe(Some(Revision::from_bytes([3; 16])), at(306));
        assert!(silence.renewal_seen);
    }
}
