//! Saves observations of other holders and waiters for the next `leasehold lock`.
//!
//! An entry expires once an observer has seen no change for the entry's lease duration. Most jobs
//! end sooner, so each job saves when it first saw the current state of each entry. Times are on
//! the boot clock, which all jobs share.

use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use leasehold_clock as clock;
use leasehold_core::election::{
    BootTime, Claim, Declared, Identity, LEASE_DURATION_MAX, ResourceName, Revision, Token,
};
use leasehold_core::lock::{EntryState, Observation, Observations, WentBack};
use leasehold_host::bounded_file::read_bounded;
use leasehold_mongodb::locker::{Finished, Remembered};
use leasehold_status::directory::{make_directory, replace_file, roots};

/// Directory of the records, next to the status directories. No lease name begins with a dot.
const DIRECTORY: &str = ".locks";
/// Maximum size of a record. 256 holders and 512 waiters take some 400 KiB.
const BYTES_MAX: usize = 1024 * 1024;
/// Highest token accepted from a record. A higher, forged token could use up the lock's tokens.
const TOKEN_MAX: i64 = i64::MAX / 2;

/// The saved observations of one lock. Saves nothing if no directory is writable.
pub(super) struct ObservationCache {
    path: Option<PathBuf>,
    boot_id: Option<String>,
    store: String,
    /// State that earlier jobs saved for this store in this boot.
    pub(super) seen: Remembered,
}

#[derive(Debug, Serialize, Deserialize)]
struct CachedObservations {
    schema: u32,
    /// Identifies the clock of `since_ns`, by boot and time namespace.
    boot_id: String,
    store: String,
    token: i64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    went_back: Option<SavedLoss>,
    entries: Vec<Line>,
}

#[derive(Debug, Serialize, Deserialize)]
struct SavedLoss {
    /// Token of the document since then; absent if the document was missing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    found: Option<i64>,
    joins_from_ns: u64,
}

#[derive(Debug, Serialize, Deserialize)]
struct Line {
    claim: u128,
    revision: u128,
    state: String,
    identity: String,
    token: Option<i64>,
    lease_duration_ms: i64,
    since_ns: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    kept_until_ns: Option<u64>,
}

impl ObservationCache {
    pub(super) fn of(lock: &ResourceName, store: &str) -> Self {
        // The user's own directory comes first, because users do not share records.
        let places = roots().into_iter().rev().map(|root| root.join(DIRECTORY));
        let mut places = places.chain([of_this_user()]);
        let place = places.find(|place| make(place).is_ok());
        let path = place.map(|place| place.join(file_name(lock, store)));
        Self::at(path, clock::boot_clock().ok().flatten(), store)
    }

    fn at(path: Option<PathBuf>, boot_id: Option<String>, store: &str) -> Self {
        let mut cache = Self {
            path,
            boot_id,
            store: store.to_owned(),
            seen: Default::default(),
        };
        cache.seen = cache.read();
        cache
    }

    fn read(&self) -> Remembered {
        self.record().unwrap_or_default()
    }

    /// A damaged record counts as missing and is overwritten later.
    fn record(&self) -> Option<Remembered> {
        let text = read_bounded(self.path.as_ref()?, BYTES_MAX).ok()??;
        let record: CachedObservations = serde_json::from_slice(&text).ok()?;
        let here = Some(&record.boot_id) == self.boot_id.as_ref() && record.store == self.store;
        if !here || record.schema != 1 || record.token > TOKEN_MAX {
            return None;
        }
        let now = clock::boot_now();
        let entries = record.entries.into_iter().filter_map(Line::observation);
        let entries = entries.filter(|(_, observation)| observation.since <= now);
        Some(Remembered {
            token: Token::new(record.token)?,
            went_back: record.went_back.map(|loss| loss.of_record(now)),
            observations: Observations::remembered(entries),
        })
    }

    pub(super) fn keep(&self, finished: &Finished) {
        let (Some(path), Some(boot_id)) = (&self.path, &self.boot_id) else {
            return;
        };
        let Remembered {
            token,
            went_back,
            observations,
        } = &self.seen;
        if (finished.token_highest, finished.went_back) == (*token, *went_back)
            && finished.observations == *observations
        {
            // Nothing new was observed, and another job may have saved more in the meantime.
            return;
        }
        // If two jobs save simultaneously, one record is lost, which only delays an eviction.
        let saved = self.read().merged(finished, observations);
        let record = CachedObservations {
            schema: 1,
            boot_id: boot_id.clone(),
            store: self.store.clone(),
            token: saved.token.get(),
            went_back: saved.went_back.map(SavedLoss::of),
            entries: saved.observations.iter().map(Line::of).collect(),
        };
        let written = serde_json::to_vec(&record)
            .map_err(io::Error::other)
            .and_then(|text| replace(path, &text));
        if let Err(error) = written {
            tracing::debug!(path = %path.display(), kind = %error.kind(), "failed to save lock observations");
        }
    }
}

