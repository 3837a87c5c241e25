//! The table of keys. Flags, `leasehold config`, the detection of unknown keys and the test of the
//! documentation are derived from this table.

use std::time::Duration;

use tracing::level_filters::LevelFilter;

use super::choice::{
    Choice, KubernetesEnabled, LogFormat, OnDaemonRestart, OnExit, Prefer, Profile, ReadyWhen,
    SignalNumber,
};
use super::load::defaults;
use leasehold_core::election::{INTERVAL_MIN, LEASE_DURATION_MAX, LEASE_DURATION_MIN};
use leasehold_guard::StopScope;
use leasehold_mongodb::store::mongo::WatchMode;

/// The built-in defaults, with a comment on each key.
pub const DEFAULT_TOML: &str = include_str!("../../../config/default.toml");

/// One key of the configuration.
#[derive(Debug, PartialEq, Eq)]
pub struct Key {
    /// Name of the section.
    pub section: &'static str,
    /// Name of the key within the section.
    pub name: &'static str,
    /// Kind of the values.
    pub kind: ValueType,
    /// True if the value must never be printed.
    pub secret: bool,
    /// How a reload treats a new value.
    pub reload: Reload,
    /// One line for `--help`.
    pub help: &'static str,
    /// The line for commands other than `run`; `None` if the key has no effect on them.
    pub lock_help: Option<&'static str>,
}

/// Effect of a reload (SIGHUP) on a changed key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Reload {
    /// The new value applies immediately.
    Now,
    /// The new value applies from the next claim, because a claim keeps its durations.
    NextClaim,
    /// The new value applies when MongoDB cannot be used and leasehold therefore reconnects.
    Reconnect,
    /// The old value applies until a restart.
    Restart,
}

/// Kind of the values of a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ValueType {
    /// The name of a lease, or empty.
    ResourceName,
    /// The identity of a candidate, or empty.
    Identity,
    /// One line of free text, or empty.
    Line,
    /// A connection string, or empty.
    Uri,
    /// A path, or empty.
    Path,
    /// The name of a MongoDB database.
    Database,
    /// The name of a MongoDB collection.
    Collection,
    /// A duration with its unit, from a minimum to a maximum.
    Duration(Duration, Duration),
    /// An address and port, or empty.
    Listen,
    /// The prefix of a label key.
    LabelPrefix,
    /// A namespace and a service account, or empty.
    RenderedFor,
    /// One of these values.
    OneOf(&'static [&'static str]),
    /// `true` or `false`.
    Flag,
    /// A whole number, from a minimum to a maximum.
    Count(u32, u32),
    /// A program and its arguments, as a list or as words separated by commas; or empty.
    Command,
    /// The URL of a health check, without TLS; or empty.
    HealthUrl,
}

impl ValueType {
    /// Returns the placeholder of a value in `--help`.
    pub const fn placeholder(self) -> &'static str {
        match self {
            Self::ResourceName | Self::Database | Self::Collection => "NAME",
            Self::Identity => "ID",
            Self::Line => "TEXT",
            Self::Uri => "URI",
            Self::Path => "FILE",
            Self::Duration(..) => "DURATION",
            Self::Listen => "ADDRESS:PORT",
            Self::LabelPrefix => "DOMAIN",
            Self::RenderedFor => "NAMESPACE/ACCOUNT",
            Self::OneOf(_) => "WORD",
            Self::Flag => "BOOL",
            Self::Count(..) => "COUNT",
            Self::Command => "COMMAND",
            Self::HealthUrl => "URL",
        }
    }
}

impl Key {
    /// Returns the full name, such as `lease.renew_deadline`.
    pub fn path(&self) -> String {
        format!("{}.{}", self.section, self.name)
    }

    /// Returns the flag without its dashes, such as `lease-renew-deadline`. For a key that is
    /// called `name`, the flag is the section: `lease`.
    pub fn flag(&self) -> String {
        if self.name == "name" {
            return self.section.to_owned();
        }
        // A name that already begins with its section gets no prefix: `--lease-duration`.
        let named = self.name.strip_prefix(self.section);
        let flag = match named.is_some_and(|rest| rest.starts_with('_')) {
            true => self.name.to_owned(),
            false => format!("{}-{}", self.section, self.name),
        };
        flag.replace(['_', '.'], "-")
    }

    /// Returns the environment variable, such as `LEASEHOLD_LEASE__RENEW_DEADLINE`.
    pub fn variable(&self) -> String {
        let section = self.section.replace('.', "__");
        format!("LEASEHOLD_{section}__{}", self.name).to_uppercase()
    }

    /// Returns the built-in value; empty if there is none.
    pub fn default(&self) -> &'static str {
        let setting = defaults().iter().find(|setting| setting.key == self);
        setting.map_or("", |setting| setting.value.as_str())
    }
}

