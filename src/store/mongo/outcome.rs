//! From the driver's errors to outcomes, and to words without secrets.
//!
//! An error's own text is never passed on: it carries the server's reply, and
//! a connection string's text carries the password.

use mongodb::error::{Error, ErrorKind, WriteFailure};

use crate::store::{Answer, CallOutcome, Failure};

const DUPLICATE_KEY: i32 = 11000;
const UNAUTHORIZED: i32 = 13;
const AUTHENTICATION_FAILED: i32 = 18;
const WRITE_CONCERN_FAILED: i32 = 64;
/// `$changeStream` on a standalone server.
const NO_CHANGE_STREAMS: i32 = 40573;
const COMMAND_NOT_SUPPORTED: [i32; 2] = [115, 303];

/// What a failed call means to its sender; with words unless it is a rejection.
pub(super) fn classify<O: CallOutcome>(error: &Error, place: Option<String>) -> Answer<O> {
    if code(error) == Some(DUPLICATE_KEY) {
        return Answer {
            outcome: O::REJECTED,
            failure: None,
        };
    }
    let outcome = if never_sent(error) {
        O::FAILED
    } else {
        // The command was handed to a connection: whatever the error says, it
        // may have been applied, or may still be.
        O::UNKNOWN
    };
    Answer {
        outcome,
        failure: Some(describe(error, place)),
    }
}

/// Whether the error proves that no command left this process. A cleared
/// connection pool does not: it also ends calls that wait for their reply.
fn never_sent(error: &Error) -> bool {
    matches!(
        error.kind.as_ref(),
        ErrorKind::ServerSelection { .. }
            | ErrorKind::Authentication { .. }
            | ErrorKind::DnsResolve { .. }
            | ErrorKind::InvalidTlsConfig { .. }
            | ErrorKind::InvalidArgument { .. }
            | ErrorKind::IncompatibleServer { .. }
            | ErrorKind::Shutdown
    )
}

/// Whether new credentials could help.
pub(super) fn is_authentication(error: &Error) -> bool {
    matches!(error.kind.as_ref(), ErrorKind::Authentication { .. })
        || code(error) == Some(AUTHENTICATION_FAILED)
}

/// Whether change streams will not come soon: no replica set, or no right.
pub(super) fn lacks_change_streams(error: &Error) -> bool {
    code(error).is_some_and(|code| {
        code == NO_CHANGE_STREAMS || code == UNAUTHORIZED || COMMAND_NOT_SUPPORTED.contains(&code)
    })
}

/// The server's error code.
fn code(error: &Error) -> Option<i32> {
    match error.kind.as_ref() {
        ErrorKind::Command(command) => Some(command.code),
        ErrorKind::Write(WriteFailure::WriteError(write)) => Some(write.code),
        ErrorKind::Write(WriteFailure::WriteConcernError(concern)) => Some(concern.code),
        _ => None,
    }
}

/// Words for people; `place` is what the monitors last said of a server.
pub(super) fn describe(error: &Error, place: Option<String>) -> Failure {
    let code = code(error);
    let (kind, detail) = match error.kind.as_ref() {
        ErrorKind::ServerSelection { .. } => {
            ("no primary can be reached", place.unwrap_or_default())
        }
        // The text of the system's error: of this machine, not of the server.
        ErrorKind::Io(io) => ("connection failed", io.to_string()),
        ErrorKind::DnsResolve { .. } => (
            "name resolution failed",
            "check the host names in the MongoDB URI".to_owned(),
        ),
        ErrorKind::Authentication { .. } => (
            "authentication failed",
            "check user name, password or certificate, authSource and authMechanism".to_owned(),
        ),
        ErrorKind::InvalidTlsConfig { .. } => (
            "TLS configuration refused",
            "check the files named by tlsCAFile and tlsCertificateKeyFile".to_owned(),
        ),
        ErrorKind::ConnectionPoolCleared { .. } => (
            "connection lost before the call was sent",
            place.unwrap_or_default(),
        ),
        ErrorKind::Command(_) if code == Some(UNAUTHORIZED) => (
            "not authorized",
            "the role needs find, insert, update and changeStream on the collection".to_owned(),
        ),
        ErrorKind::Command(_) if code == Some(NO_CHANGE_STREAMS) => (
            "no change streams",
            "not a replica set: followers poll instead, and nothing protects an acknowledged \
             write from the loss of this one server"
                .to_owned(),
        ),
        ErrorKind::Command(command) => {
            ("the server refused the command", command.code_name.clone())
        }
        ErrorKind::Write(WriteFailure::WriteConcernError(concern)) => (
            "no majority acknowledged the write in time",
            if concern.code == WRITE_CONCERN_FAILED {
                "a majority of the data-bearing members must be up".to_owned()
            } else {
                concern.code_name.clone()
            },
        ),
        ErrorKind::Write(WriteFailure::WriteError(_)) => ("write failed", String::new()),
        ErrorKind::Shutdown => ("the client was shut down", String::new()),
        ErrorKind::InvalidArgument { .. } => (
            "the MongoDB URI or an option of it was refused",
            "percent-encode special characters in user name and password".to_owned(),
        ),
        _ => ("the driver failed", String::new()),
    };
    Failure { kind, code, detail }
}

/// One short line about why a server cannot be reached.
pub(super) fn reachability(error: &Error) -> String {
    let Failure { kind, detail, .. } = describe(error, None);
    if detail.is_empty() {
        kind.to_owned()
    } else {
        format!("{kind}: {detail}")
    }
}
