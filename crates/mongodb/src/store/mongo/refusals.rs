//! Errors of refused writes, with their names and remedies.

use mongodb::error::Error;

use super::outcome::{self, ServerError};
use crate::store::Failure;

/// The unique index on `_id`, which rejects a second document with the same name.
const ID_INDEX: &str = "_id_";
/// Error code if a file cannot be created or extended. The text then contains [`NO_SPACE`].
const UNKNOWN_ERROR: i32 = 8;
const NO_SPACE: &str = "No space left on device";
const NAME_MAX: usize = 64;
const OVERLOADED: &str = "the server is overloaded: see its log and db.currentOp()";
const CAPPED: &str = "the collection is capped: set mongodb.collection to another name";
pub(super) const ELECTING: &str = "leasehold uses the next primary once it is elected";
const NO_MAJORITY: &str = "a majority of the data-bearing members must be up and replicating";
pub(super) const SEE_LOG: &str = "see the server's log";
const DISK_FULL: &str = "free disk space on the primary";
const VIEW: &str =
    "the collection is a view or a time series: set mongodb.collection to another name";
const TIME_SERIES: &str = "the collection is a time series: set mongodb.collection to another name";
const TOO_LARGE: &str =
    "the document of this name is too large: remove the fields that are not leasehold's";
pub(super) const NOT_MONGODB: &str =
    "use a MongoDB replica set of version 4.4 or later (docs/mongodb.md)";

/// Temporary errors: code, name and remedy, in the order of the codes.
const PASSING: [(i32, &str, &str); 26] = [
    (6, "HostUnreachable", NO_MAJORITY),
    (7, "HostNotFound", NO_MAJORITY),
    (11, "UserNotFound", "create the user of the MongoDB URI"),
    (24, "LockTimeout", OVERLOADED),
    (46, "LockBusy", OVERLOADED),
    (64, "WriteConcernFailed", NO_MAJORITY),
    (89, "NetworkTimeout", NO_MAJORITY),
    (91, "ShutdownInProgress", ELECTING),
    (96, "OperationFailed", SEE_LOG),
    (100, "UnsatisfiableWriteConcern", NO_MAJORITY),
    (112, "WriteConflict", OVERLOADED),
    (133, "FailedToSatisfyReadPreference", ELECTING),
    (146, "ExceededMemoryLimit", OVERLOADED),
    (189, "PrimarySteppedDown", ELECTING),
    (202, "NetworkInterfaceExceededTimeLimit", NO_MAJORITY),
    (262, "ExceededTimeLimit", OVERLOADED),
    (317, "ConnectionPoolExpired", NO_MAJORITY),
    (365, "TemporarilyUnavailable", OVERLOADED),
    (
        371,
        "UserWritesBlocked",
        "an administrator blocks writes (setUserWriteBlockMode)",
    ),
    (
        8000,
        "AtlasError",
        "see the limits and alerts of the cluster in Atlas",
    ),
    (11600, "InterruptedAtShutdown", ELECTING),
    (
        11601,
        "Interrupted",
        "an administrator or a limit ended the operation (killOp)",
    ),
    (11602, "InterruptedDueToReplStateChange", ELECTING),
    (13435, "NotPrimaryNoSecondaryOk", ELECTING),
    (13436, "NotPrimaryOrSecondary", ELECTING),
    (14031, "OutOfDiskSpace", DISK_FULL),
];

/// Errors that last until an operator acts. These errors end an attempt to join the queue of a
/// lock, but not a wait in the queue.
const LASTING: [(i32, &str, &str); 19] = [
    (
        20,
        "IllegalOperation",
        "start the server with --replSet and without --queryableBackupMode",
    ),
    (59, "CommandNotFound", NOT_MONGODB),
    (72, "InvalidOptions", NOT_MONGODB),
    (
        73,
        "InvalidNamespace",
        "correct mongodb.database and mongodb.collection",
    ),
    (
        79,
        "UnknownReplWriteConcern",
        "use a replica set with majority write concern",
    ),
    (115, "CommandNotSupported", NOT_MONGODB),
    (
        121,
        "DocumentValidationFailure",
        "the collection has a validator: db.runCommand({collMod: COLLECTION, validator: {}})",
    ),
    (166, "CommandNotSupportedOnView", VIEW),
    (
        171,
        "CannotIndexParallelArrays",
        "drop the index that covers more than one of holders, queue, history and successes",
    ),
    (238, "NotImplemented", NOT_MONGODB),
    (263, "OperationNotSupportedInTransaction", CAPPED),
    (303, "FeatureNotSupported", NOT_MONGODB),
    (
        323,
        "APIStrictError",
        "the program declares a strict Stable API (apiStrict); remove `strict` from the server API of its client",
    ),
    (
        334,
        "MechanismUnavailable",
        "this mechanism is not enabled on the server: correct authMechanism",
    ),
    (10003, "CannotGrowDocumentInCappedNamespace", CAPPED),
    (10334, "BSONObjectTooLarge", TOO_LARGE),
    (
        13297,
        "DatabaseDifferCase",
        "a database with this name in different letter case exists: correct mongodb.database",
    ),
    (17419, "Location17419", TOO_LARGE),
    // On a view, some expressions of our projections are not supported.
    (28667, "Location28667", VIEW),
];

