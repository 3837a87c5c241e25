//! Serialization of inputs, effects and operations, for traces (feature `serde`). Deserialization
//! checks values as their constructors do. Ids have the text of a UUID.

use std::fmt;
use std::time::Duration;

use serde::de::{Deserialize, Deserializer, Error, Visitor};
use serde::ser::{Serialize, Serializer};

use crate::election::{
    Claim, Identity, NameError, Revision, Session, TimingError, TimingSettings, Timings, Token,
};
use crate::lock::{MIN_HOLD_MAX, MinHold, SLOTS_MAX, Slots, WorkKey};

macro_rules! from_text {
    ($($name:ident)+) => {
        $(impl TryFrom<String> for $name {
            type Error = NameError;

            fn try_from(text: String) -> Result<Self, NameError> {
                Self::new(text)
            }
        }

        impl From<$name> for String {
            fn from(name: $name) -> Self {
                name.to_string()
            }
        })+
    };
}

from_text! { Identity WorkKey }

macro_rules! from_number {
    ($($name:ident($number:ident): $error:expr;)+) => {
        $(impl TryFrom<$number> for $name {
            type Error = String;

            fn try_from(number: $number) -> Result<Self, String> {
                let error: fn($number) -> String = $error;
                Self::new(number).ok_or_else(|| error(number))
            }
        }

        impl From<$name> for $number {
            fn from(value: $name) -> Self {
                value.get()
            }
        })+
    };
}

from_number! {
    Token(i64): |it| format!("{it} is not a token: it is negative");
    Slots(u32): |it| format!("{it} is not between 1 and {SLOTS_MAX}");
    MinHold(Duration): |it| format!("{it:?} is above {MIN_HOLD_MAX:?}");
}

impl TryFrom<TimingSettings> for Timings {
    type Error = String;

    fn try_from(settings: TimingSettings) -> Result<Self, String> {
        let joined = |errors: Vec<TimingError>| {
            let errors: Vec<_> = errors.iter().map(ToString::to_string).collect();
            errors.join("; ")
        };
        Self::new(settings).map_err(joined)
    }
}

impl From<Timings> for TimingSettings {
    fn from(timings: Timings) -> Self {
        timings.settings()
    }
}

/// Returns the bytes of a UUID.
fn uuid(text: &str) -> Option<[u8; 16]> {
    let digits: String = text.chars().filter(|c| *c != '-').collect();
    let well_formed = digits.len() == 32 && digits.bytes().all(|b| b.is_ascii_hexdigit());
    let bits = well_formed.then(|| u128::from_str_radix(&digits, 16));
    bits?.ok().map(u128::to_be_bytes)
}

struct Uuid;

impl Visitor<'_> for Uuid {
    type Value = [u8; 16];

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a UUID")
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<[u8; 16], E> {
        uuid(text).ok_or_else(|| E::custom(format_args!("{text:?} is not a UUID")))
    }
}

macro_rules! ids {
    ($($name:ident)+) => {
        $(impl Serialize for $name {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                deserializer.deserialize_str(Uuid).map(Self::from_bytes)
            }
        })+
    };
}

ids! { Claim Revision Session }

#[cfg(all(test, not(proof)))]
mod tests {
    use serde::de::DeserializeOwned;
    use serde_json::{Value, from_value, json, to_value};

    use super::*;
    use crate::trace::Bits;

    fn same<T: Serialize + DeserializeOwned + PartialEq + fmt::Debug>(value: T, text: Value) {
        assert_eq!(to_value(&value).expect("JSON"), text);
        assert_eq!(from_value::<T>(text).expect("readable"), value);
    }

    fn refused<T: DeserializeOwned + fmt::Debug>(text: Value, expected: &str) {
        let error = from_value::<T>(text).expect_err(expected).to_string();
        assert!(error.contains(expected), "{error}");
    }

    #[test]
    fn values_are_read_as_they_were_written() {
        let id = "01234567-89ab-cdef-0123-456789abcdef";
        same(
            Claim::from_bytes(0x0123_4567_89ab_cdef_0123_4567_89ab_cdef_u128.to_be_bytes()),
            json!(id),
        );
        same(Token::new(7).expect("legal"), json!(7));
        same(Identity::new("a").expect("legal"), json!("a"));
        same(Slots::new(3).expect("legal"), json!(3));
        same(MinHold::NONE, json!({ "secs": 0, "nanos": 0 }));
        same(WorkKey::default(), json!("default"));
        same(Bits(255), json!("000000000000000000000000000000ff"));
        let timings = Timings::default();
        same(timings, to_value(timings.settings()).expect("JSON"));
    }

    #[test]
    fn checked_values_are_checked_when_they_are_read() {
        for text in ["", "0123", "01234567-89ab-cdef-0123-456789abcdeg"] {
            refused::<Revision>(json!(text), "is not a UUID");
        }
        refused::<Token>(json!(-1), "-1 is not a token");
        refused::<Identity>(json!(""), "is not accepted");
        refused::<WorkKey>(json!("\n"), "is not accepted");
        refused::<Slots>(json!(0), "0 is not between 1 and 256");
        refused::<MinHold>(json!({ "secs": 90_000, "nanos": 0 }), "is above 86400s");
        refused::<Bits>(json!("x"), "invalid digit");
        let mut settings = Timings::default().settings();
        settings.renew_deadline = settings.lease_duration;
        refused::<Timings>(to_value(settings).expect("JSON"), "lease_duration");
    }
}
