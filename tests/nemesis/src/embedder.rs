//! A program that uses the library: it acquires the lock, works, writes with its fencing token, and
//! releases the lock. Later the program writes again with its old token, as if it had been paused.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use leasehold_mongodb::election::{Identity, ResourceName, TimingSettings, Timings, Token};
use leasehold_mongodb::fenced::{self, Fence, FencedError};
use leasehold_mongodb::locker::Lock;
use leasehold_mongodb::store::mongo::StoreOptions;
use leasehold_mongodb::trace::Trace;
use leasehold_testbed::daemon::boottime_ns;
use mongodb::Client;
use mongodb::bson::{Document, doc};
use serde_json::json;

use crate::actors::{Work, Writer};
use crate::world::LOCKS;

pub(crate) const DATABASE: &str = "application";
pub(crate) const COLLECTION: &str = "effects";
pub(crate) const DOCUMENT: &str = "effect";
pub(crate) const WRITES: &str = "writes";
/// Interval between two writes.
const PACE: Duration = Duration::from_millis(50);
/// Delay between the end of the work and the late write.
const LATE: Duration = Duration::from_millis(300);

/// Options of the program.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct Embedder {
    #[command(flatten)]
    work: Work,
    /// Name of the lock.
    #[arg(long)]
    lock: String,
    /// File with the connection string.
    #[arg(long)]
    uri_file: PathBuf,
    /// lease_duration, renew_deadline, renew_interval, retry_interval and operation_timeout, in
    /// milliseconds.
    #[arg(long, value_delimiter = ',')]
    timings: Vec<u64>,
    /// Path of the trace file.
    #[arg(long)]
    trace: PathBuf,
}

type Failed = Box<dyn std::error::Error>;

impl Embedder {
    pub(crate) fn run(&self) -> Result<(), Failed> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        runtime.block_on(self.work())
    }

    async fn work(&self) -> Result<(), Failed> {
        let uri = std::fs::read_to_string(&self.uri_file)?;
        let client = Client::with_uri_str(&uri).await?;
        let effects = client.database(DATABASE).collection::<Document>(COLLECTION);
        let mut options = StoreOptions::new(uri, Identity::new(self.work.identity.clone())?);
        options.collection = LOCKS.to_owned();
        options.timings = self.timings()?;
        options.trace = Some(Trace::open(&self.trace)?);
        let lock = Lock::new(options, ResourceName::new(self.lock.clone())?);
        let guard = lock.acquire().await?;
        let Some(authority) = guard.authority() else {
            return Err("lost at once".into());
        };
        let token = authority.token;
        let mut journal = self.work.journal()?;
        let mut writes = Writes::open(
            &self.work.journal.with_file_name(WRITES),
            &self.work.identity,
        )?;
        let end = self.work.end();
        while Instant::now() < end && works(&guard, token, &mut journal)? {
            let change = doc! { "$inc": { "count": 1 } };
            let call = boottime_ns();
            let written = guard.update_one(&effects, doc! { "_id": DOCUMENT }, change);
            writes.line(token, call, &written.await)?;
            tokio::time::sleep(PACE).await;
        }
        let released = guard.release().await;
        if fastrand::bool() {
            tokio::time::sleep(LATE).await;
        }
        let change = doc! { "$inc": { "count": 1 } };
        let call = boottime_ns();
        let fence = Fence::new(ResourceName::new(self.lock.clone())?, token);
        let late = fenced::update_one(&effects, doc! { "_id": DOCUMENT }, change, &fence).await;
        writes.line(token, call, &late)?;
        Ok(released?)
    }

    fn timings(&self) -> Result<Timings, Failed> {
        let durations: Vec<_> = self
            .timings
            .iter()
            .copied()
            .map(Duration::from_millis)
            .collect();
        let [
            lease_duration,
            renew_deadline,
            renew_interval,
            retry_interval,
            operation_timeout,
        ] = durations[..]
        else {
            return Err("five durations".into());
        };
        let settings = TimingSettings {
            lease_duration,
            renew_deadline,
            renew_interval,
            retry_interval,
            operation_timeout,
            loss_grace: Duration::ZERO,
        };
        Timings::new(settings).map_err(|errors| format!("{errors:?}").into())
    }
}

/// Options of a program that repeatedly acquires a lock.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct Resident {
    /// Name of both the lock and the collection.
    #[arg(long)]
    name: String,
    /// File with the connection string.
    #[arg(long)]
    uri_file: PathBuf,
}

impl Resident {
    pub(crate) fn run(&self) -> Result<(), Failed> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        runtime.block_on(async {
            let uri = std::fs::read_to_string(&self.uri_file)?;
            let mut options = StoreOptions::new(uri, Identity::new(self.name.clone())?);
            options.collection = self.name.clone();
            let lock = Lock::new(options, ResourceName::new(self.name.clone())?);
            loop {
                // Both calls fail while a fault hits MongoDB. The loop then retries.
                if let Ok(guard) = lock.acquire().await {
                    tokio::time::sleep(PACE).await;
                    let _ = guard.release().await;
                }
                tokio::time::sleep(LATE).await;
            }
        })
    }
}

fn works(
    guard: &leasehold_mongodb::locker::LockGuard,
    token: Token,
    journal: &mut Writer,
) -> std::io::Result<bool> {
    let now = boottime_ns();
    let authority = guard.authority();
    let holds = authority.is_some_and(|a| a.token == token && a.valid_until.as_nanos() > now);
    if holds {
        journal.line(now, &token.get().to_string())?;
    }
    Ok(holds)
}

struct Writes {
    file: File,
    identity: String,
}

impl Writes {
    fn open(path: &Path, identity: &str) -> std::io::Result<Self> {
        Ok(Self {
            file: OpenOptions::new().append(true).create(true).open(path)?,
            identity: identity.to_owned(),
        })
    }

    fn line(
        &mut self,
        token: Token,
        call: u64,
        written: &Result<(), FencedError>,
    ) -> std::io::Result<()> {
        let outcome = match written {
            Ok(()) => "ok",
            Err(FencedError::Refused { .. }) => "failed",
            // The program sent nothing to MongoDB, so the history records no operation.
            Err(FencedError::NotHeld | FencedError::NotExclusive) => return Ok(()),
            Err(_) => "unknown",
        };
        let end = (outcome != "unknown").then(boottime_ns);
        let line = json!({
            "client": self.identity, "object": "exclusive", "kind": "write", "token": token.get(),
            "call": call, "return": end, "outcome": outcome,
        });
        self.file.write_all(format!("{line}\n").as_bytes())
    }
}
