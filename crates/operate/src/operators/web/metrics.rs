//! `GET /metrics`: exports the leases and locks of the collection to Prometheus.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use hyper::StatusCode;
use hyper::body::Bytes;

use super::super::lock_view::{HolderState, ObservedLock};
use super::super::observed::{Liveness, ObservedDocument, lock_of, wall};
use super::board::{LastRollCall, Snapshot};
use leasehold_core::election::{BootTime, WallMillis};
use leasehold_core::lock::Entry;
use leasehold_http::{Answer, respond, text};
use leasehold_metrics::CONTENT_TYPE;
use leasehold_metrics::collection::{
    CollectionSample, DocumentSamples, LeaseHolder, LeaseSample, LockSample,
};
use leasehold_mongodb::store::StoreInfo;
use leasehold_mongodb::store::mongo::operators::{Content, LastAnswer, LeaseRecord};

/// Maximum number of exported leases and locks. A scrape of this size takes about 0.5 MB.
const NAMES_MAX: usize = 500;
/// After this time without an answer from MongoDB, documents are not exported. An open change
/// stream normally answers at least every 2 s.
const BLIND_AFTER: Duration = Duration::from_secs(30);
/// Scrapes within this time share one rendered text, so that simultaneous scrapes need little
/// memory.
const SHARED_FOR: Duration = Duration::from_secs(1);

/// A pattern of `--metrics-names`: a name in which `*` matches any characters.
#[derive(Debug, Clone)]
pub(crate) struct NamePattern(String);

impl NamePattern {
    pub(crate) fn new(text: &str) -> Result<Self, String> {
        let is_legal = |c: char| c.is_ascii_alphanumeric() || "-._*".contains(c);
        let is_pattern = !text.is_empty() && text.chars().all(is_legal);
        is_pattern.then(|| Self(text.to_owned())).ok_or_else(|| {
            "expected names of leases and locks, such as orders,nightly-*".to_owned()
        })
    }

    pub(super) fn unmatched(names: &[Self], board: &Snapshot) -> Vec<String> {
        let is_unmatched = |pattern: &&Self| {
            let mut documents = board.documents();
            !documents.any(|seen| pattern.matches(&seen.entry.name))
        };
        let unmatched = names.iter().filter(is_unmatched);
        unmatched.map(|pattern| pattern.0.clone()).collect()
    }

    fn matches(&self, name: &str) -> bool {
        let Some((start, rest)) = self.0.split_once('*') else {
            return self.0 == name;
        };
        let (middle, end) = rest.rsplit_once('*').unwrap_or(("", rest));
        let inner = name.strip_prefix(start).and_then(|it| it.strip_suffix(end));
        let Some(mut left) = inner else {
            return false;
        };
        middle.split('*').all(|part| {
            let found = left.split_once(part).map(|(_, after)| left = after);
            found.is_some()
        })
    }
}

pub(super) struct Exporter {
    /// The exported names; all if empty.
    names: Vec<NamePattern>,
    last_answer: LastAnswer,
    newest: Mutex<Option<(BootTime, Bytes)>>,
}

impl Exporter {
    pub(super) fn new(names: Vec<NamePattern>, last_answer: LastAnswer) -> Self {
        Self {
            names,
            last_answer,
            newest: Mutex::default(),
        }
    }

    pub(super) fn answer(
        &self,
        board: &Snapshot,
        store: Option<StoreInfo>,
        now: BootTime,
    ) -> Answer {
        let mut newest = self.newest.lock().unwrap_or_else(PoisonError::into_inner);
        let recent = newest.take().filter(|(at, _)| now < *at + SHARED_FOR);
        let rendered = match recent {
            Some(recent) => Ok(recent),
            None => self
                .sample(board, store, now)
                .text()
                .map(|text| (now, text.into())),
        };
        match rendered {
            Ok((at, text)) => {
                *newest = Some((at, text.clone()));
                respond(StatusCode::OK, CONTENT_TYPE, text)
            }
            Err(error) => self::text(StatusCode::INTERNAL_SERVER_ERROR, &error.to_string()),
        }
    }

