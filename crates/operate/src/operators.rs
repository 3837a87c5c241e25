//! The operators' commands: list leases, send requests to leaders, repair a token, and serve a page
//! with all of them.
//!
//! None of these commands contends for a lease. They read and write the documents, as a shell for
//! MongoDB would, but only from the state that they have seen.

mod arguments;
mod candidates;
mod describe;
mod leases;
mod live;
mod observed;
mod outcome;
mod render;
mod repair;
mod request;
mod web;

use std::process::ExitCode;
use std::time::Duration;

use leasehold_clock as clock;
use leasehold_config::{LockConfig, nearest};
use leasehold_core::election::{BootTime, Identity, ResourceName, Token};
use leasehold_host::exit;
use leasehold_host::log;
use leasehold_host::signals::Exit;
use leasehold_mongodb::store::mongo::StoreOptions;
use leasehold_mongodb::store::mongo::operators::{
    CollectionEntry, Content, LeaseRecord, LiveView, MongoCollection, Scope, ViewEvent,
};
use leasehold_mongodb::store::{Failure, RetryPolicy};

pub use self::arguments::OperatorCommand;
pub use self::web::WebArgs;
use leasehold_cli::store_options::of_locks;
use leasehold_cli::{run_to_end, say};
use leasehold_host::CommandError;

/// Arguments of a request to a leader.
#[derive(Debug)]
pub struct RequestArgs {
    /// The lease.
    pub name: ResourceName,
    /// The request.
    pub kind: OperatorRequest,
    /// The token that the operator has seen; any if `None`.
    pub seen: Option<Token>,
    /// The author of the request.
    pub author: Author,
    /// Wait for its effect.
    pub wait: bool,
}

/// The author of a write and the reason for it, recorded in the lease.
#[derive(Debug, Clone)]
pub struct Author {
    /// The operator's name.
    pub by: Identity,
    /// The reason.
    pub reason: Option<String>,
}

/// Maximum length of a reason, in bytes. The document keeps the reasons of twenty actions.
pub(crate) const REASON_MAX: usize = 500;

/// Returns true if this may be recorded as a reason.
pub(crate) fn is_reason(text: &str) -> bool {
    (1..=REASON_MAX).contains(&text.len()) && !text.chars().any(char::is_control)
}

/// Requests of operators.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum OperatorRequest {
    /// The leader steps down.
    StepDown,
    /// The leader steps down in favor of a candidate.
    Transfer {
        /// The candidate.
        to: Identity,
        /// How long other candidates leave the lease to it.
        reserve: Duration,
        /// Do not check that it is a candidate.
        force: bool,
    },
    /// No candidate leads until it is resumed.
    Pause,
    /// Candidates may lead again.
    Resume,
    /// The standing request is withdrawn.
    Cancel,
}

/// Reason why a command failed.
#[derive(Debug, thiserror::Error)]
pub enum OperatorError {
    /// MongoDB does not respond, or rejected the operation.
    #[error("cannot {doing}: {failure}")]
    Store {
        /// The failed operation.
        doing: &'static str,
        /// The cause.
        failure: Failure,
    },
    /// MongoDB did not respond in time.
    #[error(
        "cannot {doing}: no answer within {timeout}: MongoDB is overloaded, blocks writes or has no majority, or the \
         network is down; run leasehold check, or set --timeout for longer"
    )]
    TimedOut {
        /// The operation.
        doing: &'static str,
        /// The time limit.
        timeout: humantime::FormattedDuration,
    },
    /// The outcome of a write is not known.
    #[error(
        "the outcome is not known, because MongoDB did not acknowledge the write: {failure}; \
         leasehold describe {name} shows whether it was recorded"
    )]
    Unknown {
        /// The lease.
        name: ResourceName,
        /// The last failure.
        failure: Failure,
    },
    /// There is no lease of this name.
    #[error("lease {name} does not exist{hint}")]
    Missing {
        /// The name.
        name: ResourceName,
        /// A similar name, or how to list the names.
        hint: String,
    },
    /// The document of this name is a lock.
    #[error("{0} is a lock, not a lease: leasehold locks shows it")]
    Lock(ResourceName),
    /// The document of this name is neither a lease nor a lock.
    #[error("lease {name}: the document of this name is not a lease: {why}")]
    Foreign {
        /// The name.
        name: ResourceName,
        /// The reason.
        why: String,
    },
}

impl From<OperatorError> for CommandError {
    fn from(error: OperatorError) -> Self {
        let exit = match &error {
            OperatorError::Missing { .. }
            | OperatorError::Lock(_)
            | OperatorError::Foreign { .. } => exit::CONFIGURATION,
            OperatorError::Store { .. }
            | OperatorError::TimedOut { .. }
            | OperatorError::Unknown { .. } => exit::STORE_UNREACHABLE,
        };
        Self::new(exit, error.to_string())
    }
}

/// Returns a converter for errors of the operating system.
fn system(operation: &str) -> impl Fn(std::io::Error) -> CommandError {
    CommandError::failed(exit::NEGATIVE, operation)
}