/// The lock's name, and a hash that distinguishes equal names in different stores.
fn file_name(lock: &ResourceName, store: &str) -> String {
    let mut hasher = DefaultHasher::new();
    (lock.as_str(), store).hash(&mut hasher);
    format!("{lock}@{:016x}", hasher.finish())
}

impl SavedLoss {
    fn of(loss: WentBack) -> Self {
        Self {
            found: loss.found.map(Token::get),
            joins_from_ns: loss.joins_from.as_nanos(),
        }
    }

    /// A damaged record must not delay a job for longer than any lease duration.
    fn of_record(self, now: BootTime) -> WentBack {
        WentBack {
            found: self.found.and_then(Token::new),
            joins_from: BootTime::from_nanos(self.joins_from_ns).min(now + LEASE_DURATION_MAX),
        }
    }
}

impl Line {
    fn of((claim, observation): (Claim, &Observation)) -> Self {
        Self {
            claim: u128::from_be_bytes(claim.bytes()),
            revision: u128::from_be_bytes(observation.revision.bytes()),
            state: observation.state.as_str().to_owned(),
            identity: observation.identity.to_string(),
            token: observation.token.map(Token::get),
            lease_duration_ms: observation.lease_duration.millis,
            since_ns: observation.since.as_nanos(),
            kept_until_ns: observation.kept_until.map(BootTime::as_nanos),
        }
    }

    fn observation(self) -> Option<(Claim, Observation)> {
        let mut states = EntryState::ALL.into_iter();
        let state = states.find(|state| state.as_str() == self.state)?;
        let observation = Observation {
            identity: Identity::new(self.identity).ok()?,
            revision: Revision::from_bytes(self.revision.to_be_bytes()),
            state,
            token: self.token.and_then(Token::new),
            lease_duration: Declared {
                millis: self.lease_duration_ms,
            },
            since: BootTime::from_nanos(self.since_ns),
            kept_until: self.kept_until_ns.map(BootTime::from_nanos),
        };
        Some((Claim::from_bytes(self.claim.to_be_bytes()), observation))
    }
}

/// Returns the directory for users without a runtime directory, as in cron jobs.
fn of_this_user() -> PathBuf {
    let user = rustix::process::geteuid().as_raw();
    // With an empty or relative TMPDIR, the path would depend on the working directory of the job.
    let place = match std::env::temp_dir() {
        place if place.is_absolute() => place,
        _ => PathBuf::from("/tmp"),
    };
    place.join(format!("leasehold-{user}"))
}

/// Creates a directory that only this user can write to, because others could forge observations.
fn make(directory: &Path) -> io::Result<()> {
    make_directory(directory, 0o700)?;
    let made = fs::symlink_metadata(directory)?;
    let mine = made.uid() == rustix::process::geteuid().as_raw();
    match made.is_dir() && mine && made.mode() & 0o022 == 0 {
        true => Ok(()),
        false => Err(io::ErrorKind::PermissionDenied.into()),
    }
}

