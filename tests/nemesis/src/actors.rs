//! The programs that the nemesis runs. The programs work while they have authority, and record
//! their work in a journal.
//!
//! Each program reads the clock, then writes a line with that time. A line therefore proves that
//! its writer relied on the token at that time, even if the writer was frozen before the write.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use leasehold_testbed::daemon::{boottime_ns, leads_at, valid_until_ns};
use serde_json::Value;

use crate::embedder::{Embedder, Resident};
use crate::hand_made::Holder;

/// Interval between the lines that a working program writes.
const PACE: Duration = Duration::from_millis(20);

/// A program that the nemesis runs.
#[derive(Debug, Clone, clap::Subcommand)]
pub(crate) enum Actor {
    /// The command that a daemon supervises.
    Child {
        /// Journal to which the program appends its lines.
        #[arg(long)]
        journal: PathBuf,
    },
    /// A client that reads the status file of a daemon.
    Sidecar {
        /// Journal to which the program appends its lines.
        #[arg(long)]
        journal: PathBuf,
        /// The status directory.
        #[arg(long)]
        directory: PathBuf,
        /// Identity of the daemon.
        #[arg(long)]
        identity: String,
    },
    /// A command that runs under a lock.
    Job(Work),
    /// A program that acquires the lock once through the library, and writes again after the
    /// release.
    Embedder(Embedder),
    /// A program that uses the library to acquire and release a lock repeatedly.
    Resident(Resident),
    /// A program that uses another kind of lock.
    Rival(Holder),
}

/// Options of a program that works with a token.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct Work {
    /// Journal to which the program appends its lines.
    #[arg(long)]
    pub(crate) journal: PathBuf,
    /// Identity of the job.
    #[arg(long)]
    pub(crate) identity: String,
    /// Duration of the work, in milliseconds.
    #[arg(long)]
    millis: u64,
}

impl Work {
    pub(crate) fn journal(&self) -> std::io::Result<Writer> {
        Writer::open(&self.journal, &self.identity)
    }

    /// Returns the time at which work that starts now must end.
    pub(crate) fn end(&self) -> Instant {
        Instant::now() + Duration::from_millis(self.millis)
    }
}

impl Actor {
    /// Runs the program. Some programs never return.
    pub(crate) fn run(self) -> Result<(), Box<dyn std::error::Error>> {
        match self {
            Self::Embedder(embedder) => embedder.run(),
            Self::Resident(resident) => resident.run(),
            Self::Rival(holder) => holder.run(),
            Self::Child { journal } => {
                let mut journal = Writer::open(&journal, &variable("LEASEHOLD_IDENTITY"))?;
                let token = variable("LEASEHOLD_TOKEN");
                loop {
                    journal.line(boottime_ns(), &token)?;
                    std::thread::sleep(PACE);
                }
            }
            Self::Sidecar {
                journal,
                directory,
                identity,
            } => {
                let mut journal = Writer::open(&journal, &identity)?;
                loop {
                    if let Some((now, token)) = leader(&directory) {
                        journal.line(now, &token.to_string())?;
                    }
                    std::thread::sleep(PACE);
                }
            }
            Self::Job(work) => {
                let mut journal = work.journal()?;
                let token = variable("LEASEHOLD_TOKEN");
                let end = work.end();
                loop {
                    journal.line(boottime_ns(), &token)?;
                    if Instant::now() > end {
                        return Ok(());
                    }
                    std::thread::sleep(PACE);
                }
            }
        }
    }
}

/// Reads the status file as described in docs/reading-status.md. If the daemon leads, returns the
/// token and the time of the deadline check.
fn leader(directory: &Path) -> Option<(u64, i64)> {
    let text = std::fs::read_to_string(directory.join("status.json")).ok()?;
    let status: Value = serde_json::from_str(&text).ok()?;
    valid_until_ns(&status)?;
    let now = boottime_ns();
    let token = status["token"].as_i64()?;
    leads_at(&status, now).then_some((now, token))
}

fn variable(name: &str) -> String {
    std::env::var(name).unwrap_or_else(|_| "unset".to_owned())
}

/// Appends whole lines: `<CLOCK_BOOTTIME in ns> <token> <writer> <process id>`.
pub(crate) struct Writer {
    file: File,
    identity: String,
}

impl Writer {
    pub(crate) fn open(path: &Path, identity: &str) -> std::io::Result<Self> {
        Ok(Self {
            file: OpenOptions::new().append(true).create(true).open(path)?,
            identity: identity.to_owned(),
        })
    }

    pub(crate) fn line(&mut self, now: u64, token: &str) -> std::io::Result<()> {
        let line = format!("{now} {token} {} {}\n", self.identity, std::process::id());
        self.file.write_all(line.as_bytes())
    }
}
