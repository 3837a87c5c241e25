//! Records every change to a collection, with the documents before and after the change.

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use leasehold_trace_check::changes::{Begun, Change, Edit, Line, SCHEMA, to_json};
use mongodb::bson::oid::ObjectId;
use mongodb::bson::{Bson, Document, doc};
use mongodb::change_stream::ChangeStream;
use mongodb::change_stream::event::{ChangeStreamEvent, OperationType, ResumeToken};
use mongodb::error::{Error, ErrorKind, WriteFailure};
use mongodb::options::{
    Acknowledgment, ChangeStreamPreAndPostImages, FullDocumentBeforeChangeType, FullDocumentType,
    WriteConcern,
};
use mongodb::{Client, Collection};
use tokio::task::JoinHandle;

use crate::{Failure, shared};

/// Maximum wait for the next reply on the stream. A server without changes replies once a second; a
/// frozen server never replies.
const ANSWER_MAX: Duration = Duration::from_secs(5);
/// Maximum time without a usable server, longer than any election or partition in the tests.
const AWAY_MAX: Duration = Duration::from_secs(180);
const RETRY: Duration = Duration::from_millis(50);
/// The field in the `_id` of the end marker.
const MARKER: &str = "end_of_recording";
/// Codes of errors that mean a gap in the recording: a pre- or post-image is missing, or the oplog
/// no longer contains the resume token.
const GAPS: [i32; 4] = [47, 136, 280, 286];
const NAMESPACE_EXISTS: i32 = 48;
const DUPLICATE_KEY: i32 = 11000;

/// A running recording of a collection's changes. The file is complete after
/// [`drain`](Self::drain); an incomplete file proves nothing.
///
/// ```no_run
/// # async fn example(set: &leasehold_testbed::ReplicaSet, traces: &[&std::path::Path]) {
/// use leasehold_testbed::{Changes, trace};
///
/// let mut changes = Changes::record(&set.uri(), "leasehold", "leases", "changes").await;
/// // Daemons and jobs run, with LEASEHOLD_TRACE, and end.
/// changes.drain().await.unwrap();
/// trace::check(&[changes.path()], traces).unwrap();
/// # }
/// ```
#[derive(Debug)]
pub struct Changes {
    log: Arc<Log>,
    documents: Collection<Document>,
    marker: ObjectId,
    task: Option<JoinHandle<Result<(), Failure>>>,
}

#[derive(Debug)]
struct Log {
    path: PathBuf,
    /// Name of the collection as `<database>.<collection>`.
    collection: String,
    /// The open file, and the number of changes in it.
    file: Mutex<(File, u64)>,
}

impl Log {
    fn write(&self, line: &Line) {
        let mut file = self.file.lock().unwrap_or_else(PoisonError::into_inner);
        file.1 += u64::from(matches!(line, Line::Change(_)));
        let text = serde_json::to_string(line).expect("a line is JSON");
        let written = file.0.write_all(format!("{text}\n").as_bytes());
        written.unwrap_or_else(|error| panic!("write {:?}: {error}", self.path));
    }

    fn changes(&self) -> u64 {
        self.file.lock().unwrap_or_else(PoisonError::into_inner).1
    }

    fn document(&self, name: &str) -> String {
        format!("{}/{name}", self.collection)
    }
}

impl Changes {
    /// Begins to record a collection into a new file. Creates the collection if it is missing. The
    /// recording contains every change that is made after this call returns. The user of the URI
    /// needs the rights to change the collection's options, to watch the collection and to write to
    /// it.
    ///
    /// # Panics
    /// If the server refuses, because the server is not in a replica set or is older than MongoDB
    /// 6.0.
    pub async fn record(
        uri: &str,
        database: &str,
        collection: &str,
        path: impl Into<PathBuf>,
    ) -> Self {
        let path = path.into();
        let recorded = Self::try_record(uri, database, collection, path.clone()).await;
        recorded.unwrap_or_else(|failure| panic!("record changes into {path:?}: {failure}"))
    }

