//! Locks that an outer command holds, as listed in an environment variable. An entry is trusted
//! only if its holder is a live ancestor, because an ancestor's guard kills this process when
//! authority ends. A scheduler or a remote shell would pass the variable on to processes that no
//! guard kills.
//!
//! The guard of the outer command keeps the memfd with the lock's deadline open. Descendants read
//! the deadline through the guard's /proc/PID/fd, because the holder hides its descriptors even
//! from its own user.

use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use rustix::fs::{MemfdFlags, memfd_create};
use serde::{Deserialize, Serialize};

use leasehold_clock as clock;
use leasehold_config::{MongoConfig, UriSource};
use leasehold_core::election::{BootTime, ResourceName, Token};
use leasehold_core::lock::{EntryMode, LockMode};
use leasehold_guard::survivors::Stat;

/// This environment variable lists the held locks, as JSON of [`Held`].
pub(super) const VARIABLE: &str = "LEASEHOLD_LOCKS";
/// More nested locks than this indicate a loop.
const HELD_MAX: usize = 64;
/// Maximum number of processes between this process and the holder. The search stops there.
const ANCESTORS_MAX: usize = 256;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Held {
    pub(super) lock: String,
    /// A lock's name is unique only within this location.
    pub(super) store: String,
    pub(super) mode: String,
    pub(super) slots: u32,
    pub(super) token: i64,
    #[serde(default)]
    pub(super) slot: Option<u32>,
    pid: i32,
    /// Start time of the holder in ticks since boot, because process ids are reused.
    started: u64,
}

pub(super) struct Inherited(Vec<Held>);

impl Held {
    pub(super) fn by_this_process(
        lock: &ResourceName,
        store: &str,
        want: LockMode,
        (token, slot): (Token, Option<u32>),
    ) -> Option<Self> {
        let pid = own_id();
        Some(Self {
            lock: lock.to_string(),
            store: store.to_owned(),
            mode: want.entry_mode().as_str().to_owned(),
            slots: want.slots(),
            token: token.get(),
            slot,
            pid,
            started: stat(pid)?.started,
        })
    }

    /// Returns true until the deadline; `None` if the holder or its deadline cannot be found.
    pub(super) fn is_valid(&self) -> Option<bool> {
        lies_ahead(self.guard()?)
    }

    /// Returns the guard of the holder's command: the ancestor whose parent is the holder.
    fn guard(&self) -> Option<i32> {
        let mut pid = own_id();
        for _ in 0..ANCESTORS_MAX {
            let parent = stat(pid)?.parent;
            if parent == self.pid {
                return (stat(parent)?.started == self.started).then_some(pid);
            }
            pid = parent;
        }
        None
    }

    pub(super) fn mode(&self) -> Option<EntryMode> {
        EntryMode::ALL
            .into_iter()
            .find(|mode| mode.as_str() == self.mode)
    }
}

impl Inherited {
    /// Reads the variable without verifying the holders. An unreadable value counts as empty.
    pub(super) fn of_process() -> Self {
        let text = std::env::var(VARIABLE).unwrap_or_default();
        let mut held: Vec<Held> = serde_json::from_str(&text).unwrap_or_default();
        held.truncate(HELD_MAX);
        Self(held)
    }

    /// Returns this lock if an ancestor holds it. If `store` is `None`, any location matches.
    pub(super) fn of(&self, lock: &ResourceName, store: Option<&str>) -> Option<&Held> {
        let named = |held: &&Held| {
            held.lock == lock.as_str() && store.is_none_or(|store| held.store == store)
        };
        // A process that cannot read the deadline waits like any other contender.
        let trusted = |held: &&Held| held.is_valid().is_some();
        self.0.iter().filter(named).find(trusted)
    }

    pub(super) fn with(mut self, held: Held) -> String {
        self.0
            .retain(|other| (&other.lock, &other.store) != (&held.lock, &held.store));
        if self.0.len() == HELD_MAX {
            self.0.remove(0);
        }
        self.0.push(held);
        // The value contains only strings and numbers, which JSON can always represent.
        serde_json::to_string(&self.0).unwrap_or_default()
    }
}

/// Returns the location of the locks without credentials: hosts, database and collection.
pub(super) fn store(config: &MongoConfig) -> String {
    let uri = match &config.uri {
        UriSource::Inline(uri) | UriSource::Pipe(_, uri) => uri.expose().to_owned(),
        UriSource::File(_) => {
            let uri = config.uri.read();
            uri.map_or_else(|_| String::new(), |uri| uri.expose().to_owned())
        }
    };
    let rest = uri.split_once("://").map_or("", |(_, rest)| rest);
    let authority = rest.split(['/', '?']).next().unwrap_or_default();
    let hosts = authority.rsplit('@').next().unwrap_or_default();
    format!("{hosts}/{}.{}", config.database, config.collection)
}

const DEADLINE_NAME: &str = "leasehold-deadline";
const DEADLINE_TARGET: &[u8] = b"/memfd:leasehold-deadline";

