use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio::sync::watch;
use tracing::{debug, info, warn};

use crate::clock;
use crate::election::{ResourceName, Status, Timings};
use crate::log::{ErrorThrottle, millis};
use crate::publish::Surface;
use crate::publish::directory::{StatusDirectory, closed_root, exposure, recorded_deployment};
use crate::publish::file::WriteProgress;
use crate::store::KnownHome;

/// Set by the kubelet in every container.
pub(super) const SERVICE_HOST: &str = "KUBERNETES_SERVICE_HOST";
const CHECK_INTERVAL_MIN: Duration = Duration::from_secs(1);
const IDLE_CHECK: Duration = Duration::from_secs(10);
/// A write that takes longer is slow and needs a timer. A write to a local disk takes far less.
const WRITE_MAX: Duration = Duration::from_millis(500);
/// Time between the first two log lines about a hanging write.
const REPEAT_MIN: Duration = Duration::from_secs(10);

/// Warns if other users cannot read the status, or could replace the status files or the claim
/// record.
pub(super) fn log_exposure(lease: &ResourceName, directory: &Path) {
    if let Some(root) = closed_root(directory) {
        let root = root.display();
        warn!(
            %lease, directory = %root,
            "other users cannot read the status, because its parent directory is not accessible to \
             them; to fix: chmod 755"
        );
    }
    let why = match exposure(directory) {
        Ok(None) => return,
        Ok(Some(why)) => why,
        Err(error) => {
            debug!(%lease, directory = %directory.display(), why = %error, "failed to examine the status directory");
            return;
        }
    };
    let directory = directory.display();
    if std::env::var_os(SERVICE_HOST).is_some() {
        // Any user can write to an emptyDir; the volume mounts determine which containers can reach
        // it.
        info!(
            %lease, %directory, why,
            "other users can write to the status directory: mount it read-only in other containers"
        );
    } else {
        warn!(
            %lease, %directory, why,
            "other users can write to the status directory and forge the status: make this \
             user its owner, with mode 0755"
        );
    }
}

pub(in crate::cli) fn known_home(lease: &ResourceName, directory: &StatusDirectory) -> KnownHome {
    let file = directory.deployment_file();
    let deployment = recorded_deployment(directory.path()).unwrap_or_else(|error| {
        warn!(
            %lease, path = %file.display(), why = %error,
            "deployment record unreadable; using the deployment of the connection string"
        );
        None
    });
    KnownHome {
        // The path is absolute, because the process that reads it may have another working
        // directory.
        file: std::path::absolute(&file).unwrap_or(file),
        deployment,
    }
}

/// Logs, at growing intervals, that a write of the status files has been running for
/// `renew_interval`, and for at least a second.
pub(super) async fn watch(
    lease: ResourceName,
    directory: PathBuf,
    progress: WriteProgress,
    timings: watch::Receiver<Timings>,
    mut status: watch::Receiver<Status>,
) {
    let mut throttle = ErrorThrottle::starting_with(REPEAT_MIN);
    loop {
        let patience = timings.borrow().renew_interval().max(CHECK_INTERVAL_MIN);
        let idle = IDLE_CHECK.max(2 * patience);
        // Each renewal publishes a new status, which wakes this task. Only a slow write or an
        // unchanged status needs a timer.
        match progress.busy_for(clock::boot_now()) {
            Some(busy) if busy >= WRITE_MAX => {
                let left = patience.saturating_sub(busy);
                tokio::time::sleep(if left.is_zero() { patience } else { left }).await;
            }
            Some(_) | None => {
                let changed = status.changed();
                if let Ok(Err(_)) = tokio::time::timeout(idle, changed).await {
                    // The daemon is exiting.
                    return;
                }
            }
        }
        let now = clock::boot_now();
        let (surface, path) = (Surface::File.as_str(), directory.display());
        match progress.busy_for(now).filter(|busy| *busy >= patience) {
            Some(busy) => {
                if throttle.failed("", None, now).is_some() {
                    warn!(
                        %lease, surface, %path,
                        busy_ms = millis(busy),
                        "status files are stale: a write to their disk has not returned"
                    );
                }
            }
            None => {
                if throttle.over(now).is_some() {
                    info!(%lease, surface, %path, "status files are written again");
                }
            }
        }
    }
}
