//! Goal: no write changes a document that is not a lease of this version (I11), loses a field of a
//! newer version, or lets the history exceed its limit. Method: set each field of a lease to every
//! unusual BSON value in turn, then set several fields at once, drawn from a fixed seed. The test
//! stores each document on a real server and attempts every write with the shipped store. The
//! writes use the document's own revision and claim, so that their filters almost match.

use std::sync::Arc;
use std::time::Duration;

use leasehold::election::{
    Acquisition, Claim, Declared, Found, HistoryEntry, Identity, Lease, Operation, Outcome, Reason,
    Revision, Session, Token, WallMillis,
};
use leasehold::store::mongo::MongoStore;
use leasehold::store::{Failure, Store};
use leasehold_testbed::{Stage, StoredLease};
use mongodb::bson::spec::BinarySubtype;
use mongodb::bson::{
    Binary, Bson, DateTime, Decimal128, Document, JavaScriptCodeWithScope, RawDocumentBuf, Regex,
    Timestamp, doc,
};
use proptest::strategy::{Strategy, ValueTree};
use proptest::test_runner::TestRunner;

use crate::fixture::{patient_store, shared_stage};

/// Number of documents with several unusual fields, in addition to the documents with one unusual
/// field.
const MIXED: usize = 40;
/// Number of concurrent workers, each of which mostly waits for MongoDB's journal. More workers
/// would only wait for each other.
const WORKERS: usize = 4;
/// Maximum number of attempts per document, because MongoDB elections can disturb a check.
const ATTEMPTS: usize = 4;
const HISTORY_MAX: usize = 20;
const TIMEOUT: Duration = Duration::from_secs(30);
/// Fields that a write may change.
const KNOWN: [&str; 7] = [
    "token",
    "revision",
    "holder",
    "request",
    "reserved_for",
    "standby",
    "history",
];
/// Fields that receive unusual values.
const PATHS: [&str; 15] = [
    "schema",
    "kind",
    "token",
    "revision",
    "holder",
    "holder.identity",
    "holder.session",
    "holder.claim",
    "holder.acquired_at",
    "holder.lease_duration_ms",
    "paused",
    "request",
    "reserved_for",
    "standby",
    "history",
];

fn uuid(byte: u8) -> Bson {
    binary(BinarySubtype::Uuid, vec![byte; 16])
}

fn binary(subtype: BinarySubtype, bytes: Vec<u8>) -> Bson {
    Bson::Binary(Binary { subtype, bytes })
}

fn lease(held: bool) -> Document {
    let holder = doc! {
        "identity": "b", "session": uuid(2), "claim": uuid(3), "acquired_at": DateTime::from_millis(0),
        "renewed_at": DateTime::from_millis(0), "lease_duration_ms": 24_000_i64, "newer": [1.5],
    };
    doc! {
        "schema": 1, "kind": "lease", "token": 7_i64, "revision": uuid(1),
        "holder": if held { Bson::Document(holder) } else { Bson::Null },
        "paused": false, "request": null, "reserved_for": null, "history": [],
        "newer": { "deep": [{ "er": [] }], "nan": f64::NAN }, "holder.claim": uuid(9),
    }
}

