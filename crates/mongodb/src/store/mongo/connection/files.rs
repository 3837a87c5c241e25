//! Reads the connection string and its files outside of the event loop, because a disk may hang.

use std::sync::Arc;
use std::time::Duration;

use mongodb::Client;
use mongodb::error::ErrorKind;
use mongodb::options::ClientOptions;
use tokio::sync::Mutex;

use super::super::servers::Asked;
use super::super::{lock, tls};
use super::client::adapt_login;
use super::{Deployment, SendError};
use crate::store::{Failure, RetryPolicy};
use leasehold_core::election::BootTime;

/// Time limit for reading a connection string again.
const URI_TIME_MAX: Duration = Duration::from_millis(250);
const URI_UNAVAILABLE: &str = "MongoDB URI unavailable";
const FILES_TIME_MAX: Duration = Duration::from_secs(3);

/// Reads files on a separate thread, one file at a time.
#[derive(Debug, Clone, Default)]
pub(super) struct FileReader(Arc<Mutex<()>>);

impl FileReader {
    /// Runs work that reads files; returns its result, or `None` after `limit`. Work that exceeds
    /// `limit` keeps running, and later work waits for it, so at most one thread waits for a disk.
    async fn read<T: Send + 'static>(
        &self,
        limit: Duration,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Option<T> {
        let read = async {
            let turn = Arc::clone(&self.0).lock_owned().await;
            #[allow(clippy::disallowed_methods, reason = "the task only reads the files")]
            let done = tokio::task::spawn_blocking(move || {
                let _turn = turn;
                work()
            });
            match done.await {
                Ok(value) => Some(value),
                Err(error) => match error.try_into_panic() {
                    Ok(panic) => std::panic::resume_unwind(panic),
                    // The runtime is shutting down.
                    Err(_) => None,
                },
            }
        };
        tokio::time::timeout(limit, read).await.ok().flatten()
    }
}

#[derive(Default)]
pub(super) struct LastUri {
    text: Option<String>,
    was_asked: bool,
    unread_since: Option<BootTime>,
    /// The reason why the last read failed.
    refused: Option<String>,
}

impl Deployment {
    /// Reads the connection string. Returns the last known string while the file cannot be read.
    pub(in crate::store::mongo) async fn uri(&self) -> Result<String, SendError> {
        let began = leasehold_clock::boot_now();
        if !std::mem::replace(&mut lock(&self.last_uri).was_asked, true) {
            // The first read may block, because nothing depends on the event loop yet.
            return self.noted((self.options.uri)());
        }
        let known = lock(&self.last_uri).text.clone();
        let limit = match known {
            Some(_) => URI_TIME_MAX,
            None => self.operation_timeout(),
        };
        let provider = Arc::clone(&self.options.uri);
        match self.uri_files.read(limit, move || provider()).await {
            Some(read) => self.noted(read),
            None => {
                lock(&self.last_uri).unread_since.get_or_insert(began);
                known.ok_or_else(|| {
                    SendError::unsent(URI_UNAVAILABLE, self.unread(), RetryPolicy::Retry)
                })
            }
        }
    }

    fn noted(&self, read: Result<String, String>) -> Result<String, SendError> {
        let mut last = lock(&self.last_uri);
        last.unread_since = None;
        last.refused = read.as_ref().err().cloned();
        if let Ok(uri) = &read {
            last.text = Some(uri.clone());
        }
        let known = last.text.clone();
        read.or_else(|why| {
            known.ok_or_else(|| SendError::unsent(URI_UNAVAILABLE, why, RetryPolicy::Reconfigure))
        })
    }

    pub(super) fn with_unread_uri(&self, mut failure: Failure) -> Failure {
        let has_text = lock(&self.last_uri).text.is_some();
        let why = self.unread();
        if has_text && !why.is_empty() {
            let separator = if failure.detail.is_empty() { "" } else { "; " };
            failure.detail += &format!("{separator}the MongoDB URI in use may be outdated: {why}");
        }
        failure
    }

