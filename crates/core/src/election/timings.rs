use std::fmt;
use std::time::Duration;

/// The shortest lease duration that a holder may declare.
pub const LEASE_DURATION_MIN: Duration = Duration::from_secs(1);
/// The longest lease duration that a holder may declare.
pub const LEASE_DURATION_MAX: Duration = Duration::from_secs(3600);
/// The shortest accepted interval or timeout. A shorter value would only add load to the store.
pub const INTERVAL_MIN: Duration = Duration::from_millis(50);
/// Random jitter of retries, in percent in either direction.
pub const JITTER_PERCENT: u32 = 20;

/// The part of an election gap that does not grow with `electionTimeoutMillis`.
const ELECTION_VOTES: Duration = Duration::from_millis(600);
/// Maximum percentage that a member adds to its election timeout at random
/// (`replElectionTimeoutOffsetLimitFraction`).
const ELECTION_OFFSET_PERCENT: u32 = 15;
/// Time from the discovery of the new primary to an acknowledged renewal.
const RENEWAL_MARGIN: Duration = Duration::from_millis(500);

/// Durations as configured, before validation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct TimingSettings {
    /// Time that contenders wait after the first reply that shows the holder's last revision.
    pub lease_duration: Duration,
    /// Duration of authority, counted from just before the last acknowledged renewal was sent.
    pub renew_deadline: Duration,
    /// Interval between renewals, measured from send to send.
    pub renew_interval: Duration,
    /// Interval between retries, and between polls without a change stream.
    pub retry_interval: Duration,
    /// The outcome of a call counts as unknown after this time without an answer.
    pub operation_timeout: Duration,
    /// Time from the end of authority to the SIGKILL of the workload after a loss of leadership.
    pub loss_grace: Duration,
}

impl Default for TimingSettings {
    /// Returns durations that survive a MongoDB election at MongoDB's default settings.
    fn default() -> Self {
        Self {
            lease_duration: Duration::from_secs(24),
            renew_deadline: Duration::from_secs(18),
            renew_interval: Duration::from_secs(3),
            retry_interval: Duration::from_secs(1),
            operation_timeout: Duration::from_secs(3),
            loss_grace: Duration::from_secs(3),
        }
    }
}

#[cfg(test)]
impl TimingSettings {
    pub(crate) fn of_millis(millis: [u64; 6]) -> Self {
        let [lease, deadline, renewal, retry, operation, grace] = millis.map(Duration::from_millis);
        Self {
            lease_duration: lease,
            renew_deadline: deadline,
            renew_interval: renewal,
            retry_interval: retry,
            operation_timeout: operation,
            loss_grace: grace,
        }
    }
}

/// Checked durations. A claim keeps the durations that applied when it was acquired.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(
    feature = "serde",
    serde(try_from = "TimingSettings", into = "TimingSettings")
)]
pub struct Timings(TimingSettings);

/// One violated relation between durations.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TimingError {
    /// The key that the user most likely needs to change, without its section.
    pub key: &'static str,
    /// Description of the error, with all values and the accepted range.
    pub message: String,
}

impl fmt::Display for TimingError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.key, self.message)
    }
}

impl std::error::Error for TimingError {}

impl Timings {
    /// Checks the relations between the durations. Fails with one error for each violated relation.
    pub fn new(settings: TimingSettings) -> Result<Self, Vec<TimingError>> {
        let s = settings;
        let mut errors = Vec::new();
        let mut broken = |key, message| errors.push(TimingError { key, message });

        for (key, value) in [
            ("renew_interval", s.renew_interval),
            ("retry_interval", s.retry_interval),
            ("operation_timeout", s.operation_timeout),
        ] {
            if value < INTERVAL_MIN {
                broken(key, format!("{value:?} is shorter than {INTERVAL_MIN:?}"));
            }
        }
        if !(LEASE_DURATION_MIN..=LEASE_DURATION_MAX).contains(&s.lease_duration) {
            let message = format!("{:?} is not between 1s and 1h", s.lease_duration);
            broken("lease_duration", message);
        }
        // Worst-case time until a renewal and its first retry are resolved.
        let attempts = s.renew_interval.saturating_add(s.retry_interval);
        let needed = (attempts.saturating_mul(100 + JITTER_PERCENT) / 100)
            .saturating_add(s.operation_timeout.saturating_mul(2));
        if needed > s.renew_deadline {
            let message = format!(
                "{:?} leaves no room for a second attempt: 1.2 × (renew_interval {:?} + \
                 retry_interval {:?}) + 2 × operation_timeout {:?} is {needed:?}; set it to at least \
                 {needed:?} or shorten the others",
                s.renew_deadline, s.renew_interval, s.retry_interval, s.operation_timeout,
            );
            broken("renew_deadline", message);
        }
        let needed = (s.renew_deadline.saturating_add(s.loss_grace)).saturating_mul(11) / 10
            + Duration::from_millis(500);
        if needed > s.lease_duration {
            let message = format!(
                "{:?} could end while the old leader's workload still runs: (renew_deadline {:?} + \
                 loss_grace {:?}) × 1.1 + 500ms is {needed:?}; set it to at least {needed:?} or \
                 shorten the others",
                s.lease_duration, s.renew_deadline, s.loss_grace,
            );
            broken("lease_duration", message);
        }
        match errors.is_empty() {
            true => Ok(Self(s)),
            false => Err(errors),
        }
    }

    /// Returns the shortest `renew_deadline` that lets a leader survive `gap` without writes.
    pub fn renew_deadline_for(&self, gap: Duration) -> Duration {
        let s = &self.0;
        let retry = s.retry_interval.saturating_mul(100 + JITTER_PERCENT) / 100;
        let attempt = s.operation_timeout.saturating_add(retry);
        gap.saturating_add(attempt).saturating_add(RENEWAL_MARGIN)
    }

