//! Following a change stream for ever, from one failure to the next attempt.
//!
//! What an event means is its listener's business.

use std::sync::Arc;
use std::time::Duration;

use mongodb::bson::Document;
use mongodb::change_stream::event::ChangeStreamEvent;
use mongodb::options::{ReadConcern, ReadPreference, SelectionCriteria};
use tokio::sync::{Notify, mpsc, watch};
use tokio::task::JoinSet;

use super::connection::{Deployment, SendError};
use super::outcome;
use crate::store::{Failure, News};
use leasehold_core::election::Timings;

/// How long the server holds a getMore without news, at most.
const AWAIT_MAX: Duration = Duration::from_secs(10);
/// How long to wait before change streams are asked for again where there are
/// none: a standalone server may become a replica set, a role may get the right.
const NO_WATCH_RETRY: Duration = Duration::from_secs(60);
/// A server that refuses a change stream so often in a row, by whatever error,
/// is asked as rarely as one that is known to have none.
const REFUSALS_MAX: u32 = 10;

/// What a stream says.
pub(super) enum Heard {
    /// It is open: what changes from now on will be told.
    Opened,
    /// Something changed.
    Change(Box<ChangeStreamEvent<Document>>),
    /// Nothing changed, and the stream is alive.
    Alive,
    /// It is closed, or was never to be had.
    Lost,
}

/// Who wants to know.
pub(super) trait Listener: Clone + Send + Sync + 'static {
    /// What the receiver of the news understands.
    type Hint: Send + 'static;

    /// Where the collection is.
    fn deployment(&self) -> &Arc<Deployment>;
    /// Which events are wanted.
    fn pipeline(&self) -> Vec<Document>;
    /// What it means.
    fn hint(&self, heard: Heard) -> Self::Hint;
    /// Where the hints go.
    fn news(&self) -> &mpsc::Sender<News<Self::Hint>>;
}

/// The stream gives a sign of life three times per lease duration, since a store
/// that is silent for that long counts as not read.
fn await_max(timings: Timings) -> Duration {
    AWAIT_MAX.min(timings.lease_duration() / 3)
}

/// How a stream ended.
enum End {
    /// It could not be opened, or broke.
    Broken,
    /// The server refused to open it.
    Refused,
    /// There are none, and will not be soon.
    Lacking,
    /// Nothing came for too long.
    Silent,
    /// Another one is wanted.
    Superseded,
}

/// Follows until it is dropped, which ends the stream, and opens another one
/// each time that `reopen` is notified.
///
/// There is one stream at a time: one that hangs is aborted before the next is
/// opened. Other calls of the driver are never dropped, since a write may land
/// later; a getMore changes nothing, and the driver closes the connection on
/// which it was waiting. Otherwise each stream that hangs would keep one of
/// the pool's connections.
pub(super) async fn watch(listener: impl Listener, reopen: &Notify) {
    let timings = listener.deployment().timings();
    let silence_max = await_max(timings) + timings.operation_timeout();
    let mut refusals = 0;
    loop {
        let (signs, mut alive) = watch::channel(());
        // Aborts the stream when it is dropped.
        let mut stream = JoinSet::new();
        stream.spawn(follow(listener.clone(), signs));
        let end = loop {
            tokio::select! {
                sign = tokio::time::timeout(silence_max, alive.changed()) => match sign {
                    Ok(Ok(())) => refusals = 0,
                    // The stream's task has ended, which dropped the sender.
                    Ok(Err(_)) => break ended(&mut stream).await,
                    Err(_) => break End::Silent,
                },
                () = reopen.notified() => break End::Superseded,
            }
        };
        drop(stream);
        let pause = match end {
            End::Superseded => continue,
            End::Silent => {
                let failure = Failure::new("the change stream does not answer", "");
                failed(&listener, failure).await;
                continue;
            }
            End::Broken => timings.retry_interval(),
            End::Refused if refusals < REFUSALS_MAX => {
                refusals += 1;
                timings.retry_interval()
            }
            End::Refused | End::Lacking => NO_WATCH_RETRY.max(timings.retry_interval()),
        };
        tokio::select! {
            () = tokio::time::sleep(pause) => {}
            () = reopen.notified() => {}
        }
    }
}

async fn ended(stream: &mut JoinSet<End>) -> End {
    match stream.join_next().await {
        Some(Ok(end)) => end,
        // The driver panicked.
        Some(Err(_)) | None => End::Broken,
    }
}

/// One stream until it ends.
async fn follow<L: Listener>(listener: L, alive: watch::Sender<()>) -> End {
    let deployment = listener.deployment();
    let collection = match deployment.collection().await {
        Ok(collection) => collection,
        Err(error) => {
            // Why there is no client is said of each call, except that this
            // refusal ends with the first.
            if let SendError::Elsewhere(_) = error {
                failed(&listener, deployment.failure(error)).await;
            }
            return End::Broken;
        }
    };
    let opened = collection
        .watch()
        .pipeline(listener.pipeline())
        .max_await_time(await_max(deployment.timings()))
        .read_concern(ReadConcern::majority())
        .selection_criteria(SelectionCriteria::ReadPreference(ReadPreference::Primary))
        .await;
    let mut stream = match opened {
        Ok(stream) => stream,
        Err(error) => {
            failed(&listener, deployment.describe(&error)).await;
            return if outcome::lacks_change_streams(&error) {
                End::Lacking
            } else if outcome::is_reply(&error) {
                End::Refused
            } else {
                End::Broken
            };
        }
    };
    tell(&listener, Heard::Opened).await;
    loop {
        alive.send_replace(());
        match stream.next_if_any().await {
            Ok(Some(event)) => tell(&listener, Heard::Change(Box::new(event))).await,
            Ok(None) if stream.is_alive() => tell(&listener, Heard::Alive).await,
            // The collection was dropped or renamed: open anew, then read.
            Ok(None) => {
                tell(&listener, Heard::Lost).await;
                return End::Broken;
            }
            Err(error) => {
                failed(&listener, deployment.describe(&error)).await;
                return End::Broken;
            }
        }
    }
}

async fn tell<L: Listener>(listener: &L, heard: Heard) {
    let hint = listener.hint(heard);
    // The receiver is gone only when its process ends, or has no use for news.
    let _ = listener.news().send(News::Watch(hint)).await;
}

async fn failed<L: Listener>(listener: &L, failure: Failure) {
    let _ = listener.news().send(News::WatchFailed(failure)).await;
    tell(listener, Heard::Lost).await;
}
