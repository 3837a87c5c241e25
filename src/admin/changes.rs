//! Waits for changes of a status, including deadlines that pass.

use std::future::pending;

use tokio::sync::watch;

use crate::clock::{self, boot_now};
use crate::election::{BootTime, Status};

/// Waits for a new status, or for the next deadline of the current status, because the election may
/// publish late that a deadline has passed. A deadline between `seen`, the time of the caller's last
/// read, and now counts too. Returns false if no status follows.
pub(super) async fn changed(status: &mut watch::Receiver<Status>, seen: BootTime) -> bool {
    let deadline = next_deadline(&status.borrow(), seen);
    let passed = async {
        match deadline {
            Some(deadline) => sleep_until(deadline).await,
            None => pending().await,
        }
    };
    tokio::select! {
        changed = status.changed() => changed.is_ok(),
        () = passed => true,
    }
}

/// Waits until an exact instant, while tokio's timers may be coarse (`cli/run/idle_timers.rs`).
pub(super) async fn sleep_until(instant: BootTime) {
    if clock::sleep_until(instant).await.is_err() {
        // Out of file descriptors.
        tokio::time::sleep(instant.since(boot_now())).await;
    }
}

/// Returns the next instant after `now` at which [`Status::at`] changes by itself.
fn next_deadline(status: &Status, now: BootTime) -> Option<BootTime> {
    let authority = status.authority.map(|authority| authority.valid_until);
    let holder = status.holder.as_ref().map(|holder| holder.until);
    let ahead = |deadline: &BootTime| *deadline > now;
    authority.into_iter().chain(holder).filter(ahead).min()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::time::timeout;

    use super::*;
    use crate::election::HolderView;
    use crate::publish::fixture::{at, leader, token, who};

    #[tokio::test]
    async fn a_deadline_that_passes_after_the_look_is_a_change() {
        let seen = boot_now();
        let (_sender, mut receiver) = watch::channel(leader(7, seen + Duration::from_nanos(1)));
        let changed = timeout(Duration::from_secs(60), changed(&mut receiver, seen)).await;
        assert_eq!(changed, Ok(true));
    }

    #[test]
    fn the_next_deadline_is_the_earliest_ahead() {
        let status = Status {
            holder: Some(HolderView {
                identity: who("a").identity,
                token: token(7),
                until: at(9),
            }),
            ..leader(7, at(5))
        };
        let next = |now| next_deadline(&status, at(now));
        assert_eq!(
            [next(4), next(5), next(9)],
            [Some(at(5)), Some(at(9)), None]
        );
    }
}
