//! Arguments of `leasehold run`, and the options of the candidate.

use std::ffi::OsString;
use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use tokio::sync::watch;

use crate::cli::store_options::{self, read, store_options};
use crate::cli::uri_notices::UriNotices;
use crate::config::{Config, OnDaemonRestart, Prefer, UriSource};
use crate::election::Tunables;
use crate::elector::ElectorOptions;
use crate::publish::directory::RecoveredState;
use crate::store::KnownHome;
use crate::trace::Trace;
use leasehold_cli::keys::{Configuration, DaemonKeys, given, useless_without_command, with_layers};

/// Keys that have no effect unless `leasehold run` has a command. Their flags are rejected without
/// a command. Files may set these keys, because a daemon with a command may share the file.
const OF_A_COMMAND: [&str; 5] = [
    "workload.stop_signal",
    "workload.stop_scope",
    "workload.stop_grace",
    "workload.linger",
    "workload.on_exit",
];

/// The key of the socket for a command in another container. With this key, the keys in
/// [`OF_A_COMMAND`] have an effect too, except [`ON_EXIT`].
const SOCKET: &str = "workload.socket";
const ON_EXIT: &str = "workload.on_exit";

/// Keys that have no effect if `leasehold run` has a command, because the daemon waits until the
/// command has ended. They are treated like [`OF_A_COMMAND`].
const OF_NO_COMMAND: [&str; 2] = ["lease.handoff_delay", "workload.ends_first"];

const HELP: &str = "\
Examples:
  leasehold run --lease orders
                             contend for the lease and publish who leads
  leasehold run --lease orders -- ./scheduler
                             run a command exactly while this replica leads
  leasehold run --config /etc/leasehold.toml --config site.yaml
  leasehold run --lease orders --workload-stop-grace 2m -- ./scheduler --verbose

Signals: TERM, INT and QUIT step down, release the lease and exit 0. After Ctrl-C on a terminal, leasehold ends by \
SIGINT instead, as a shell expects. With CMD, Ctrl-C reaches only CMD; leasehold then ends if SIGINT kills CMD, or if CMD exits and workload.on_exit is exit. A second signal 1s or more after the first makes leasehold exit at once, without a release. HUP reads the configuration again, USR1 steps down, USR2 logs the status.

Exit codes: 0 stopped, 1 second signal or a system error, 64 usage, 71 the system lacks a feature that CMD needs, 78 configuration. If CMD ends by itself: its own code, \
76 if CMD exited with 0 but left processes that were stopped, 126/127 CMD cannot be executed / found, 128+N CMD was ended by signal N.";

/// Arguments of `leasehold run`.
#[derive(Debug, Args)]
#[command(after_help = with_layers(HELP))]
pub struct RunArgs {
    #[command(flatten)]
    pub(in crate::cli) configuration: Configuration<DaemonKeys>,
    /// Command to run while this replica leads
    #[arg(value_name = "CMD", last = true)]
    pub(in crate::cli) command: Vec<OsString>,
}

impl RunArgs {
    /// Returns the error if a flag has no effect, if the socket is empty, or if both a command and
    /// a socket are given.
    pub(in crate::cli) fn contradiction(&self) -> Option<String> {
        let sources = &self.configuration.sources;
        let attached = given(&[SOCKET], sources).is_some();
        if attached
            && sources
                .flags
                .iter()
                .any(|(key, value)| key.path() == SOCKET && value.is_empty())
        {
            return Some("--workload-socket is empty: omit the flag, or name a file".to_owned());
        }
        if attached && given(&[ON_EXIT], sources).is_some() {
            return Some("--workload-on-exit has no effect with --workload-socket, because the workload's container ends with the workload: omit the flag".to_owned());
        }
        let given_command = match (attached, self.command.is_empty()) {
            (true, false) => {
                return Some("--workload-socket and a command after -- cannot be used together: with the socket, the command runs in another container (leasehold guard --socket FILE -- CMD)".to_owned());
            }
            (false, true) => return useless_without_command(&OF_A_COMMAND, sources),
            (true, true) => "--workload-socket",
            (false, false) => "a command after --",
        };
        let flag = given(&OF_NO_COMMAND, sources)?;
        Some(format!(
            "--{flag} has no effect with {given_command}, because leasehold waits until the command has ended: omit the flag"
        ))
    }
}

pub(in crate::cli) fn options(
    config: &Config,
    drains: bool,
    memory: RecoveredState,
    home: KnownHome,
    uri: watch::Receiver<UriSource>,
    trace: Option<Trace>,
) -> ElectorOptions {
    let identity = &config.identity;
    let notices = UriNotices::new(config.lease.name.clone());
    let named = uri.clone();
    let uri = Arc::new(move || {
        // The URI is copied, because the channel must not stay locked while files are read.
        let source = uri.borrow().clone();
        let uri = read(&source)?;
        notices.log(&uri);
        Ok(uri)
    });
    let tunables = tunables(config, drains);
    let name = identity.name.clone();
    let mut store = store_options(&config.mongodb, uri, name, tunables.timings);
    store.uri_name = Arc::new(move || store_options::name(&named.borrow()));
    store.address.clone_from(&identity.address);
    store.home = Some(home);
    store.trace = trace;
    let mut options = ElectorOptions::new(store, config.lease.name.clone());
    options.handoff_delay = tunables.handoff_delay;
    options.workload_ends_first = tunables.workload_ends_first;
    options.priority = identity.priority;
    options.prefer_interval = tunables.prefer_interval;
    options.token_remembered = memory.token;
    options.lease_longest_remembered = memory.lease_longest;
    options.predecessor_claim = memory.claim;
    options.releases_predecessor = config.workload.on_daemon_restart == OnDaemonRestart::Release;
    options
}

/// Builds the settings of the election. A daemon that waits for its command to end (`drains`) needs
/// no handoff delay.
pub(super) fn tunables(config: &Config, drains: bool) -> Tunables {
    Tunables {
        timings: config.lease.timings,
        handoff_delay: match drains {
            true => Duration::ZERO,
            false => config.lease.handoff_delay,
        },
        workload_ends_first: config.workload.ends_first,
        prefer_interval: match config.lease.prefer {
            Prefer::None => None,
            Prefer::Priority => Some(config.lease.prefer_interval),
        },
    }
}
