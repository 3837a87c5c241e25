//! The lease document: names, ids and fields. Wall-clock fields are informational.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;
use std::time::Duration;

use super::timings::{INTERVAL_MIN, LEASE_DURATION_MAX, LEASE_DURATION_MIN};

/// Maximum length of the name of a lease or lock, equal to the maximum of a Kubernetes label value.
pub const NAME_LENGTH_MAX: usize = 63;
/// Maximum length of an identity, equal to the maximum of a Kubernetes pod name.
pub const IDENTITY_LENGTH_MAX: usize = 253;

/// The name of a lease or lock: 1–63 characters that form a valid Kubernetes label value.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ResourceName(Arc<str>);

/// A rejected name, with the accepted format.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NameError {
    /// The rejected name.
    pub value: String,
    /// The accepted format.
    pub expected: &'static str,
}

impl fmt::Display for NameError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{:?} is not accepted: expected {}",
            self.value, self.expected
        )
    }
}

impl std::error::Error for NameError {}

impl ResourceName {
    /// Checks a name: `[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?`, at most 63 characters.
    pub fn new(name: impl Into<String>) -> Result<Self, NameError> {
        let name = name.into();
        let bytes = name.as_bytes();
        let inner = |b: &u8| b.is_ascii_alphanumeric() || b"-_.".contains(b);
        let legal = bytes.len() <= NAME_LENGTH_MAX
            && bytes.first().is_some_and(u8::is_ascii_alphanumeric)
            && bytes.last().is_some_and(u8::is_ascii_alphanumeric)
            && bytes.iter().all(inner);
        let expected = "1 to 63 characters, letters, digits, '-', '_' or '.', beginning and \
                        ending with a letter or digit (a Kubernetes label value)";
        checked(name, legal, expected).map(Self)
    }
}

/// Human-readable name of a candidate. The protocol compares names only for a reservation or a
/// preferred standby.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(try_from = "String", into = "String"))]
pub struct Identity(Arc<str>);

impl Identity {
    /// Checks an identity: 1 to 253 bytes without control characters.
    pub fn new(identity: impl Into<String>) -> Result<Self, NameError> {
        let identity = identity.into();
        let legal = !identity.is_empty()
            && identity.len() <= IDENTITY_LENGTH_MAX
            && !identity.chars().any(char::is_control);
        let expected = "1 to 253 bytes without control characters";
        checked(identity, legal, expected).map(Self)
    }
}

/// The text is shared, because every event and every status contains a copy of the name.
pub(crate) fn checked(
    value: String,
    legal: bool,
    expected: &'static str,
) -> Result<Arc<str>, NameError> {
    if legal {
        Ok(value.into())
    } else {
        Err(NameError { value, expected })
    }
}

macro_rules! text {
    ($($name:ident)+) => {
        $(impl $name {
            /// Returns the text.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(&self.0)
            }
        })+
    };
}

pub(crate) use text;

text! { ResourceName Identity }

/// Source of random ids and jitter: the kernel in the daemon, a seeded generator in the simulator.
pub trait Randomness {
    /// Returns 128 random bits.
    fn bits(&mut self) -> u128;
}

macro_rules! random_id {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
        #[cfg_attr(feature = "serde", serde(try_from = "String", into = "String"))]
        pub struct $name([u8; 16]);

        impl $name {
            /// Returns a new id with the layout of a random (version 4) UUID.
            pub fn random(source: &mut dyn Randomness) -> Self {
                let mut bytes = source.bits().to_be_bytes();
                bytes[6] = (bytes[6] & 0x0f) | 0x40;
                bytes[8] = (bytes[8] & 0x3f) | 0x80;
                Self(bytes)
            }

            /// Returns the id with the bytes of a UUID.
            pub const fn from_bytes(bytes: [u8; 16]) -> Self {
                Self(bytes)
            }

            /// Returns the bytes of the UUID.
            pub const fn bytes(self) -> [u8; 16] {
                self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                for (index, byte) in self.0.iter().enumerate() {
                    if matches!(index, 4 | 6 | 8 | 10) {
                        f.write_str("-")?;
                    }
                    write!(f, "{byte:02x}")?;
                }
                Ok(())
            }
        }
    };
}

