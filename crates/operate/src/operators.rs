//! Operators' commands: list leases, send requests to leaders, repair a token, and serve a web page
//! with these functions. A write is applied only if the state that it depends on, such as the
//! token, has not changed since the operator's read.

pub(crate) mod arguments;
mod describe;
mod hints;
mod leases;
mod lock_view;
pub(crate) mod observed;
pub(crate) mod render;
mod repair;
mod request;
mod retire;
pub(crate) mod roll_call;
mod web;

use std::io;
use std::process::ExitCode;
use std::time::Duration;

use serde::Serialize;
use serde_json::{Value, json};
use tracing::{info, warn};

use leasehold_cli::keys::Selection;
use leasehold_clock as clock;
use leasehold_config::{LockConfig, UriSource};
use leasehold_core::election::{BootTime, Identity, ResourceName, Token};
use leasehold_host::signals::Exit;
use leasehold_host::terminal::fitted;
use leasehold_host::{CommandError, exit, log};
use leasehold_mongodb::randomness::KernelRandomness;
use leasehold_mongodb::store::mongo::operators::{
    ActionId, ActionKind, CollectionEntry, Content, LeaseRecord, MongoCollection, OperatorAction,
    Present, Scope, ViewEvent,
};
use leasehold_mongodb::store::{Failure, RetryPolicy};

pub use self::arguments::OperatorCommand;
use self::arguments::{ConnectionArgs, LeasesCommand};
use self::hints::describing;
pub(crate) use self::hints::{did_you_mean, hinted, missing, place};
use self::leases::Listing;
use self::observed::{Evidence, Followed};
use self::render::json_millis;
use self::roll_call::{ANSWER_MAX, Roll};
use leasehold_cli::store_options::of_locks;
use leasehold_cli::{answer, connecting, run_to_end, say};

/// Minimum interval between two log lines about an outage.
const REMINDED_AFTER: Duration = Duration::from_secs(60);

#[derive(Debug)]
struct RequestArgs {
    name: ResourceName,
    action: OperatorAction,
    /// If true, the target of a transfer is not checked.
    force: bool,
    /// The token that the operator expects; `None` accepts any.
    seen: Option<Token>,
    wait: bool,
}

fn action(kind: ActionKind, by: &Identity, reason: Option<String>) -> OperatorAction {
    OperatorAction {
        id: ActionId::random(&mut KernelRandomness),
        kind,
        by: by.to_string(),
        reason,
    }
}

#[derive(Debug, thiserror::Error)]
pub(crate) enum OperatorError {
    #[error("cannot {doing}: {failure}")]
    Store {
        doing: &'static str,
        failure: Failure,
    },
    #[error(
        "{document}: the outcome is not known, because MongoDB did not acknowledge the write: {failure}; \
         {command} shows whether it was applied"
    )]
    Unknown {
        document: String,
        failure: Box<Failure>,
        command: String,
    },
    #[error("no {kind} is named {name}{hint}")]
    Missing {
        /// "lease", "lock" or "lease or lock".
        kind: &'static str,
        name: ResourceName,
        hint: String,
    },
    #[error("{name} is a {kind}, not a {expected}: {} shows it", describing(.name))]
    OtherKind {
        name: ResourceName,
        kind: &'static str,
        expected: &'static str,
    },
    #[error("{kind} {name}: the document of this name is not a {kind}: {why}")]
    Foreign {
        /// "lease" or "lock".
        kind: &'static str,
        name: ResourceName,
        why: String,
    },
}

impl OperatorError {
    /// Returns the error for a lock where a lease is expected, or the reverse.
    pub(crate) fn other_kind(name: &ResourceName, kind: &'static str) -> Self {
        Self::OtherKind {
            name: name.clone(),
            kind,
            expected: if kind == "lock" { "lease" } else { "lock" },
        }
    }

    fn unknown_lease(name: &ResourceName, failure: Failure) -> Self {
        Self::Unknown {
            document: format!("lease {name}"),
            failure: Box::new(failure),
            command: describing(name),
        }
    }
}

impl From<OperatorError> for CommandError {
    fn from(error: OperatorError) -> Self {
        let exit = match &error {
            OperatorError::Missing { .. }
            | OperatorError::OtherKind { .. }
            | OperatorError::Foreign { .. } => exit::CONFIGURATION,
            OperatorError::Store { .. } | OperatorError::Unknown { .. } => exit::STORE_UNREACHABLE,
        };
        Self::new(exit, error.to_string())
    }
}

fn system(operation: &str) -> impl Fn(std::io::Error) -> CommandError {
    CommandError::failed(exit::NEGATIVE, operation)
}

