//! Says what a command waits for if it waits longer than a second: the servers that it tries, or
//! anything else.

use std::pin::pin;
use std::time::Duration;

use tokio::time::timeout;

use super::store_options::read;
use leasehold_config::UriSource;
use leasehold_host::duration::shown;
use leasehold_mongodb::store::Failure;
use leasehold_mongodb::uri::ConnectionUri;

/// After this time, a command says what it waits for, such as the servers that it tries.
pub const UNANSWERED_MAX: Duration = Duration::from_secs(1);

/// Returns the servers, if MongoDB has not answered within a second. Otherwise never completes.
#[allow(
    clippy::disallowed_methods,
    reason = "the read is short, and happens only without an answer"
)]
pub async fn unanswered(uri: &UriSource, has_answered: impl Fn() -> bool) -> String {
    tokio::time::sleep(UNANSWERED_MAX).await;
    if !has_answered() {
        let uri = uri.clone();
        // The disk of the file may hang, so another thread reads the file.
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

/// Describes these servers, the time that has passed, the time limit and the failure, if any.
pub fn progress(servers: &str, limit: Duration, why: Option<&Failure>) -> String {
    let why = why.map_or_else(String::new, |why| format!("; {why}"));
    format!("{} {}{why}", connecting_to(servers), passed(limit))
}

/// Says that a command connects to these servers, with spaces at which the line may be broken.
pub fn connecting_to(servers: &str) -> String {
    format!("connecting to {}", servers.replace(',', ", "))
}

fn passed(limit: Duration) -> String {
    format!("({} of {})", shown(UNANSWERED_MAX), shown(limit))
}

/// Waits, at most for about `limit`. If the wait takes longer than a second, notes once what the
/// command waits for.
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
