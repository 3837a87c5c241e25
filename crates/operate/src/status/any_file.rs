//! Goal: for every status and all times of writing and reading, a file says "leader" if and only if
//! authority is still valid (I4). No text causes a panic.

use std::time::{Duration, UNIX_EPOCH};

use super::judge::{FileVerdict, judge};
use leasehold_core::election::{
    Authority, BootTime, HolderView, Identity, Reason, Role, Session, Status, Token,
};
use leasehold_status::fixture;
use leasehold_status::render::{ClockPair, Identification, StatusDocument};
use proptest::prelude::*;

/// Generates a status that the election can produce: authority occurs only with the role leader.
fn status() -> impl Strategy<Value = Status> {
    let instants = (0..200_u64, 0..200_u64, 0..200_u64);
    (
        prop::sample::select(Role::ALL.to_vec()),
        any::<[u8; 16]>(),
        any::<u32>(),
        instants,
        "\\PC{1,20}",
    )
        .prop_map(|(role, session, token, (until, since, held), name)| {
            let token = Token::new(i64::from(token)).expect("not negative");
            let until = BootTime::from_nanos(until);
            Status {
                role,
                authority: (role == Role::Leader).then_some(Authority {
                    token,
                    valid_until: until,
                }),
                holder: Identity::new(name).ok().map(|identity| HolderView {
                    identity,
                    token,
                    until: BootTime::from_nanos(held),
                    unconfirmed: false,
                }),
                since: BootTime::from_nanos(since),
                reason: Some(Reason::Renewed),
                ..Status::initial(Session::from_bytes(session), BootTime::default())
            }
        })
}

fn who() -> Identification {
    Identification {
        boot_id: Some("b".to_owned()),
        ..fixture::who("o'hara \"x\"")
    }
}

#[test]
fn no_file_of_the_corpus_says_leader() {
    for input in leasehold_testbed::corpus::inputs("status") {
        let text = String::from_utf8_lossy(&input);
        let judged = judge(&text, Some("orders"), Some("b"), None, BootTime::default());
        assert_ne!(judged.verdict, FileVerdict::Leader, "{text}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(2_000) })]

    #[test]
    fn i4_a_file_says_leader_exactly_while_there_is_authority(
        status in status(), written in 0..200_u64, later in 0..200_u64, wall in 0..u64::from(u32::MAX),
    ) {
        let boot = BootTime::from_nanos(written);
        let wall = UNIX_EPOCH + Duration::from_secs(wall);
        let clocks = ClockPair { boot, wall, time_namespace: None };
        let json = StatusDocument::new(&status, &who(), clocks).to_json();
        let read = BootTime::from_nanos(written + later);
        let judged = judge(&json, Some("orders"), Some("b"), None, read);
        prop_assert_eq!(judged.verdict == FileVerdict::Leader, status.leads_at(read));
        prop_assert!(judged.verdict != FileVerdict::CannotTell);
        let elsewhere = judge(&json, Some("orders"), Some("c"), None, read);
        prop_assert_eq!(elsewhere.verdict, FileVerdict::CannotTell);
    }

    #[test]
    fn any_text_is_judged(text in prop_oneof!["\\PC{0,60}", any::<String>()], now in any::<u64>()) {
        let judged = judge(&text, None, None, None, BootTime::from_nanos(now));
        prop_assert!(judged.verdict != FileVerdict::Leader);
    }

    #[test]
    fn a_damaged_file_never_panics(status in status(), at in 0..600_usize, byte in any::<u8>()) {
        let clocks = ClockPair { boot: BootTime::default(), wall: UNIX_EPOCH, time_namespace: None };
        let json = StatusDocument::new(&status, &who(), clocks).to_json();
        let mut bytes = json.into_bytes();
        // The final newline is not changed, because a file without it is still valid.
        let index = at % (bytes.len() - 1);
        bytes[index] = byte;
        let _ = judge(&String::from_utf8_lossy(&bytes), Some("orders"), Some("b"), None, clocks.boot);
        bytes.truncate(index);
        let cut = judge(&String::from_utf8_lossy(&bytes), None, None, None, clocks.boot);
        prop_assert_eq!(cut.verdict, FileVerdict::CannotTell);
    }
}
