//! Arguments of the operators' commands.

use std::time::Duration;

use clap::{Args, Subcommand};

use super::web::arguments::{self as web, WebArgs};
use super::{Author, OperatorRequest, REASON_MAX, RequestArgs, is_reason};
use leasehold_cli::keys::{Configuration, LeasesKeys};
use leasehold_cli::values::{Output, between, identity, name, timeout};
use leasehold_core::election::{Identity, RESERVATION_MAX, ResourceName, Token};

/// Maximum of `--observe`: the longest lease duration.
const OBSERVE_MAX: Duration = Duration::from_secs(3600);

const EXIT_CODES: &str = "\
Exit codes: 0 done, or already so; 1 refused, or an outcome other than requested; 3 not done within --timeout, still under way; 64 usage, 69 MongoDB unreachable or refusing, 78 configuration, or there is no such lease; 128 + the number of a \
signal that ended it, after the line that says how to withdraw the request.";

const LEASES_HELP: &str = "\
RENEWED is observed by this command on its own clock; \"> 4s\" means that no renewal was seen in that time.

Examples:
  leasehold leases --mongodb-uri-file /etc/leasehold/uri
  leasehold leases --watch
                             a live table on a terminal; else one JSON line per change, renewals excepted
  leasehold leases --observe 0s --output json | jq -r '.[] | select(.state == \"free\").lease'";

const DESCRIBE_HELP: &str = "\
Examples:
  leasehold describe orders
  leasehold describe orders --candidates --output json";

const REPAIR_HELP: &str = "\
A restored document may have a token that was used before. Stop all candidates, find the highest token that \
a log, a dashboard (leasehold_token) or a receiver of effects has seen, and raise it before they \
start. For the lease duration of the holder in the document (24s if there is none), the command verifies that no candidate writes to it.

Examples:
  leasehold repair orders --token-at-least 4711

Exit codes: 0 done, or it was not lower; 1 a candidate writes to the lease, or it was deleted; 64 usage, \
69 MongoDB unreachable or refusing, 78 configuration, or there is no such lease.";

fn examples(examples: &str) -> String {
    format!("Examples:\n{examples}\n\n{EXIT_CODES}")
}

/// The operators' commands.
#[derive(Debug, Subcommand)]
pub enum OperatorCommand {
    /// List the leases of a collection: holders, tokens, renewals, requests
    #[command(after_help = LEASES_HELP)]
    Leases(LeasesArgs),
    /// Show a lease with its history, and whether a pending request will be carried out
    #[command(after_help = DESCRIBE_HELP)]
    Describe(DescribeArgs),
    /// Request the leader to step down, and wait for the next leader
    #[command(after_help = examples("\
  leasehold step-down orders --reason 'node maintenance'
                             another candidate leads; this one only after that, or one lease duration later"))]
    StepDown(AwaitedArgs),
    /// Request the leader to hand over to a candidate, and wait until that leads
    #[command(after_help = examples("\
  leasehold transfer orders --to orders-2
                             the lease is kept for orders-2 for 5s; then any candidate may lead"))]
    Transfer(TransferArgs),
    /// Prevent all candidates from leading, and wait until no candidate leads
    #[command(after_help = examples("\
  leasehold pause orders --reason 'freeze until Monday'
                             the leader steps down; candidates stay connected"))]
    Pause(AwaitedArgs),
    /// Let candidates lead again, and wait until one does
    #[command(after_help = examples("  leasehold resume orders"))]
    Resume(AwaitedArgs),
    /// Withdraw a request that the leader has not applied
    #[command(after_help = examples("  leasehold cancel orders"))]
    Cancel(WriteArgs),
    /// Raise the token of a lease after a backup was restored, if no candidate renews
    #[command(after_help = REPAIR_HELP)]
    Repair(RepairArgs),
    /// Serve a live page of all leases and locks of a collection
    #[command(after_help = web::HELP)]
    Web(WebArgs),
}

/// The connection of a command.
#[derive(Debug, Args)]
#[group(skip)]
pub(super) struct Connection {
    #[command(flatten)]
    pub(super) configuration: Configuration<LeasesKeys>,
    /// Maximum time to wait for MongoDB, and then for the leader
    #[arg(long, value_name = "DURATION", allow_negative_numbers = true,
          default_value = "30s", value_parser = timeout)]
    pub(super) timeout: Duration,
}

/// The connection of a command that answers on standard output.
#[derive(Debug, Args)]
#[group(skip)]
pub(super) struct Query {
    #[command(flatten)]
    pub(super) connection: Connection,
    #[command(flatten)]
    pub(super) output: Output,
}

/// `--observe`.
#[derive(Debug, Args)]
#[group(skip)]
pub(super) struct Observe {
    /// Maximum time to wait until each holder has renewed
    // The default interval of renewals, and a second.
    #[arg(long, value_name = "DURATION", allow_negative_numbers = true,
          default_value = "4s", value_parser = between(Duration::ZERO, OBSERVE_MAX))]
    pub(super) observe: Duration,
}

/// Arguments of `leasehold leases`.
#[derive(Debug, Args)]
pub struct LeasesArgs {
    #[command(flatten)]
    query: Query,
    /// Watch and print changes
    #[arg(short, long, conflicts_with = "observe")]
    pub(super) watch: bool,
    #[command(flatten)]
    pub(super) observe: Observe,
}

