//! Common fixtures of the lock tests: stores, documents and operations.

use std::sync::Arc;
use std::time::Duration;

use leasehold::election::{
    Claim, Declared, Identity, ResourceName, Revision, Session, TimingSettings, Timings, Token,
    WallMillis,
};
use leasehold::lock::{
    Entry, EntryMode, EntryOwner, EntryVersion, FoundLock, Grant, Hint, LockDocument,
    LockOperation, LockOutcome, NewEntry, Writer,
};
use leasehold::store::StoreEvent;
use leasehold::store::mongo::StoreOptions;
use leasehold::store::mongo::lock::{ClaimHint, MongoLockStore};
pub(crate) use leasehold_testbed::wait::{LONG, eventually};
use leasehold_testbed::{ReplicaSet, SharedSet, Stage, StoredLease};
use mongodb::bson::{Bson, DateTime, Document, Uuid, doc};
use tokio::sync::mpsc;

pub(crate) const NAME: &str = "orders";
/// Dates after this constant come from a real clock. Earlier dates come from the test.
const LONG_AGO: i64 = 1_000_000_000_000;
/// Replaces every date of a real clock in comparisons.
pub(crate) const NOW: WallMillis = WallMillis(1);

const PROGRAM: &str = env!("CARGO_BIN_EXE_leasehold");
const NEWS_MAX: usize = 64;

static SHARED: SharedSet = SharedSet::new(ReplicaSet::builder);

pub(crate) async fn shared_stage() -> Stage {
    Stage::new(PROGRAM, SHARED.get().await)
}

pub(crate) fn stage_on(set: &Arc<ReplicaSet>) -> Stage {
    Stage::new(PROGRAM, Arc::clone(set))
}

/// Returns timings with a lease duration that suffices on a busy machine.
pub(crate) fn timings(operation_timeout: Duration) -> Timings {
    Timings::new(TimingSettings {
        lease_duration: Duration::from_secs(60),
        renew_deadline: Duration::from_secs(40),
        operation_timeout,
        ..TimingSettings::default()
    })
    .expect("valid timings")
}

pub(crate) fn store_options(stage: &Stage, identity: &str) -> StoreOptions {
    let identity = Identity::new(identity).expect("legal");
    let mut options = StoreOptions::new(stage.set().uri(), identity);
    options.database = stage.database().to_owned();
    options.collection = stage.collection().to_owned();
    options
}

pub(crate) fn store_over(
    options: StoreOptions,
    name: &str,
) -> (MongoLockStore, mpsc::Receiver<StoreEvent<ClaimHint>>) {
    let (sender, news) = mpsc::channel(NEWS_MAX);
    let name = ResourceName::new(name).expect("legal");
    (MongoLockStore::new(options, name, sender).0, news)
}

pub(crate) fn store(stage: &Stage) -> MongoLockStore {
    let mut options = store_options(stage, "a");
    options.timings = timings(Duration::from_secs(10));
    store_over(options, NAME).0
}

/// Returns direct access to the lock's document, without the store.
pub(crate) fn stored(stage: &Stage) -> StoredLease {
    let client = stage.set().client();
    StoredLease::new(&client, stage.database(), stage.collection(), NAME)
}

pub(crate) async fn applied(store: &MongoLockStore, operation: LockOperation) -> LockDocument {
    let answer = store.perform(operation.clone()).await;
    match answer.outcome {
        LockOutcome::Applied(FoundLock::Lock(lock)) => lock,
        other => panic!("{operation:?}: {other:?}: {:?}", answer.failure),
    }
}

pub(crate) async fn rejected(store: &MongoLockStore, operation: LockOperation) {
    let answer = store.perform(operation.clone()).await;
    assert_eq!(
        answer.outcome,
        LockOutcome::Rejected,
        "{operation:?}: {:?}",
        answer.failure
    );
}

pub(crate) async fn read(store: &MongoLockStore) -> LockDocument {
    applied(store, LockOperation::Read { confirm: false }).await
}

/// Skips hints that only show that the stream is alive.
pub(crate) async fn next_hint(news: &mut mpsc::Receiver<StoreEvent<ClaimHint>>) -> Hint {
    let next = async {
        loop {
            match news.recv().await.expect("the store runs") {
                StoreEvent::Watch(told) if told.hint == Hint::Alive => {}
                StoreEvent::Watch(told) => return told.hint,
                StoreEvent::WatchFailed(failure) => panic!("no stream: {failure}"),
                _ => {}
            }
        }
    };
    let hint = tokio::time::timeout(LONG, next).await;
    hint.unwrap_or_else(|_| panic!("no hint after {LONG:?}"))
}

pub(crate) fn id(number: u16) -> [u8; 16] {
    let mut bytes = [0; 16];
    bytes[..2].copy_from_slice(&number.to_be_bytes());
    bytes
}

pub(crate) fn claim(number: u16) -> Claim {
    Claim::from_bytes(id(number))
}

pub(crate) fn revision(number: u16) -> Revision {
    Revision::from_bytes(id(number))
}

pub(crate) fn token(number: i64) -> Token {
    Token::new(number).expect("not negative")
}

pub(crate) fn seen(number: u16) -> EntryVersion {
    EntryVersion {
        claim: claim(number),
        revision: revision(number),
    }
}

pub(crate) fn slots_of(mode: EntryMode) -> u32 {
    match mode {
        EntryMode::Exclusive | EntryMode::Shared => 0,
        EntryMode::Slot => 2,
    }
}