    fn unread(&self) -> String {
        let (since, refused) = {
            let last = lock(&self.last_uri);
            (last.unread_since, last.refused.clone())
        };
        let Some(since) = since else {
            return refused.unwrap_or_default();
        };
        let waited = leasehold_clock::boot_now().since(since).as_secs();
        let name = (self.options.uri_name)();
        let name = name.as_deref().unwrap_or("the source of the MongoDB URI");
        format!("{name} has not been readable for {waited}s: check the disk or network share")
    }
}

/// Creates a client on another thread, because the driver reads the files that the options name.
pub(super) async fn made(
    mut options: ClientOptions,
    reader: &FileReader,
) -> Result<Client, SendError> {
    adapt_login(&mut options);
    let named = Asked::of(&options).files;
    if named.is_empty() {
        return Ok(Client::with_options(options)?);
    }
    let files = named.clone();
    let made = reader.read(FILES_TIME_MAX, move || {
        let refused = |why| SendError::unsent(tls::REFUSED, why, RetryPolicy::Reconfigure);
        if let Some(why) = tls::unreadable(&files) {
            return Err(refused(why));
        }
        Client::with_options(options).map_err(|error| match *error.kind {
            ErrorKind::InvalidTlsConfig { .. } => refused(tls::unusable(&files)),
            _ => error.into(),
        })
    });
    made.await.unwrap_or_else(|| {
        let why = tls::unread(&named);
        Err(SendError::unsent(tls::UNREAD, why, RetryPolicy::Retry))
    })
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::super::{Monitoring, StoreOptions};
    use super::*;
    use leasehold_core::election::Identity;

    const BRIEF: Duration = Duration::from_millis(20);
    const LONG: Duration = Duration::from_secs(30);

    #[tokio::test]
    async fn a_read_that_hangs_ends_and_occupies_one_thread() {
        let reader = FileReader::default();
        let (answer, blocked) = mpsc::channel::<()>();
        let (began, has_begun) = mpsc::channel();
        let hanging = move || {
            began.send(()).expect("received");
            blocked.recv().is_ok()
        };
        assert_eq!(reader.read(BRIEF, hanging).await, None);
        assert_eq!(
            reader
                .read(BRIEF, || panic!(
                    "the hanging read occupies the only thread"
                ))
                .await,
            None::<()>
        );
        has_begun.recv().expect("it began");
        answer.send(()).expect("it waits");
        assert_eq!(reader.read(LONG, || 7).await, Some(7));
    }

    #[tokio::test]
    async fn the_known_string_stays_in_use_while_its_source_fails() {
        let answers = [Ok("known"), Err("no such file"), Ok("new")];
        let answers = std::sync::Mutex::new(
            answers
                .map(|it| it.map(str::to_owned).map_err(str::to_owned))
                .into_iter(),
        );
        let uri = Arc::new(move || lock(&answers).next().expect("three reads"));
        let options = StoreOptions::with_uri_provider(uri, Identity::new("a").expect("legal"));
        let deployment = Deployment::new(options, Monitoring::Reports);
        let detail = || {
            let failure = Failure::new("no primary", "");
            deployment.with_unread_uri(failure).detail
        };
        let outdated = "the MongoDB URI in use may be outdated: no such file";
        for (uri, expected) in [("known", ""), ("known", outdated), ("new", "")] {
            assert!(
                deployment.uri().await.is_ok_and(|read| read == uri),
                "{uri}"
            );
            assert_eq!(detail(), expected);
        }
    }

    #[test]
    fn a_failure_names_the_source_that_is_not_readable() {
        let options = StoreOptions::new("mongodb://h/", Identity::new("a").expect("legal"));
        let deployment = Deployment::new(options, Monitoring::Reports);
        let detail = || {
            let failure = Failure::new("no primary", "");
            deployment.with_unread_uri(failure).detail
        };
        assert_eq!(detail(), "");
        *lock(&deployment.last_uri) = LastUri {
            text: Some("mongodb://h/".to_owned()),
            was_asked: true,
            unread_since: Some(leasehold_clock::boot_now()),
            refused: None,
        };
        let expected = "the MongoDB URI in use may be outdated: the source of the MongoDB URI has";
        assert!(detail().starts_with(expected), "{}", detail());
    }
}
