//! Arguments of the operators' commands.

mod values;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand, ValueHint};

pub(super) use self::values::reason;
use self::values::{FROM_PAGE, author, page_author, token};
use super::web::NamePattern;
use super::{RequestArgs, action, retire};
use leasehold_cli::keys::{Configuration, LeasesKeys, Selection};
use leasehold_cli::names::{DocumentName, LeaseName};
use leasehold_cli::values::{Output, between, identity, timeout};
use leasehold_core::election::{Identity, RESERVATION_MAX, Token};
use leasehold_mongodb::store::mongo::operators::{ActionKind, OperatorAction};

const TIMEOUT_DEFAULT: Duration = Duration::from_secs(10);
/// Maximum of `--observe`: the longest lease duration.
pub(crate) const OBSERVE_MAX: Duration = Duration::from_secs(3600);

const EXIT_CODES: &str = "\
Exit codes: 0 done, or nothing to do; 1 refused, or a different outcome than requested; 3 still under way after --timeout; \
64 usage; 69 MongoDB is unreachable or refuses a call; 78 configuration, or no such lease; 128 + number of the signal that \
interrupted the command. After an interruption, the last line of the output says how to withdraw the request.";

const CANCEL_HELP: &str = "\
Examples:
  leasehold cancel orders
                             exits with 0 even if the lease has no request

Exit codes: 0 withdrawn, or no request to withdraw; 1 refused, because the lease is retired; 64 usage; 69 MongoDB \
is unreachable or refuses a call; 78 configuration, or no such lease; 128 + number of the signal that interrupted the command.";

const TIMEOUT_OF_REQUEST: &str = "Time limit of each wait [default: 10s]

Maximum time to wait for MongoDB, and then for the effect of the request.";

const LEASES_HELP: &str = "\
RENEWED is the time since the last renewal that this command has seen, on its own clock. Until a renewal is seen, \"~6m12s\" is the age \
of the last write, by the wall clocks of the holder and of this machine. \"> 4s\" means that no renewal was seen for 4s, and \
that the wall clocks do not show when the last renewal was. STATE silent: the last renewal is older than the lease duration. This is evidence that the \
holder has exited, not proof.

Examples:
  leasehold leases
  leasehold leases --watch
                             live table on a terminal; otherwise one JSON line per change except renewals
  leasehold leases -o json | jq -r '.[] | select(.state == \"free\").lease'
  leasehold leases retire trial
                             hide an unused lease; --all lists it

Exit codes: 0 done, 64 usage, 69 MongoDB is unreachable or refuses a call, 78 configuration; with --watch 128 + number of the signal that ended it.";

const DESCRIBE_HELP: &str = "\
Examples:
  leasehold describe orders
  leasehold describe orders --candidates --output json
  leasehold describe nightly-report
                             a lock: why it is held, who waits, when the job last succeeded (--once-per)
  leasehold describe nightly-report -o json | jq '.successes[-1].at'
                             when the job last succeeded, for a script

The candidates of a lease with a late or silent holder are always asked, if the role permits it.

Exit codes: 0 done, 64 usage, 69 MongoDB is unreachable or refuses a call, 78 configuration, or no such lease or lock.";

const REPAIR_HELP: &str = "\
After a restore, a lease may hand out tokens that were used before. Stop all candidates. Find the highest token in logs, \
dashboards (leasehold_token) and receivers of effects, and raise the token of the lease to that token. Then start the \
candidates. The command verifies for one lease duration (24s if the lease is free) that no candidate writes to the lease.

Examples:
  leasehold repair orders --token-at-least 4711

Exit codes: 0 done, or the token was already high enough; 1 a candidate writes to the lease, or the lease was deleted; \
64 usage; 69 MongoDB is unreachable or refuses a call; 78 configuration, or no such lease.";

const WEB_HELP: &str = "\
The page shows leaders, renewals, tokens, queues of locks, requests and the reasons of changes. It is read-only without \
--allow-actions. On a loopback address all local users can see it. Any other address requires a token, which visitors \
type in or send as a bearer token. The page is served over HTTP: put a TLS proxy in front of it.

/metrics has series of the leases and locks for Prometheus, with the same token as the page.

