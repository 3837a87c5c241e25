//! Renders a status as `status.json`, which is also served over HTTP, and as `status.env`. Only
//! [`ClockPair::now`] reads the clocks.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};

use super::StoreError;
use super::dates::{formatted, with_age};
use leasehold_clock as clock;
use leasehold_core::election::{
    Authority, BootTime, HolderView, Identity, ResourceName, Role, Status, StoreAnswer, Token,
};

/// Schema version of `status.json`, which changes only if the meaning of a field changes.
pub const SCHEMA: u32 = 1;

/// The identification of the publisher, constant for the life of a process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identification {
    /// The lease that the candidate contends for.
    pub lease: ResourceName,
    /// This candidate's name.
    pub identity: Identity,
    /// The id of the current boot; `None` if the system does not expose it.
    pub boot_id: Option<String>,
}

/// One instant on the boot clock, for decisions, and on the wall clock, for display.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ClockPair {
    /// The instant on CLOCK_BOOTTIME.
    pub boot: BootTime,
    /// The instant on the wall clock.
    pub wall: SystemTime,
    /// The time namespace of `boot`; `None` if the system does not expose time namespaces.
    pub time_namespace: Option<u64>,
}

/// No time namespace has this inode, so readers reject the deadline.
const TIME_NAMESPACE_UNKNOWN: u64 = 0;

impl ClockPair {
    /// Returns the current instant.
    pub fn now() -> Self {
        Self {
            boot: clock::boot_now(),
            wall: clock::wall_now(),
            time_namespace: clock::time_namespace().unwrap_or(Some(TIME_NAMESPACE_UNKNOWN)),
        }
    }

    /// Formats `instant` as an RFC 3339 date with milliseconds, clamped to 1970–9999.
    pub fn date(&self, instant: BootTime) -> String {
        formatted(self.since_epoch(instant))
    }

    /// Formats `instant` for humans, with its age.
    pub fn dated(&self, instant: BootTime) -> String {
        with_age(self.since_epoch(instant), self.wall, "")
    }

    fn since_epoch(&self, instant: BootTime) -> Duration {
        let wall = self.wall.duration_since(UNIX_EPOCH).unwrap_or_default();
        // At least one of the two differences is zero, because `since` saturates.
        let date = wall.saturating_add(instant.since(self.boot));
        date.saturating_sub(self.boot.since(instant))
    }
}

/// The fields of `status.json`, in the order of the contract.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StatusDocument {
    /// The schema version, which is [`SCHEMA`].
    pub schema: u32,
    /// The lease that the candidate contends for.
    pub lease: String,
    /// This candidate's name.
    pub identity: String,
    /// The id of the session, which is one run of the candidate's process.
    pub session: String,
    /// The role, which is one of [`Role::ALL`].
    pub role: String,
    /// True if the role is `leader`. Readers must trust this field only before the deadline.
    pub leader: bool,
    /// The candidate's own fencing token; null unless leader.
    pub token: Option<i64>,
    /// The deadline as a date, informational; null unless leader.
    pub valid_until: Option<String>,
    /// The deadline on CLOCK_BOOTTIME, in nanoseconds; null unless leader.
    pub valid_until_boottime_ns: Option<u64>,
    /// Boot id; the deadline is valid only during this boot.
    pub boot_id: Option<String>,
    /// The inode of the deadline's time namespace; absent if the kernel has no time namespaces.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub time_namespace: Option<u64>,
    /// The current leader; null if the lease is free or observed as expired.
    pub holder: Option<DocumentHolder>,
    /// Number of role changes of this process.
    pub transitions: u64,
    /// Time at which the role began.
    pub since: String,
    /// Reason for the role; null before the first read and in an outage.
    pub reason: Option<String>,
    /// Time at which this document was written or, over HTTP, requested.
    pub updated_at: String,
    /// The current MongoDB error; null while calls succeed. Absent in files of earlier versions.
    #[serde(default)]
    pub store_error: Option<DocumentStoreError>,
    /// Latest time of the next rewrite, on CLOCK_BOOTTIME in nanoseconds; only in files.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rewrite_due_boottime_ns: Option<u64>,
    /// True once the daemon has exited; only in files.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub stopped: bool,
}