/// Returns values of every BSON type, values close to `right`, and values that MongoDB treats like
/// `right`. MongoDB matches an array if one of its elements matches, and treats 1.0 and 1 as equal.
/// `None` means an absent field.
fn odd_values(right: &Bson) -> Vec<Option<Bson>> {
    let decimal = |text: &str| Bson::Decimal128(text.parse::<Decimal128>().expect("a decimal"));
    let entry = Bson::Document(doc! { "token": 1_i64, "newer": "x" });
    let code = JavaScriptCodeWithScope {
        code: "1".to_owned(),
        scope: doc! { "a": 1 },
    };
    let regex = Regex {
        pattern: "lease".try_into().expect("no zero byte"),
        options: "".try_into().expect("no zero byte"),
    };
    let timestamp = Timestamp {
        time: 1,
        increment: 1,
    };
    let mut values: Vec<Option<Bson>> = vec![
        None,
        Some(Bson::Array(vec![right.clone()])),
        Some(Bson::Array(vec![Bson::Null, right.clone()])),
        Some(Bson::Array(vec![entry; 60])),
        Some(Bson::Array((0..300).map(Bson::Int32).collect())),
        Some(decimal("1")),
        Some(decimal("NaN")),
        Some(Bson::JavaScriptCodeWithScope(code)),
        Some(Bson::RegularExpression(regex)),
        Some(Bson::Timestamp(timestamp)),
        Some(uuid(8)),
        Some(binary(BinarySubtype::Uuid, vec![1; 15])),
        Some(binary(BinarySubtype::Generic, vec![1; 16])),
    ];
    let plain: [Bson; 20] = [
        Bson::Null,
        true.into(),
        0.into(),
        1.into(),
        2.into(),
        1_i64.into(),
        (-1_i64).into(),
        (i64::MAX - 9).into(),
        1.0.into(),
        7.0.into(),
        f64::NAN.into(),
        "lease".into(),
        "lock".into(),
        "".into(),
        Bson::Array(vec![]),
        Bson::Document(doc! {}),
        Bson::Document(doc! { "kind": { "token": [null] }, "": 1 }),
        Bson::Symbol("lease".to_owned()),
        Bson::MinKey,
        Bson::MaxKey,
    ];
    values.extend(plain.map(Some));
    values
}

fn put(document: &mut Document, path: &str, value: Option<Bson>) {
    let (target, key) = match path.split_once('.') {
        Some((outer, key)) => match document.get_mut(outer) {
            Some(Bson::Document(inner)) => (inner, key),
            Some(_) | None => return,
        },
        None => (document, path),
    };
    match value {
        Some(value) => drop(target.insert(key, value)),
        None => drop(target.remove(key)),
    }
}

fn at(document: &Document, path: &str) -> Bson {
    let value = match path.split_once('.') {
        Some((outer, key)) => document.get_document(outer).ok().and_then(|d| d.get(key)),
        None => document.get(path),
    };
    value.cloned().unwrap_or(Bson::Null)
}

fn documents() -> Vec<Document> {
    let mut all = vec![
        doc! {},
        doc! { "hello": "world" },
        lease(true),
        lease(false),
    ];
    for path in PATHS {
        let held = path.starts_with("holder");
        for value in odd_values(&at(&lease(true), path)) {
            let mut document = lease(held);
            put(&mut document, path, value);
            all.push(document);
        }
    }
    let mut seeded = TestRunner::deterministic();
    let places = odd_values(&Bson::Null).len();
    let changes = proptest::collection::vec((0..PATHS.len(), 0..places), 2..4);
    for held in [true, false].into_iter().cycle().take(MIXED) {
        let drawn = changes.new_tree(&mut seeded).expect("a value").current();
        let mut document = lease(held);
        for (path, place) in drawn {
            let path = PATHS[path];
            let value = odd_values(&at(&lease(true), path)).swap_remove(place);
            put(&mut document, path, value);
        }
        all.push(document);
    }
    all
}

/// Returns the first id in a value. Also searches arrays, because a filter matches their elements.
fn id(value: Option<&Bson>) -> [u8; 16] {
    match value {
        Some(Bson::Binary(binary)) => binary.bytes.as_slice().try_into().unwrap_or_default(),
        Some(Bson::Array(values)) => values
            .iter()
            .map(|value| id(Some(value)))
            .find(|id| *id != [0; 16])
            .unwrap_or_default(),
        Some(_) | None => [0; 16],
    }
}

fn claim_in(document: &Document) -> Claim {
    let holder = match document.get("holder") {
        Some(Bson::Document(holder)) => Some(holder),
        Some(Bson::Array(holders)) => holders.iter().find_map(Bson::as_document),
        Some(_) | None => None,
    };
    Claim::from_bytes(id(holder.and_then(|holder| holder.get("claim"))))
}

/// Error of a check during which the replica set was disturbed, for example by an election on a
/// busy machine. The check must then be repeated. If the server refuses a write because of its
/// content, every attempt returns this error.
struct Disturbed(Failure);

struct Target {
    stored: StoredLease,
    store: MongoStore,
}

