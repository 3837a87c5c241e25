use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use mongodb::Collection;
use mongodb::action::Watch;
use mongodb::bson::{Bson, Document, Timestamp, doc};
use mongodb::change_stream::ChangeStream;
use mongodb::change_stream::event::ChangeStreamEvent;
use mongodb::options::ReadConcern;
use mongodb::raw_batch_cursor::RawBatchCursor;
use tokio::sync::{Notify, mpsc, watch};
use tokio::task::JoinSet;

use super::connection::{Deployment, SendError};
use super::{hints, outcome, primary};
use crate::store::{Failure, StoreEvent};
use leasehold_core::election::{Released, Timings};

const AWAIT_MAX: Duration = Duration::from_secs(10);
/// Interval between attempts while change streams are refused. An operator may grant the missing
/// right.
const NO_WATCH_RETRY: Duration = Duration::from_secs(60);
/// Number of consecutive refusals, with any error, before retries slow down to [`NO_WATCH_RETRY`].
const REFUSALS_MAX: u32 = 10;
/// Maximum size of a part of an event. For a larger part, the document is read instead.
const PART_MAX: i32 = 128 * 1024;

#[derive(Debug)]
pub(super) enum StreamEvent {
    /// The stream is open. Every change appears in a read that starts now, or in a later event.
    Opened,
    /// The stream is open. It reports each change since [`StreamHandler::since`].
    OpenedSince,
    Change(Box<ChangeStreamEvent<Document>>),
    Alive,
    HintsOpened,
    /// Hints arrived. Contains the newest announced release, if any.
    Hint(Option<Released>),
    /// The stream or cursor is closed, or could not be opened.
    Lost,
}

pub(super) enum Source {
    Stream,
    Hints(Box<RawBatchCursor>),
    /// No events, because the collection is polled.
    Nothing,
}

pub(super) trait StreamHandler: Clone + Send + Sync + 'static {
    type Hint: Send + 'static;

    fn deployment(&self) -> &Arc<Deployment>;
    fn pipeline(&self) -> Vec<Document>;
    /// Returns the operation time at which the next stream starts. By default (`None`), the stream
    /// starts after the newest majority-committed write.
    fn since(&self) -> Option<Timestamp> {
        None
    }
    fn await_max(&self, timings: Timings) -> Duration {
        await_max(timings)
    }
    fn interpret(&self, event: StreamEvent) -> Self::Hint;
    /// Chooses the source. If the source is hints, opens their cursor.
    fn source(&self, _: &Collection<Document>) -> impl Future<Output = Source> + Send {
        async { Source::Stream }
    }
    fn events(&self) -> &mpsc::Sender<StoreEvent<Self::Hint>>;
}

pub(super) fn ends() -> Document {
    doc! { "operationType": { "$in": ["drop", "rename", "dropDatabase", "invalidate"] } }
}

/// Selects events of documents with this `_id`, and events that end a stream. Removes large parts
/// from the events.
pub(super) fn events_of(id: impl Into<Bson>) -> Vec<Document> {
    let small = |part: &str| {
        let fits = doc! { "$lt": [{ "$bsonSize": part }, PART_MAX] };
        doc! { "$cond": [fits, part, "$$REMOVE"] }
    };
    let document = doc! { "documentKey._id": id.into() };
    vec![
        doc! { "$match": { "$or": [document, ends()] } },
        doc! { "$set": {
            "fullDocument": small("$fullDocument"),
            "updateDescription": small("$updateDescription"),
        } },
    ]
}

/// Returns how long the server may hold a getMore without events. This is at most a third of the
/// lease duration, because the store's state counts as unknown after a lease duration without an
/// answer.
pub(super) fn await_max(timings: Timings) -> Duration {
    AWAIT_MAX.min(timings.lease_duration() / 3)
}

enum StreamEnd {
    Broken,
    /// Another deployment answers.
    Elsewhere,
    Refused,
    /// The deployment has no change streams.
    Lacking,
    Silent,
    Superseded,
}

/// Follows the source until dropped. Opens a new stream each time `reopen` is notified, and first
/// aborts a hanging stream to free its connection. Unlike a write, a getMore may be dropped.
pub(super) async fn watch(handler: impl StreamHandler, reopen: &Notify) {
    let mut changes = handler.deployment().timings.subscribe();
    let mut refusals = 0;
    let mut clients = handler.deployment().clients.subscribe();
    loop {
        let timings = *changes.borrow_and_update();
        let silence_max = handler.await_max(timings) + timings.operation_timeout();
        let (signs, mut alive) = watch::channel(());
        // Dropping the set aborts the stream.
        let mut stream = JoinSet::new();
        stream.spawn(follow(handler.clone(), signs));
        let end = loop {
            tokio::select! {
                sign = tokio::time::timeout(silence_max, alive.changed()) => match sign {
                    Ok(Ok(())) => refusals = 0,
                    // The stream's task has finished, or the driver panicked.
                    Ok(Err(_)) => break match stream.join_next().await {
                        Some(Ok(end)) => end,
                        Some(Err(_)) | None => StreamEnd::Broken,
                    },
                    Err(_) => break StreamEnd::Silent,
                },
                () = reopen.notified() => break StreamEnd::Superseded,
                // Reopened, because a stream cannot change its maximum wait for a getMore.
                Ok(()) = changes.changed() => break StreamEnd::Superseded,
            }
        };
        drop(stream);
        let is_elsewhere = matches!(end, StreamEnd::Elsewhere);
        let pause = match end {
            StreamEnd::Superseded => continue,
            StreamEnd::Silent => {
                let kind = "the change stream does not answer";
                let detail = "the server, the network or this process hangs; opening a new stream";
                failed(&handler, Failure::new(kind, detail)).await;
                continue;
            }
            StreamEnd::Broken | StreamEnd::Elsewhere => timings.retry_interval(),
            StreamEnd::Refused if refusals < REFUSALS_MAX => {
                refusals += 1;
                timings.retry_interval()
            }
            StreamEnd::Refused | StreamEnd::Lacking => NO_WATCH_RETRY.max(timings.retry_interval()),
        };
        clients.mark_unchanged();
        tokio::select! {
            () = tokio::time::sleep(pause) => {}
            () = reopen.notified() => {}
            // A new client has logged in, perhaps with different rights. While another replica set
            // answers, new clients are ignored, because each retry of a call creates a client.
            Ok(()) = clients.changed(), if !is_elsewhere => {}
        }
    }
}

