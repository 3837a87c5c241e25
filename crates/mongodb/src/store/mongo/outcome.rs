//! Converts the driver's errors into outcomes, and into messages without secrets. A message never
//! contains the text of an error, which may quote the server's reply or the password in a URI.

use std::error::Error as _;
use std::io;

use mongodb::error::{CommandError, Error, ErrorKind, WriteFailure};

use super::servers::{Asked, AuthMethod, Servers};
use super::{refusals, tls};
use crate::store::{Answer, Failure, RetryPolicy, UNANSWERED};
use leasehold_core::election::Outcome;

pub(super) const DUPLICATE_KEY: i32 = 11000;
pub(super) const UNAUTHORIZED: i32 = 13;
pub(super) const LOGIN_REFUSED: &str = "authentication failed";
pub(super) const LOGIN_REQUIRED: &str = "authentication required";
const AUTHENTICATION_FAILED: i32 = 18;
const MECHANISM_UNAVAILABLE: i32 = 334;
/// The code of all errors from Atlas' proxies.
const ATLAS_ERROR: i32 = 8000;
/// `ShutdownInProgress`, `InterruptedAtShutdown`.
const SHUTTING_DOWN: [i32; 2] = [91, 11_600];
/// `$changeStream` on a standalone server.
const NO_CHANGE_STREAMS: i32 = 40573;
/// Replies of servers without change streams: CommandNotFound, CommandNotSupported, NotImplemented,
/// "feature not supported", and an unknown pipeline stage.
const COMMAND_NOT_SUPPORTED: [i32; 5] = [59, 115, 238, 303, 40324];
const NOT_WRITABLE_PRIMARY: i32 = 10107;
const MAX_TIME_EXPIRED: i32 = 50;

/// Returns the outcome of a failed call, with a description unless the server rejected the write.
pub(super) fn classify<F>(error: &Error, servers: &Servers) -> Answer<F> {
    let foreign_index = refusals::foreign_index(error).is_some();
    if code(error) == Some(DUPLICATE_KEY) && !foreign_index {
        return Answer::of(Outcome::Rejected);
    }
    let outcome = match never_sent(error) || foreign_index {
        // A write that an index refused is never applied later.
        true => Outcome::Failed,
        // The command reached a connection, so it may be applied later despite the error.
        false => Outcome::Unknown,
    };
    Answer::failed(outcome, describe(error, servers))
}

/// True if the error proves that no command left this process. A cleared connection pool does not
/// prove this, because clearing the pool also ends calls that wait for a reply.
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

/// Returns the server's reply if the driver's login error contains it; otherwise the error itself.
pub(super) fn reply(error: &Error) -> &Error {
    let ErrorKind::Authentication { .. } = error.kind.as_ref() else {
        return error;
    };
    let source = error.source();
    let boxed = source.and_then(|source| source.downcast_ref::<Box<Error>>());
    let plain = || source.and_then(|source| source.downcast_ref::<Error>());
    boxed.map(Box::as_ref).or_else(plain).unwrap_or(error)
}

/// True if the login failed because of the credentials, and not because of overload or shutdown.
pub(super) fn refuses_login(error: &Error) -> bool {
    let is_login = matches!(error.kind.as_ref(), ErrorKind::Authentication { .. });
    match reply(error).kind.as_ref() {
        ErrorKind::Command(reply) => match reply.code {
            AUTHENTICATION_FAILED | MECHANISM_UNAVAILABLE => true,
            ATLAS_ERROR => is_login && reply.message.contains("bad auth"),
            _ => false,
        },
        _ => is_login,
    }
}

/// True if the server has no change streams, or does not permit them.
pub(super) fn lacks_change_streams(error: &Error) -> bool {
    let refused = |code| code == NO_CHANGE_STREAMS || code == UNAUTHORIZED;
    lacks_command(error) || code(error).is_some_and(refused)
}

/// True if the server does not have the command, or a stage of its pipeline.
pub(super) fn lacks_command(error: &Error) -> bool {
    code(error).is_some_and(|code| COMMAND_NOT_SUPPORTED.contains(&code))
}

pub(super) fn is_reply(error: &Error) -> bool {
    code(error).is_some()
}

/// True if the server refused the document, which proves that the user has the right to write.
pub(super) fn is_write_error(error: &Error) -> bool {
    let kind = error.kind.as_ref();
    matches!(kind, ErrorKind::Write(WriteFailure::WriteError(_)))
}

pub(super) fn code(error: &Error) -> Option<i32> {
    server_error(error).map(|error| error.code)
}

