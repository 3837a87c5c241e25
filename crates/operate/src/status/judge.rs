//! Decides, without IO, whether a status file can be trusted. The caller passes the time and the
//! boot.

use std::time::Duration;

use crate::operators::render::short;
use leasehold_core::election::{BootTime, Role};
use leasehold_host::exit;
use leasehold_status::render::{SCHEMA, StatusDocument};

/// Result of `leasehold status`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FileVerdict {
    /// This candidate leads now.
    Leader,
    /// This candidate does not lead, or the deadline in its file has passed.
    NotLeader,
    /// The status file is missing or unreadable, or belongs to another lease, boot or time
    /// namespace.
    CannotTell,
}

impl FileVerdict {
    /// Returns the exit code of `leasehold status`.
    pub const fn exit_code(self) -> u8 {
        match self {
            Self::Leader => exit::DONE,
            Self::NotLeader => exit::NEGATIVE,
            Self::CannotTell => exit::CANNOT_TELL,
        }
    }

    pub(super) const fn as_str(self) -> &'static str {
        match self {
            Self::Leader => "leader",
            Self::NotLeader => "not leader",
            Self::CannotTell => "cannot tell",
        }
    }
}

/// A verdict and the reason for it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Judgement {
    /// The verdict.
    pub verdict: FileVerdict,
    /// The file, if it could be read.
    pub document: Option<StatusDocument>,
    /// Reason why the file's contents are not trusted. The text does not change over time.
    pub why: Option<String>,
    /// Time since the reason began to apply.
    pub lasted: Option<Duration>,
}

impl Judgement {
    /// Creates a verdict of "cannot tell" with a reason.
    pub fn cannot_tell(why: String) -> Self {
        Self {
            verdict: FileVerdict::CannotTell,
            document: None,
            why: Some(why),
            lasted: None,
        }
    }

    /// Returns false if there is a reason not to trust the file, such as a passed deadline, an
    /// overdue rewrite, or another boot.
    pub fn is_fresh(&self) -> bool {
        self.why.is_none()
    }

    /// Returns true if the daemon has stopped, was killed or is frozen.
    pub(super) fn is_gone(&self) -> bool {
        self.verdict == FileVerdict::NotLeader && !self.is_fresh()
    }

    /// Returns the reason why the file's contents are not trusted, and how long ago that began.
    pub fn explanation(&self) -> Option<String> {
        let why = self.why.as_ref()?;
        Some(match self.lasted {
            Some(lasted) => format!("{why} {} ago", short(lasted)),
            None => why.clone(),
        })
    }
}

/// Evaluates the `text` of a status file at `now`, for a reader in the boot `boot_id` and the time
/// namespace `time_namespace`. Each time namespace has its own clock.
pub fn judge(
    text: &str,
    lease: Option<&str>,
    boot_id: Option<&str>,
    time_namespace: Option<u64>,
    now: BootTime,
) -> Judgement {
    use FileVerdict::{CannotTell, Leader, NotLeader};

    let document: StatusDocument = match serde_json::from_str(text) {
        Ok(document) => document,
        Err(error) => return Judgement::cannot_tell(format!("not a status file: {error}")),
    };
    let schema = document.schema;
    if schema != SCHEMA {
        let why = format!("the file has schema {schema}; this version reads schema {SCHEMA}");
        return Judgement::cannot_tell(why);
    }
    let other_lease = lease.filter(|lease| *lease != document.lease);
    // Boots and time namespaces are compared only if both the file and the reader know them.
    let boots = document.boot_id.as_deref().zip(boot_id);
    let namespaces = document.time_namespace.zip(time_namespace);
    let until = document.valid_until_boottime_ns.map(BootTime::from_nanos);
    let due = document.rewrite_due_boottime_ns.map(BootTime::from_nanos);
    let claims = document.leader && document.role == Role::Leader.as_str();
    let reason = |why: &str| Some(why.to_owned());
    let (verdict, why, passed) = if let Some(lease) = other_lease {
        let why = format!("the file belongs to lease {}, not {lease}", document.lease);
        (CannotTell, Some(why), None)
    } else if boots.is_some_and(|(theirs, ours)| theirs != ours) {
        let why = "the file is from another boot or another machine";
        (CannotTell, reason(why), None)
    } else if namespaces.is_some_and(|(theirs, ours)| theirs != ours) {
        let why = "the file is from another time namespace, with another clock";
        (CannotTell, reason(why), None)
    } else if document.stopped {
        (NotLeader, reason("the daemon has stopped"), None)
    } else if !claims && due.is_some_and(|due| due < now) {
        let why = "the daemon was killed or is frozen, or its disk hangs: the file should have been rewritten";
        (NotLeader, reason(why), due)
    } else if !claims {
        (NotLeader, None, None)
    } else if until.is_some_and(|until| until > now) {
        (Leader, None, None)
    } else if until.is_some() {
        (
            NotLeader,
            reason("the daemon was killed or is frozen: its deadline passed"),
            until,
        )
    } else {
        let why = "the file says leader without a deadline";
        (NotLeader, reason(why), None)
    };
    Judgement {
        verdict,
        document: Some(document),
        why,
        lasted: passed.map(|instant| now.since(instant)),
    }
}