/// Returns the key with this full name, if any.
pub fn find(path: &str) -> Option<&'static Key> {
    let (section, name) = path.rsplit_once('.')?;
    find_in(section, name)
}

pub(super) fn find_in(section: &str, name: &str) -> Option<&'static Key> {
    KEYS.iter()
        .find(|key| key.section == section && key.name == name)
}

/// Returns true if a section has this name.
pub fn is_section(section: &str) -> bool {
    KEYS.iter().any(|key| key.section == section)
}

/// Returns the known name that the user probably meant. Ignores case, and treats `-` as `_`.
pub fn suggest<'a>(unknown: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    nearest(&unknown.to_lowercase().replace('-', "_"), known)
}

/// Returns the most similar name, if `unknown` is probably a misspelling of it.
pub fn nearest<'a>(unknown: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    near(unknown, known).into_iter().next()
}

/// Returns the names that `unknown` is probably a misspelling of, most similar first. A difference
/// in case counts less than a different letter.
pub fn near<'a>(unknown: &str, known: impl IntoIterator<Item = &'a str>) -> Vec<&'a str> {
    /// Maximum length of a name to compare, because the comparison takes quadratic time.
    const LENGTH_MAX: usize = 64;
    if unknown.len() > LENGTH_MAX {
        return Vec::new();
    }
    let known = known.into_iter();
    // A name with the same letters in another order, such as "brake" for "break", counts as
    // similar.
    let letters = |name: &str| {
        let mut letters: Vec<_> = name.to_lowercase().chars().collect();
        letters.sort_unstable();
        letters
    };
    let (lower, written) = (unknown.to_lowercase(), letters(unknown));
    let known = known.map(|name| {
        let edits = strsim::osa_distance(&lower, &name.to_lowercase());
        ((edits, strsim::osa_distance(unknown, name)), name)
    });
    let mut near: Vec<_> = known
        .filter(|((edits, _), name)| *edits <= (name.len() / 3).max(1) || letters(name) == written)
        .collect();
    near.sort_by_key(|(edits, _)| *edits);
    near.into_iter().map(|(_, name)| name).collect()
}

/// Returns the key that the user probably meant: a key with a similar name, a key with this name in
/// another section, or a key whose prefix is missing, such as `duration` for lease.lease_duration.
pub fn suggest_key(section: &str, name: &str) -> Option<&'static Key> {
    let in_section = || KEYS.iter().filter(|key| key.section == section);
    let prefixed = format!("{section}_{name}");
    let near = [name, &prefixed]
        .into_iter()
        .find_map(|name| suggest(name, in_section().map(|key| key.name)));
    if let Some(near) = near {
        return in_section().find(|key| key.name == near);
    }
    KEYS.iter().find(|key| key.name == name && name != "name")
}

/// This maximum is well below the half second after which a step-down considers a status file
/// stuck.
const LABEL_WAIT_MAX: Duration = Duration::from_millis(400);
/// Maximum of most durations. A longer value probably has the wrong unit.
const LONGEST: Duration = LEASE_DURATION_MAX;
/// Limited, because the lease stays held while the workload stops.
const STOP_GRACE_MAX: Duration = Duration::from_secs(24 * 3600);
const FAILURES_MAX: u32 = 1000;
const PRIORITY_MAX: u32 = 1000;
/// Limits how often handoffs interrupt the workload.
const PREFER_INTERVAL_MIN: Duration = Duration::from_secs(10);
const PREFER_INTERVAL_MAX: Duration = Duration::from_secs(24 * 3600);
/// Minimum that the driver accepts.
const HEARTBEAT_MIN: Duration = Duration::from_millis(500);

/// Builds the table. The text after `lock:` is the help for commands other than `run`; `none` means
/// that the key has no effect on them.
macro_rules! keys {
    (@lock $help:literal) => { Some($help) };
    (@lock $help:literal none) => { None };
    (@lock $help:literal $lock:literal) => { Some($lock) };
    ($($section:literal {
        $($name:literal, $kind:expr, $reload:ident, $help:literal $(, lock: $lock:tt)?;)+
    })+) => {
        &[$($(Key {
            section: $section,
            name: $name,
            kind: $kind,
            secret: matches!($kind, ValueType::Uri),
            reload: Reload::$reload,
            help: $help,
            lock_help: keys!(@lock $help $($lock)?),
        },)+)+]
    };
}

