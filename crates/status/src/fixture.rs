//! Names and statuses for unit tests.

use std::time::Duration;

use tokio::sync::watch;

use super::render::Identification;
use leasehold_core::election::{
    Authority, BootTime, Identity, ResourceName, Role, Session, Status, TimingSettings, Timings,
    Token,
};

/// Returns the candidate `identity` for the lease `orders`.
pub fn who(identity: &str) -> Identification {
    Identification {
        lease: ResourceName::new("orders").expect("legal"),
        identity: Identity::new(identity).expect("legal"),
        boot_id: None,
    }
}

/// Returns a token.
pub fn token(number: i64) -> Token {
    Token::new(number).expect("a number that is not negative")
}

/// Returns timings with this `renew_interval`, which must be between 50 ms and 20 minutes.
pub fn timings(renew_interval: Duration) -> watch::Receiver<Timings> {
    let least = Duration::from_millis(50);
    let timings = Timings::new(TimingSettings {
        lease_duration: renew_interval * 2 + Duration::from_secs(1),
        renew_deadline: renew_interval * 3 / 2 + 4 * least,
        renew_interval,
        retry_interval: least,
        operation_timeout: least,
        loss_grace: least,
    });
    watch::channel(timings.expect("valid timings")).1
}

/// Returns an instant `seconds` after boot.
pub fn at(seconds: u64) -> BootTime {
    BootTime::from_nanos(seconds * 1_000_000_000)
}

/// Returns the status of a candidate that has just started, in this role.
pub fn status(role: Role) -> Status {
    Status {
        role,
        ..Status::initial(Session::from_bytes([1; 16]), BootTime::default())
    }
}

/// Returns the status of a leader with this token.
pub fn leader(number: i64, valid_until: BootTime) -> Status {
    let token = token(number);
    Status {
        authority: Some(Authority { token, valid_until }),
        token_highest: token,
        ..status(Role::Leader)
    }
}
