use mongodb::bson::{RawArrayBuf, RawDocumentBuf};

use super::*;
use leasehold_core::election::{HistoryEntry, Reason, Reservation, Token, WallMillis};

fn release(number: u8) -> Released {
    Released {
        claim: Claim::from_bytes([number; 16]),
        revision: Revision::from_bytes([number + 1; 16]),
        reserved_for: Identity::new("b").expect("legal"),
    }
}

fn batch(hints: &[Document]) -> RawArrayBuf {
    let mut batch = RawArrayBuf::new();
    for hint in hints {
        batch.push(RawDocumentBuf::try_from(hint).expect("short"));
    }
    batch
}

#[test]
fn the_newest_announced_release_of_a_batch_counts() {
    let hint = |released: &Released| doc! { "name": "a", "released": announcement(released) };
    let (old, new) = (release(1), release(3));
    let plain = doc! { "name": "a" };
    for hints in [
        vec![hint(&old), hint(&new)],
        vec![hint(&old), hint(&new), plain.clone()],
        vec![plain.clone(), hint(&new)],
    ] {
        assert_eq!(released(&batch(&hints)), Some(new.clone()));
    }
    assert_eq!(released(&batch(&[plain])), None);
}

#[test]
fn an_invalid_announcement_is_a_plain_hint() {
    let valid = announcement(&release(1));
    for (field, value) in [
        ("claim", Bson::Null),
        ("claim", Bson::String("1".to_owned())),
        ("revision", Bson::Int32(7)),
        ("reserved_for", Bson::String(String::new())),
    ] {
        let mut announced = valid.clone();
        announced.insert(field, value);
        let hint = doc! { "name": "a", "released": announced };
        assert_eq!(released(&batch(&[hint])), None);
    }
    let hints = [doc! { "released": 7 }, doc! { "released": {} }];
    assert_eq!(released(&batch(&hints)), None);
}

#[test]
fn each_claim_is_announced_once() {
    let hints = Hints::new(WatchMode::Hints);
    let operation = Operation::Release {
        claim: release(1).claim,
        revision: release(1).revision,
        chain: Vec::new(),
        ended: HistoryEntry {
            token: Token::ZERO,
            identity: Identity::new("a").expect("legal"),
            acquired_at: WallMillis(0),
            reason: Reason::Requested,
        },
        reserved_for: Some(Reservation {
            identity: Identity::new("b").expect("legal"),
            duration: Duration::from_millis(50),
        }),
    };
    assert_eq!(hints.announce(&operation), None, "no collection");
    lock(&hints.state).usable = true;
    assert_eq!(hints.announce(&operation), Some(release(1)));
    assert_eq!(
        hints.announce(&operation),
        None,
        "a majority must acknowledge it"
    );
}