/// Writes atomically, because jobs run concurrently.
fn replace(path: &Path, text: &[u8]) -> io::Result<()> {
    let temporary = path.with_added_extension(std::process::id().to_string());
    replace_file(path, &temporary, 0o600, text)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use leasehold_core::lock::End;

    fn at(path: &Path, store: &str, boot_id: &str) -> ObservationCache {
        ObservationCache::at(Some(path.to_owned()), Some(boot_id.to_owned()), store)
    }

    fn finished(since: BootTime) -> Finished {
        let observation = Observation {
            identity: Identity::new("a").expect("legal"),
            revision: Revision::from_bytes([2; 16]),
            state: EntryState::Held,
            token: Token::new(4),
            lease_duration: Declared { millis: 24_000 },
            since,
            kept_until: Some(since + Duration::from_secs(55)),
        };
        Finished {
            end: End::GaveUp,
            token_highest: Token::new(5).expect("not negative"),
            went_back: Some(WentBack {
                found: Token::new(3),
                joins_from: since + Duration::from_secs(24),
            }),
            observations: Observations::remembered([(Claim::from_bytes([1; 16]), observation)]),
        }
    }

    #[test]
    fn observations_are_valid_in_one_boot_and_store() {
        let place = tempfile::tempdir().expect("a directory");
        let path = place.path().join("jobs");
        let finished = finished(clock::boot_now());
        at(&path, "h/d.c", "boot").keep(&finished);
        let remembered = at(&path, "h/d.c", "boot").read();
        assert_eq!(remembered.token, finished.token_highest);
        assert_eq!(remembered.went_back, finished.went_back);
        assert_eq!(remembered.observations, finished.observations);
        for other in [at(&path, "h/d.other", "boot"), at(&path, "h/d.c", "other")] {
            assert_eq!(other.read(), Remembered::default());
        }
        fs::write(&path, "{").expect("written");
        let damaged = at(&path, "h/d.c", "boot").read();
        assert_eq!(damaged, Remembered::default());
    }

    #[test]
    fn a_job_without_new_observations_keeps_the_record() {
        let place = tempfile::tempdir().expect("a directory");
        let path = place.path().join("jobs");
        let in_vain = at(&path, "h/d.c", "boot");
        let finished = finished(clock::boot_now());
        at(&path, "h/d.c", "boot").keep(&finished);
        in_vain.keep(&Finished {
            end: End::GaveUp,
            token_highest: Token::ZERO,
            went_back: None,
            observations: Observations::default(),
        });
        let observations = at(&path, "h/d.c", "boot").read().observations;
        assert_eq!(observations, finished.observations);
    }

    #[test]
    fn observations_of_concurrent_jobs_are_merged() {
        let place = tempfile::tempdir().expect("a directory");
        let path = place.path().join("jobs");
        let now = clock::boot_now();
        let earlier = BootTime::from_nanos(now.as_nanos() - 1_000_000_000);
        let claim = |number| Claim::from_bytes([number; 16]);
        let seen = |token: i64, entries: &[(u8, BootTime)]| {
            let observation = |since| {
                finished(since)
                    .observations
                    .iter()
                    .next()
                    .map(|(_, o)| o.clone())
            };
            let entries = entries
                .iter()
                .filter_map(|(n, since)| Some((claim(*n), observation(*since)?)));
            Finished {
                end: End::GaveUp,
                token_highest: Token::new(token).expect("not negative"),
                went_back: None,
                observations: Observations::remembered(entries),
            }
        };
        at(&path, "h/d.c", "boot").keep(&seen(5, &[(1, earlier), (2, earlier)]));
        let [late, early] = [(); 2].map(|()| at(&path, "h/d.c", "boot"));
        // In the meantime, another job joined and the second entry left.
        early.keep(&seen(7, &[(1, earlier), (3, now)]));
        late.keep(&seen(6, &[(1, now), (4, now)]));
        let remembered = at(&path, "h/d.c", "boot").read();
        assert_eq!(remembered.token.get(), 7, "the higher one");
        let kept: Vec<_> = remembered
            .observations
            .iter()
            .map(|(claim, o)| (claim, o.since))
            .collect();
        let expected = [(1, earlier), (3, now), (4, now)].map(|(n, since)| (claim(n), since));
        assert_eq!(kept, expected);
    }

    #[test]
    fn each_lock_of_each_store_has_its_own_record() {
        let name = |lock: &str, store| file_name(&ResourceName::new(lock).expect("legal"), store);
        assert_ne!(name("jobs", "h/a.c"), name("jobs", "h/b.c"));
        assert_ne!(name("jobs", "h/a.c"), name("other", "h/a.c"));
        assert!(name("jobs", "h/a.c").starts_with("jobs@"));
    }

    #[test]
    fn observations_ahead_of_the_clock_are_ignored() {
        let place = tempfile::tempdir().expect("a directory");
        let path = place.path().join("jobs");
        let ahead = clock::boot_now() + Duration::from_secs(3600);
        at(&path, "h/d.c", "boot").keep(&finished(ahead));
        let observations = at(&path, "h/d.c", "boot").read().observations;
        assert_eq!(observations, Observations::default());
    }

    #[test]
    fn a_foreign_record_is_ignored_without_a_delay() {
        let place = tempfile::tempdir().expect("a directory");
        let path = place.path().join("jobs");
        let nothing = Remembered::default();
        let made = std::process::Command::new("mkfifo").arg(&path).status();
        assert!(made.expect("mkfifo").success());
        assert_eq!(at(&path, "h/d.c", "boot").read(), nothing);
        let finished = finished(clock::boot_now());
        at(&path, "h/d.c", "boot").keep(&finished);
        let text = fs::read_to_string(&path).expect("the record replaced the FIFO");
        let largest = text.replace(r#""token":5"#, &format!(r#""token":{}"#, i64::MAX));
        assert_ne!(largest, text);
        fs::write(&path, largest).expect("written");
        assert_eq!(at(&path, "h/d.c", "boot").read(), nothing);
        fs::remove_file(&path).expect("removed");
        fs::create_dir(&path).expect("a directory in its place");
        at(&path, "h/d.c", "boot").keep(&finished);
        let names = fs::read_dir(place.path()).expect("readable").count();
        assert_eq!(names, 1, "the temporary file is gone");
    }
}
