//! Renders evidence as text and as JSON.

use std::time::Duration;

use serde_json::{Value, json};

use super::{short, since};
use crate::operators::observed::{Evidence, Liveness, SKEW_MIN, Silence};
use crate::operators::roll_call::Roll;
use leasehold_core::election::BootTime;
use leasehold_host::log::millis;
use leasehold_mongodb::store::mongo::operators::LeaseRecord;

/// A lease that has been free for this long counts as unclaimed. With default timings, a lone
/// leader that stepped down leads again sooner.
const UNCLAIMED_AFTER: Duration = Duration::from_secs(30);

impl Liveness {
    /// Returns the state of a holder, as shown in text and in JSON.
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Renews => "held",
            Self::Late => "late",
            Self::Silent => "silent",
            Self::Expired => "expired",
            Self::Misdated | Self::Unseen => "unknown",
        }
    }
}

impl Silence {
    pub(crate) fn unanswered(self, now: BootTime) -> String {
        format!("no answer from MongoDB for {}", short(self.blind_for(now)))
    }
}

impl Evidence {
    /// Returns the age of the last renewal, estimated from the wall clocks. Returns `None` if the
    /// clocks contradict this command's observations.
    fn age(&self, now: BootTime) -> Option<Duration> {
        let millis = self.last_write_ago.filter(|ago| *ago > -SKEW_MIN)?;
        let age = Duration::from_millis(u64::try_from(millis).unwrap_or(0));
        let watched = self.silence.lasts(now);
        (age + Duration::from_secs(1) >= watched).then_some(age.max(watched))
    }

    /// Returns the time since the last renewal: as observed, else by the holder's clock, else as a
    /// lower bound.
    pub(crate) fn silent_for(&self, now: BootTime) -> Duration {
        let watched = self.silence.lasts(now);
        match self.silence.renewal_seen {
            true => watched,
            false => self.age(now).unwrap_or(watched),
        }
    }

    /// Returns the time since the last renewal as a table cell. `~` marks an estimate from the
    /// holder's clock, and `>` a lower bound.
    pub(crate) fn renewed(&self, now: BootTime) -> String {
        let watched = short(self.silence.lasts(now));
        match self.age(now) {
            _ if self.is_hidden(now) => "-".to_owned(),
            _ if self.silence.renewal_seen => watched,
            Some(age) => format!("~{}", short(age)),
            None => format!("> {watched}"),
        }
    }

    /// Returns true if, because of an outage, it is unknown whether the holder renews.
    fn is_hidden(&self, now: BootTime) -> bool {
        self.liveness == Liveness::Unseen || self.silence.is_blind(now)
    }

    pub(crate) fn last_write(&self, now: BootTime) -> String {
        let watched = short(self.silence.lasts(now));
        match (self.age(now), self.last_write_ago) {
            _ if self.is_hidden(now) => match self.silence.blind_for(now) {
                Duration::ZERO => format!("no renewal yet, {watched} after MongoDB answered again"),
                _ => self.silence.unanswered(now),
            },
            _ if self.silence.renewal_seen => format!("last renewal seen {watched} ago"),
            (Some(age), _) => format!("last renewal {} ago by the holder's clock", short(age)),
            (None, Some(ahead @ ..=-1)) => format!(
                "no renewal in {watched}; last renewal dated {} in the future, so the clocks differ",
                short(Duration::from_millis(ahead.unsigned_abs()))
            ),
            (None, _) => format!("no renewal in {watched}"),
        }
    }

    /// Returns a note about a last renewal that is dated in the future.
    pub(crate) fn dated(&self) -> Option<String> {
        let ahead = short(self.dated_ahead()?);
        Some(format!("last renewal dated {ahead} in the future"))
    }

    pub(crate) fn expiry(&self) -> String {
        // A remaining time would be misleading, because each candidate watches from its own start.
        let lasts = short(self.lease_duration);
        format!("others take over after watching for {lasts}")
    }

    pub(crate) fn object(&self, roll: Option<&Roll>) -> Value {
        let mut object = json!({
            "state": self.liveness.as_str(),
            "last_write_ago_ms": self.last_write_ago,
            "expires_for_others_in_ms": millis(self.expires_in),
        });
        if let Some(roll) = roll {
            roll.add_to(&mut object);
        }
        object
    }

    /// Describes a holder that seems to be gone, and the candidates' answers if known.
    pub(crate) fn words(&self, roll: Option<&Roll>, now: BootTime) -> String {
        self.described(self.liveness.as_str(), self.expiry(), roll, now)
    }

    pub(crate) fn expiry_of(&self, lease: &LeaseRecord) -> String {
        match lease.lease.paused {
            true => "no candidate takes over while the lease is paused".to_owned(),
            false if lease.is_retired() => "the next acquisition ends the retirement".to_owned(),
            false => self.expiry(),
        }
    }

    pub(crate) fn described(
        &self,
        state: &str,
        expiry: String,
        roll: Option<&Roll>,
        now: BootTime,
    ) -> String {
        let parts = [state.to_owned(), self.last_write(now), expiry];
        let parts = parts.into_iter().chain(roll.map(Roll::words));
        parts.collect::<Vec<_>>().join("; ")
    }
}

/// Returns how long a lease has been free; `None` if candidates may still be about to acquire the
/// lease.
pub(in crate::operators) fn unclaimed(lease: &LeaseRecord) -> Option<Duration> {
    let is_free = lease.held_by().is_none() && !lease.lease.paused && !lease.is_retired();
    let ended = lease.history.last().map(|last| last.ended_at);
    // The time before the last action does not count, because a resume ends a pause, and a repair
    // may create the lease.
    let acted = lease.actions.last().map(|action| action.at);
    since(ended.max(acted).filter(|_| is_free)?).filter(|free| *free >= UNCLAIMED_AFTER)
}