    fn sample<'a>(
        &self,
        board: &'a Snapshot,
        store: Option<StoreInfo>,
        now: BootTime,
    ) -> CollectionSample<'a> {
        let answered = self.last_answer.at().map(|at| now.since(at));
        // Reads may fail while the change stream still answers.
        let age = answered.max(board.link.age(now));
        let is_live = board.is_listed() && age.is_some_and(|age| age < BLIND_AFTER);
        CollectionSample {
            store,
            last_answer_age: age,
            documents: is_live.then(|| self.documents(board, now)),
        }
    }

    fn documents<'a>(&self, board: &'a Snapshot, now: BootTime) -> DocumentSamples<'a> {
        let store_now = board.store_now(now).unwrap_or_else(wall);
        let mut samples = DocumentSamples::default();
        let mut kinds = BTreeMap::from(["foreign", "lease", "lock"].map(|kind| (kind, 0)));
        let mut not_shown = BTreeMap::from(["foreign", "maximum", "names"].map(|why| (why, 0)));
        for seen in board.documents() {
            let name = seen.entry.name.as_str();
            let is_full = samples.leases.len() + samples.locks.len() >= NAMES_MAX;
            let is_named = self.names.is_empty() || self.names.iter().any(|it| it.matches(name));
            let kind = match &seen.entry.content {
                Content::Lease(_) => "lease",
                Content::Lock(_) => "lock",
                Content::Foreign(_) => "foreign",
            };
            *kinds.entry(kind).or_default() += 1;
            let why = match &seen.entry.content {
                Content::Foreign(_) => "foreign",
                _ if !is_named => "names",
                _ if is_full => "maximum",
                Content::Lease(record) => {
                    let roll_call = board.roll_call(name);
                    samples.leases.push(lease(seen, record, roll_call, now));
                    continue;
                }
                Content::Lock(_) => {
                    samples.locks.extend(lock(seen, store_now, now));
                    continue;
                }
            };
            *not_shown.entry(why).or_default() += 1;
        }
        samples.kinds = kinds.into_iter().collect();
        samples.not_shown = not_shown.into_iter().collect();
        samples
    }
}

fn lease<'a>(
    seen: &'a ObservedDocument,
    record: &'a LeaseRecord,
    roll_call: Option<&LastRollCall>,
    now: BootTime,
) -> LeaseSample<'a> {
    let holder = record.held_by().zip(record.holder.as_ref());
    let holder = holder.zip(seen.evidence(now));
    let holder = holder.map(|((held, shown), evidence)| LeaseHolder {
        identity: shown.identity.as_str(),
        silent: (!matches!(evidence.liveness, Liveness::Misdated | Liveness::Unseen))
            .then(|| evidence.is_silent()),
        since: date(held.acquired_at).unwrap_or_default(),
        last_write_age: evidence
            .last_write_ago
            .filter(|_| evidence.dated_ahead().is_none())
            .map(duration),
        lease_duration: held.lease_duration.duration(),
    });
    LeaseSample {
        name: &seen.entry.name,
        token: record.lease.token.get(),
        paused: record.lease.paused,
        paused_since: record.pause().and_then(|pause| date(pause.at)),
        standby: holder.is_some() && record.standby.is_some(),
        last_change_age: seen.silence.lasts(now),
        candidates: roll_call.map(|last| (last.present.len(), now.since(last.at))),
        holder,
    }
}

fn lock(seen: &ObservedDocument, store_now: WallMillis, now: BootTime) -> Option<LockSample<'_>> {
    let record = lock_of(&seen.entry)?;
    let lock = &record.lock;
    let view = ObservedLock::new(seen, Some(store_now), now)?;
    let holding: Vec<_> = view.holding().collect();
    let working = holding
        .iter()
        .filter(|(entry, _, silent)| !entry.work_done && !silent);
    let is_hidden = |(_, state, _): &_| *state == HolderState::Works(Liveness::Unseen);
    let is_seen = !holding.iter().any(is_hidden);
    let silent = holding.iter().filter(|(.., silent)| *silent).count();
    let since = |entry: &Entry, now| age(entry.owner.acquired_at, now);
    let successes = lock.successes.iter().rev();
    let successes =
        successes.filter_map(|success| Some((success.key.as_str(), age(success.at, store_now)?)));
    Some(LockSample {
        name: &seen.entry.name,
        holders: holding
            .iter()
            .map(|(entry, ..)| entry.owner.identity.as_str())
            .collect(),
        kept: is_seen.then(|| {
            let kept = |(_, state, _): &&(_, HolderState, _)| *state == HolderState::Kept;
            holding.iter().filter(kept).count()
        }),
        silent: (is_seen || silent > 0).then_some(silent),
        waiters: lock.queue.len(),
        slots: lock.slots,
        token: lock.token.get(),
        held: is_seen.then(|| {
            let held = working.filter_map(|(entry, ..)| since(entry, store_now));
            held.max().unwrap_or_default()
        }),
        waited: lock
            .queue
            .iter()
            // A waiter dates its arrival by its own clock.
            .filter_map(|entry| since(entry, wall()))
            .max()
            .unwrap_or_default(),
        successes: successes.collect(),
    })
}