pub(super) struct ServerError<'a> {
    pub(super) code: i32,
    /// The server's name for the error; empty if the server sends none.
    pub(super) name: &'a str,
    pub(super) message: &'a str,
}

/// Returns the error that a server reports; `None` if the error is not a reply.
pub(super) fn server_error(error: &Error) -> Option<ServerError<'_>> {
    let (code, name, message) = match reply(error).kind.as_ref() {
        ErrorKind::Command(error) => (error.code, error.code_name.as_str(), &error.message),
        ErrorKind::Write(WriteFailure::WriteError(error)) => {
            let name = error.code_name.as_deref().unwrap_or_default();
            (error.code, name, &error.message)
        }
        ErrorKind::Write(WriteFailure::WriteConcernError(error)) => {
            (error.code, error.code_name.as_str(), &error.message)
        }
        _ => return None,
    };
    Some(ServerError {
        code,
        name,
        message,
    })
}

pub(super) fn describe(error: &Error, servers: &Servers) -> Failure {
    let asked = servers.asked();
    if let Some(index) = refusals::foreign_index(error) {
        let kind = "a unique index of the collection refuses the document";
        let remedy = "which is not leasehold's";
        let detail = format!("drop the unique index {index}, {remedy}");
        return named(Failure::lasting(kind, detail), error);
    }
    let failure = match error.kind.as_ref() {
        ErrorKind::ServerSelection { .. } => servers.known().no_primary(),
        ErrorKind::Command(command) if !refuses_login(error) => refused(command, &asked),
        ErrorKind::Authentication { .. } | ErrorKind::Command(_) => login_failed(error, &asked),
        ErrorKind::Write(WriteFailure::WriteConcernError(concern))
            if SHUTTING_DOWN.contains(&concern.code) =>
        {
            Failure::new("the server is shutting down", refusals::ELECTING)
        }
        ErrorKind::Write(WriteFailure::WriteConcernError(concern)) => {
            let kind = "no majority acknowledged the write in time";
            refusals::explain(kind, concern.code, &concern.message)
        }
        ErrorKind::Write(WriteFailure::WriteError(write)) => {
            refusals::explain("MongoDB refused the write", write.code, &write.message)
        }
        // The connection string's syntax was checked earlier.
        ErrorKind::InvalidArgument { .. } => Failure::lasting(
            "the driver refuses the MongoDB URI",
            "its options contradict the DNS records of its host (srvMaxHosts, replicaSet)",
        ),
        ErrorKind::InvalidTlsConfig { .. } => Failure::lasting(tls::REFUSED, tls::UNUSABLE),
        // The driver clears the pool of a server that is unreachable or refuses the login.
        ErrorKind::ConnectionPoolCleared { .. } => {
            let known = servers.known();
            known.refused_login().unwrap_or_else(|| {
                Failure::new("connection lost", known.no_primary().detail)
                    .with_retry(RetryPolicy::WaitForServer)
            })
        }
        ErrorKind::Shutdown => Failure::new("the client was shut down", "this process is stopping"),
        _ => match servers.explain(error) {
            Some(why) => Failure::new("connection failed", why.to_string())
                .with_retry(RetryPolicy::WaitForServer),
            None => Failure::new(
                "the MongoDB driver failed",
                "report a bug if the error persists: neither a server nor the network is the cause",
            ),
        },
    };
    named(failure, error)
}

/// Adds the server's code and name for the error. A failure that a server reported earlier keeps
/// its own code and name.
pub(super) fn named(failure: Failure, error: &Error) -> Failure {
    Failure {
        code: code(error).or(failure.code),
        name: refusals::name(error).or(failure.name),
        ..failure
    }
}

const UNRESOLVED: (&str, &str) = (
    "cannot resolve the host name",
    "check the MongoDB URI and DNS",
);
pub(super) const NETWORK: &str = "check the host, the network and any firewall in between";

/// Describes why a server cannot be used, if the error shows the reason. `answered` is true if a
/// server has answered before, which proves the TLS settings correct.
pub(super) fn unreachable(error: &Error, asked: &Asked, answered: bool) -> Option<Failure> {
    let (kind, remedy) = match error.kind.as_ref() {
        ErrorKind::Io(error) => {
            let refused = tls::refusal(error);
            return Some(refused.unwrap_or_else(|| connection(error, asked, answered)));
        }
        ErrorKind::DnsResolve { .. } => UNRESOLVED,
        ErrorKind::InvalidResponse { .. } | ErrorKind::Bson(_) => (
            "the reply is not in MongoDB's protocol",
            "check the port in the MongoDB URI",
        ),
        ErrorKind::IncompatibleServer { .. } => {
            ("the server's version is too old", refusals::NOT_MONGODB)
        }
        ErrorKind::Authentication { .. } => return Some(named(login_failed(error, asked), error)),
        ErrorKind::ConnectionPoolCleared { .. } => ("connection lost", NETWORK),
        ErrorKind::Command(_) => ("refused", refusals::SEE_LOG),
        _ => return None,
    };
    Some(named(Failure::new(kind, remedy), error))
}

