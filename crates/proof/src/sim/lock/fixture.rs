use std::time::Duration;

use crate::election::{Claim, Declared, Identity, Revision, Session, Token, WallMillis};
use crate::lock::{Entry, EntryMode, EntryOwner};

pub(super) fn claim(number: u8) -> Claim {
    Claim::from_bytes([number; 16])
}

pub(super) fn revision(number: u8) -> Revision {
    Revision::from_bytes([number; 16])
}

pub(super) fn token(number: i64) -> Token {
    Token::new(number).expect("not negative")
}

/// Returns an entry without a token. Its revision and its claim consist of this number.
pub(super) fn entry(number: u8, mode: EntryMode) -> Entry {
    Entry {
        claim: claim(number),
        owner: EntryOwner {
            identity: Identity::new("a").expect("legal"),
            session: Session::from_bytes([0; 16]),
            acquired_at: WallMillis(0),
            renewed_at: WallMillis(0),
        },
        mode,
        revision: revision(number),
        lease_duration: Declared { millis: 24_000 },
        token: None,
        granted_revision: None,
        slot: None,
        min_hold: Duration::ZERO,
        work_done: false,
    }
}

pub(super) fn held(number: u8, mode: EntryMode, with: i64) -> Entry {
    Entry {
        token: Some(token(with)),
        ..entry(number, mode)
    }
}