/// The MongoDB error in [`StatusDocument`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DocumentStoreError {
    /// The failed operation, its cause, and the remedy.
    pub message: String,
    /// Time at which the error began.
    pub since: String,
}

/// The holder in [`StatusDocument`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DocumentHolder {
    /// The holder's name.
    pub identity: String,
    /// The holder's fencing token.
    pub token: i64,
    /// True until this candidate has observed a write by the holder, because the holder may already
    /// have exited.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub unconfirmed: bool,
}

/// Returns the candidate's authority at `now` if its role is leader.
pub fn authority_at(status: &Status, now: BootTime) -> Option<Authority> {
    let status = status.at(now);
    status.authority.filter(|_| status.role == Role::Leader)
}

/// Returns the leader's name for `GET /` and `leasehold_holder_info`. Never names an expired
/// holder. Names this candidate only while it has authority, even if the document still names it.
pub fn leader_name_at<'a>(status: &'a Status, me: &Identity, now: BootTime) -> Option<&'a str> {
    let leads = authority_at(status, now).is_some();
    let holder = status.holder.as_ref().filter(|h| h.until > now)?;
    (leads || holder.identity != *me).then(|| holder.identity.as_str())
}

/// Returns the last status of an exiting daemon, which neither leads nor watches the lease.
pub fn last_status(status: &Status, now: BootTime) -> Status {
    let mut last = status.at(now);
    if last.role == Role::Leader {
        last.role = Role::Stopping;
    }
    last.authority = None;
    last.holder = None;
    last
}

/// Returns true if two statuses render equally, apart from the time of writing.
pub fn renders_equal(one: &Status, other: &Status) -> bool {
    let rendered = |status: &Status| Status {
        holder: status.holder.clone().map(|holder| HolderView {
            until: BootTime::default(),
            ..holder
        }),
        token_highest: Token::ZERO,
        renewed_at: None,
        store: StoreAnswer::None,
        stepping_down: None,
        unnoticed: None,
        ..status.clone()
    };
    rendered(one) == rendered(other)
}

impl StatusDocument {
    /// Builds the document for `status` at `clocks`.
    pub fn new(status: &Status, who: &Identification, clocks: ClockPair) -> Self {
        let authority = authority_at(status, clocks.boot);
        let status = status.at(clocks.boot);
        Self {
            schema: SCHEMA,
            lease: who.lease.to_string(),
            identity: who.identity.to_string(),
            session: status.session.to_string(),
            role: status.role.to_string(),
            leader: authority.is_some(),
            token: authority.map(|a| a.token.get()),
            valid_until: authority.map(|a| clocks.date(a.valid_until)),
            valid_until_boottime_ns: authority.map(|a| a.valid_until.as_nanos()),
            boot_id: who.boot_id.clone(),
            time_namespace: clocks.time_namespace,
            holder: status.holder.map(|h| DocumentHolder {
                identity: h.identity.to_string(),
                token: h.token.get(),
                unconfirmed: h.unconfirmed,
            }),
            transitions: status.transitions,
            since: clocks.date(status.since),
            reason: status.reason.map(|r| r.to_string()),
            updated_at: clocks.date(clocks.boot),
            store_error: None,
            rewrite_due_boottime_ns: None,
            stopped: false,
        }
    }

    /// Sets the MongoDB error.
    #[must_use]
    pub fn with_store_error(mut self, error: Option<&StoreError>, clocks: ClockPair) -> Self {
        self.store_error = error.map(|error| DocumentStoreError {
            message: error.message.clone(),
            since: clocks.date(error.since),
        });
        self
    }

    /// Renders `status.json` as one line.
    pub fn to_json(&self) -> String {
        let mut json = serde_json::to_string(self)
            .expect("strings, numbers and nulls can always be written as JSON");
        json.push('\n');
        json
    }

