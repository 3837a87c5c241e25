//! Writes the inputs and effects of state machines to a file, for tests and bug reports. Each turn
//! is written before its effects are carried out, so the trace of a killed process is complete.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

use leasehold_core::election::{BootTime, CallId, Randomness};
use leasehold_core::trace::{Answered, Bits, Event, Record, SCHEMA, Sent, Started, TurnRecord};
use serde::Serialize;

use crate::randomness::KernelRandomness;
use crate::store::mongo::lock;

pub use leasehold_core::trace::{GuardOptions, Guarded, Kind};

/// Number of state machines that this process has started.
static MACHINES: AtomicU32 = AtomicU32::new(0);

/// A trace file that several processes can append to.
#[derive(Debug, Clone)]
pub struct Trace {
    /// `None` after a write has failed.
    file: Arc<Mutex<Option<File>>>,
}

impl Trace {
    /// Opens a file, or creates it with access for this user only.
    pub fn open(path: &Path) -> io::Result<Self> {
        let mut options = OpenOptions::new();
        let file = options.append(true).create(true).mode(0o600).open(path)?;
        Ok(Self::new(file))
    }

    /// Appends to an open file.
    pub fn new(file: File) -> Self {
        Self {
            file: Arc::new(Mutex::new(Some(file))),
        }
    }

    /// Writes a line. A failed write ends the trace, because a trace must not have gaps.
    fn write(&self, record: &impl Serialize) {
        let mut file = lock(&self.file);
        let Some(open) = file.as_mut() else { return };
        let line = serde_json::to_string(record).map_err(io::Error::other);
        let written = line.and_then(|line| open.write_all(format!("{line}\n").as_bytes()));
        if let Err(error) = written {
            tracing::warn!(%error, "trace is incomplete and ends here");
            *file = None;
        }
    }
}

/// A source of random bits for one state machine, and its trace if a trace file is configured.
#[derive(Debug)]
pub struct MachineTrace {
    file: Option<Trace>,
    machine: String,
    number: u64,
    /// Random bits drawn since the last record.
    drawn: Vec<Bits>,
}

impl Randomness for MachineTrace {
    fn bits(&mut self) -> u128 {
        let bits = KernelRandomness.bits();
        if self.file.is_some() {
            self.drawn.push(Bits(bits));
        }
        bits
    }
}

impl MachineTrace {
    /// Creates a trace before its state machine exists.
    pub fn new(file: Option<Trace>) -> Self {
        Self {
            file,
            machine: String::new(),
            number: 0,
            drawn: Vec::new(),
        }
    }

    /// Writes the record of a new state machine, with the name of its document.
    pub fn started(
        &mut self,
        (kind, document): (Kind, String),
        now: BootTime,
        options: &impl Serialize,
    ) {
        let number = MACHINES.fetch_add(1, Ordering::Relaxed);
        self.machine = format!("{}-{number}-{}", std::process::id(), now.as_nanos());
        let random = std::mem::take(&mut self.drawn);
        self.event(|| {
            Event::<_, (), ()>::Started(Started {
                schema: SCHEMA,
                kind,
                document,
                clock: leasehold_clock::boot_clock().ok().flatten(),
                now,
                random,
                options,
            })
        });
    }

    /// Copies the input for [`MachineTrace::turn`], because the state machine consumes it.
    pub(crate) fn copy(&self, input: &impl Serialize) -> Option<serde_json::Value> {
        let copied = self.file.as_ref().map(|_| serde_json::to_value(input));
        // JSON can represent every value of an input type.
        copied.and_then(Result::ok)
    }

    /// Writes a turn, before its effects are carried out.
    pub fn turn<E: Serialize>(&mut self, now: BootTime, input: &impl Serialize, effects: &[E]) {
        let random = std::mem::take(&mut self.drawn);
        self.event(|| {
            Event::<(), _, _>::Turn(TurnRecord {
                now,
                random,
                input,
                effects: effects.iter().collect(),
            })
        });
    }

    pub(crate) fn sent(&mut self, call: CallId) {
        self.event(|| {
            let at = leasehold_clock::boot_now();
            Event::<(), (), ()>::Sent(Sent { call, at })
        });
    }

    pub(crate) fn answered(&mut self, call: CallId, outcome: &str, late: bool) {
        self.event(|| {
            Event::<(), (), ()>::Answered(Answered {
                call,
                at: leasehold_clock::boot_now(),
                outcome: outcome.to_owned(),
                late,
            })
        });
    }

    fn event<O: Serialize, I: Serialize, E: Serialize>(
        &mut self,
        event: impl FnOnce() -> Event<O, I, E>,
    ) {
        if let Some(file) = &self.file {
            file.write(&Record {
                machine: self.machine.clone(),
                number: self.number,
                event: event(),
            });
            self.number += 1;
        }
    }
}
