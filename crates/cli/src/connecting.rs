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
pub async fn unanswered(uri: &UriSource, has_answered: impl Fn() -> bool) -> String {
    tokio::time::sleep(UNANSWERED_MAX).await;
    let uri = read(uri).ok();
    let uri = uri.and_then(|uri| ConnectionUri::parse(&uri).ok());
    match uri.filter(|_| !has_answered()) {
        Some(uri) => uri.hosts(),
        None => std::future::pending().await,
    }
}

/// Describes these servers, the time that has passed, the time limit and the failure, if any.
pub fn progress(servers: &str, limit: Duration, why: Option<&Failure>) -> String {
    let why = why.map_or_else(String::new, |why| format!("; {why}"));
    format!("connecting to {servers} {}{why}", passed(limit))
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
