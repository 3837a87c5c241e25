//! Hand-made locks on leasehold's replica set: two designs from `tests/comparison`, and a lock that
//! follows ShedLock's rules. The holders behave like typical users: they extend the lock while they
//! work, and assume that they hold the lock until the work has ended.

#[path = "../../comparison/designs/mod.rs"]
#[allow(
    dead_code,
    unused_imports,
    reason = "shared with the tests of these designs"
)]
mod designs;

use std::path::PathBuf;
use std::time::{Duration, Instant};

use leasehold_testbed::daemon::boottime_ns;
use mongodb::bson::{DateTime, Document, doc};
use mongodb::error::Result;
use mongodb::{Client, Collection};

use crate::actors::Work;
use designs::{FindAndModify, HandMade, Terms, TtlIndex};

const PACE: Duration = Duration::from_millis(20);
const POLL: Duration = Duration::from_millis(100);
/// Number of extensions that a holder sends within one lifetime of the lock.
const EXTENSIONS: u32 = 3;

/// The design of a hand-made lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, clap::ValueEnum)]
pub(crate) enum Design {
    /// A document that a TTL index removes.
    TtlIndex,
    /// findAndModify with an expiry condition in the filter.
    FindAndModify,
    /// The algorithm that ShedLock documents for MongoDB, with keep-alive.
    ShedLock,
}

impl Design {
    pub(crate) fn lock(self) -> &'static str {
        match self {
            Self::TtlIndex => "ttl-index",
            Self::FindAndModify => "find-and-modify",
            Self::ShedLock => "shed-lock",
        }
    }
}

/// Options of a holder.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct Holder {
    #[arg(long, value_enum)]
    design: Design,
    #[command(flatten)]
    work: Work,
    /// Lifetime of the lock, in milliseconds.
    #[arg(long)]
    life: u64,
    /// File with the connection string.
    #[arg(long)]
    uri_file: PathBuf,
}

type Failed = Box<dyn std::error::Error>;

impl Holder {
    pub(crate) fn run(&self) -> std::result::Result<(), Failed> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        runtime.block_on(async {
            let uri = std::fs::read_to_string(&self.uri_file)?;
            let client = Client::with_uri_str(uri).await?;
            let terms = Terms {
                collection: client.database("rivals").collection(self.design.lock()),
                name: self.design.lock().to_owned(),
                owner: self.work.identity.clone(),
                life: Duration::from_millis(self.life),
            };
            match self.design {
                Design::TtlIndex => self.hold(TtlIndex(terms)).await,
                Design::FindAndModify => self.hold(FindAndModify(terms)).await,
                Design::ShedLock => self.hold(ShedLock(terms)).await,
            }
        })
    }

    async fn hold(&self, mut lock: impl HandMade) -> std::result::Result<(), Failed> {
        let mut journal = self.work.journal()?;
        while !lock.acquire().await? {
            tokio::time::sleep(POLL).await;
        }
        let end = self.work.end();
        let extensions = async {
            loop {
                tokio::time::sleep(Duration::from_millis(self.life) / EXTENSIONS).await;
                // Ignore errors, because the loop extends the lock again.
                let _ = lock.extend().await;
            }
        };
        let work = async {
            loop {
                journal.line(boottime_ns(), "0")?;
                if Instant::now() > end {
                    return Ok::<_, std::io::Error>(());
                }
                tokio::time::sleep(PACE).await;
            }
        };
        tokio::select! {
            worked = work => worked?,
            () = extensions => {}
        }
        lock.release().await?;
        Ok(())
    }
}

/// ShedLock's algorithm. Each lock has one permanent document with `lockUntil`, `lockedAt` and
/// `lockedBy`.
struct ShedLock(Terms);

impl ShedLock {
    fn until(&self) -> DateTime {
        DateTime::from_system_time(std::time::SystemTime::now() + self.0.life)
    }

    fn locks(&self) -> &Collection<Document> {
        &self.0.collection
    }
}

impl HandMade for ShedLock {
    async fn acquire(&mut self) -> Result<bool> {
        let expired = doc! { "_id": &self.0.name, "lockUntil": { "$lte": DateTime::now() } };
        let lock = doc! { "$set": {
            "lockUntil": self.until(), "lockedAt": DateTime::now(), "lockedBy": &self.0.owner,
        } };
        designs::inserted(
            self.locks()
                .find_one_and_update(expired, lock)
                .upsert(true)
                .await,
        )
    }

    async fn extend(&self) -> Result<()> {
        let mine = doc! {
            "_id": &self.0.name, "lockUntil": { "$gt": DateTime::now() }, "lockedBy": &self.0.owner,
        };
        let later = doc! { "$set": { "lockUntil": self.until() } };
        self.locks().update_one(mine, later).await?;
        Ok(())
    }

    async fn release(&self) -> Result<bool> {
        let free = doc! { "$set": { "lockUntil": DateTime::now() } };
        let released = self.locks().update_one(doc! { "_id": &self.0.name }, free);
        Ok(released.await?.matched_count == 1)
    }
}