impl Target {
    fn new(stage: &Stage, worker: usize) -> Self {
        let name = format!("any-{worker}");
        let client = stage.set().client();
        let stored = StoredLease::new(&client, stage.database(), stage.collection(), &name);
        let store = patient_store(stage, &name, "a", TIMEOUT);
        Self { stored, store }
    }

    async fn perform(&self, operation: Operation) -> Result<Outcome, Disturbed> {
        let answer = self.store.perform(operation).await;
        match answer.failure {
            Some(failure) => Err(Disturbed(failure)),
            None => Ok(answer.outcome),
        }
    }

    /// Checks a document. Repeats the check if the replica set was disturbed.
    async fn judge(&self, document: &Document) {
        for _ in 1..ATTEMPTS {
            if self.attempt(document).await.is_ok() {
                return;
            }
        }
        if let Err(Disturbed(failure)) = self.attempt(document).await {
            panic!("{failure}: {document}");
        }
    }

    async fn fields(&self) -> Document {
        let bytes = self.stored.bytes().await;
        let raw = RawDocumentBuf::from_bytes(bytes).expect("BSON");
        raw.try_into().expect("a document")
    }

    async fn attempt(&self, document: &Document) -> Result<(), Disturbed> {
        self.stored.replace(document).await;
        let before = self.stored.bytes().await;
        match self.perform(Operation::Read { confirm: false }).await? {
            Outcome::Applied(Found::Foreign(why)) => {
                for operation in every_write(document) {
                    let outcome = self.perform(operation.clone()).await?;
                    let applied = matches!(outcome, Outcome::Applied(_));
                    assert!(
                        !applied,
                        "{why}, but {operation:?} was applied to {document}"
                    );
                }
                let after = self.stored.bytes().await;
                assert_eq!(after, before, "{why}, but changed: {document}");
            }
            Outcome::Applied(Found::Lease(lease)) => self.lead(document, &lease).await?,
            other => panic!("{other:?} was read from {document}"),
        }
        self.stored.delete().await;
        Ok(())
    }

    async fn lead(&self, document: &Document, lease: &Lease) -> Result<(), Disturbed> {
        let before = self.stored.bytes().await;
        let [create, acquire, take_over, renew, release] = writes_by_stranger(document, lease);
        for operation in [create, renew, release] {
            assert_eq!(
                self.perform(operation).await?,
                Outcome::Rejected,
                "{document}"
            );
        }
        assert_eq!(self.stored.bytes().await, before, "{document}");
        let acquired = match lease.holder {
            Some(_) => take_over,
            None => acquire,
        };
        let outcome = self.perform(acquired).await?;
        if lease.paused {
            assert_eq!(outcome, Outcome::Rejected, "{document}");
            assert_eq!(self.stored.bytes().await, before, "{document}");
            return Ok(());
        }
        let is_mine = |outcome: &Outcome| match outcome {
            Outcome::Applied(Found::Lease(lease)) => lease
                .holder
                .as_ref()
                .is_some_and(|holder| holder.claim == MINE),
            _ => false,
        };
        assert!(is_mine(&outcome), "{outcome:?}: {document}");
        self.keeps_what_is_newer(document).await;
        let outcome = self
            .perform(renewal(MINE, REVISIONS[0], REVISIONS[1]))
            .await?;
        assert!(is_mine(&outcome), "{outcome:?}: {document}");
        self.keeps_what_is_newer(document).await;
        let outcome = self.perform(release_of(MINE, REVISIONS[1])).await?;
        match outcome {
            Outcome::Applied(Found::Lease(lease)) if lease.holder.is_none() => {}
            other => panic!("{other:?}: {document}"),
        }
        self.keeps_what_is_newer(document).await;
        let history = self.stored.history().await;
        assert!((1..=HISTORY_MAX).contains(&history.len()), "{document}");
        assert_eq!(
            history.last().and_then(|e| e.get_str("reason").ok()),
            Some("requested")
        );
        Ok(())
    }