    async fn try_record(
        uri: &str,
        database: &str,
        collection: &str,
        path: PathBuf,
    ) -> Result<Self, Failure> {
        let client = shared::client(uri).await?;
        enable_images(&client, database, collection).await?;
        let file = File::create(&path).map_err(|error| Failure::new(error.to_string()))?;
        let log = Arc::new(Log {
            path,
            collection: format!("{database}.{collection}"),
            file: Mutex::new((file, 0)),
        });
        log.write(&Line::Begun(Begun {
            schema: SCHEMA,
            collection: log.collection.clone(),
        }));
        let documents = client.database(database).collection(collection);
        let marker = ObjectId::new();
        let stream = open(&documents, None).await?;
        let recorder = Recorder {
            log: Arc::clone(&log),
            documents: documents.clone(),
            marker,
        };
        let task = shared::spawn(recorder.run(stream));
        Ok(Self {
            log,
            documents,
            marker,
            task: Some(task),
        })
    }

    /// Returns the file.
    pub fn path(&self) -> &Path {
        &self.log.path
    }

    /// Declares that the caller is about to edit, delete or restore this document once, by hand.
    /// Without this declaration, a change that no call explains is a violation.
    pub fn declare(&self, name: &str, why: &str) {
        self.log.write(&Line::Edit(Edit {
            document: self.log.document(name),
            why: why.to_owned(),
        }));
    }

    /// Withdraws the latest declaration for this document, because the edit changed nothing.
    /// Otherwise the declaration would explain some other change.
    pub fn withdraw(&self, name: &str) {
        self.log.write(&Line::Withdrawn {
            document: self.log.document(name),
        });
    }

    /// Ends the recording once it contains every change made before this call. Returns the number
    /// of changes.
    ///
    /// # Errors
    /// If changes were missed. The file also contains the reason.
    pub async fn drain(&mut self) -> Result<u64, Failure> {
        let Some(task) = self.task.take() else {
            return Ok(self.log.changes());
        };
        let abort = task.abort_handle();
        let drained = tokio::time::timeout(2 * AWAY_MAX, self.marked(task));
        let drained = drained.await.unwrap_or_else(|_| {
            abort.abort();
            Err(Failure::new("reached the end of the recording"))
        });
        let changes = self.log.changes();
        match drained {
            Ok(()) => self.log.write(&Line::Drained { changes }),
            Err(failure) => {
                self.log.write(&Line::Lost(failure.to_string()));
                return Err(failure);
            }
        }
        Ok(changes)
    }

    async fn marked(&self, task: JoinHandle<Result<(), Failure>>) -> Result<(), Failure> {
        let mark = doc! { "_id": { MARKER: self.marker } };
        let majority = WriteConcern::builder().w(Acknowledgment::Majority).build();
        let patience = Patience::new();
        // A recorder that has ended needs no marker.
        while !task.is_finished() {
            let inserted = self.documents.insert_one(&mark);
            match inserted.write_concern(majority.clone()).await {
                Err(error) if code(&error) != Some(DUPLICATE_KEY) => patience.after(error).await?,
                _ => break,
            }
        }
        let ended = task.await;
        // All readers ignore a leftover marker.
        let _ = self.documents.delete_one(mark).await;
        ended.unwrap_or_else(|error| Err(Failure::new(format!("the recorder: {error}"))))
    }
}

impl Drop for Changes {
    fn drop(&mut self) {
        if let Some(task) = &self.task {
            task.abort();
        }
    }
}

struct Recorder {
    log: Arc<Log>,
    documents: Collection<Document>,
    marker: ObjectId,
}

type Stream = ChangeStream<ChangeStreamEvent<Document>>;

impl Recorder {
    /// Records changes until the recorder reads the end marker.
    async fn run(self, mut stream: Stream) -> Result<(), Failure> {
        let mut token = stream.resume_token();
        loop {
            match tokio::time::timeout(ANSWER_MAX, stream.next_if_any()).await {
                Ok(Ok(Some(event))) => {
                    if self.event(event)? {
                        return Ok(());
                    }
                    token = stream.resume_token();
                }
                Ok(Ok(None)) => token = stream.resume_token(),
                Ok(Err(error)) if is_gap(&error) => return Err(error.into()),
                // If a reply with a change is lost, the stream resumes from the token and reports
                // the change again.
                Ok(Err(_)) | Err(_) => stream = self.reopened(token.clone()).await?,
            }
        }
    }

