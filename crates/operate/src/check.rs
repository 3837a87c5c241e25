//! `leasehold check`: examines an installation before or while a daemon runs there. The command
//! changes nothing, and needs only a daemon's permissions. Checks whose permission is missing are
//! skipped.

mod collection;
mod host;
#[cfg(feature = "kubernetes")]
mod kubernetes;
mod report;
mod servers;
mod timings;

use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use clap::Args;

#[cfg(not(feature = "kubernetes"))]
use self::report::Finding;
use self::report::{Check, Report, Skip};
use crate::table::PassingLine;
use leasehold_cli::keys::{AllKeys, Configuration, with_layers};
use leasehold_cli::store_options::{read, store_options};
use leasehold_cli::values::{Output, between, name};
use leasehold_cli::{connecting, run_to_end, say};
use leasehold_config::{Config, Sources, find};
use leasehold_core::election::ResourceName;
use leasehold_host::{CommandError, exit};
use leasehold_mongodb::store::Failure;
use leasehold_mongodb::store::mongo::probe::{Description, StoreProbe};
use leasehold_status::directory::intended_directory;

const HELP: &str = "\
Examples:
  leasehold check orders --mongodb-uri-file /etc/leasehold/uri
                             before the first start
  leasehold check orders -o json | jq '.checks[] | select(.result == \"failed\")'
                             in a pipeline or a probe

check needs the same four rights on the collection as run, and no others. A running daemon of \
the same lease may use the directory and the port.

Exit codes: 0 all is well, 1 warnings, 2 a check failed, 64 usage, 78 configuration.";

/// Minimum of `--timeout`; with less time, healthy servers would fail the checks.
const TIMEOUT_MIN: Duration = Duration::from_secs(1);
const TIMEOUT_MAX: Duration = Duration::from_secs(600);

/// Arguments of `leasehold check`.
#[derive(Debug, Args)]
#[command(after_help = with_layers(HELP))]
pub struct CheckArgs {
    #[command(flatten)]
    configuration: Configuration<AllKeys>,
    /// Name of the lease
    #[arg(value_parser = name, conflicts_with = "lease.name")]
    name: Option<ResourceName>,
    /// Time limit of each check
    #[arg(long, value_name = "DURATION", allow_negative_numbers = true,
          default_value = "10s", value_parser = between(TIMEOUT_MIN, TIMEOUT_MAX))]
    timeout: Duration,
    #[command(flatten)]
    output: Output,
}

struct Installation {
    config: Config,
    store: StoreProbe,
    timeout: Duration,
}

impl Installation {
    async fn within<T>(
        &self,
        call: impl Future<Output = Result<T, Failure>>,
    ) -> Result<T, Failure> {
        self.limited(Duration::ZERO, call).await
    }

    async fn limited<T>(
        &self,
        longer: Duration,
        calls: impl Future<Output = Result<T, Failure>>,
    ) -> Result<T, Failure> {
        let limit = self.timeout + longer;
        let answered = tokio::time::timeout(limit, calls).await;
        answered.unwrap_or_else(|_| Err(Failure::no_answer(limit)))
    }
}

const NOT_REACHED: Skip = "the primary was not reached";
const LOGIN_REFUSED: Skip = "the login was refused";

/// The description of the primary, or the reason to skip checks that need a primary.
type Primary<'a> = Result<&'a Description, Skip>;

/// Runs the checks.
#[inline(never)]
pub fn run(mut args: CheckArgs) -> Result<ExitCode, CommandError> {
    if let (Some(name), Some(key)) = (&args.name, find("lease.name")) {
        let flags = &mut args.configuration.sources.flags;
        flags.push((key, name.to_string()));
    }
    let config = args.configuration.sources.load().config()?;
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
        let code = examine(&installation, &args.configuration.sources, report).await;
        installation.store.shut_down().await;
        code
    });
    examined?.map(ExitCode::from)
}

/// Runs the checks and prints their results in a fixed order, starting with the checks of this
/// host.
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
    let connecting = || {
        let servers = connecting::servers(&config.mongodb.uri);
        connecting::connecting_to(servers.as_deref().unwrap_or("MongoDB"))
    };
    let servers = servers::checks(installation, &directory);
    let servers = connecting::announced(servers, installation.timeout, say, connecting);
    let (servers, description) = servers.await;
    report.add("mongodb", servers)?;
    let measuring = PassingLine::new("  … measuring");
    let primary = description.as_ref().map_err(|why| *why);
    let rate = timings::rate(installation, primary);
    let collection = collection::checks(installation, primary);
    let (rate, (permissions, reads)) = tokio::join!(rate, collection);
    drop(measuring);
    report.add("permissions", permissions)?;
    report.add("reads-and-writes", reads)?;
    let mut timings = timings::checks(installation, primary).await;
    timings.push(Check::new("clock-rate", rate));
    report.add("timings", timings)?;
    report.add("kubernetes", pod.await.unwrap_or_default())?;
    report.finish()
}

async fn pod_checks(config: Config, timeout: Duration) -> Vec<Check> {
    let placement = &config.kubernetes.placement;
    match placement.check("lease", &config.lease.name) {
        Ok(()) => publishing(config, timeout).await,
        Err(misplaced) => vec![Check::new("pod", misplaced)],
    }
}

#[cfg(feature = "kubernetes")]
use self::kubernetes::checks as publishing;

#[cfg(not(feature = "kubernetes"))]
async fn publishing(config: Config, _: Duration) -> Vec<Check> {
    let without = "this binary was built without the feature kubernetes";
    let finding = match config.kubernetes.enabled {
        leasehold_config::KubernetesEnabled::On => Finding::failed(
            without,
            "use a build that has it, or set kubernetes.enabled to \"off\"",
        ),
        _ => Finding::skipped(without),
    };
    vec![Check::new("pod", finding)]
}
