//! Serialization of inputs, effects and operations, for traces (feature `serde`). Deserialization
//! checks values as their constructors do. Ids are serialized as UUID strings.

use std::time::Duration;

use crate::election::{Claim, Identity, Revision, Session, TimingSettings, Timings, Token};
use crate::lock::{MIN_HOLD_MAX, MinHold, SLOTS_MAX, Slots, WorkKey};
use crate::trace::Bits;

/// Implements the conversions that serde needs for its attributes `try_from` and `into`.
macro_rules! serialized {
    ($($value:ident as $raw:ty: $read:expr, $written:expr;)+) => {
        $(impl TryFrom<$raw> for $value {
            type Error = String;

            fn try_from(raw: $raw) -> Result<Self, String> {
                let read: fn($raw) -> Result<Self, String> = $read;
                read(raw)
            }
        }

        impl From<$value> for $raw {
            fn from(value: $value) -> Self {
                let written: fn($value) -> Self = $written;
                written(value)
            }
        })+
    };
}

serialized! {
    Identity as String: |it| Identity::new(it).map_err(text), text;
    WorkKey as String: |it| WorkKey::new(it).map_err(text), text;
    Claim as String: |it| uuid(&it).map(Claim::from_bytes), text;
    Revision as String: |it| uuid(&it).map(Revision::from_bytes), text;
    Session as String: |it| uuid(&it).map(Session::from_bytes), text;
    Bits as String: |it| u128::from_str_radix(&it, 16).map(Bits).map_err(text),
        |it| format!("{:032x}", it.0);
    Token as i64:
        |it| Token::new(it).ok_or_else(|| format!("{it} is not a token: it is negative")),
        Token::get;
    Slots as u32:
        |it| Slots::new(it).ok_or_else(|| format!("{it} is not between 1 and {SLOTS_MAX}")),
        Slots::get;
    MinHold as Duration:
        |it| MinHold::new(it).ok_or_else(|| format!("{it:?} is above {MIN_HOLD_MAX:?}")),
        MinHold::get;
    Timings as TimingSettings: |it| Timings::new(it).map_err(joined), |it| it.settings();
}

fn text(value: impl ToString) -> String {
    value.to_string()
}

fn joined(errors: Vec<impl ToString>) -> String {
    let errors: Vec<_> = errors.into_iter().map(text).collect();
    errors.join("; ")
}

fn uuid(text: &str) -> Result<[u8; 16], String> {
    let digits: String = text.chars().filter(|c| *c != '-').collect();
    let well_formed = digits.len() == 32 && digits.bytes().all(|b| b.is_ascii_hexdigit());
    let bits = well_formed.then(|| u128::from_str_radix(&digits, 16).ok());
    let bytes = bits.flatten().map(u128::to_be_bytes);
    bytes.ok_or_else(|| format!("{text:?} is not a UUID"))
}

#[cfg(all(test, not(proof)))]
mod tests {
    use std::fmt;

    use serde::Serialize;
    use serde::de::DeserializeOwned;
    use serde_json::{Value, from_value, json, to_value};

    use super::*;

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