random_id! {
    /// Id of one acquisition or takeover, compared by the protocol. A claim leads at most once.
    Claim
}
random_id! {
    /// Random id of one write, so that after a rollback a new renewal differs from a lost renewal.
    Revision
}
random_id! {
    /// Id of one run of a candidate. Only a claim of another session ends a cooldown early.
    Session
}

/// Fencing token: grows at each acquisition, is never reused and never reset.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(try_from = "i64", into = "i64"))]
pub struct Token(i64);

impl Token {
    /// The token before the first acquisition.
    pub const ZERO: Self = Self(0);
    /// The highest token.
    pub const MAX: Self = Self(i64::MAX);

    /// Returns the token with this number; `None` if the number is negative.
    pub const fn new(token: i64) -> Option<Self> {
        if token < 0 { None } else { Some(Self(token)) }
    }

    /// Returns the number.
    pub const fn get(self) -> i64 {
        self.0
    }

    /// Returns the next token; `None` at the end of the range.
    pub fn next(self) -> Option<Self> {
        self.0.checked_add(1).map(Self)
    }
}

impl fmt::Display for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Wall-clock time in milliseconds since 1970. Informational, except for the age of a success.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct WallMillis(pub i64);

/// The holder of the lease, as stored in the document.
#[derive(Debug, Clone, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Holder {
    /// Name of the candidate, for humans.
    pub identity: Identity,
    /// Session of the candidate.
    pub session: Session,
    /// The claim, which the protocol compares.
    pub claim: Claim,
    /// Time of the acquisition, by the candidate's own wall clock.
    pub acquired_at: WallMillis,
    /// Declared lease duration. Other candidates wait this long; see [`Declared::duration`].
    pub lease_duration: Declared,
    /// Declared interval of the holder's renewals; `None` if the holder publishes no hints.
    pub renew_interval: Option<Duration>,
    /// Token of the claim, for humans: the lease's token may have been raised since the
    /// acquisition. `None` if the document does not contain it.
    pub token: Option<Token>,
}

impl Hash for Holder {
    /// Omits the token. No decision depends on it, and it would only add states to the model.
    fn hash<H: Hasher>(&self, state: &mut H) {
        let Self {
            identity,
            session,
            claim,
            acquired_at,
            lease_duration,
            renew_interval,
            token: _,
        } = self;
        (identity, session, claim).hash(state);
        (acquired_at, lease_duration, renew_interval).hash(state);
    }
}

impl Holder {
    /// Returns the declared renewal interval, if valid. The interval only determines when other
    /// candidates read.
    pub fn renewals_every(&self) -> Option<Duration> {
        let most = self.lease_duration.valid()? / 2;
        self.renew_interval
            .filter(|interval| (INTERVAL_MIN..=most).contains(interval))
    }
}

/// A lease duration as declared in a document, in milliseconds, possibly out of range.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Declared {
    /// The declared number of milliseconds.
    pub millis: i64,
}

impl Declared {
    /// Returns the declaration of this duration.
    pub fn of(duration: Duration) -> Self {
        Self {
            millis: i64::try_from(duration.as_millis()).unwrap_or(i64::MAX),
        }
    }

    /// Returns the declared duration if it is valid, and otherwise the longest valid duration. A
    /// shorter wait would be unsafe, and an endless wait would block the lease.
    pub fn duration(self) -> Duration {
        self.valid().unwrap_or(LEASE_DURATION_MAX)
    }

    /// Returns the duration if it is in the valid range.
    pub fn valid(self) -> Option<Duration> {
        let duration = Duration::from_millis(u64::try_from(self.millis).ok()?);
        (LEASE_DURATION_MIN..=LEASE_DURATION_MAX)
            .contains(&duration)
            .then_some(duration)
    }
}

/// An operator's request to the holder of `token`; other holders ignore it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Request {
    /// The requested action.
    pub kind: RequestKind,
    /// Token of the holder that the request is meant for.
    pub token: Token,
}