Examples:
  leasehold web --mongodb-uri-file /etc/leasehold/uri
                             then open http://127.0.0.1:9403/
  leasehold web --allow-actions --by olga
                             the page offers step-down, transfer, pause, resume and cancel
  leasehold web --listen 0.0.0.0:9403 --token-file /etc/leasehold/web-token
                             for other machines; other users must not be able to read the file, which is reloaded when it changes
  leasehold web --metrics-only --metrics-names 'orders,nightly-*'
                             an exporter for Prometheus on this host, without the page

Exit codes: 0 stopped by SIGTERM, 128 + number of another signal, 64 usage, 78 configuration, address or token file.";

fn examples(examples: &str) -> String {
    format!("Examples:\n{examples}\n\n{EXIT_CODES}")
}

/// The commands that read or write leases, and `web`.
#[derive(Debug, Subcommand)]
pub enum OperatorCommand {
    /// List the leases: holders, tokens, renewals, requests
    #[command(after_help = LEASES_HELP)]
    Leases(LeasesArgs),
    /// Show a lease or a lock, with its history
    ///
    /// Shows a lease with its requests, and says whether the leader will carry out a pending
    /// request. Shows a lock with its holders, waiters and last successes.
    #[command(after_help = DESCRIBE_HELP)]
    Describe(DescribeArgs),
    /// Ask the leader to step down, and wait for the next leader
    #[command(after_help = examples("  leasehold step-down orders --reason 'node maintenance'
                             the former leader may lead again after the next leader, or one lease duration later"))]
    StepDown(AwaitedArgs),
    /// Ask the leader to hand over to a candidate, and wait for it
    ///
    /// Waits until that candidate leads.
    #[command(after_help = examples("  leasehold transfer orders --to orders-2
                             the lease is kept for orders-2 for 5s; then any candidate may lead"))]
    Transfer(TransferArgs),
    /// Prevent all candidates from leading, and wait until none leads
    #[command(after_help = examples("  leasehold pause orders --reason 'freeze until Monday'
                             the leader steps down; candidates stay connected"))]
    Pause(AwaitedArgs),
    /// Let candidates lead again, and wait until one does
    #[command(after_help = examples("  leasehold resume orders"))]
    Resume(AwaitedArgs),
    /// Withdraw a request that the leader has not applied
    #[command(after_help = CANCEL_HELP)]
    Cancel(WriteArgs),
    /// Raise the token of a lease after a backup was restored
    ///
    /// Refused while a candidate renews.
    #[command(after_help = REPAIR_HELP)]
    Repair(RepairArgs),
    /// Serve a live page of all leases and locks, and their metrics
    #[command(after_help = WEB_HELP)]
    Web(WebArgs),
}

#[derive(Debug, Clone, Args)]
#[group(skip)]
pub(crate) struct ConnectionArgs<S: Selection> {
    #[command(flatten)]
    pub(crate) configuration: Configuration<S>,
    /// Time limit of each wait [default: 10s]
    ///
    /// Maximum time to wait for MongoDB.
    #[arg(long, value_name = "DURATION", allow_negative_numbers = true, value_parser = timeout)]
    pub(crate) timeout: Option<Duration>,
}

impl<S: Selection> ConnectionArgs<S> {
    pub(crate) fn timeout(&self) -> Duration {
        self.timeout.unwrap_or(TIMEOUT_DEFAULT)
    }

    /// Returns the error if one of the flags `of_list` is given with a subcommand, or if any flag
    /// is given both before and after the subcommand.
    pub(crate) fn contradiction(
        &self,
        of_list: &[(&str, bool)],
        subcommand: &str,
        inner: &Self,
    ) -> Option<String> {
        if let Some((flag, _)) = of_list.iter().find(|(_, given)| *given) {
            let remedy = format!("omit it when using {subcommand}");
            return Some(format!("--{flag} applies to the list: {remedy}"));
        }
        let before = &self.configuration.sources.flags;
        let mut after = inner.configuration.sources.flags.iter();
        let twice = after.find(|(key, _)| before.iter().any(|(other, _)| other == key));
        let flag = match (twice, self.timeout.and(inner.timeout)) {
            (Some((key, _)), _) => key.flag(),
            (None, Some(_)) => "timeout".to_owned(),
            (None, None) => return None,
        };
        Some(format!(
            "--{flag} is given before and after {subcommand}: give it once"
        ))
    }