/// Builds the entry of a join. `number` is both the entry's claim and its first revision.
pub(crate) fn joining(number: u16, mode: EntryMode) -> NewEntry {
    NewEntry {
        claim: claim(number),
        session: Session::from_bytes(id(9)),
        mode,
        revision: revision(number),
        slots: slots_of(mode),
        lease_duration: Declared { millis: 24_000 },
    }
}

pub(crate) fn join(number: u16, mode: EntryMode) -> LockOperation {
    LockOperation::Join {
        entry: joining(number, mode),
        seen: Token::ZERO,
        token_min: Token::ZERO,
        non_blocking: false,
    }
}

/// Renews the entry `number`, which still has its first revision.
pub(crate) fn renew(number: u16, new: u16) -> LockOperation {
    LockOperation::Renew {
        claim: claim(number),
        revision: revision(new),
        mine: vec![revision(number), revision(new)],
        seen: Token::ZERO,
        min_hold: None,
    }
}

/// Removes the entry `number` if it has its first revision, a renewal's revision, or the revision
/// that [`sweep`] uses.
pub(crate) fn leave(number: u16) -> LockOperation {
    leave_by(number, (10..=40).chain([number, number + 100]))
}

pub(crate) fn leave_by(number: u16, mine: impl IntoIterator<Item = u16>) -> LockOperation {
    LockOperation::Leave {
        claim: claim(number),
        mine: mine.into_iter().map(revision).collect(),
        seen: Token::ZERO,
        success: None,
        slots: 0,
    }
}

pub(crate) fn sweep(gone: &[u16], me: Option<u16>) -> LockOperation {
    let me = me.map(|number| Writer {
        claim: claim(number),
        revision: revision(number + 100),
    });
    LockOperation::Evict {
        entries: gone.iter().copied().map(seen).collect(),
        me,
        ending: leasehold::lock::Ending::Expired,
        seen: Token::ZERO,
    }
}

pub(crate) fn entry(number: u16, mode: EntryMode) -> Entry {
    Entry {
        claim: claim(number),
        owner: EntryOwner {
            identity: Identity::new("a").expect("legal"),
            session: Session::from_bytes(id(9)),
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

pub(crate) fn held(number: u16, mode: EntryMode, with: i64) -> Entry {
    Entry {
        token: Some(token(with)),
        ..entry(number, mode)
    }
}

/// Returns the hint of a grant with token `number` to an entry of revision `found`.
pub(crate) fn granted(number: i64, found: u16) -> Hint {
    Hint::Granted(Some(Grant {
        token: token(number),
        revision: revision(found),
        slot: None,
    }))
}

pub(crate) fn document(lock: &LockDocument) -> Document {
    let entries = |entries: &[Entry]| -> Vec<Document> {
        entries
            .iter()
            .map(|entry| {
                doc! {
                    "claim": Uuid::from_bytes(entry.claim.bytes()),
                    "identity": entry.owner.identity.as_str(),
                    "session": Uuid::from_bytes(entry.owner.session.bytes()),
                    "mode": entry.mode.as_str(),
                    "revision": Uuid::from_bytes(entry.revision.bytes()),
                    "lease_duration_ms": entry.lease_duration.millis,
                    "token": entry.token.map(Token::get),
                    "granted_revision": entry.granted_revision.map(|granted| {
                        Uuid::from_bytes(granted.bytes())
                    }),
                    "slot": entry.slot,
                    "at_least_ms": i64::try_from(entry.min_hold.as_millis()).expect("short"),
                    "over": entry.work_done,
                    "acquired_at": DateTime::from_millis(entry.owner.acquired_at.0),
                    "renewed_at": DateTime::from_millis(entry.owner.renewed_at.0),
                    "wake": entry.claim.to_string(),
                    "revision_text": entry.revision.to_string(),
                }
            })
            .collect()
    };
    doc! {
        "_id": NAME, "schema": 1, "kind": "lock", "token": lock.token.get(),
        "slots": i64::from(lock.slots),
        "slot_owners": lock.slot_owners.iter().map(|owner| {
            owner.as_ref().map(Identity::as_str)
        }).collect::<Vec<_>>(),
        "holders": entries(&lock.holders),
        "successes": lock.successes.iter().map(|success| {
            doc! { "key": success.key.as_str(), "at": DateTime::from_millis(success.at.0) }
        }).collect::<Vec<_>>(),
        "queue": entries(&lock.queue), "granted": "", "next": "", "history": [],
    }
}

pub(crate) fn undated(mut lock: LockDocument) -> LockDocument {
    for entry in lock.holders.iter_mut().chain(&mut lock.queue) {
        for date in [&mut entry.owner.acquired_at, &mut entry.owner.renewed_at] {
            if date.0 > LONG_AGO {
                *date = NOW;
            }
        }
    }
    for success in &mut lock.successes {
        if success.at.0 > LONG_AGO {
            success.at = NOW;
        }
    }
    lock.store_now = NOW;
    lock
}

pub(crate) fn numbers(entries: &[Entry]) -> Vec<u16> {
    let number = |entry: &Entry| {
        let bytes = entry.claim.bytes();
        u16::from_be_bytes([bytes[0], bytes[1]])
    };
    entries.iter().map(number).collect()
}

pub(crate) fn text<'a>(document: &'a Document, key: &str) -> &'a str {
    document.get(key).and_then(Bson::as_str).unwrap_or_default()
}