/// The kinds of [`Request`].
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum RequestKind {
    /// Step down and stay out for a cooldown.
    StepDown,
    /// Step down in favor of a named candidate.
    Transfer(Reservation),
}

/// The reservation of a released lease for one candidate.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Reservation {
    /// The candidate that may acquire immediately.
    pub identity: Identity,
    /// Time that others wait, measured from when they first saw the document's revision.
    pub duration: Duration,
}

impl Reservation {
    /// Returns true if this is the head start of a standby and not a transfer.
    pub fn is_head_start(&self) -> bool {
        self.duration <= HEAD_START
    }
}

/// Time that others wait for the standby: several times the latency of an event and a write.
pub const HEAD_START: Duration = Duration::from_millis(50);
/// Maximum number of [`HEAD_START`]s that a candidate of lower priority waits for the standby.
pub const HEAD_STARTS_MAX: u32 = 3;
/// Maximum duration of a reservation. A longer duration in the document is cut to this maximum.
pub const RESERVATION_MAX: Duration = Duration::from_secs(60);
/// Duration of a transfer's reservation if the request does not specify one.
pub const RESERVATION_DEFAULT: Duration = Duration::from_secs(5);

/// The candidate that should acquire first after the holder's release or expiry; only a hint.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Standby {
    /// Session of the candidate.
    pub session: Session,
    /// Name of the candidate.
    pub identity: Identity,
    /// Its priority; 0 for a registration by a version without priorities.
    pub priority: u32,
}

/// The fields of the lease document that the election reads.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Lease {
    /// Token of the newest claim.
    pub token: Token,
    /// Id of the last write of a candidate.
    pub revision: Revision,
    /// The holder; `None` if the lease is free.
    pub holder: Option<Holder>,
    /// True while no candidate may lead.
    pub paused: bool,
    /// The operator's request, if any.
    pub request: Option<Request>,
    /// The reservation of the free lease, if any.
    pub reserved_for: Option<Reservation>,
    /// The registered standby, if any.
    pub standby: Option<Standby>,
}

impl Lease {
    pub(super) fn claim(&self) -> Option<Claim> {
        self.holder.as_ref().map(|holder| holder.claim)
    }
}

#[cfg(all(test, not(proof)))]
mod tests {
    use super::*;

    #[test]
    fn names_are_label_values() {
        let (longest, too_long) = ("x".repeat(63), "x".repeat(64));
        for name in ["a", "orders-scheduler", "ns.release", "A_b-c.9", &longest] {
            let legal = ResourceName::new(name).expect("legal");
            assert_eq!(legal.to_string(), name);
        }
        for name in ["", "-a", "a-", ".", "a b", "ü", "a/b", "..", &too_long] {
            assert_eq!(ResourceName::new(name).expect_err("not legal").value, name);
        }
    }

    #[test]
    fn identities_have_no_control_characters() {
        assert!(Identity::new("host-1 (ümläut)").is_ok());
        assert!(Identity::new("").is_err());
        assert!(Identity::new("a\nb").is_err());
        assert!(Identity::new("x".repeat(254)).is_err());
    }

    #[test]
    fn random_ids_have_the_layout_of_uuids() {
        struct Ones;
        impl Randomness for Ones {
            fn bits(&mut self) -> u128 {
                u128::MAX
            }
        }
        let id = Claim::random(&mut Ones).to_string();
        assert_eq!(id, "ffffffff-ffff-4fff-bfff-ffffffffffff");
    }

    #[test]
    fn absurd_declared_durations_count_as_the_longest() {
        let millis = |millis| Declared { millis };
        assert_eq!(millis(24_000).duration(), Duration::from_secs(24));
        for absurd in [i64::MIN, -1, 0, 999, 3_600_001, i64::MAX] {
            assert_eq!(millis(absurd).valid(), None);
            assert_eq!(millis(absurd).duration(), LEASE_DURATION_MAX);
        }
    }

    #[test]
    fn tokens_end_instead_of_wrapping() {
        assert_eq!(Token::new(-1), None);
        assert_eq!(Token::new(i64::MAX).and_then(Token::next), None);
        assert_eq!(Token::ZERO.next().map(Token::get), Some(1));
    }
}