/// Names of errors that [`outcome`] explains. Servers do not always send the name.
const NAMES: [(i32, &str); 10] = [
    (1, "InternalError"),
    (2, "BadValue"),
    (UNKNOWN_ERROR, "UnknownError"),
    (9, "FailedToParse"),
    (14, "TypeMismatch"),
    (outcome::UNAUTHORIZED, "Unauthorized"),
    (18, "AuthenticationFailed"),
    (50, "MaxTimeMSExpired"),
    (10107, "NotWritablePrimary"),
    (outcome::DUPLICATE_KEY, "DuplicateKey"),
];

pub(super) fn explain(kind: &'static str, code: i32, message: &str) -> Failure {
    if code == UNKNOWN_ERROR && message.contains(NO_SPACE) {
        return Failure::new(kind, DISK_FULL);
    }
    // Checks the text, because errors of capped collections and of other products have the same
    // code.
    if message.contains("time-series collection") {
        return Failure::lasting(kind, TIME_SERIES);
    }
    let is_code = |(known, ..): &&(i32, &str, &str)| *known == code;
    if let Some((.., remedy)) = LASTING.iter().find(is_code) {
        return Failure::lasting(kind, *remedy);
    }
    let remedy = PASSING.iter().find(is_code);
    Failure::new(kind, remedy.map_or(SEE_LOG, |(.., remedy)| *remedy))
}

pub(super) fn name(error: &Error) -> Option<Box<str>> {
    let ServerError { code, name, .. } = outcome::server_error(error)?;
    let known = PASSING.iter().chain(&LASTING);
    let known = known.map(|(code, name, _)| (*code, *name));
    if let Some((_, name)) = known.chain(NAMES).find(|(known, _)| *known == code) {
        return Some(name.into());
    }
    // A name must look like an identifier of the server's source; any other text could be data.
    let is_name = (1..=NAME_MAX).contains(&name.len())
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric());
    is_name.then(|| name.into())
}

/// Returns the name of the index that refused a document, unless the index on `_id` refused it. A
/// returned name proves that the collection has no document with this `_id`.
pub(super) fn foreign_index(error: &Error) -> Option<String> {
    let error = outcome::server_error(error)?;
    if error.code != outcome::DUPLICATE_KEY {
        return None;
    }
    let (_, index) = error.message.split_once(" index: ")?;
    let (index, _) = index.split_once(" dup key")?;
    let index = index.split(" collation: ").next()?;
    (index != ID_INDEX).then(|| shown_index(index))
}

pub(super) fn shown_index(name: &str) -> String {
    let shown: String = name.chars().take(NAME_MAX).collect();
    shown.escape_debug().to_string()
}

#[cfg(test)]
mod tests {
    use mongodb::bson::{deserialize_from_document, doc};
    use mongodb::error::{CommandError, ErrorKind};

    use super::*;

    #[test]
    fn the_page_has_each_known_error_and_says_if_it_is_retried() {
        let page = include_str!("../../../../../docs/mongodb.md");
        let passing = PASSING
            .iter()
            .map(|(code, name, _)| (code, name, "| yes |"));
        let lasting = LASTING.iter().map(|(code, name, _)| (code, name, "| no |"));
        for (code, name, retried) in passing.chain(lasting) {
            let error = format!("`{name}` ({code})");
            let rows = page.lines().filter(|line| line.starts_with('|'));
            let mut rows = rows.filter(|line| line.contains(&error));
            let row = rows.next().unwrap_or_else(|| panic!("no row has {error}"));
            assert!(row.ends_with(retried), "{error}: {row}");
            assert_eq!(rows.next(), None, "{error}");
        }
    }

    #[test]
    fn the_known_errors_are_in_order_and_each_has_a_remedy() {
        assert!(PASSING.is_sorted_by_key(|(code, ..)| code));
        assert!(LASTING.is_sorted_by_key(|(code, ..)| code));
        let mut known = PASSING.iter().chain(&LASTING);
        assert!(known.all(|(.., remedy)| !remedy.is_empty()));
        let named = |code: i32, code_name: &str| {
            let error = doc! { "code": code, "codeName": code_name, "errmsg": "" };
            let error: CommandError = deserialize_from_document(error).expect("an error");
            name(&ErrorKind::Command(error).into())
        };
        assert_eq!(explain("", 14031, "").detail, DISK_FULL);
        assert_eq!(
            explain("", 8, "28: No space left on device").detail,
            DISK_FULL
        );
        assert_eq!(named(14031, "").as_deref(), Some("OutOfDiskSpace"));
        assert_eq!(named(13, "").as_deref(), Some("Unauthorized"));
        assert_eq!(explain("", 4, "").detail, "see the server's log");
        assert_eq!(named(4, "NoSuchKey").as_deref(), Some("NoSuchKey"));
        assert_eq!(named(4, "{ secret }"), None);
    }

    #[test]
    fn only_the_index_on_the_id_shows_that_a_document_exists() {
        let of = |message: &str| {
            let error = doc! { "code": 11000, "codeName": "DuplicateKey", "errmsg": message };
            let error: CommandError = deserialize_from_document(error).expect("an error");
            foreign_index(&ErrorKind::Command(error).into())
        };
        let text =
            "E11000 duplicate key error collection: a.leases index: _id_ dup key: { _id: 1 }";
        assert_eq!(of(text), None);
        let text =
            "E11000 duplicate key error collection: a.leases index: name_1 dup key: { name: null }";
        assert_eq!(of(text).as_deref(), Some("name_1"));
        assert_eq!(of("another product's text"), None);
    }
}