    /// Renders `status.env` as assignments that a shell can source.
    pub fn to_env(&self) -> String {
        let valid_until = self.valid_until_boottime_ns.map(|nanos| nanos.to_string());
        let time_namespace = self.time_namespace.map(|inode| inode.to_string());
        let lines = [
            ("LEASE", Some(self.lease.clone())),
            ("IDENTITY", Some(self.identity.clone())),
            ("ROLE", Some(self.role.clone())),
            ("LEADER", Some(self.leader.to_string())),
            ("TOKEN", self.token.map(|token| token.to_string())),
            ("VALID_UNTIL_BOOTTIME_NS", valid_until),
            ("BOOT_ID", self.boot_id.clone()),
            ("TIME_NAMESPACE", time_namespace),
            ("HOLDER", self.holder.as_ref().map(|h| h.identity.clone())),
        ];
        let line = |(key, value): (&str, Option<String>)| {
            // Inside the single quotes of a POSIX shell, only the quote itself is special.
            let value = value.unwrap_or_default().replace('\'', r"'\''");
            format!("LEASEHOLD_{key}='{value}'\n")
        };
        lines.into_iter().map(line).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dates::DATE_LAST;
    use crate::fixture::{self, at};
    use leasehold_core::election::{HolderView, Reason, Session, StoreAnswer};

    fn who() -> Identification {
        Identification {
            boot_id: Some("b007".to_owned()),
            ..fixture::who("o'hara")
        }
    }

    fn render(status: &Status, clocks: ClockPair) -> (String, String) {
        let document = StatusDocument::new(status, &who(), clocks);
        (document.to_json(), document.to_env())
    }

    fn leader() -> Status {
        let until = at(118);
        Status {
            holder: Some(HolderView {
                identity: who().identity,
                token: fixture::token(7),
                until,
                unconfirmed: false,
            }),
            transitions: 3,
            since: at(90),
            reason: Some(Reason::Renewed),
            store: StoreAnswer::Usable,
            session: Session::from_bytes([0xab; 16]),
            ..fixture::leader(7, until)
        }
    }

    fn clocks(seconds: u64) -> ClockPair {
        ClockPair {
            boot: at(seconds),
            wall: UNIX_EPOCH + Duration::from_secs(1_800_000_000 + seconds),
            time_namespace: None,
        }
    }

    #[test]
    fn a_leader_is_rendered_as_documented() {
        let clocks = ClockPair {
            time_namespace: Some(4_026_531_834),
            ..clocks(100)
        };
        let (json, env) = render(&leader(), clocks);
        assert_eq!(
            json,
            concat!(
                r#"{"schema":1,"lease":"orders","identity":"o'hara","#,
                r#""session":"abababab-abab-abab-abab-abababababab","role":"leader","#,
                r#""leader":true,"token":7,"valid_until":"2027-01-15T08:01:58.000Z","#,
                r#""valid_until_boottime_ns":118000000000,"boot_id":"b007","#,
                r#""time_namespace":4026531834,"#,
                r#""holder":{"identity":"o'hara","token":7},"transitions":3,"#,
                r#""since":"2027-01-15T08:01:30.000Z","reason":"renewed","#,
                r#""updated_at":"2027-01-15T08:01:40.000Z","store_error":null}"#,
                "\n"
            )
        );
        assert_eq!(
            env,
            concat!(
                "LEASEHOLD_LEASE='orders'\n",
                r"LEASEHOLD_IDENTITY='o'\''hara'",
                "\nLEASEHOLD_ROLE='leader'\n",
                "LEASEHOLD_LEADER='true'\n",
                "LEASEHOLD_TOKEN='7'\n",
                "LEASEHOLD_VALID_UNTIL_BOOTTIME_NS='118000000000'\n",
                "LEASEHOLD_BOOT_ID='b007'\n",
                "LEASEHOLD_TIME_NAMESPACE='4026531834'\n",
                r"LEASEHOLD_HOLDER='o'\''hara'",
                "\n",
            )
        );
    }

    #[test]
    fn i4_a_leader_past_its_deadline_is_rendered_as_a_follower() {
        let (json, env) = render(&leader(), clocks(118));
        assert_eq!(
            json,
            concat!(
                r#"{"schema":1,"lease":"orders","identity":"o'hara","#,
                r#""session":"abababab-abab-abab-abab-abababababab","role":"follower","#,
                r#""leader":false,"token":null,"valid_until":null,"#,
                r#""valid_until_boottime_ns":null,"boot_id":"b007","#,
                r#""holder":null,"transitions":4,"#,
                r#""since":"2027-01-15T08:01:58.000Z","reason":"deadline","#,
                r#""updated_at":"2027-01-15T08:01:58.000Z","store_error":null}"#,
                "\n"
            )
        );
        assert_eq!(
            env,
            concat!(
                "LEASEHOLD_LEASE='orders'\n",
                r"LEASEHOLD_IDENTITY='o'\''hara'",
                "\nLEASEHOLD_ROLE='follower'\n",
                "LEASEHOLD_LEADER='false'\n",
                "LEASEHOLD_TOKEN=''\n",
                "LEASEHOLD_VALID_UNTIL_BOOTTIME_NS=''\n",
                "LEASEHOLD_BOOT_ID='b007'\n",
                "LEASEHOLD_TIME_NAMESPACE=''\n",
                "LEASEHOLD_HOLDER=''\n",
            )
        );
    }

    #[test]
    fn a_document_shows_the_store_error_and_its_start() {
        let error = StoreError {
            message: "no primary".to_owned(),
            since: at(90),
        };
        let document = StatusDocument::new(&leader(), &who(), clocks(100));
        let document = document.with_store_error(Some(&error), clocks(100));
        let json = document.to_json();
        let expected =
            r#""store_error":{"message":"no primary","since":"2027-01-15T08:01:30.000Z"}}"#;
        assert!(json.trim_end().ends_with(expected), "{json}");
        // Files of earlier versions do not have this field.
        let (earlier, _) = json
            .split_once(r#","store_error""#)
            .expect("the last field");
        let read: StatusDocument =
            serde_json::from_str(&format!("{earlier}}}")).expect("a document");
        assert_eq!(read.store_error, None);
    }

    #[test]
    fn a_start_has_nulls() {
        let status = fixture::status(Role::Unknown);
        let document = StatusDocument::new(&status, &fixture::who("me"), clocks(0));
        assert_eq!(
            (document.role.as_str(), document.leader),
            ("unknown", false)
        );
        assert_eq!((document.reason, document.boot_id), (None, None));
    }

    #[test]
    fn authority_without_the_role_is_not_shown() {
        let status = Status {
            role: Role::Stopping,
            ..leader()
        };
        let document = StatusDocument::new(&status, &who(), clocks(100));
        assert_eq!((document.leader, document.token), (false, None));
    }

    #[test]
    fn the_leader_name_requires_authority() {
        let me = who().identity;
        let now = clocks(100).boot;
        assert_eq!(leader_name_at(&leader(), &me, now), Some("o'hara"));
        let stopping = Status {
            role: Role::Stopping,
            authority: None,
            ..leader()
        };
        assert_eq!(leader_name_at(&stopping, &me, now), None);
        let other = Identity::new("other").unwrap();
        assert_eq!(leader_name_at(&stopping, &other, now), Some("o'hara"));
        assert_eq!(leader_name_at(&stopping, &other, clocks(118).boot), None);
    }

    #[test]
    fn dates_outside_the_calendar_do_not_panic() {
        let clocks = |boot, wall| ClockPair {
            boot,
            wall,
            time_namespace: None,
        };
        let early = clocks(at(50), UNIX_EPOCH + Duration::from_secs(2));
        assert_eq!(early.date(BootTime::default()), "1970-01-01T00:00:00.000Z");
        let late = clocks(at(0), UNIX_EPOCH + DATE_LAST);
        let end = BootTime::from_nanos(u64::MAX);
        assert_eq!(late.date(end), "9999-12-31T23:59:59.000Z");
        let before = clocks(at(0), UNIX_EPOCH - Duration::from_secs(5));
        assert_eq!(before.date(before.boot), "1970-01-01T00:00:00.000Z");
    }
}