    /// Opens the stream after the last recorded change.
    async fn reopened(&self, token: Option<ResumeToken>) -> Result<Stream, Failure> {
        let patience = Patience::new();
        loop {
            let opened = open(&self.documents, token.clone());
            match tokio::time::timeout(ANSWER_MAX, opened).await {
                Ok(Ok(stream)) => return Ok(stream),
                Ok(Err(error)) => patience.after(error).await?,
                Err(_) => patience.after(Error::custom("no answer")).await?,
            }
        }
    }

    /// Records a change. Returns true if the change is the end marker.
    fn event(&self, event: ChangeStreamEvent<Document>) -> Result<bool, Failure> {
        let operation = match event.operation_type {
            OperationType::Insert => "insert",
            OperationType::Update => "update",
            OperationType::Replace => "replace",
            OperationType::Delete => "delete",
            OperationType::Drop
            | OperationType::Rename
            | OperationType::DropDatabase
            | OperationType::Invalidate => {
                return Err(Failure::new("the collection was dropped or renamed"));
            }
            _ => return Ok(false),
        };
        let key = event.document_key.as_ref().and_then(|key| key.get("_id"));
        let name = match key {
            Some(Bson::String(name)) => name,
            Some(Bson::Document(id)) => {
                return Ok(id.get_object_id(MARKER).ok() == Some(self.marker));
            }
            // Names of leases and locks are strings, so this document is neither.
            _ => return Ok(false),
        };
        let at = event.cluster_time.map(|at| (at.time, at.increment));
        self.log.write(&Line::Change(Change {
            document: self.log.document(name),
            operation: operation.to_owned(),
            at: at.unwrap_or_default(),
            before: event.full_document_before_change.map(to_json),
            after: event.full_document.map(to_json),
        }));
        Ok(false)
    }
}

async fn open(
    documents: &Collection<Document>,
    token: Option<ResumeToken>,
) -> Result<Stream, Error> {
    let stream = documents
        .watch()
        .full_document(FullDocumentType::Required)
        .full_document_before_change(FullDocumentBeforeChangeType::Required);
    match token {
        Some(token) => stream.resume_after(token).await,
        None => stream.await,
    }
}

/// Enables the images of documents before and after each change. Creates the collection if it is
/// missing.
async fn enable_images(client: &Client, database: &str, collection: &str) -> Result<(), Error> {
    let database = client.database(database);
    let images = ChangeStreamPreAndPostImages::builder()
        .enabled(true)
        .build();
    let created = database
        .create_collection(collection)
        .change_stream_pre_and_post_images(images)
        .await;
    match created {
        Err(error) if code(&error) == Some(NAMESPACE_EXISTS) => {
            let on = doc! { "enabled": true };
            let change = doc! { "collMod": collection, "changeStreamPreAndPostImages": on };
            database.run_command(change).await.map(drop)
        }
        created => created,
    }
}

struct Patience {
    end: Instant,
}

impl Patience {
    fn new() -> Self {
        Self {
            end: Instant::now() + AWAY_MAX,
        }
    }

    /// Waits before another attempt. Returns the error if a retry cannot help or [`AWAY_MAX`] has
    /// passed.
    async fn after(&self, error: Error) -> Result<(), Failure> {
        if is_gap(&error) || Instant::now() > self.end {
            return Err(error.into());
        }
        tokio::time::sleep(RETRY).await;
        Ok(())
    }
}

fn is_gap(error: &Error) -> bool {
    code(error).is_some_and(|code| GAPS.contains(&code))
}

fn code(error: &Error) -> Option<i32> {
    match error.kind.as_ref() {
        ErrorKind::Command(command) => Some(command.code),
        ErrorKind::Write(WriteFailure::WriteError(write)) => Some(write.code),
        _ => None,
    }
}
