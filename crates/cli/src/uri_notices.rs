//! Log lines about options of the connection string that are ignored, overridden or insecure.

use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};

use tracing::{debug, info, warn};

use leasehold_core::election::ResourceName;
use leasehold_mongodb::uri::{ConnectionUri, Treatment, UriNotice};

/// Logs each notice once.
pub struct UriNotices {
    lease: ResourceName,
    logged: Mutex<BTreeSet<UriNotice>>,
}

impl UriNotices {
    /// Creates a log of the notices of a lease.
    pub fn new(lease: ResourceName) -> Self {
        Self {
            lease,
            logged: Mutex::default(),
        }
    }

    /// Logs the notices of a connection string that were not logged before.
    pub fn log(&self, uri: &str) {
        let Ok(uri) = ConnectionUri::parse(uri) else {
            return;
        };
        let lease = &self.lease;
        let mut overridden = Vec::new();
        for notice in self.unlogged(&uri) {
            let option = notice.option;
            match notice.treatment {
                Treatment::Ignored(reason) => {
                    warn!(%lease, option, reason, "connection string option ignored");
                }
                Treatment::AppliedWithRisk(risk) => {
                    warn!(%lease, option, risk, "connection string option is insecure");
                }
                Treatment::Overridden(_) => overridden.push(notice.to_string()),
                _ => {}
            }
        }
        if !overridden.is_empty() {
            let options = overridden.join(", ");
            info!(%lease, options, "connection string options overridden");
        }
    }

    fn unlogged(&self, uri: &ConnectionUri) -> Vec<UriNotice> {
        let mut logged = self.logged.lock().unwrap_or_else(PoisonError::into_inner);
        let notices = uri.notices().iter().copied();
        notices.filter(|notice| logged.insert(*notice)).collect()
    }
}

/// Logs the notices of a job's connection string at a low level, because cron mails the output.
pub fn log_for_job(uri: &str) {
    let Ok(uri) = ConnectionUri::parse(uri) else {
        return;
    };
    for notice in uri.notices() {
        debug!(%notice, "connection string option not applied as written");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_notice_is_logged_once() {
        let notices = UriNotices::new(ResourceName::new("orders").expect("legal"));
        let uri = |text: &str| ConnectionUri::parse(text).expect("a connection string");
        let of = |text: &str| {
            let unlogged = notices.unlogged(&uri(text)).into_iter();
            unlogged.map(|notice| notice.option).collect::<Vec<_>>()
        };
        assert_eq!(of("mongodb://a/?w=1&connect=direct"), ["w", "connect"]);
        assert_eq!(of("mongodb://b/?connect=direct&w=1&j=false"), ["journal"]);
    }
}