pub(super) fn is_closed(kind: io::ErrorKind) -> bool {
    matches!(
        kind,
        io::ErrorKind::UnexpectedEof
            | io::ErrorKind::ConnectionReset
            | io::ErrorKind::ConnectionAborted
            | io::ErrorKind::BrokenPipe
    )
}

/// Describes an IO error. System error texts may be shown, because they come from this machine.
fn connection(error: &io::Error, asked: &Asked, answered: bool) -> Failure {
    let (kind, remedy) = match error.kind() {
        io::ErrorKind::ConnectionRefused => (
            "connection refused",
            "check host and port in the MongoDB URI",
        ),
        io::ErrorKind::TimedOut => ("no answer in time", NETWORK),
        kind if is_closed(kind) => (
            "connection closed by the server",
            match (answered, asked.tls) {
                (true, _) => {
                    "the server was restarted, the server has reached its limit of connections \
                     (maxConns, ulimit -n), or a proxy cut the connection"
                }
                (false, true) => {
                    "it may not use TLS (then remove tls=true), or require a client certificate \
                     (tlsCertificateKeyFile)"
                }
                (false, false) => "it may require TLS (tls=true), or may not be MongoDB",
            },
        ),
        _ if error.raw_os_error().is_none() && error.to_string().contains("lookup") => UNRESOLVED,
        _ => return Failure::new("network error", NETWORK).of(format!("({error})")),
    };
    Failure::new(kind, remedy)
}

fn login_failed(error: &Error, asked: &Asked) -> Failure {
    match reply(error).kind.as_ref() {
        ErrorKind::Command(reply) if reply.code == MECHANISM_UNAVAILABLE => Failure {
            detail: refusals::explain("", reply.code, &reply.message).detail,
            ..unauthenticated(asked)
        },
        ErrorKind::Command(reply) if !refuses_login(error) => Failure {
            kind: "the login failed",
            ..refused(reply, asked)
        },
        _ => unauthenticated(asked),
    }
}

fn unauthenticated(asked: &Asked) -> Failure {
    let (subject, detail) = match &asked.login {
        AuthMethod::Password { user, source } => (
            format!("for user {user}"),
            format!("check the password and authSource {source:?}"),
        ),
        AuthMethod::Certificate => (
            "for the client certificate".to_owned(),
            "its subject must be a user of $external".to_owned(),
        ),
        AuthMethod::Token => (
            "for the workload's identity (OIDC)".to_owned(),
            "the server must accept its issuer and audience, and assign it a role".to_owned(),
        ),
        AuthMethod::Nobody => (String::new(), "the URI has no user".to_owned()),
    };
    Failure::lasting(LOGIN_REFUSED, detail).of(subject)
}

fn refused(error: &CommandError, asked: &Asked) -> Failure {
    match error.code {
        UNAUTHORIZED if asked.login == AuthMethod::Nobody => {
            Failure::lasting(LOGIN_REQUIRED, "the URI has no user")
        }
        UNAUTHORIZED => {
            let user = match &asked.login {
                AuthMethod::Password { user, .. } => format!("user {user}"),
                AuthMethod::Token => "the workload's identity".to_owned(),
                AuthMethod::Certificate | AuthMethod::Nobody => "the certificate's user".to_owned(),
            };
            let lacks = lacks(&error.message);
            let remedy = "the role needs find, insert, update and changeStream";
            Failure::lasting("not authorized", format!("{user} {lacks}; {remedy}"))
        }
        NO_CHANGE_STREAMS => Failure::new(
            "no change streams",
            "a standalone server: an acknowledged write is lost if this server is lost",
        ),
        NOT_WRITABLE_PRIMARY => {
            Failure::new("the server is no longer the primary", refusals::ELECTING)
        }
        MAX_TIME_EXPIRED => Failure::new(
            "the server did not finish within operation_timeout",
            UNANSWERED,
        ),
        code => refusals::explain("MongoDB refused the command", code, &error.message),
    }
}