    pub(crate) fn joined(&self, inner: Option<&Self>) -> Self
    where
        S: Clone,
    {
        let mut connection = self.clone();
        if let Some(inner) = inner {
            let sources = &mut connection.configuration.sources;
            let inner_sources = &inner.configuration.sources;
            sources.files.extend_from_slice(&inner_sources.files);
            sources.flags.extend_from_slice(&inner_sources.flags);
            connection.timeout = connection.timeout.or(inner.timeout);
        }
        connection
    }
}

#[derive(Debug, Args)]
#[group(skip)]
pub(super) struct Query {
    #[command(flatten)]
    connection: ConnectionArgs<LeasesKeys>,
    #[command(flatten)]
    output: Output,
}

#[derive(Debug, Args)]
#[group(skip)]
pub(super) struct Observe {
    /// Maximum wait for renewals [default: 4s]
    ///
    /// By default, the command waits only for a holder whose last renewal is late or whose clock is
    /// wrong. If a holder is silent, the command also asks the candidates of the lease, and waits
    /// only 1.5s if the holder does not answer.
    #[arg(long, value_name = "DURATION", allow_negative_numbers = true,
          value_parser = between(Duration::ZERO, OBSERVE_MAX))]
    pub(super) observe: Option<Duration>,
}

#[derive(Debug, Args)]
pub struct LeasesArgs {
    #[command(flatten)]
    query: Query,
    /// Watch and print changes
    #[arg(long, conflicts_with = "observe")]
    pub(super) watch: bool,
    /// List retired leases too
    #[arg(short, long)]
    pub(super) all: bool,
    #[command(flatten)]
    pub(super) observe: Observe,
    #[command(subcommand)]
    pub(super) command: Option<LeasesCommand>,
}

#[derive(Debug, Subcommand)]
pub(super) enum LeasesCommand {
    /// Hide an unused lease, and keep its token
    ///
    /// Until the lease is acquired again, lists and the page omit it.
    #[command(after_help = retire::HELP)]
    Retire(retire::RetireArgs),
}

impl LeasesArgs {
    /// Returns the error for flags that contradict the subcommand.
    pub fn contradiction(&self) -> Option<String> {
        let LeasesCommand::Retire(retire) = self.command.as_ref()?;
        let of_list = [("watch", self.watch), ("all", self.all)];
        let (outer, inner) = (&self.query.connection, &retire.write.query.connection);
        outer.contradiction(&of_list, "retire", inner)
    }
}

#[derive(Debug, Args)]
pub struct DescribeArgs {
    #[command(flatten)]
    query: Query,
    #[command(flatten)]
    pub(super) document: DocumentName,
    /// List the candidates (takes 3s)
    ///
    /// Asks each candidate to report; requires the right to update.
    #[arg(long)]
    pub(super) candidates: bool,
    #[command(flatten)]
    pub(super) observe: Observe,
}

#[derive(Debug, Args)]
pub struct WriteArgs {
    #[command(flatten)]
    query: Query,
    #[command(flatten)]
    pub(super) lease: LeaseName,
    /// Author of the request [default: USER@HOST]
    ///
    /// Recorded in the lease.
    #[arg(long, value_name = "WHO", value_parser = identity)]
    by: Option<Identity>,
    /// Reason, recorded in the lease
    #[arg(long, value_name = "TEXT", value_parser = reason)]
    reason: Option<String>,
}

#[derive(Debug, Args)]
#[command(mut_arg("timeout", |timeout| timeout.long_help(TIMEOUT_OF_REQUEST)))]
pub struct AwaitedArgs {
    #[command(flatten)]
    write: WriteArgs,
    /// Return as soon as the request is recorded
    #[arg(long)]
    no_wait: bool,
}

#[derive(Debug, Args)]
pub struct TransferArgs {
    /// Candidate to hand over to
    #[arg(long, value_name = "IDENTITY", value_parser = identity)]
    to: Identity,
    #[command(flatten)]
    awaited: AwaitedArgs,
    /// Reservation for the candidate
    ///
    /// How long the lease stays reserved for the candidate, up to 60s.
    #[arg(long, value_name = "DURATION", default_value = "5s",
          value_parser = between(Duration::ZERO, RESERVATION_MAX))]
    reserve: Duration,
    /// Do not check that the candidate is healthy
    ///
    /// Without this flag, the command checks that the candidate exists and its workload is healthy
    /// (takes up to 3s).
    #[arg(long)]
    force: bool,
}

