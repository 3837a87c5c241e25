//! The options of the candidate, from the configuration.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;

use crate::admin::ReadyWhen;
use crate::cli::store_options::{name, read, store_options};
use crate::cli::uri_notices::UriNotices;
use crate::config::{self, Config, Prefer, UriSource};
use crate::election::Tunables;
use crate::elector::ElectorOptions;
use crate::publish::directory::RecoveredState;
use crate::store::KnownHome;
use crate::trace::Trace;

pub(super) fn options(
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
        // A copy, because the channel must not stay locked while files are read.
        let source = uri.borrow().clone();
        let uri = read(&source)?;
        notices.log(&uri);
        Ok(uri)
    });
    let Tunables {
        timings,
        handoff_delay,
        workload_ends_first,
        prefer_interval,
    } = tunables(config, drains);
    let mut store = store_options(&config.mongodb, uri, identity.name.clone(), timings);
    store.uri_name = Arc::new(move || name(&named.borrow()));
    store.address.clone_from(&identity.address);
    store.home = Some(home);
    store.trace = trace;
    let mut options = ElectorOptions::new(store, config.lease.name.clone());
    options.handoff_delay = handoff_delay;
    options.workload_ends_first = workload_ends_first;
    options.priority = identity.priority;
    options.prefer_interval = prefer_interval;
    options.token_remembered = memory.token;
    options.lease_longest_remembered = memory.lease_longest;
    options.predecessor_claim = memory.claim;
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

impl From<config::ReadyWhen> for ReadyWhen {
    fn from(when: config::ReadyWhen) -> Self {
        match when {
            config::ReadyWhen::Connected => Self::Connected,
            config::ReadyWhen::Leader => Self::Leader,
        }
    }
}