/// Describes the failure if the connection string's only server is not the primary. `replaceable`
/// is true if another member may be the primary.
pub(super) fn not_primary(replaceable: bool) -> Failure {
    let kind = "the server is not the primary";
    match replaceable {
        true => Failure::lasting(
            kind,
            "remove directConnection from the MongoDB URI, and name the replica set",
        ),
        false => Failure::new(kind, "leasehold uses the server once it is the primary")
            .with_retry(RetryPolicy::WaitForServer),
    }
}

pub(super) const FIND_OR_UPDATE: &str = "lacks the right find or update";

/// Returns the rights that a refused command needs. Reads only the command's name from the server's
/// text, because the rest contains the command's values.
fn lacks(message: &str) -> &'static str {
    let command = message.split_once("execute command { ");
    let name = command.and_then(|(_, command)| command.split_once(':'));
    match name.map(|(name, _)| name) {
        Some("find") => "may not find",
        Some("insert") => "may not insert",
        Some("update") => "may not update",
        Some("findAndModify") => FIND_OR_UPDATE,
        Some("aggregate") => "lacks the right find or changeStream",
        _ => "lacks a right",
    }
}

#[cfg(test)]
mod tests {
    use mongodb::bson::{deserialize_from_document, doc};

    use super::*;

    fn error(code: i32) -> Error {
        let error = doc! { "code": code, "codeName": "x", "errmsg": "x" };
        let error: CommandError = deserialize_from_document(error).expect("an error");
        ErrorKind::Command(error).into()
    }

    #[test]
    fn servers_without_change_streams_are_recognised_by_their_codes() {
        for (code, reply) in [
            (13, "Unauthorized"),
            (59, "CommandNotFound"),
            (115, "CommandNotSupported"),
            (238, "NotImplemented"),
            (303, "FeatureNotSupported"),
            (40_324, "Unrecognized pipeline stage name"),
            (40_573, "only supported on replica sets"),
        ] {
            assert!(lacks_change_streams(&error(code)), "{code} {reply}");
        }
        for (code, reply) in [
            (6, "HostUnreachable"),
            (50, "MaxTimeMSExpired"),
            (133, "FailedToSatisfyReadPreference"),
            (286, "ChangeStreamHistoryLost"),
            (10_107, "NotWritablePrimary"),
        ] {
            assert!(!lacks_change_streams(&error(code)), "{code} {reply}");
        }
    }

    #[test]
    fn a_refused_call_does_not_show_that_the_command_is_missing() {
        assert!(lacks_command(&error(59)));
        for code in [UNAUTHORIZED, AUTHENTICATION_FAILED, NOT_WRITABLE_PRIMARY] {
            assert!(!lacks_command(&error(code)), "{code}");
        }
    }

    #[test]
    fn an_error_of_the_driver_does_not_hide_the_code_that_a_server_gave() {
        let refused = named(
            Failure::lasting(LOGIN_REFUSED, "check the password"),
            &error(18),
        );
        let later = named(refused.clone(), &io::Error::other("no server").into());
        assert_eq!((refused.code, later), (Some(18), refused));
    }

    #[test]
    fn the_command_is_all_that_is_taken_from_the_servers_text() {
        let message = r#"not authorized on leasehold to execute command { findAndModify: "leases", query: { _id: "secret" } }"#;
        assert_eq!(lacks(message), "lacks the right find or update");
        let message = r#"not authorized on leasehold to execute command { aggregate: "leases" }"#;
        assert_eq!(lacks(message), "lacks the right find or changeStream");
        let message = "not authorized to execute command { drop: 1 }";
        assert_eq!(lacks(message), "lacks a right");
        let message = "command find requires authentication";
        assert_eq!(lacks(message), "lacks a right");
    }

    #[test]
    fn a_refused_identity_of_a_workload_is_not_taken_for_a_password() {
        let asked = Asked {
            login: AuthMethod::Token,
            ..Asked::default()
        };
        let failure = unauthenticated(&asked).to_string();
        let start = "authentication failed for the workload's identity (OIDC): the server must";
        assert!(failure.starts_with(start), "{failure}");
    }

    #[test]
    fn a_refused_login_names_the_user_and_never_the_password() {
        let asked = Asked {
            login: AuthMethod::Password {
                user: "leasehold".to_owned(),
                source: "admin".to_owned(),
            },
            ..Asked::default()
        };
        let failure = unauthenticated(&asked);
        assert_eq!(
            failure.to_string(),
            "authentication failed for user leasehold: check the password and authSource \
             \"admin\""
        );
        assert_eq!(failure.retry, RetryPolicy::Reconfigure);
    }
}