async fn follow<L: StreamHandler>(handler: L, alive: watch::Sender<()>) -> StreamEnd {
    let deployment = handler.deployment();
    let collection = match deployment.collection().await {
        Ok(collection) => collection,
        Err(error) => {
            // The stream must report this refusal now, because the next store call clears it.
            if let SendError::Elsewhere(_) = error {
                failed(&handler, deployment.failure(&error)).await;
                return StreamEnd::Elsewhere;
            }
            return StreamEnd::Broken;
        }
    };
    let opened = match handler.source(&collection).await {
        Source::Stream => open(&handler, &collection).await,
        Source::Hints(cursor) => Ok((Opened::Hints(cursor), StreamEvent::HintsOpened)),
        Source::Nothing => {
            report(&handler, StreamEvent::Lost).await;
            return StreamEnd::Lacking;
        }
    };
    let (mut opened, event) = match opened {
        Ok(opened) => opened,
        Err(error) => {
            failed(&handler, deployment.describe(&error)).await;
            deployment.stream_failed(&error).await;
            return if outcome::lacks_change_streams(&error) {
                StreamEnd::Lacking
            } else if outcome::is_reply(&error) {
                StreamEnd::Refused
            } else {
                StreamEnd::Broken
            };
        }
    };
    report(&handler, event).await;
    loop {
        alive.send_replace(());
        match opened.next().await {
            Ok(Some(event)) => report(&handler, event).await,
            Ok(None) => {
                report(&handler, StreamEvent::Lost).await;
                return StreamEnd::Broken;
            }
            Err(error) => {
                let failure = deployment.describe(&error);
                match opened {
                    Opened::Stream(_) => {
                        failed(&handler, failure).await;
                        deployment.stream_failed(&error).await;
                    }
                    Opened::Hints(_) => {
                        let failed = StoreEvent::HintsFailed(failure);
                        let _ = handler.events().send(failed).await;
                        report(&handler, StreamEvent::Lost).await;
                    }
                }
                return StreamEnd::Broken;
            }
        }
    }
}

enum Opened {
    Stream(Box<ChangeStream<ChangeStreamEvent<Document>>>),
    Hints(Box<RawBatchCursor>),
}

impl Opened {
    /// Returns the next event; `None` if the collection was dropped or renamed.
    async fn next(&mut self) -> Result<Option<StreamEvent>, mongodb::error::Error> {
        match self {
            Self::Stream(stream) => Ok(match stream.next_if_any().await? {
                Some(event) => Some(StreamEvent::Change(Box::new(event))),
                None => stream.is_alive().then_some(StreamEvent::Alive),
            }),
            Self::Hints(cursor) => {
                let batch = cursor.next().await.transpose()?;
                Ok(batch.map(|batch| match batch.doc_slices() {
                    Ok(hints) if !hints.is_empty() => StreamEvent::Hint(hints::released(hints)),
                    Ok(_) | Err(_) => StreamEvent::Alive,
                }))
            }
        }
    }
}

/// Opens a stream after the newest majority-acknowledged write. By default, it would open after the
/// primary's newest write, which a majority read may not return yet.
async fn open<L: StreamHandler>(
    handler: &L,
    collection: &Collection<Document>,
) -> Result<(Opened, StreamEvent), mongodb::error::Error> {
    let deployment = handler.deployment();
    let (since, event) = match handler.since() {
        Some(since) => (Some(since), StreamEvent::OpenedSince),
        None => {
            let newest = deployment.read_time(collection, "", ReadConcern::majority());
            let newest = newest.await?;
            (newest.map(after), StreamEvent::Opened)
        }
    };
    let mut opening = opening(collection, handler.pipeline());
    if let Some(since) = since {
        opening = opening.start_at_operation_time(since);
    }
    let stream = opening.max_await_time(handler.await_max(deployment.timings()));
    Ok((Opened::Stream(Box::new(stream.await?)), event))
}

/// Prepares a change stream of majority-acknowledged writes, without opening it.
pub(super) fn opening(collection: &Collection<Document>, pipeline: Vec<Document>) -> Watch<'_> {
    collection
        .watch()
        .pipeline(pipeline)
        .read_concern(ReadConcern::majority())
        .selection_criteria(primary())
}

fn after(time: Timestamp) -> Timestamp {
    let (increment, overflows) = time.increment.overflowing_add(1);
    let time = time.time.saturating_add(overflows.into());
    Timestamp { time, increment }
}

async fn report<L: StreamHandler>(handler: &L, event: StreamEvent) {
    let hint = handler.interpret(event);
    let _ = handler.events().send(StoreEvent::Watch(hint)).await;
}

async fn failed<L: StreamHandler>(handler: &L, failure: Failure) {
    let failed = StoreEvent::WatchFailed(failure);
    let _ = handler.events().send(failed).await;
    report(handler, StreamEvent::Lost).await;
}