/// All keys, in the order of `config/default.toml`.
pub static KEYS: &[Key] = keys! {
    "lease" {
        "name", ValueType::ResourceName, Restart,
            "The lease to contend for (required by run)", lock: none;
        "profile", ValueType::OneOf(Profile::WORDS), NextClaim,
            "Set of default durations: steady, brisk or fast";
        // `lock` has its own flag --lease-duration, which also scales the other durations.
        "lease_duration", ValueType::Duration(LEASE_DURATION_MIN, LEASE_DURATION_MAX), NextClaim,
            "Time without a renewal after which others may take over", lock: none;
        "renew_deadline", ValueType::Duration(INTERVAL_MIN, LONGEST), NextClaim,
            "How long a leader may act after it sent its last successful renewal",
            lock: "How long a holder may act after it sent its last successful renewal";
        "renew_interval", ValueType::Duration(INTERVAL_MIN, LONGEST), NextClaim,
            "Interval between renewals, measured from send to send";
        "retry_interval", ValueType::Duration(INTERVAL_MIN, LONGEST), NextClaim,
            "Interval between retries, and between polls without a change stream";
        "handoff_delay", ValueType::Duration(Duration::ZERO, LONGEST), Now,
            "Time that the workload has to notice a graceful step-down; 0s: no wait", lock: none;
        "prefer", ValueType::OneOf(Prefer::WORDS), Now,
            "Automatic handoff to a standby of higher priority: none or priority", lock: none;
        "prefer_interval", ValueType::Duration(PREFER_INTERVAL_MIN, PREFER_INTERVAL_MAX), Now,
            "Minimum time from an acquisition to a handoff to a preferred standby", lock: none;
    }
    "identity" {
        "name", ValueType::Identity, Restart,
            "Name of this candidate; if unset: POD_NAME, else <host name>-<process id>",
            lock: "Name of this holder; if unset: POD_NAME, else <host name>-<process id>";
        "priority", ValueType::Count(0, PRIORITY_MAX), Restart,
            "Priority of this candidate; the standby is the candidate with the highest priority",
            lock: none;
        "address", ValueType::Line, Restart,
            "Address of this candidate, published in the lease document (informational)", lock: none;
    }
    "mongodb" {
        "uri", ValueType::Uri, Reconnect,
            "Connection string; prefer --mongodb-uri-file, since other users can see flags";
        "uri_file", ValueType::Path, Reconnect,
            "File with the connection string, read again at each reconnect";
        "database", ValueType::Database, Restart,
            "Database of the collection";
        "collection", ValueType::Collection, Restart,
            "Collection with one document per lease or lock";
        "operation_timeout", ValueType::Duration(INTERVAL_MIN, LONGEST), Restart,
            "Timeout of a MongoDB call, after which its outcome is unknown";
        "heartbeat", ValueType::Duration(HEARTBEAT_MIN, LONGEST), Restart,
            "Heartbeat interval of the MongoDB driver";
        "watch", ValueType::OneOf(WatchMode::WORDS), Restart,
            "How followers of a lease learn of changes: auto, hints, stream or poll", lock: none;
    }
    "status" {
        "directory", ValueType::Path, Restart,
            "Status directory; if unset: /run/leasehold/<lease>, else below $XDG_RUNTIME_DIR";
    }
    "http" {
        "listen", ValueType::Listen, Restart,
            "Listen address of the HTTP endpoints and metrics; empty: disabled";
        "ready_when", ValueType::OneOf(ReadyWhen::WORDS), Now,
            "Readiness condition of /readyz: connected or leader";
    }
    "kubernetes" {
        "enabled", ValueType::OneOf(KubernetesEnabled::WORDS), Restart,
            "Publish a label and Events on the pod: auto, on or off";
        "pod_name", ValueType::Line, Restart,
            "Name of this pod; if unset: POD_NAME";
        "pod_namespace", ValueType::Line, Restart,
            "Namespace of this pod; if unset: POD_NAMESPACE, else the credentials' namespace";
        "pod_uid", ValueType::Line, Restart,
            "UID of this pod; if unset: POD_UID";
        "pod_account", ValueType::Line, Restart,
            "Service account of this pod; if unset: POD_ACCOUNT";
        "rendered_for", ValueType::RenderedFor, Restart,
            "Namespace and service account that the manifests were rendered for: <namespace>/<account>";
        "credentials", ValueType::Path, Restart,
            "Directory with token and ca.crt of the service account";
        "label_prefix", ValueType::LabelPrefix, Restart,
            "Prefix of the pod label <label_prefix>/<lease>";
        "label_wait", ValueType::Duration(Duration::ZERO, LABEL_WAIT_MAX), Restart,
            "Maximum time that a step-down waits for the label update; 0s: no wait";
        "demote_others", ValueType::Flag, Restart,
            "Remove stale leader labels from other pods on takeover (requires permission to list pods)";
        "events", ValueType::Flag, Restart,
            "Report Events on the pod";
    }
    "workload" {
        "stop_signal", ValueType::OneOf(SignalNumber::WORDS), Restart,
            "Stop signal of a supervised workload",
            lock: "Signal that asks the command to stop";
        "stop_scope", ValueType::OneOf(StopScope::WORDS), Restart,
            "Recipients of the stop signal: group or main (the first process only); SIGKILL goes to all",
            lock: "Recipients of the stop signal: group or main (the command's first process only); SIGKILL goes to all";
        "stop_grace", ValueType::Duration(Duration::ZERO, STOP_GRACE_MAX), Restart,
            "Grace period of a supervised workload before SIGKILL at a graceful step-down",
            lock: "Grace period of the command before SIGKILL after a signal, while the lock is renewed";
        "linger", ValueType::Duration(Duration::ZERO, LONGEST), Restart,
            "Time for descendants to exit on their own after a supervised workload has exited",
            lock: "Time for descendants to exit on their own after the command has exited, while the lock is renewed";
        "loss_grace", ValueType::Duration(INTERVAL_MIN, LONGEST), NextClaim,
            "Grace period of a supervised workload before SIGKILL after leadership is lost",
            lock: "Grace period of the command before SIGKILL after the lock is lost";
        "on_exit", ValueType::OneOf(OnExit::WORDS), Restart,
            "Action when a supervised workload exits by itself: exit or release", lock: none;
        "on_daemon_restart", ValueType::OneOf(OnDaemonRestart::WORDS), Restart,
            "After leasehold was killed as the leader and restarted: lead again or release", lock: none;
        "socket", ValueType::Path, Restart,
            "Unix socket on which leasehold waits for the guard of a workload in another container", lock: none;
        "ends_first", ValueType::Flag, Restart,
            "The workload stops before leasehold gets SIGTERM; shortens handoff_delay to 1s", lock: none;
    }
    "workload.health" {
        "url", ValueType::HealthUrl, Restart,
            "Health check URL; healthy if it returns 2xx", lock: none;
        "command", ValueType::Command, Restart,
            "Health check command; healthy if it exits 0", lock: none;
        "period", ValueType::Duration(INTERVAL_MIN, LONGEST), Restart,
            "Interval between health checks", lock: none;
        "timeout", ValueType::Duration(INTERVAL_MIN, LONGEST), Restart,
            "Timeout of a single health check", lock: none;
        "failures", ValueType::Count(1, FAILURES_MAX), Restart,
            "Consecutive failed checks before the workload is considered unhealthy", lock: none;
    }
    "hooks" {
        "on_lead", ValueType::Command, Restart,
            "Command to run when this replica becomes the leader";
        "on_step_down", ValueType::Command, Restart,
            "Command to run when this replica has stopped leading";
        "on_step_down_stops_workload", ValueType::Flag, Restart,
            "Exit 0 of the on_step_down hook means that the workload has stopped";
        "timeout", ValueType::Duration(INTERVAL_MIN, LONGEST), Restart,
            "Timeout of a hook, after which it is killed";
    }
    "log" {
        "level", ValueType::OneOf(LevelFilter::WORDS), Now,
            "Minimum log level: error, warn, info, debug or trace";
        "format", ValueType::OneOf(LogFormat::WORDS), Restart,
            "Log format: text, json, or auto (JSON for run, bury and web without a terminal, else text)";
    }
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_derived_from_section_and_key() {
        let key = find("lease.renew_deadline").expect("it is in the table");
        assert_eq!(key.flag(), "lease-renew-deadline");
        assert_eq!(key.variable(), "LEASEHOLD_LEASE__RENEW_DEADLINE");
        assert_eq!(key.default(), "18s");
        assert_eq!(find("lease.nonsense"), None);
        assert_eq!(find("nonsense"), None);
    }

    #[test]
    fn case_is_the_least_difference() {
        assert_eq!(near("DEMO", ["other", "demo"]), ["demo"]);
        assert_eq!(near("brake", ["break", "prune"]), ["break"]);
        assert_eq!(
            near("Demo-2", ["DEMO-2", "Demo-3", "demo-2"]),
            ["demo-2", "DEMO-2", "Demo-3"]
        );
    }

    #[test]
    fn only_similar_names_are_suggested() {
        let suggested = |section, name| suggest_key(section, name).map(Key::path);
        for (section, name, expected) in [
            ("lease", "renew_dedline", Some("lease.renew_deadline")),
            ("lease", "Renew-Deadline", Some("lease.renew_deadline")),
            (
                "lease",
                "operation_timeout",
                Some("mongodb.operation_timeout"),
            ),
            ("lease", "duraton", Some("lease.lease_duration")),
            ("mongodb", "url", Some("mongodb.uri")),
            ("lease", "colour", None),
            ("lease", &"x".repeat(1_000_000), None),
        ] {
            assert_eq!(suggested(section, name).as_deref(), expected);
        }
        assert_eq!(suggest("mongo", ["mongodb", "log"]), Some("mongodb"));
    }
}