/// Arguments of `leasehold describe`.
#[derive(Debug, Args)]
pub struct DescribeArgs {
    #[command(flatten)]
    query: Query,
    /// Name of the lease
    #[arg(value_parser = name)]
    pub(super) name: ResourceName,
    /// Ask all candidates to report; takes 3s and the right to update
    #[arg(long)]
    pub(super) candidates: bool,
    #[command(flatten)]
    pub(super) observe: Observe,
}

/// Arguments of a command that writes to a lease.
#[derive(Debug, Args)]
pub struct WriteArgs {
    #[command(flatten)]
    query: Query,
    /// Name of the lease
    #[arg(value_parser = name)]
    pub(super) name: ResourceName,
    /// Author of the request, recorded in the lease [default: USER@HOST]
    #[arg(long, value_name = "WHO", value_parser = identity)]
    by: Option<Identity>,
    /// Reason, recorded in the lease
    #[arg(long, value_name = "TEXT", value_parser = reason)]
    reason: Option<String>,
}

/// Arguments of a request whose effect is awaited.
#[derive(Debug, Args)]
pub struct AwaitedArgs {
    #[command(flatten)]
    write: WriteArgs,
    /// Return as soon as the request is recorded
    #[arg(long)]
    no_wait: bool,
}

/// Arguments of `leasehold transfer`.
#[derive(Debug, Args)]
pub struct TransferArgs {
    #[command(flatten)]
    awaited: AwaitedArgs,
    /// Candidate to hand over to
    #[arg(long, value_name = "IDENTITY", value_parser = identity)]
    to: Identity,
    /// How long the other candidates leave the lease to it, up to 60s
    #[arg(long, value_name = "DURATION", default_value = "5s",
          value_parser = between(Duration::ZERO, RESERVATION_MAX))]
    reserve: Duration,
    /// Do not check that it is a candidate with a healthy workload, which takes up to 3s if it is not
    #[arg(long)]
    force: bool,
}

/// Arguments of `leasehold repair`.
#[derive(Debug, Args)]
pub struct RepairArgs {
    #[command(flatten)]
    pub(super) write: WriteArgs,
    /// Minimum token of the lease afterwards; the next leader gets a higher token
    #[arg(long, value_name = "N", allow_negative_numbers = true, value_parser = token)]
    pub(super) token_at_least: Token,
    /// Create the lease if it does not exist
    #[arg(long)]
    pub(super) create: bool,
}

impl OperatorCommand {
    /// Returns the connection, and true if the answer is JSON.
    pub(super) fn connection(&self) -> (&Connection, bool) {
        let query = match self {
            Self::Leases(args) => &args.query,
            Self::Describe(args) => &args.query,
            Self::StepDown(args) | Self::Pause(args) | Self::Resume(args) => &args.write.query,
            Self::Transfer(args) => &args.awaited.write.query,
            Self::Cancel(args) => &args.query,
            Self::Repair(args) => &args.write.query,
            Self::Web(args) => return (&args.connection, false),
        };
        (&query.connection, query.output.json())
    }
}

impl WriteArgs {
    /// Returns the author of the write.
    pub(super) fn author(&self) -> Author {
        Author {
            by: by(self.by.as_ref()),
            reason: self.reason.clone(),
        }
    }

    /// Returns the request of this kind.
    pub(super) fn request(self, kind: OperatorRequest) -> RequestArgs {
        RequestArgs {
            author: self.author(),
            name: self.name,
            kind,
            seen: None,
            wait: true,
        }
    }
}

impl AwaitedArgs {
    /// Returns the request of this kind.
    pub(super) fn request(self, kind: OperatorRequest) -> RequestArgs {
        RequestArgs {
            wait: !self.no_wait,
            ..self.write.request(kind)
        }
    }
}

impl TransferArgs {
    /// Returns the request.
    pub(super) fn request(self) -> RequestArgs {
        let Self {
            awaited,
            to,
            reserve,
            force,
        } = self;
        awaited.request(OperatorRequest::Transfer { to, reserve, force })
    }
}

fn reason(text: &str) -> Result<String, String> {
    match is_reason(text) {
        true => Ok(text.to_owned()),
        false => Err(format!(
            "expected 1 to {REASON_MAX} bytes without control characters, not {}",
            text.len()
        )),
    }
}

fn token(text: &str) -> Result<Token, String> {
    // The next acquisition needs a higher token.
    let token = text.parse().ok().and_then(Token::new);
    token.filter(|token| *token < Token::MAX).ok_or_else(|| {
        let max = Token::MAX.get() - 1;
        format!("expected a whole number from 0 to {max}")
    })
}

/// Returns the author that is given, or USER@HOST.
pub(super) fn by(given: Option<&Identity>) -> Identity {
    given.cloned().unwrap_or_else(operator)
}

/// Returns true for a name of a user that fits into an identity, together with a host's.
fn is_plain(user: &str) -> bool {
    (1..=64).contains(&user.len()) && !user.chars().any(char::is_control)
}

/// Returns USER@HOST.
fn operator() -> Identity {
    let user = ["USER", "LOGNAME"]
        .iter()
        .find_map(|name| std::env::var(name).ok().filter(|user| is_plain(user)));
    let user = user.unwrap_or_else(|| format!("uid-{}", rustix::process::getuid().as_raw()));
    let system = rustix::system::uname();
    let host = system.nodename().to_string_lossy();
    Identity::new(format!("{user}@{host}"))
        .or_else(|_| Identity::new("unknown"))
        .expect("a plain word is a legal identity")
}