#[derive(Debug, Args)]
pub struct RepairArgs {
    #[command(flatten)]
    pub(super) write: WriteArgs,
    /// Minimum token of the lease afterwards
    ///
    /// The next leader gets a higher token.
    #[arg(long, value_name = "N", allow_negative_numbers = true, value_parser = token)]
    pub(super) token_at_least: Token,
    /// Create the lease if it does not exist
    #[arg(long)]
    pub(super) create: bool,
}

#[derive(Debug, Args)]
pub struct WebArgs {
    #[command(flatten)]
    connection: ConnectionArgs<LeasesKeys>,
    /// Address of the page
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:9403",
          value_parser = |text: &str| leasehold_config::listen(text, 9403))]
    pub(super) listen: SocketAddr,
    /// File with the token that visitors need
    ///
    /// Required unless --listen is a loopback address.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(super) token_file: Option<PathBuf>,
    /// Serve only the metrics, without the page
    ///
    /// The endpoints are /metrics, /livez and /readyz.
    #[arg(long, conflicts_with = "allow_actions")]
    pub(super) metrics_only: bool,
    /// Names in the metrics [default: all, at most 500]
    ///
    /// Names of leases and locks, separated by commas; * matches any characters.
    #[arg(long, value_name = "NAMES", value_delimiter = ',', value_parser = NamePattern::new)]
    pub(super) metrics_names: Vec<NamePattern>,
    /// Let visitors send requests to leaders
    ///
    /// Visitors can use step-down, transfer, pause, resume and cancel. Requires the right to
    /// update.
    #[arg(long)]
    allow_actions: bool,
    /// Author of the actions [default: USER@HOST]
    ///
    /// Recorded in the lease, followed by " (web)".
    #[arg(long, value_name = "WHO", value_parser = page_author, requires = "allow_actions")]
    by: Option<Identity>,
}

impl OperatorCommand {
    pub(super) fn connection(&self) -> (ConnectionArgs<LeasesKeys>, bool) {
        let query = match self {
            Self::Leases(args) => {
                let LeasesArgs { query, command, .. } = args;
                let inner = command.as_ref().map(|command| match command {
                    LeasesCommand::Retire(args) => &args.write.query,
                });
                let json = query.output.json() || inner.is_some_and(|it| it.output.json());
                let inner = inner.map(|query| &query.connection);
                return (query.connection.joined(inner), json);
            }
            Self::Describe(args) => &args.query,
            Self::StepDown(args) | Self::Pause(args) | Self::Resume(args) => &args.write.query,
            Self::Transfer(args) => &args.awaited.write.query,
            Self::Cancel(args) => &args.query,
            Self::Repair(args) => &args.write.query,
            Self::Web(args) => return (args.connection.clone(), false),
        };
        (query.connection.clone(), query.output.json())
    }
}

impl WriteArgs {
    pub(super) fn action(&self, kind: ActionKind) -> OperatorAction {
        action(kind, &author(self.by.as_ref()), self.reason.clone())
    }

    pub(super) fn request(self, kind: ActionKind, wait: bool) -> RequestArgs {
        RequestArgs {
            action: self.action(kind),
            name: self.lease.get().clone(),
            force: false,
            seen: None,
            wait,
        }
    }
}

impl AwaitedArgs {
    pub(super) fn request(self, kind: ActionKind) -> RequestArgs {
        self.write.request(kind, !self.no_wait)
    }
}

impl TransferArgs {
    pub(super) fn request(self) -> RequestArgs {
        let (to, reserve) = (self.to, self.reserve);
        RequestArgs {
            force: self.force,
            ..self.awaited.request(ActionKind::Transfer { to, reserve })
        }
    }
}

impl WebArgs {
    /// Returns `None` if the page is read-only.
    pub(super) fn actions_by(&self) -> Option<Identity> {
        self.allow_actions.then(|| {
            let author = format!("{}{FROM_PAGE}", author(self.by.as_ref()));
            Identity::new(author).expect("names of operators have room for it")
        })
    }

    /// Returns the error for an address that others can reach without a token.
    pub fn contradiction(&self) -> Option<String> {
        let listen = self.listen;
        let open = self.token_file.is_none() && !listen.ip().to_canonical().is_loopback();
        open.then(|| {
            format!(
                "--listen {listen} is not a loopback address: give --token-file FILE with a token for visitors, or --listen 127.0.0.1:{}",
                listen.port()
            )
        })
    }
}
