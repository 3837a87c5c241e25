//! Converts the events of a lease or lock to operations with start and end times, for the
//! independent checker (`tests/linearizability`).

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use leasehold_trace_check::Tenure;
use serde_json::{Value, json};

use crate::job::{Begun, Mode, SLOTS};
use crate::journal::Work;

pub(crate) fn of_jobs(lock: &str, works: &[Work], jobs: &[Begun]) -> Vec<Value> {
    let jobs: BTreeMap<_, _> = jobs
        .iter()
        .map(|job| (job.identity.as_str(), job))
        .collect();
    let known = works
        .iter()
        .filter_map(|work| Some((work, jobs.get(work.writer.as_str())?)));
    let operations = known.flat_map(|(work, job)| {
        let mode = match job.mode {
            Mode::Exclusive | Mode::Library | Mode::Writer => "exclusive",
            Mode::Shared => "shared",
            Mode::Slot => "slot",
            Mode::Rival(_) => return Vec::new(),
        };
        let base = |kind: &str, call: u64, end: Option<u64>| {
            json!({
                "client": work.writer, "object": lock, "kind": kind, "token": work.token,
                "mode": mode, "slots": if job.mode == Mode::Slot { SLOTS } else { 0 },
                "call": call, "return": end, "outcome": "ok",
            })
        };
        let end = match job.exited {
            Some((exited, 0)) => base("release", work.last, Some(exited)),
            // The job was killed, lost its lock, or was still running when the run ended.
            _ => base("lost", work.last, None),
        };
        vec![base("acquire", job.started, Some(work.first)), end]
    });
    operations.collect()
}

/// Returns the operations on the lease. A candidate sent its acquisition at most one
/// `renew_deadline` before its authority began. The end of a leadership is unknown.
pub(crate) fn of_leaders(
    lease: &str,
    works: &[Work],
    tenures: &BTreeMap<i64, Tenure>,
    renew_deadline: u64,
) -> Vec<Value> {
    let known = works
        .iter()
        .filter_map(|work| Some((work, tenures.get(&work.token)?)));
    let operations = known.flat_map(|(work, tenure)| {
        let base = |kind: &str, call: u64, end: Option<u64>| {
            json!({
                "client": work.writer, "object": lease, "kind": kind, "token": work.token,
                "mode": "exclusive", "slots": 0, "call": call, "return": end, "outcome": "ok",
            })
        };
        let sent = tenure.from.saturating_sub(renew_deadline);
        [
            base("acquire", sent, Some(work.first)),
            base("lost", work.last, None),
        ]
    });
    operations.collect()
}

pub(crate) fn of_writes(path: &Path) -> Vec<Value> {
    let text = std::fs::read_to_string(path).unwrap_or_default();
    let whole = text
        .split_inclusive('\n')
        .filter_map(|line| line.strip_suffix('\n'));
    whole
        .filter_map(|line| serde_json::from_str(line).ok())
        .collect()
}

/// Writes a history and runs the checker. Returns the checker's output, and true if there is no
/// violation.
pub(crate) fn check(
    program: &Path,
    file: &Path,
    operations: &[Value],
) -> Result<(bool, String), String> {
    let text: String = operations
        .iter()
        .map(|operation| format!("{operation}\n"))
        .collect();
    std::fs::write(file, text)
        .map_err(|error| format!("cannot write {}: {error}", file.display()))?;
    let output = Command::new(program).arg(file).output();
    let output = output.map_err(|error| format!("cannot start {}: {error}", program.display()))?;
    let said = [output.stdout, output.stderr].concat();
    Ok((
        output.status.success(),
        String::from_utf8_lossy(&said).into_owned(),
    ))
}
