//! Reports what a command is waiting for once the wait exceeds a second, such as the servers that
//! it tries to reach.

use std::pin::pin;
use std::time::Duration;

use tokio::time::timeout;

use super::store_options::read;
use leasehold_config::UriSource;
use leasehold_host::duration::shown;
use leasehold_mongodb::store::Failure;
use leasehold_mongodb::uri::ConnectionUri;

/// Time after which a command reports what it is waiting for.
pub const UNANSWERED_MAX: Duration = Duration::from_secs(1);

/// Returns the servers, if MongoDB has not answered within a second. Otherwise never completes.
#[allow(
    clippy::disallowed_methods,
    reason = "the file is small, and is read only if MongoDB does not answer"
)]
pub async fn unanswered(uri: &UriSource, has_answered: impl Fn() -> bool) -> String {
    tokio::time::sleep(UNANSWERED_MAX).await;
    if !has_answered() {
        let uri = uri.clone();
        // The file may be on a disk that hangs, so another thread reads it.
        let read = tokio::task::spawn_blocking(move || servers(&uri)).await;
        if let Some(servers) = read.ok().flatten().filter(|_| !has_answered()) {
            return servers;
        }
    }
    std::future::pending().await
}

/// Returns the servers of a connection string; `None` if the string is invalid.
pub fn servers(uri: &UriSource) -> Option<String> {
    let uri = ConnectionUri::parse(&read(uri).ok()?).ok()?;
    Some(uri.hosts())
}

/// Describes a connection attempt: the servers, the elapsed time, the time limit, and the failure,
/// if any.
pub fn progress(servers: &str, limit: Duration, why: Option<&Failure>) -> String {
    let why = why.map_or_else(String::new, |why| format!("; {why}"));
    format!("{} {}{why}", connecting_to(servers), passed(limit))
}

/// Returns the text "connecting to" with the servers, which are separated by spaces so that a
/// terminal line can be wrapped between them.
pub fn connecting_to(servers: &str) -> String {
    format!("connecting to {}", servers.replace(',', ", "))
}

fn passed(limit: Duration) -> String {
    format!("({} of {})", shown(UNANSWERED_MAX), shown(limit))
}

/// Awaits `wait`, which takes at most about `limit`. After a second, reports once what the command
/// is waiting for.
pub async fn announced<T>(
    wait: impl Future<Output = T>,
    limit: Duration,
    note: impl Fn(&str),
    what: impl FnOnce() -> String,
) -> T {
    let mut wait = pin!(wait);
    if limit > UNANSWERED_MAX {
        if let Ok(done) = timeout(UNANSWERED_MAX, &mut wait).await {
            return done;
        }
        note(&format!("{} {}", what(), passed(limit)));
    }
    wait.await
}