/// Runs one of the commands.
#[inline(never)]
pub fn run(command: OperatorCommand) -> Result<ExitCode, CommandError> {
    let (connection, json) = command.connection();
    let timeout = connection.timeout();
    let serves = matches!(command, OperatorCommand::Web(_));
    configured(&connection, serves, async |config| {
        let session = Session::new(&config, json, timeout);
        let done = execute(&session, command);
        let limit = (!serves).then_some(timeout);
        run_on(&session.collection, &config.mongodb.uri, limit, done).await
    })
}

/// Waits for renewals and lists the locks, with pruned locks if `all` is true. If `observe` is
/// `None`, shows changes until the operator stops the command.
pub(crate) async fn list_locks(
    config: &LockConfig,
    json: bool,
    timeout: Duration,
    (all, observe): (bool, Option<Duration>),
) -> Result<Exit, CommandError> {
    let session = Session::new(config, json, timeout);
    let listing = Listing::Locks { all };
    let listed = async {
        match observe {
            Some(observe) => leases::run(&session, listing, Some(observe)).await,
            None => leases::watch(&session, listing).await,
        }
    };
    run_on(
        &session.collection,
        &config.mongodb.uri,
        Some(timeout),
        listed,
    )
    .await
}

/// Runs a command on a collection, then closes the connections. If MongoDB has not answered within
/// a second, prints the servers that the command tries to reach. `limit` is `None` for a
/// long-running command.
pub(crate) async fn run_on<T>(
    collection: &MongoCollection,
    uri: &UriSource,
    limit: Option<Duration>,
    command: impl Future<Output = T>,
) -> T {
    let connecting = async {
        let servers = connecting::unanswered(uri, || collection.info().is_some());
        let servers = tokio::select! {
            servers = servers => servers,
            // MongoDB has answered, so the error of the failed call names the cause.
            _ = collection.refused() => std::future::pending().await,
        };
        match limit {
            Some(limit) => {
                let why = collection.trouble();
                say(&connecting::progress(&servers, limit, why.as_ref()));
            }
            None => info!(servers, "connecting to MongoDB"),
        }
        std::future::pending().await
    };
    let done = tokio::select! {
        done = command => done,
        never = connecting => never,
    };
    collection.shut_down().await;
    done
}

/// Runs a command with its configuration. `serves` is true for a long-running command.
pub(crate) fn configured<S: Selection>(
    connection: &ConnectionArgs<S>,
    serves: bool,
    command: impl AsyncFnOnce(LockConfig) -> Result<Exit, CommandError>,
) -> Result<ExitCode, CommandError> {
    if !serves {
        hints::give(connection);
    }
    let sources = &connection.configuration.sources;
    let config = sources.load().lock_config()?;
    let json = config.log.format.json;
    let json = json.unwrap_or_else(|| serves && log::is_json_by_default());
    log::start(config.log.level, log::LineFormat::of(json));
    // If the configuration is invalid, its error already names these variables.
    for ignored in sources.ignored_variables() {
        match serves {
            true => warn!("{ignored}"),
            false => say(&ignored.to_string()),
        }
    }
    run_to_end(exit::NEGATIVE, command(config))?.map(Exit::take)
}

async fn execute(session: &Session, command: OperatorCommand) -> Result<Exit, CommandError> {
    let request = match command {
        OperatorCommand::Leases(args) => {
            let listing = Listing::Leases { all: args.all };
            return match args.command {
                Some(LeasesCommand::Retire(args)) => retire::run(session, args).await,
                None if args.watch => leases::watch(session, listing).await,
                None => leases::run(session, listing, args.observe.observe).await,
            };
        }
        OperatorCommand::Describe(args) => return describe::run(session, args).await,
        OperatorCommand::Repair(args) => return repair::run(session, args).await,
        OperatorCommand::Web(args) => return web::run(session, args).await,
        OperatorCommand::StepDown(args) => args.request(ActionKind::StepDown),
        OperatorCommand::Transfer(args) => args.request(),
        OperatorCommand::Pause(args) => args.request(ActionKind::Pause),
        OperatorCommand::Resume(args) => args.request(ActionKind::Resume),
        OperatorCommand::Cancel(args) => args.request(ActionKind::Cancel, true),
    };
    request::run(session, request).await
}

#[derive(Clone)]
struct Session {
    collection: MongoCollection,
    json: bool,
    timeout: Duration,
    deadline: BootTime,
}

impl Session {
    fn new(config: &LockConfig, json: bool, timeout: Duration) -> Self {
        Self {
            collection: MongoCollection::new(of_locks(config, config.timings)),
            json,
            timeout,
            deadline: clock::boot_now() + timeout,
        }
    }

    fn place(&self) -> String {
        place(&self.collection)
    }