#[derive(Debug)]
pub(super) struct Deadline(OwnedFd);

impl Deadline {
    pub(super) fn new() -> io::Result<Self> {
        let deadline = Self(memfd_create(DEADLINE_NAME, MemfdFlags::CLOEXEC)?);
        deadline.set(BootTime::default())?;
        Ok(deadline)
    }

    /// Writes the deadline, or zero after a loss. Only the first call can fail, for lack of memory.
    pub(super) fn set(&self, at: BootTime) -> io::Result<()> {
        let bytes = at.as_nanos().to_le_bytes();
        rustix::io::pwrite(&self.0, &bytes, 0)?;
        Ok(())
    }

    pub(super) fn share(&self) -> io::Result<OwnedFd> {
        self.0.try_clone()
    }
}

fn lies_ahead(pid: i32) -> Option<bool> {
    let descriptors = fs::read_dir(format!("/proc/{pid}/fd")).ok()?;
    let is_deadline = |path: &PathBuf| {
        let target = fs::read_link(path).unwrap_or_default();
        target.as_os_str().as_bytes().starts_with(DEADLINE_TARGET)
    };
    let mut paths = descriptors.flatten().map(|entry| entry.path());
    let bytes = fs::read(paths.find(is_deadline)?).ok()?;
    let nanos = u64::from_le_bytes(bytes.try_into().ok()?);
    Some(BootTime::from_nanos(nanos) > clock::boot_now())
}

fn own_id() -> i32 {
    std::process::id().cast_signed()
}

fn stat(pid: i32) -> Option<Stat> {
    Stat::of(pid).ok().flatten()
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;
    use std::time::Duration;

    use super::*;
    use leasehold_config::Secret;

    /// Serializes the tests that search this process's descriptors for a deadline.
    static ALONE: Mutex<()> = Mutex::new(());

    fn held() -> Held {
        let name = ResourceName::new("jobs").expect("legal");
        let parent = stat(own_id()).expect("it is in /proc").parent;
        let started = stat(parent).expect("it is in /proc").started;
        let held = Held::by_this_process(&name, "h/d.c", LockMode::Exclusive, (Token::ZERO, None));
        Held {
            pid: parent,
            started,
            ..held.expect("it is in /proc")
        }
    }

    #[test]
    fn a_reused_process_id_is_not_the_holder() {
        assert_eq!(held().guard(), Some(own_id()));
        let another = Held {
            started: 1,
            ..held()
        };
        assert_eq!(another.guard(), None);
        let absent = Held { pid: 0, ..held() };
        assert_eq!(absent.guard(), None);
    }

    #[test]
    fn a_lock_is_identified_by_name_and_location() {
        let inherited = Inherited(vec![held()]);
        let _alone = ALONE.lock();
        let _deadline = Deadline::new().expect("a memfd");
        let name = ResourceName::new("jobs").expect("legal");
        assert!(inherited.of(&name, Some("h/d.c")).is_some());
        assert!(inherited.of(&name, Some("h/d.other")).is_none());
        let other = ResourceName::new("other").expect("legal");
        assert!(inherited.of(&other, None).is_none());
    }

    #[test]
    fn the_location_is_shown_without_credentials() {
        let config = |uri: &str| MongoConfig {
            uri: UriSource::Inline(Secret::new(uri)),
            database: "d".to_owned(),
            collection: "c".to_owned(),
            heartbeat: std::time::Duration::from_secs(10),
            watch: leasehold_mongodb::store::mongo::WatchMode::Stream,
        };
        let plain = store(&config("mongodb://a:1,b:2/?replicaSet=rs0"));
        assert_eq!(plain, "a:1,b:2/d.c");
        assert_eq!(store(&config("mongodb://u:p%40@a:1,b:2")), plain);
        assert_eq!(store(&config("mongodb://u:p@a:1,b:2/admin?x=@")), plain);
    }

    #[test]
    fn an_inner_lock_replaces_its_own_entry() {
        let mut text = Inherited(Vec::new()).with(held());
        for _ in 0..3 {
            let inherited = Inherited(serde_json::from_str(&text).expect("a list"));
            text = inherited.with(held());
        }
        let held: Vec<Held> = serde_json::from_str(&text).expect("a list");
        assert_eq!(held.len(), 1);
    }

    #[test]
    fn a_reader_sees_the_current_deadline() {
        let _alone = ALONE.lock();
        let deadline = Deadline::new().expect("a memfd");
        let ahead = || lies_ahead(std::process::id().cast_signed());
        assert_eq!(ahead(), Some(false));
        let later = clock::boot_now() + Duration::from_secs(3600);
        deadline.set(later).expect("set");
        assert_eq!(ahead(), Some(true));
        deadline.set(BootTime::default()).expect("set");
        assert_eq!(ahead(), Some(false));
        drop(deadline);
        assert_eq!(ahead(), None);
    }
}