    /// Returns the durations, so that the caller can change them and check them again.
    pub fn settings(&self) -> TimingSettings {
        self.0
    }
}

macro_rules! getters {
    ($($duration:ident)+) => {
        impl Timings {
            $(#[doc = concat!("See [`TimingSettings::", stringify!($duration), "`].")]
            pub fn $duration(&self) -> Duration {
                self.0.$duration
            })+
        }
    };
}

getters! {
    lease_duration renew_deadline renew_interval retry_interval operation_timeout loss_grace
}

/// Returns how long a replica set accepts no writes after its primary was killed. If the primary
/// froze instead, the next primary also needs time to catch up.
pub fn election_gap(election_timeout: Duration) -> Duration {
    election_timeout.saturating_mul(100 + ELECTION_OFFSET_PERCENT) / 100 + ELECTION_VOTES
}

#[cfg(all(test, not(proof)))]
mod arithmetic;

#[cfg(all(test, not(proof)))]
mod tests {
    use super::*;

    #[test]
    fn the_defaults_keep_their_own_rules() {
        let defaults = Timings::default();
        assert_eq!(Timings::new(TimingSettings::default()), Ok(defaults));
        let needed = defaults.renew_deadline_for(election_gap(Duration::from_secs(10)));
        assert!(needed <= defaults.renew_deadline(), "{needed:?}");
    }

    #[test]
    fn the_gap_of_a_default_election_is_the_measured_one() {
        let default = Duration::from_secs(10);
        // The upper end of the measured range, 10.1 to 12.1 s.
        assert_eq!(election_gap(default), Duration::from_millis(12_100));
        // 12.1 s + 3 s + 1.2 × 1 s + 0.5 s.
        let needed = Timings::default().renew_deadline_for(election_gap(default));
        assert_eq!(needed, Duration::from_millis(16_800));
    }

    #[test]
    fn kubernetes_timings_are_accepted_but_do_not_survive_an_election() {
        let settings = TimingSettings::of_millis([15_000, 10_000, 2_000, 1_000, 3_000, 3_000]);
        let timings = Timings::new(settings).expect("15/10/2 keeps the rules");
        let needed = timings.renew_deadline_for(election_gap(Duration::from_secs(10)));
        assert!(needed > timings.renew_deadline(), "{needed:?}");
    }

    #[test]
    fn every_broken_relation_is_reported_with_its_values() {
        let settings = TimingSettings::of_millis([10_000, 9_000, 8_000, 10, 3_000, 3_000]);
        let errors = Timings::new(settings).expect_err("three relations are broken");
        let keys: Vec<_> = errors.iter().map(|e| e.key).collect();
        assert_eq!(keys, ["retry_interval", "renew_deadline", "lease_duration"]);
        let (deadline, lease) = (&errors[1].message, &errors[2].message);
        assert!(deadline.contains("renew_interval 8s"), "{errors:?}");
        assert!(lease.contains("loss_grace 3s"), "{errors:?}");
    }

    #[test]
    fn each_relation_holds_up_to_its_bound_and_not_beyond() {
        let millis = Duration::from_millis;
        let least = Duration::from_nanos(1);
        let defaults = TimingSettings::default;
        // The shortest accepted timings.
        let short = TimingSettings::of_millis([1_000, 220, 50, 50, 50, 100]);
        type Change = fn(&mut TimingSettings, Duration);
        let renew_interval: Change = |s, to| s.renew_interval = to;
        let retry_interval: Change = |s, to| s.retry_interval = to;
        let operation_timeout: Change = |s, to| s.operation_timeout = to;
        let renew_deadline: Change = |s, to| s.renew_deadline = to;
        let lease_duration: Change = |s, to| s.lease_duration = to;
        let (long, least_lease) = (defaults(), LEASE_DURATION_MIN);
        let cases = [
            ("renew_interval", renew_interval, short, INTERVAL_MIN),
            ("retry_interval", retry_interval, short, INTERVAL_MIN),
            ("operation_timeout", operation_timeout, short, INTERVAL_MIN),
            ("lease_duration", lease_duration, short, least_lease),
            // 1.2 × (3 s + 1 s) + 2 × 3 s.
            ("renew_deadline", renew_deadline, long, millis(10_800)),
            // (18 s + 3 s) × 1.1 + 500 ms.
            ("lease_duration", lease_duration, long, millis(23_600)),
        ];
        for (key, change, mut settings, bound) in cases {
            change(&mut settings, bound);
            assert!(Timings::new(settings).is_ok(), "{key} {bound:?}");
            change(&mut settings, bound - least);
            let errors = Timings::new(settings).expect_err("beyond the bound");
            let keys: Vec<_> = errors.iter().map(|e| e.key).collect();
            assert_eq!(keys, [key]);
            assert!(errors[0].to_string().starts_with(&format!("{key}: ")));
        }
        let accepted = Timings::new(short).expect("the shortest there is");
        assert_eq!(accepted.settings(), short);
        assert_eq!(accepted.loss_grace(), millis(100));
        let mut long = defaults();
        long.lease_duration = LEASE_DURATION_MAX;
        assert!(Timings::new(long).is_ok());
        long.lease_duration += least;
        assert!(Timings::new(long).is_err());
    }

    #[test]
    fn absurd_durations_do_not_overflow() {
        let settings = TimingSettings {
            lease_duration: Duration::MAX / 20,
            renew_deadline: Duration::MAX / 20,
            renew_interval: Duration::MAX / 20,
            operation_timeout: Duration::MAX,
            ..TimingSettings::default()
        };
        assert!(Timings::new(settings).is_err());
    }
}