    /// Opens a live view, and waits for its first listing. Fails immediately if MongoDB refuses the
    /// login, or reports a replica set that the connection string does not name.
    async fn follow(&self, scope: Scope, doing: &'static str) -> Result<Followed, OperatorError> {
        tokio::select! {
            followed = self.listed(scope, doing) => followed,
            failure = self.collection.refused() => Err(OperatorError::Store { doing, failure }),
        }
    }

    async fn listed(&self, scope: Scope, doing: &'static str) -> Result<Followed, OperatorError> {
        let mut followed = Followed::new(self.collection.follow(scope));
        let mut last = None;
        while let Some(event) = followed.next(self.deadline).await {
            match event {
                ViewEvent::Listed { .. } => {
                    followed.apply(event);
                    return Ok(followed);
                }
                ViewEvent::Failed(failure) if failure.retry == RetryPolicy::Reconfigure => {
                    return Err(OperatorError::Store { doing, failure });
                }
                ViewEvent::Failed(failure) => last = Some(failure),
                _ => {}
            }
        }
        // While no server is reachable, the driver retries, so no call has failed by the deadline.
        let failure = last.or_else(|| self.collection.trouble());
        let failure = failure.unwrap_or_else(|| Failure::no_answer(self.timeout));
        Err(OperatorError::Store { doing, failure })
    }

    async fn candidates(
        &self,
        name: &ResourceName,
        complete: impl Fn(&[Present]) -> bool,
        note: fn(&str),
    ) -> Result<Vec<Present>, OperatorError> {
        // The deadline may have passed while the command watched the holder. Without time to
        // answer, every candidate would count as gone.
        let within = ANSWER_MAX.min(self.timeout);
        let present = roll_call::candidates(self, name, within, complete);
        let present = roll_call::announced(present, within, note).await;
        present.map_err(|failure| OperatorError::Store {
            doing: "ask the candidates to report",
            failure,
        })
    }

    async fn lease(
        &self,
        name: &ResourceName,
        entry: Option<&CollectionEntry>,
    ) -> Result<Box<LeaseRecord>, OperatorError> {
        match entry.map(|entry| &entry.content) {
            Some(Content::Lease(lease)) => Ok(lease.clone()),
            Some(Content::Lock(_)) => Err(OperatorError::other_kind(name, "lock")),
            Some(Content::Foreign(why)) => Err(OperatorError::Foreign {
                kind: "lease",
                name: name.clone(),
                why: why.clone(),
            }),
            None => Err(missing(&self.collection, "lease", name).await),
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
enum RequestResult {
    Done,
    /// Nothing to do, because the lease already has the requested state.
    Already,
    /// Written; the command does not wait for the effect.
    Requested,
    Refused,
    Deleted,
    /// Another operator or candidate changed the lease first.
    Superseded,
    /// Written, but had no effect before the timeout.
    UnderWay,
}

struct CommandOutcome {
    result: RequestResult,
    message: String,
    took: Option<Duration>,
    leader: Option<Leader>,
    /// Evidence on whether the holder is alive, if the holder has not applied the request.
    evidence: Option<Value>,
}

#[derive(Debug, Clone, Serialize)]
struct Leader {
    identity: String,
    token: i64,
}

impl CommandOutcome {
    fn new(result: RequestResult, message: impl Into<String>) -> Self {
        Self {
            result,
            message: message.into(),
            took: None,
            leader: None,
            evidence: None,
        }
    }

    fn already(message: impl Into<String>) -> Self {
        Self::new(RequestResult::Already, message)
    }

    fn refused(message: impl Into<String>) -> Self {
        Self::new(RequestResult::Refused, message)
    }

    fn with_evidence(self, evidence: Option<&Evidence>, roll: Option<&Roll>) -> Self {
        let evidence = evidence.map(|evidence| evidence.object(roll));
        Self { evidence, ..self }
    }

    fn after(self, took: Duration) -> Self {
        Self {
            took: Some(took),
            ..self
        }
    }

    fn code(&self) -> u8 {
        match self.result {
            RequestResult::Done | RequestResult::Already | RequestResult::Requested => exit::DONE,
            RequestResult::UnderWay => exit::UNDER_WAY,
            _ => exit::NEGATIVE,
        }
    }

    fn object(&self, name: &ResourceName, action: &str) -> Value {
        json!({
            "lease": name.as_str(),
            "action": action,
            "result": self.result,
            "message": self.message,
            "leader": self.leader,
            "evidence": self.evidence,
            "took_ms": self.took.map(json_millis),
        })
    }

    fn print(
        &self,
        session: &Session,
        name: &ResourceName,
        action: &str,
    ) -> Result<Exit, CommandError> {
        let text = match session.json {
            true => format!("{}\n", self.object(name, action)),
            false => fitted(&io::stdout(), &format!("lease {name}: {}\n", self.message)),
        };
        answer(text.as_bytes())?;
        Ok(self.code().into())
    }
}