    async fn keeps_what_is_newer(&self, document: &Document) {
        let now = self.fields().await;
        let newer = |document: &Document| {
            let newer = document
                .iter()
                .filter(|(key, _)| !KNOWN.contains(&key.as_str()));
            let mut newer: Vec<_> = newer
                .filter(|(key, _)| *key != "_id")
                .map(|(key, value)| (key.clone(), format!("{value:?}")))
                .collect();
            newer.sort();
            newer
        };
        assert_eq!(newer(&now), newer(document));
    }
}

const MINE: Claim = Claim::from_bytes([5; 16]);
const STRANGER: Session = Session::from_bytes([6; 16]);
const REVISIONS: [Revision; 3] = [
    Revision::from_bytes([40; 16]),
    Revision::from_bytes([41; 16]),
    Revision::from_bytes([42; 16]),
];

/// Returns every kind of write, with values that match `document` as closely as possible.
fn every_write(document: &Document) -> [Operation; 7] {
    let (revision, claim) = (
        Revision::from_bytes(id(document.get("revision"))),
        claim_in(document),
    );
    let [create, acquire, take_over] = acquisitions(revision, Token::MAX, claim);
    let renew = renewal(claim, revision, REVISIONS[1]);
    [
        create,
        acquire,
        take_over,
        renew,
        release_of(claim, revision),
        Operation::Register {
            holder: claim,
            session: STRANGER,
            priority: 1,
            replaces: standby_of(document),
        },
        Operation::Withdraw {
            session: standby_in(document),
        },
    ]
}

fn standby_in(document: &Document) -> Session {
    let standby = document.get_document("standby").ok();
    Session::from_bytes(id(standby.and_then(|standby| standby.get("session"))))
}

fn standby_of(document: &Document) -> Option<Session> {
    let standby = document.get_document("standby").ok();
    standby.map(|_| standby_in(document))
}

/// Returns every kind of write by a process that does not hold the lease.
fn writes_by_stranger(document: &Document, lease: &Lease) -> [Operation; 5] {
    let revision = Revision::from_bytes(id(document.get("revision")));
    let token = lease.token.next().expect("not the last");
    let holder = claim_in(document);
    let [create, acquire, take_over] = acquisitions(revision, token, holder);
    let renew = renewal(MINE, revision, REVISIONS[1]);
    [
        create,
        acquire,
        take_over,
        renew,
        release_of(MINE, revision),
    ]
}

fn acquisitions(expected: Revision, token: Token, holder: Claim) -> [Operation; 3] {
    let acquisition = Acquisition {
        claim: MINE,
        revision: REVISIONS[0],
        token,
        expected,
        session: STRANGER,
        lease_duration: Declared { millis: 24_000 },
        renew_interval: Some(std::time::Duration::from_secs(3)),
    };
    let ended = entry(Reason::TookOver);
    let revision = REVISIONS[2];
    [
        Operation::Create { revision, token },
        Operation::Acquire(acquisition.clone()),
        Operation::TakeOver {
            acquisition,
            holder,
            ended,
        },
    ]
}

fn renewal(claim: Claim, stored: Revision, revision: Revision) -> Operation {
    let chain = vec![stored];
    Operation::Renew {
        claim,
        revision,
        chain,
    }
}

fn release_of(claim: Claim, stored: Revision) -> Operation {
    Operation::Release {
        claim,
        revision: REVISIONS[2],
        chain: vec![stored],
        ended: entry(Reason::Requested),
        reserved_for: None,
    }
}

fn entry(reason: Reason) -> HistoryEntry {
    HistoryEntry {
        token: Token::new(7).expect("positive"),
        identity: Identity::new("b").expect("legal"),
        acquired_at: WallMillis(0),
        reason,
    }
}

#[tokio::test]
async fn i11_no_write_changes_a_foreign_document_or_loses_newer_fields() {
    let stage = shared_stage().await;
    let documents = Arc::new(documents());
    let workers = (0..WORKERS).map(|worker| {
        let (documents, target) = (Arc::clone(&documents), Target::new(&stage, worker));
        tokio::spawn(async move {
            for document in documents.iter().skip(worker).step_by(WORKERS) {
                target.judge(document).await;
            }
        })
    });
    for worker in workers.collect::<Vec<_>>() {
        worker.await.expect("every document passes");
    }
}
