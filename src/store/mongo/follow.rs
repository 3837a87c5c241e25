//! Following a change stream for ever, from one failure to the next attempt.
//!
//! What an event means is its listener's business.

use std::sync::Arc;
use std::time::Duration;

use mongodb::bson::Document;
use mongodb::change_stream::event::ChangeStreamEvent;
use mongodb::options::{ReadConcern, ReadPreference, SelectionCriteria};
use tokio::sync::{mpsc, watch};

use super::connection::Deployment;
use super::outcome;
use crate::store::{Failure, News};

/// How long the server holds a getMore without news, at most.
const AWAIT_MAX: Duration = Duration::from_secs(10);
/// How long to wait before change streams are asked for again where there are
/// none: a standalone server may become a replica set, a role may get the right.
const NO_WATCH_RETRY: Duration = Duration::from_secs(60);

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
    /// How often, and how soon again.
    fn pace(&self) -> Pace;
    /// What it means.
    fn hint(&self, heard: Heard) -> Self::Hint;
    /// Where the hints go.
    fn news(&self) -> &mpsc::Sender<News<Self::Hint>>;
}

/// The times of a listener.
#[derive(Debug, Clone, Copy)]
pub(super) struct Pace {
    /// From a failed stream to the next attempt.
    pub(super) retry_interval: Duration,
    /// The stream gives a sign of life three times in this, since a store that
    /// says nothing for so long counts as not read.
    pub(super) lease_duration: Duration,
}

impl Pace {
    fn await_max(self) -> Duration {
        AWAIT_MAX.min(self.lease_duration / 3)
    }
}

/// Follows for ever. To be dropped by who does not want to know any more: no
/// call of the driver goes with it, and the stream ends by itself.
///
/// A stream that falls silent is left to itself and another one is opened
/// beside it: a driver future is never dropped to time out.
pub(super) async fn watch(listener: impl Listener) {
    let pace = listener.pace();
    let silence_max = pace.await_max() + listener.deployment().operation_timeout();
    loop {
        let (signs, mut alive) = watch::channel(());
        let stream = tokio::spawn(follow(listener.clone(), signs));
        // Ends when the stream's task does, which drops the sender.
        let silent = loop {
            match tokio::time::timeout(silence_max, alive.changed()).await {
                Ok(Ok(())) => {}
                Ok(Err(_)) => break false,
                Err(_) => break true,
            }
        };
        drop(alive);
        let pause = if silent {
            let failure = Failure::new("the change stream does not answer", "");
            failed(&listener, failure).await;
            Duration::ZERO
        } else {
            stream.await.unwrap_or(pace.retry_interval)
        };
        tokio::time::sleep(pause).await;
    }
}

/// One stream until it fails; returns how long to wait before the next.
/// It ends when nobody waits for its signs of life any more: then another
/// took its place, and it has nothing more to say.
async fn follow<L: Listener>(listener: L, alive: watch::Sender<()>) -> Duration {
    let Pace { retry_interval, .. } = listener.pace();
    let deployment = listener.deployment();
    let Ok(collection) = deployment.collection().await else {
        return retry_interval;
    };
    let opened = collection
        .watch()
        .pipeline(listener.pipeline())
        .max_await_time(listener.pace().await_max())
        .read_concern(ReadConcern::majority())
        .selection_criteria(SelectionCriteria::ReadPreference(ReadPreference::Primary))
        .await;
    let superseded = || alive.receiver_count() == 0;
    let mut stream = match opened {
        _ if superseded() => return retry_interval,
        Ok(stream) => stream,
        Err(error) => {
            failed(&listener, deployment.describe(&error)).await;
            return if outcome::lacks_change_streams(&error) {
                NO_WATCH_RETRY
            } else {
                retry_interval
            };
        }
    };
    tell(&listener, Heard::Opened).await;
    while alive.send(()).is_ok() {
        let next = stream.next_if_any().await;
        match next {
            _ if superseded() => break,
            Ok(Some(event)) => tell(&listener, Heard::Change(Box::new(event))).await,
            Ok(None) if stream.is_alive() => tell(&listener, Heard::Alive).await,
            // The collection was dropped or renamed: open anew, then read.
            Ok(None) => {
                tell(&listener, Heard::Lost).await;
                break;
            }
            Err(error) => {
                failed(&listener, deployment.describe(&error)).await;
                break;
            }
        }
    }
    retry_interval
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
