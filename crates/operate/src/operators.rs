//! The operators' commands: leases as they are, requests to leaders, the repair of a token, and a
//! page with all of them.
//!
//! None of these commands contends for a lease. They read and write the documents, as a shell for
//! MongoDB would, but only from the state that they have seen.

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

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use leasehold_clock as clock;
use leasehold_config::{ConfigError, LockConfig, Sources, nearest};
use leasehold_core::election::{BootTime, Identity, LeaseName, Token};
use leasehold_host::exit;
use leasehold_host::log;
use leasehold_host::signals::Exit;
use leasehold_http::BindError;
use leasehold_mongodb::store::mongo::StoreOptions;
use leasehold_mongodb::store::mongo::operators::{
    CollectionEntry, Content, LeaseRecord, LiveView, MongoCollection, Scope, ViewEvent,
};
use leasehold_mongodb::store::{Failure, RetryPolicy};

use crate::ToolError;
use leasehold_cli::store_options::of_locks;
use leasehold_cli::{run_to_end, say};

/// Arguments of the operators' commands.
#[derive(Debug)]
pub struct OperatorArgs {
    /// Sources of the configuration.
    pub sources: Sources,
    /// JSON instead of text.
    pub json: bool,
    /// Maximum time for MongoDB, or a leader, to answer.
    pub timeout: Duration,
    /// The command.
    pub command: OperatorCommand,
}

/// The operators' commands.
#[derive(Debug)]
pub enum OperatorCommand {
    /// `leasehold leases`.
    Leases {
        /// Watch and print changes.
        watch: bool,
        /// Maximum time in which renewals are awaited.
        observe: Duration,
    },
    /// `leasehold describe`.
    Describe {
        /// The lease.
        name: LeaseName,
        /// Maximum time in which a renewal is awaited.
        observe: Duration,
        /// Ask the candidates to report.
        candidates: bool,
    },
    /// `leasehold step-down`, `transfer`, `pause`, `resume` and `cancel`.
    Request(RequestArgs),
    /// `leasehold repair`.
    Repair {
        /// The lease.
        name: LeaseName,
        /// The lowest token that the lease has afterwards.
        at_least: Token,
        /// Create the lease if it does not exist.
        create: bool,
        /// The author of the repair.
        author: Author,
    },
    /// `leasehold web`.
    Web(WebArgs),
}

/// Arguments of `leasehold web`.
#[derive(Debug, Clone)]
pub struct WebArgs {
    /// Address of the page.
    pub listen: SocketAddr,
    /// File with the token that visitors need.
    pub token_file: Option<PathBuf>,
    /// The author of the page's actions; read-only if `None`.
    pub actions_by: Option<Identity>,
}

/// Arguments of a request to a leader.
#[derive(Debug)]
pub struct RequestArgs {
    /// The lease.
    pub name: LeaseName,
    /// The request.
    pub kind: RequestKind,
    /// The token that the operator has seen; any if `None`.
    pub seen: Option<Token>,
    /// The author of the request.
    pub author: Author,
    /// Wait until it has happened.
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
pub enum RequestKind {
    /// The leader steps down.
    StepDown,
    /// The leader steps down in favor of a candidate.
    Transfer {
        /// The candidate.
        to: Identity,
        /// Time for which other candidates leave the lease to it.
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
    /// The configuration is invalid.
    #[error(transparent)]
    Config(#[from] ConfigError),
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
        name: LeaseName,
        /// The last failure.
        failure: Failure,
    },
    /// There is no lease of this name.
    #[error("lease {name} does not exist{hint}")]
    Missing {
        /// The name.
        name: LeaseName,
        /// A similar name, or how to list the names.
        hint: String,
    },
    /// The document of this name is a lock.
    #[error("{0} is a lock, not a lease: leasehold locks shows it")]
    Lock(LeaseName),
    /// The document of this name is neither a lease nor a lock.
    #[error("lease {name}: the document of this name is not a lease: {why}")]
    Foreign {
        /// The name.
        name: LeaseName,
        /// The reason.
        why: String,
    },
    /// The page cannot be served at the address.
    #[error(transparent)]
    Bind(#[from] BindError),
    /// The visitors' token cannot be used.
    #[error("cannot use {0}")]
    Token(web::TokenError),
    /// The event loop could not be started.
    #[error("cannot start the event loop")]
    System(#[source] io::Error),
}

impl OperatorError {
    /// Returns the exit code for this kind of error.
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::Config(_)
            | Self::Missing { .. }
            | Self::Lock(_)
            | Self::Foreign { .. }
            | Self::Bind(_)
            | Self::Token(_) => exit::CONFIGURATION,
            Self::Store { .. } | Self::TimedOut { .. } | Self::Unknown { .. } => {
                exit::STORE_UNREACHABLE
            }
            Self::System(_) => exit::NEGATIVE,
        }
    }
}

/// Runs one of the commands.
///
/// # Errors
/// [`ToolError`], not yet printed.
pub fn run(args: OperatorArgs) -> Result<ExitCode, ToolError> {
    let config = args.sources.load().lock_config();
    let config = config.map_err(OperatorError::Config)?;
    log::start(config.log.level.filter(), config.log.format.json());
    let session = Session::open(&config, &args);
    let answered = run_to_end(async {
        let code = command(&session, args.command).await;
        session.collection.shut_down().await;
        code
    });
    answered.map_err(OperatorError::System)?.map(Exit::take)
}

async fn command(session: &Session, command: OperatorCommand) -> Result<Exit, ToolError> {
    let code = match command {
        OperatorCommand::Leases {
            watch: false,
            observe,
        } => leases::run(session, observe).await,
        OperatorCommand::Leases { watch: true, .. } => return live::run(session).await,
        OperatorCommand::Describe {
            name,
            observe,
            candidates,
        } => describe::run(session, &name, observe, candidates).await,
        OperatorCommand::Request(args) => return request::run(session, args).await,
        OperatorCommand::Repair {
            name,
            at_least,
            create,
            author,
        } => repair::run(session, &name, at_least, create, author).await,
        OperatorCommand::Web(args) => return web::run(session, args).await,
    };
    code.map(Exit::from)
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
    fn open(config: &LockConfig, args: &OperatorArgs) -> Self {
        Self {
            collection: MongoCollection::new(store_options(config)),
            json: args.json,
            timeout: args.timeout,
            deadline: clock::boot_now() + args.timeout,
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
                    // Without a server, the driver has not given up yet and its calls have not failed.
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
        name: &LeaseName,
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

    /// Returns the error for a name that does not exist, with a similar one.
    async fn missing(&self, name: &LeaseName) -> OperatorError {
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
