//! Names the servers that a command tries while MongoDB has not answered.

use std::time::Duration;

use super::store_options::read;
use leasehold_config::UriSource;
use leasehold_host::duration::shown;
use leasehold_mongodb::store::Failure;
use leasehold_mongodb::uri::ConnectionUri;

/// After this time without an answer, a command names the servers that it tries.
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
    let (passed, limit) = (shown(UNANSWERED_MAX), shown(limit));
    let why = why.map_or_else(String::new, |why| format!("; {why}"));
    format!("connecting to {servers} ({passed} of {limit}){why}")
}
