//! Writes what a state machine is given and what it does, for checks after the fact.
//!
//! A turn is written before its effects are carried out, and each line with one write. A killed
//! process has thus recorded everything that it did. The writes are synchronous: a trace is for
//! tests and for reports of bugs.

use std::fmt;
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use leasehold_core::election::{BootTime, CallId, Randomness};
use leasehold_core::trace::{Answered, Bits, Event, Record, SCHEMA, Sent, Started, TurnRecord};
use serde::Serialize;

use crate::randomness::KernelRandomness;

pub use leasehold_core::trace::{GuardOptions, Guarded, Kind};

/// Machines of this process that have begun a trace.
static MACHINES: AtomicU32 = AtomicU32::new(0);

/// A trace file; the machines of any number of processes append to it.
#[derive(Clone)]
pub struct Trace {
    /// `None` after a write has failed.
    file: Arc<Mutex<Option<File>>>,
}

impl Trace {
    /// Opens a file, and creates it for this user alone if it is missing.
    ///
    /// # Errors
    /// The error of the file system.
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

    /// Ends the trace, which would have a gap, when a line cannot be written.
    fn write(&self, record: &impl Serialize) {
        let mut file = self.file.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(open) = file.as_mut() else { return };
        let line = serde_json::to_string(record).map_err(io::Error::other);
        let written = line.and_then(|line| open.write_all(format!("{line}\n").as_bytes()));
        if let Err(error) = written {
            tracing::warn!(%error, "trace is incomplete and ends here");
            *file = None;
        }
    }
}

impl fmt::Debug for Trace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Trace").finish_non_exhaustive()
    }
}

/// The trace of a machine that draws no random bits and makes no store calls.
#[derive(Debug)]
pub struct MachineTrace(Tracer);

impl MachineTrace {
    /// Writes the creation of a machine.
    pub fn started(trace: Trace, kind: Kind, now: BootTime, options: &impl Serialize) -> Self {
        let drawn = (now, Drawn::default());
        Self(Tracer::started(
            Some(trace),
            kind,
            String::new(),
            drawn,
            options,
        ))
    }

    /// Writes a turn, before its effects are carried out.
    pub fn turn<E: Serialize>(&mut self, now: BootTime, input: &impl Serialize, effects: &[E]) {
        let begun = self.0.begin(input);
        self.0.turn(now, begun, effects);
    }
}

/// The random source of a machine; keeps what it draws if there is a trace.
#[derive(Debug, Default)]
pub(crate) struct Drawn {
    kept: Option<Vec<Bits>>,
}

impl Drawn {
    /// The source of a machine with or without a trace.
    pub(crate) fn kept_for(trace: Option<&Trace>) -> Self {
        Self {
            kept: trace.map(|_| Vec::new()),
        }
    }

    fn take(&mut self) -> Vec<Bits> {
        self.kept.as_mut().map(std::mem::take).unwrap_or_default()
    }
}

impl Randomness for Drawn {
    fn bits(&mut self) -> u128 {
        let bits = KernelRandomness.bits();
        if let Some(kept) = &mut self.kept {
            kept.push(Bits(bits));
        }
        bits
    }
}

/// The trace of one machine; without a file, nothing is done.
#[derive(Debug)]
pub(crate) struct Tracer {
    random: Drawn,
    machine: Option<(Trace, String)>,
    /// Records written so far.
    number: u64,
}

/// An input that is about to be handled, as JSON.
pub(crate) struct SerializedInput(Option<serde_json::Value>);

impl Tracer {
    /// Writes the creation of a machine and the `random` bits drawn for it.
    pub(crate) fn started(
        trace: Option<Trace>,
        kind: Kind,
        document: String,
        (now, mut random): (BootTime, Drawn),
        options: &impl Serialize,
    ) -> Self {
        let number = MACHINES.fetch_add(1, Ordering::Relaxed);
        let begun = now.as_nanos();
        let id = format!("{}-{number}-{begun}", std::process::id());
        let bits = random.take();
        let mut tracer = Self {
            random,
            machine: trace.map(|trace| (trace, id)),
            number: 0,
        };
        tracer.event(|| {
            Event::<_, (), ()>::Started(Started {
                schema: SCHEMA,
                kind,
                document,
                clock: leasehold_clock::boot_clock().ok().flatten(),
                now,
                random: bits,
                options,
            })
        });
        tracer
    }

    /// The source of random bits.
    pub(crate) fn random(&mut self) -> &mut Drawn {
        &mut self.random
    }

    /// Keeps an input for [`Tracer::turn`], because the machine consumes it.
    pub(crate) fn begin(&self, input: &impl Serialize) -> SerializedInput {
        let written = self.machine.as_ref().map(|_| serde_json::to_value(input));
        // The types of inputs have no value that JSON cannot express.
        SerializedInput(written.and_then(Result::ok))
    }

    /// Writes a turn, before its effects are carried out.
    pub(crate) fn turn<E: Serialize>(
        &mut self,
        now: BootTime,
        SerializedInput(input): SerializedInput,
        effects: &[E],
    ) {
        let random = self.random.take();
        self.event(|| {
            Event::<(), _, _>::Turn(TurnRecord {
                now,
                random,
                input,
                effects: effects.iter().collect(),
            })
        });
    }

    /// Writes that a store call is about to be handed to the driver.
    pub(crate) fn sent(&mut self, call: CallId) {
        self.event(|| {
            let at = leasehold_clock::boot_now();
            Event::<(), (), ()>::Sent(Sent { call, at })
        });
    }

    /// Writes the outcome of a store call.
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
        if let Some((trace, machine)) = &self.machine {
            trace.write(&Record {
                machine: machine.clone(),
                number: self.number,
                event: event(),
            });
            self.number += 1;
        }
    }
}
