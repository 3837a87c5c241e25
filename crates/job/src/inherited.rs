//! Locks that an outer command holds. The environment passes them on, and they are trusted only if
//! the holder is a live ancestor.
//!
//! The variable alone is not sufficient: a program that starts processes elsewhere (a scheduler, a
//! remote shell) would pass it on too, and a job would then run without the lock that it requested.
//! The guard of an ancestor, in contrast, ends this process together with its own authority.

use serde::{Deserialize, Serialize};

use super::deadline;
use leasehold_config::{MongoConfig, UriSource};
use leasehold_core::election::{ResourceName, Token};
use leasehold_core::lock::{EntryMode, LockMode};
use leasehold_guard::survivors::Stat;

/// Name of the variable, whose value is a JSON list of [`Held`].
pub(super) const VARIABLE: &str = "LEASEHOLD_LOCKS";

/// Maximum number of nested locks; more indicates a loop.
const HELD_MAX: usize = 64;

/// Maximum number of processes between this one and the holder; deeper trees are not searched.
const ANCESTORS_MAX: usize = 256;

/// A lock that an ancestor holds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Held {
    pub(super) lock: String,
    /// Location of the lock. The same name in another location is a different lock.
    pub(super) store: String,
    pub(super) mode: String,
    pub(super) slots: u32,
    pub(super) token: i64,
    /// Number of the held slot, if the lock has slots.
    #[serde(default)]
    pub(super) slot: Option<u32>,
    /// Process that holds the lock.
    pid: i32,
    /// Start of that process in ticks since boot, because process ids are reused.
    started: u64,
}

/// Locks listed in the environment of this process.
pub(super) struct Inherited(Vec<Held>);

impl Held {
    /// Describes a lock that this process holds.
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

    /// Returns true if the lock is held now; `None` if the holder is not an ancestor of this
    /// process, or its guard keeps no deadline that this process may read.
    pub(super) fn is_valid(&self) -> Option<bool> {
        deadline::lies_ahead(self.guard()?)
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
        [EntryMode::Exclusive, EntryMode::Shared, EntryMode::Slot]
            .into_iter()
            .find(|mode| mode.as_str() == self.mode)
    }
}

impl Inherited {
    /// Reads the variable. The holders are not verified yet.
    pub(super) fn of_process() -> Self {
        let text = std::env::var(VARIABLE).unwrap_or_default();
        // An unreadable value counts as empty, and the lock is acquired as usual.
        let mut held: Vec<Held> = serde_json::from_str(&text).unwrap_or_default();
        held.truncate(HELD_MAX);
        Self(held)
    }

    /// Returns this lock if an ancestor of this process holds it. Without `store`, locks of any
    /// store match.
    pub(super) fn of(&self, lock: &ResourceName, store: Option<&str>) -> Option<&Held> {
        let named = |held: &&Held| {
            held.lock == lock.as_str() && store.is_none_or(|store| held.store == store)
        };
        // A process that may not read the deadline waits like any other contender.
        let trusted = |held: &&Held| held.is_valid().is_some();
        self.0.iter().filter(named).find(trusted)
    }

    /// Returns the value of the variable for a command under one more lock.
    pub(super) fn with(mut self, held: Held) -> String {
        self.0
            .retain(|other| (&other.lock, &other.store) != (&held.lock, &held.store));
        if self.0.len() == HELD_MAX {
            self.0.remove(0);
        }
        self.0.push(held);
        // Strings and numbers only, which JSON can always represent.
        serde_json::to_string(&self.0).unwrap_or_default()
    }
}

/// Returns the location of the locks without credentials: hosts, database and collection.
pub(super) fn store(config: &MongoConfig) -> String {
    let uri = match &config.uri {
        UriSource::Inline(uri) | UriSource::Pipe(_, uri) => uri.expose().to_owned(),
        UriSource::File(_) => config
            .uri
            .read()
            .map(|uri| uri.expose().to_owned())
            .unwrap_or_default(),
    };
    let rest = uri.split_once("://").map_or("", |(_, rest)| rest);
    let authority = rest.split(['/', '?']).next().unwrap_or_default();
    let hosts = authority.rsplit('@').next().unwrap_or_default();
    format!("{hosts}/{}.{}", config.database, config.collection)
}

fn own_id() -> i32 {
    std::process::id().cast_signed()
}

fn stat(pid: i32) -> Option<Stat> {
    Stat::of(pid).ok().flatten()
}

#[cfg(test)]
mod tests {
    use super::super::deadline::Deadline;
    use super::super::deadline::tests::ALONE;
    use super::*;
    use leasehold_config::Secret;

    /// A lock of the parent of this process, as if this process were the guard.
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
    fn the_parent_counts_and_its_id_used_again_does_not() {
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
    fn a_lock_of_the_same_name_elsewhere_is_another_one() {
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
    fn an_inner_lock_replaces_itself_and_their_number_is_bounded() {
        let mut text = Inherited(Vec::new()).with(held());
        for _ in 0..3 {
            let inherited = Inherited(serde_json::from_str(&text).expect("a list"));
            text = inherited.with(held());
        }
        let held: Vec<Held> = serde_json::from_str(&text).expect("a list");
        assert_eq!(held.len(), 1);
    }
}
