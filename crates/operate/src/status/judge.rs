//! Decides if a status file can be trusted. Pure: the caller passes the time and the boot.

use std::time::Duration;

use leasehold_core::election::{BootTime, Role};
use leasehold_status::render::{SCHEMA, StatusDocument};

/// Result of `leasehold status`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// This candidate leads now.
    Leader,
    /// This candidate does not lead, or its file claims leadership beyond the deadline.
    NotLeader,
    /// No file, a file of another boot or another lease, or not a status file.
    CannotTell,
}

impl Verdict {
    /// Returns 0 for leader, 1 for not leader and 2 for cannot tell.
    pub const fn exit_code(self) -> u8 {
        match self {
            Self::Leader => 0,
            Self::NotLeader => 1,
            Self::CannotTell => 2,
        }
    }
}

/// A verdict and its basis.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Judgement {
    /// The verdict.
    pub verdict: Verdict,
    /// True if the contents of the file still hold. False for a leader beyond its deadline, for a
    /// file of another boot, and for a file that is no longer rewritten.
    pub fresh: bool,
    /// The file, if it could be read.
    pub document: Option<StatusDocument>,
    /// Reason why the verdict differs from the contents of the file. The text does not change over
    /// time.
    pub why: Option<String>,
    /// Time since the reason applies.
    pub lasted: Option<Duration>,
}

impl Judgement {
    /// Creates a verdict of "cannot tell" with a reason.
    pub fn cannot_tell(why: String) -> Self {
        Self {
            verdict: Verdict::CannotTell,
            fresh: false,
            document: None,
            why: Some(why),
            lasted: None,
        }
    }

    /// Returns the reason why the verdict differs from the contents of the file, and since when.
    pub fn explanation(&self) -> Option<String> {
        let why = self.why.as_ref()?;
        Some(match self.lasted {
            Some(lasted) => format!("{why} {:.1} s ago", lasted.as_secs_f64()),
            None => why.clone(),
        })
    }

    /// Adapts the verdict to a reader in the time namespace `ours`, because a deadline of another
    /// time namespace belongs to another clock. If either namespace is unknown, only the boot is
    /// compared.
    #[must_use]
    pub fn in_time_namespace(mut self, ours: Option<u64>) -> Self {
        let document = self.document.as_ref();
        let theirs = document.and_then(|document| document.time_namespace);
        if let (Some(theirs), Some(ours)) = (theirs, ours)
            && theirs != ours
            && self.verdict != Verdict::CannotTell
        {
            self.verdict = Verdict::CannotTell;
            (self.fresh, self.lasted) = (false, None);
            let why = "the file is from another time namespace, with another clock";
            self.why = Some(why.to_owned());
        }
        self
    }
}

/// Judges the `text` of a status file at `now` in the boot `boot_id`.
pub fn judge(text: &str, lease: Option<&str>, boot_id: Option<&str>, now: BootTime) -> Judgement {
    let document: StatusDocument = match serde_json::from_str(text) {
        Ok(document) => document,
        Err(error) => return Judgement::cannot_tell(format!("not a status file: {error}")),
    };
    let mut judgement = Judgement::cannot_tell(String::new());
    if document.schema != SCHEMA {
        let schema = document.schema;
        judgement.why = Some(format!("the file has schema {schema}, {SCHEMA} is known"));
        return judgement;
    }
    let other_lease = lease.filter(|lease| *lease != document.lease);
    // If either side does not know its boot, the deadline alone decides.
    let other_boot = match (document.boot_id.as_deref(), boot_id) {
        (Some(theirs), Some(ours)) => theirs != ours,
        (None, _) | (_, None) => false,
    };
    let until = document.valid_until_boottime_ns.map(BootTime::from_nanos);
    let claims = document.leader && document.role == Role::Leader.as_str();
    let mut lasted = None;
    let due = document.rewrite_due_boottime_ns.map(BootTime::from_nanos);
    let (verdict, fresh, why) = if let Some(lease) = other_lease {
        let why = format!("the file is of lease {}, not {lease}", document.lease);
        (Verdict::CannotTell, false, Some(why))
    } else if other_boot {
        let why = "the file is of another boot of this machine, or of another machine";
        (Verdict::CannotTell, false, Some(why.to_owned()))
    } else if document.stopped {
        let why = "the daemon has stopped".to_owned();
        (Verdict::NotLeader, false, Some(why))
    } else if !claims && due.is_some_and(|due| due < now) {
        lasted = due.map(|due| now.since(due));
        let why = "the daemon does not run, or its disk hangs: a rewrite of the file was due";
        (Verdict::NotLeader, false, Some(why.to_owned()))
    } else if !claims {
        (Verdict::NotLeader, true, None)
    } else {
        match until {
            Some(until) if until > now => (Verdict::Leader, true, None),
            Some(until) => {
                lasted = Some(now.since(until));
                let why = "stale: its deadline passed".to_owned();
                (Verdict::NotLeader, false, Some(why))
            }
            None => {
                let why = "the file says leader without a deadline".to_owned();
                (Verdict::NotLeader, false, Some(why))
            }
        }
    };
    Judgement {
        verdict,
        fresh,
        document: Some(document),
        why,
        lasted,
    }
}
