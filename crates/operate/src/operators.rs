//! The operators' commands: list leases, send requests to leaders, repair a token, and serve a page
//! with all of them.
//!
//! None of these commands contends for a lease. They read and write the documents, as a shell for
//! MongoDB would, but only from the state that they have seen.

pub(crate) mod arguments;
mod candidates;
mod describe;
mod leases;
mod live;
mod observed;
mod outcome;
pub(crate) mod render;
mod repair;
mod request;
mod web;

use std::process::ExitCode;
use std::time::Duration;

use leasehold_cli::keys::Selection;
use leasehold_clock as clock;
use leasehold_config::{LockConfig, nearest};
use leasehold_core::election::{BootTime, Identity, ResourceName, Token};
use leasehold_host::CommandError;
use leasehold_host::exit;
use leasehold_host::log;
use leasehold_host::signals::Exit;
use leasehold_mongodb::randomness::KernelRandomness;
use leasehold_mongodb::store::mongo::operators::{
    ActionId, ActionKind, CollectionEntry, Content, LeaseRecord, LiveView, MongoCollection,
    OperatorAction, Scope, ViewEvent,
};
use leasehold_mongodb::store::{Failure, RetryPolicy};

use self::arguments::ConnectionArgs;
pub use self::arguments::{OperatorCommand, WebArgs};
use self::observed::Observed;
use leasehold_cli::store_options::of_locks;
use leasehold_cli::{run_to_end, say};

/// A request to a leader.
#[derive(Debug)]
struct RequestArgs {
    name: ResourceName,
    action: OperatorAction,
    /// Does not check that a transfer is to a candidate.
    force: bool,
    /// The token that the operator has seen; any if `None`.
    seen: Option<Token>,
    /// Waits for the effect.
    wait: bool,
}

/// Returns a new action.
fn action(kind: ActionKind, by: &Identity, reason: Option<String>) -> OperatorAction {
    OperatorAction {
        id: ActionId::random(&mut KernelRandomness),
        kind,
        by: by.to_string(),
        reason,
    }
}

/// Reason why a command on leases or locks failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum OperatorError {
    /// MongoDB does not respond, or rejected the operation.
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
        /// The command that shows the document.
        command: String,
    },
    #[error("lease {name} does not exist{hint}")]
    Missing {
        name: ResourceName,
        /// A similar name, or how to list the names.
        hint: String,
    },
    #[error("{0} is a lock, not a lease: leasehold locks shows it")]
    Lock(ResourceName),
    /// The document of this name is not of this kind: "lease" or "lock".
    #[error("{kind} {name}: the document of this name is not a {kind}: {why}")]
    Foreign {
        kind: &'static str,
        name: ResourceName,
        why: String,
    },
}

impl OperatorError {
    fn unknown_lease(name: &ResourceName, failure: Failure) -> Self {
        Self::Unknown {
            document: format!("lease {name}"),
            failure: Box::new(failure),
            command: format!("leasehold describe {name}"),
        }
    }
}

impl From<OperatorError> for CommandError {
    fn from(error: OperatorError) -> Self {
        let exit = match &error {
            OperatorError::Missing { .. }
            | OperatorError::Lock(_)
            | OperatorError::Foreign { .. } => exit::CONFIGURATION,
            OperatorError::Store { .. } | OperatorError::Unknown { .. } => exit::STORE_UNREACHABLE,
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
    let timeout = connection.timeout();
    configured(&connection.clone(), async |config| {
        let session = Session {
            collection: MongoCollection::new(of_locks(&config, config.timings)),
            json,
            timeout,
            deadline: clock::boot_now() + timeout,
        };
        let code = execute(&session, command).await;
        session.collection.shut_down().await;
        code
    })
}

/// Runs a command with the configuration of its connection.
pub(crate) fn configured<S: Selection>(
    connection: &ConnectionArgs<S>,
    command: impl AsyncFnOnce(LockConfig) -> Result<Exit, CommandError>,
) -> Result<ExitCode, CommandError> {
    let config = connection.configuration.load().lock_config()?;
    log::start(config.log.level, config.log.format.json);
    run_to_end(exit::NEGATIVE, command(config))?.map(Exit::take)
}

async fn execute(session: &Session, command: OperatorCommand) -> Result<Exit, CommandError> {
    let request = match command {
        OperatorCommand::Leases(args) if args.watch => return live::run(session).await,
        OperatorCommand::Leases(args) => return leases::run(session, args.observe.observe).await,
        OperatorCommand::Describe(args) => return describe::run(session, args).await,
        OperatorCommand::Repair(args) => return repair::run(session, args).await,
        OperatorCommand::Web(args) => return web::run(session, args).await,
        OperatorCommand::StepDown(args) => args.request(ActionKind::StepDown),
        OperatorCommand::Transfer(args) => args.request(),
        OperatorCommand::Pause(args) => args.request(ActionKind::Pause),
        OperatorCommand::Resume(args) => args.request(ActionKind::Resume),
        OperatorCommand::Cancel(args) => args.request(ActionKind::Cancel),
    };
    request::run(session, request).await
}

/// One run of a command: the collection, and the form of the answer.
#[derive(Clone)]
struct Session {
    collection: MongoCollection,
    json: bool,
    timeout: Duration,
    /// Time at which the command gives up.
    deadline: BootTime,
}

impl Session {
    /// Opens a live view, and waits for its first listing.
    async fn follow(
        &self,
        scope: Scope,
        doing: &'static str,
    ) -> Result<(LiveView, Observed), OperatorError> {
        let mut view = self.collection.follow(scope);
        let mut last = None;
        while let Some(event) = self.next(&mut view, self.deadline).await {
            match event {
                ViewEvent::Listed { .. } => {
                    let mut observed = Observed::default();
                    observed.apply(event);
                    return Ok((view, observed));
                }
                ViewEvent::Failed(failure) if failure.retry == RetryPolicy::Reconfigure => {
                    return Err(OperatorError::Store { doing, failure });
                }
                ViewEvent::Failed(failure) => last = Some(failure),
                _ => {}
            }
        }
        // Without a reachable server, the driver retries for longer than this, so its calls have not
        // failed yet.
        let failure = last.or_else(|| self.collection.trouble());
        let failure = failure.unwrap_or_else(|| Failure::no_answer(self.timeout));
        Err(OperatorError::Store { doing, failure })
    }

    /// Returns the next event, or `None` at the deadline.
    async fn next(&self, view: &mut LiveView, deadline: BootTime) -> Option<ViewEvent> {
        let left = deadline.since(clock::boot_now());
        tokio::time::timeout(left, view.next()).await.ok().flatten()
    }

    /// Returns the lease in the document of this name.
    async fn lease(
        &self,
        name: &ResourceName,
        entry: Option<&CollectionEntry>,
    ) -> Result<Box<LeaseRecord>, OperatorError> {
        match entry.map(|entry| &entry.content) {
            Some(Content::Lease(lease)) => Ok(lease.clone()),
            Some(Content::Lock(_)) => Err(OperatorError::Lock(name.clone())),
            Some(Content::Foreign(why)) => Err(OperatorError::Foreign {
                kind: "lease",
                name: name.clone(),
                why: why.clone(),
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
