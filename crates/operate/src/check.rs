//! `leasehold check`: examines an installation before or while a daemon runs there.
//!
//! Nothing is changed, neither in MongoDB nor on this host. The command needs only the rights of a
//! daemon; a check that needs another right is skipped without it.

mod clock;
mod host;
#[cfg(feature = "kubernetes")]
mod kubernetes;
#[cfg(not(feature = "kubernetes"))]
mod no_kubernetes;
mod permissions;
mod reads_and_writes;
mod report;
mod servers;
mod timings;
mod tls;

use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use clap::Args;

#[cfg(not(feature = "kubernetes"))]
use self::no_kubernetes as kubernetes;
use self::report::{Check, Finding, Report, Skip};
use leasehold_cli::keys::{AllKeys, Configuration, with_layers};
use leasehold_cli::run_to_end;
use leasehold_cli::store_options::{read, store_options};
use leasehold_cli::values::{Output, between};
use leasehold_config::{Config, Sources};
use leasehold_host::CommandError;
use leasehold_host::exit;
use leasehold_mongodb::store::Failure;
use leasehold_mongodb::store::mongo::probe::{Description, MEASURED_MAX, StoreProbe};
use leasehold_status::directory::intended_directory;

const HELP: &str = "\
Examples:
  leasehold check --lease orders --mongodb-uri-file /etc/leasehold/uri
                             before the first start
  leasehold check --config /etc/leasehold.toml --output json | jq '.checks[] | select(.result == \"failed\")'
                             in a pipeline or a probe

It needs the same four rights on the collection as run, and no others. A running daemon of \
the same lease may use the directory and the port.

Exit codes: 0 all is well, 1 warnings, 2 a check failed, 64 usage, 78 configuration.";

/// Bounds of `--timeout`: with less, healthy servers would fail; with more, a terminal shows nothing
/// for too long.
const TIMEOUT_MIN: Duration = Duration::from_secs(1);
const TIMEOUT_MAX: Duration = Duration::from_secs(600);

/// Arguments of `leasehold check`.
#[derive(Debug, Args)]
#[command(after_help = with_layers(HELP))]
pub struct CheckArgs {
    #[command(flatten)]
    configuration: Configuration<AllKeys>,
    /// Time limit of each check
    #[arg(long, value_name = "DURATION", allow_negative_numbers = true,
          default_value = "10s", value_parser = between(TIMEOUT_MIN, TIMEOUT_MAX))]
    timeout: Duration,
    #[command(flatten)]
    output: Output,
}

/// A configuration, and the store that it names.
struct Installation {
    config: Config,
    store: StoreProbe,
    timeout: Duration,
}

impl Installation {
    /// Limits the time of one call.
    async fn within<T>(
        &self,
        call: impl Future<Output = Result<T, Failure>>,
    ) -> Result<T, Failure> {
        within(self.timeout, call).await
    }

    /// Limits the time of a measurement, which repeats a call.
    async fn measured<T>(
        &self,
        calls: impl Future<Output = Result<T, Failure>>,
    ) -> Result<T, Failure> {
        within(self.timeout + MEASURED_MAX, calls).await
    }
}

async fn within<T>(
    timeout: Duration,
    call: impl Future<Output = Result<T, Failure>>,
) -> Result<T, Failure> {
    let answered = tokio::time::timeout(timeout, call).await;
    answered.unwrap_or_else(|_| Err(Failure::no_answer(timeout)))
}

/// Reason for skipping checks that need a primary.
const NOT_REACHED: Skip = "MongoDB was not reached";

/// The primary's description, or the reason for skipping checks that need a primary.
type Primary<'a> = Result<&'a Description, Skip>;

/// Runs the checks.
///
/// # Errors
/// [`CommandError`], not yet printed. A check that fails is not an error.
pub fn run(args: CheckArgs) -> Result<ExitCode, CommandError> {
    let config = args.configuration.load().config()?;
    let source = config.mongodb.uri.clone();
    let mut options = store_options(
        &config.mongodb,
        Arc::new(move || read(&source)),
        config.identity.name.clone(),
        config.lease.timings,
    );
    options.address.clone_from(&config.identity.address);
    let examined = run_to_end(exit::CHECK_FAILED, async {
        let installation = Installation {
            store: StoreProbe::new(options, config.lease.name.clone()),
            config,
            timeout: args.timeout,
        };
        let report = Report::new(args.output.json());
        let code = examine(&installation, &args.configuration, report).await;
        installation.store.shut_down().await;
        code
    });
    examined?.map(ExitCode::from)
}

/// Prints the checks in a fixed order. Checks of the host come first, because they need no server.
async fn examine(
    installation: &Installation,
    sources: &Sources,
    mut report: Report,
) -> Result<u8, CommandError> {
    let config = &installation.config;
    let pod = tokio::spawn(pod_checks(config.clone(), installation.timeout));
    let directory = intended_directory(&config.lease.name, config.status.directory.as_deref());
    let host = host::checks(config, sources, &directory).await;
    report.add("host", host)?;
    report.waiting("connecting to MongoDB");
    let (servers, description) = servers::checks(installation, &directory).await;
    report.add("mongodb", servers)?;
    report.waiting("measuring");
    let primary = description.as_ref().ok_or(NOT_REACHED);
    let store_checks = async {
        let (permissions, prerequisites) = permissions::checks(installation, primary).await;
        // Not at the same time, because measurements would include the other calls.
        (permissions, reads_and_writes::checks(prerequisites).await)
    };
    let rate = clock::rate(installation, primary);
    let (rate, (permissions, reads)) = tokio::join!(rate, store_checks);
    report.add("permissions", permissions)?;
    report.add("reads-and-writes", reads)?;
    let mut timings = timings::checks(installation, primary).await;
    timings.push(Check::new("clock-rate", rate));
    report.add("timings", timings)?;
    report.add("kubernetes", pod.await.unwrap_or_default())?;
    report.finish()
}

/// Checks that this pod may contend for the lease, and what it publishes.
async fn pod_checks(config: Config, timeout: Duration) -> Vec<Check> {
    let placement = &config.kubernetes.placement;
    match placement.check("lease", &config.lease.name) {
        Ok(()) => kubernetes::checks(config, timeout).await,
        Err(misplaced) => {
            vec![Check::new("pod", Finding::from(misplaced))]
        }
    }
}