/// Runs one of the commands.
///
/// # Errors
/// [`CommandError`], not yet printed.
pub fn run(command: OperatorCommand) -> Result<ExitCode, CommandError> {
    let (connection, json) = command.connection();
    let config = connection.configuration.load().lock_config()?;
    log::start(config.log.level.filter(), config.log.format.json());
    let session = Session::open(&config, connection.timeout, json);
    let answered = run_to_end(exit::NEGATIVE, async {
        let code = execute(&session, command).await;
        session.collection.shut_down().await;
        code
    });
    answered?.map(Exit::take)
}

async fn execute(session: &Session, command: OperatorCommand) -> Result<Exit, CommandError> {
    let request = match command {
        OperatorCommand::Leases(args) if args.watch => return live::run(session).await,
        OperatorCommand::Leases(args) => {
            let code = leases::run(session, args.observe.observe).await?;
            return Ok(code.into());
        }
        OperatorCommand::Describe(args) => {
            let observe = args.observe.observe;
            let code = describe::run(session, &args.name, observe, args.candidates).await?;
            return Ok(code.into());
        }
        OperatorCommand::Repair(args) => {
            let (name, author) = (&args.write.name, args.write.author());
            let code = repair::run(session, name, args.token_at_least, args.create, author).await?;
            return Ok(code.into());
        }
        OperatorCommand::Web(args) => return web::run(session, args).await,
        OperatorCommand::StepDown(args) => args.request(OperatorRequest::StepDown),
        OperatorCommand::Transfer(args) => args.request(),
        OperatorCommand::Pause(args) => args.request(OperatorRequest::Pause),
        OperatorCommand::Resume(args) => args.request(OperatorRequest::Resume),
        OperatorCommand::Cancel(args) => args.request(OperatorRequest::Cancel),
    };
    request::run(session, request).await
}

/// One run of a command: the collection, and how the answer is wanted.
#[derive(Clone)]
struct Session {
    collection: MongoCollection,
    json: bool,
    timeout: Duration,
    /// Time at which the command gives up.
    deadline: BootTime,
}

impl Session {
    fn open(config: &LockConfig, timeout: Duration, json: bool) -> Self {
        Self {
            collection: MongoCollection::new(store_options(config)),
            json,
            timeout,
            deadline: clock::boot_now() + timeout,
        }
    }

    /// Waits for the first listing of a view.
    async fn listed(
        &self,
        view: &mut LiveView,
        doing: &'static str,
    ) -> Result<(Vec<CollectionEntry>, BootTime), OperatorError> {
        let mut last = None;
        loop {
            match self.next(view, self.deadline).await {
                Some(ViewEvent::Listed { entries, at }) => return Ok((entries, at)),
                Some(ViewEvent::Failed(failure)) if failure.retry == RetryPolicy::Reconfigure => {
                    return Err(OperatorError::Store { doing, failure });
                }
                Some(ViewEvent::Failed(failure)) => last = Some(failure),
                Some(_) => {}
                None => {
                    // Without a reachable server, the driver retries for longer than this, so its
                    // calls have not failed yet.
                    return Err(match last.or_else(|| self.collection.trouble()) {
                        Some(failure) => OperatorError::Store { doing, failure },
                        None => OperatorError::TimedOut {
                            doing,
                            timeout: humantime::format_duration(self.timeout),
                        },
                    });
                }
            }
        }
    }

    /// Returns the next event, or `None` at the deadline.
    async fn next(&self, view: &mut LiveView, deadline: BootTime) -> Option<ViewEvent> {
        let left = deadline.since(clock::boot_now());
        tokio::time::timeout(left, view.next()).await.ok().flatten()
    }

    /// Returns the lease in a listing of this name.
    async fn lease(
        &self,
        name: &ResourceName,
        entries: Vec<CollectionEntry>,
    ) -> Result<Box<LeaseRecord>, OperatorError> {
        match entries.into_iter().next().map(|entry| entry.content) {
            Some(Content::Lease(lease)) => Ok(lease),
            Some(Content::Lock(_)) => Err(OperatorError::Lock(name.clone())),
            Some(Content::Foreign(why)) => Err(OperatorError::Foreign {
                name: name.clone(),
                why,
            }),
            None => Err(self.missing(name).await),
        }
    }

    /// Returns the error for a name that does not exist, with a similar name.
    async fn missing(&self, name: &ResourceName) -> OperatorError {
        let listed = self.collection.list(&Scope::All).await.unwrap_or_default();
        let names = listed.iter().map(|entry| entry.name.as_str());
        let hint = match nearest(name.as_str(), names) {
            Some(near) => format!("; did you mean {near}?"),
            None => ": leasehold leases lists the leases of the collection".to_owned(),
        };
        OperatorError::Missing {
            name: name.clone(),
            hint,
        }
    }
}

fn store_options(config: &LockConfig) -> StoreOptions {
    of_locks(config, config.timings)
}