fn date(at: WallMillis) -> Option<Duration> {
    Some(duration(at.0)).filter(|at| !at.is_zero())
}

/// Returns the time since a date: zero if the date is in the future, and `None` if unknown.
fn age(at: WallMillis, wall: WallMillis) -> Option<Duration> {
    date(at)?;
    Some(duration(wall.0.saturating_sub(at.0)))
}

fn duration(millis: i64) -> Duration {
    Duration::from_millis(u64::try_from(millis).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::operators::observed::tests::{ago, observed};
    use leasehold_mongodb::store::mongo::operators::{CollectionEntry, ViewEvent};
    use mongodb::bson::{Uuid, doc};

    #[test]
    fn a_last_write_dated_in_the_future_has_no_age() {
        for (seconds, has_age) in [(5, true), (-3_600, false)] {
            let observed = observed(doc! { "renewed_at": ago(seconds) });
            let (seen, record) = observed.lease().expect("a lease");
            let sample = lease(seen, record, None, leasehold_clock::boot_now());
            let age = sample.holder.expect("a holder").last_write_age;
            assert_eq!(age.is_some(), has_age, "{age:?}");
        }
    }

    #[test]
    fn ages_of_locks_are_measured_with_the_clock_of_mongodb() {
        const MINUTE: i64 = 60;
        // MongoDB's clock is an hour behind.
        let by_store = |seconds| ago(60 * MINUTE + seconds);
        let uuid = |number| Uuid::from_bytes([number; 16]);
        let entry = |number: u8| {
            doc! {
                "claim": uuid(number), "session": uuid(2), "revision": uuid(3),
                "granted_revision": uuid(4), "identity": format!("job-{number}"),
                "mode": "exclusive", "token": 9_i64, "lease_duration_ms": 24_000_i64,
                "acquired_at": by_store(5 * MINUTE), "renewed_at": ago(1),
            }
        };
        let mut waiter = entry(5);
        waiter.insert("acquired_at", ago(2 * MINUTE));
        let document = doc! {
            "_id": "nightly", "schema": 1, "kind": "lock", "token": 9_i64, "slots": 0_i64,
            "holders": [entry(1)], "queue": [waiter], "history": [],
            "successes": [{ "key": "daily", "at": by_store(10 * MINUTE) }],
            "server_now": by_store(0),
        };
        let now = leasehold_clock::boot_now();
        let entries = vec![CollectionEntry::of(&document).expect("a name")];
        let mut board = Snapshot::default();
        board.apply(ViewEvent::Listed { entries, at: now }, now);
        let exporter = Exporter::new(Vec::new(), LastAnswer::default());
        let samples = exporter.documents(&board, now);
        let lock = samples.locks.first().expect("a lock");
        let minutes = |age: Duration| age.as_secs() / 60;
        assert_eq!(lock.held.map(minutes), Some(5));
        assert_eq!(minutes(lock.waited), 2);
        let ages: Vec<_> = lock
            .successes
            .iter()
            .map(|(_, age)| minutes(*age))
            .collect();
        assert_eq!(ages, [10]);
    }

    #[test]
    fn a_star_matches_any_characters() {
        for (pattern, names, others) in [
            (
                "orders",
                &["orders"][..],
                &["order", "orders2", "x.orders"][..],
            ),
            ("*", &["", "orders"], &[]),
            (
                "nightly-*",
                &["nightly-", "nightly-a"],
                &["nightly", "x-nightly-a"],
            ),
            ("*-eu", &["a-eu", "-eu"], &["a-eu2", "eu"]),
            ("a*b", &["ab", "axxb", "abb"], &["a", "b", "abc", "ba"]),
            ("a*a", &["aa", "aba"], &["a"]),
            ("*a*b*", &["ab", "xaxbx", "aab"], &["ba", "a", "b"]),
            ("a**b", &["ab", "axb"], &["a"]),
        ] {
            let compiled = NamePattern::new(pattern).expect("a pattern");
            for name in names {
                assert!(compiled.matches(name), "{pattern} {name}");
            }
            for name in others {
                assert!(!compiled.matches(name), "{pattern} {name}");
            }
        }
        for pattern in ["", "a b", "é", "a/b"] {
            assert!(NamePattern::new(pattern).is_err(), "{pattern}");
        }
    }
}
