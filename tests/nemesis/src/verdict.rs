//! Checks the traces and journals of all processes at the end of a run.

use std::fs::File;
use std::io::{self, BufReader};
use std::path::{Path, PathBuf};
use std::time::Duration;

use leasehold_testbed::Failure;
use leasehold_testbed::daemon::nanos;
use leasehold_trace_check::{Checked, Checker, Tenure};
use serde_json::Value;

use crate::candidate::{LEASE, SIDECAR};
use crate::embedder;
use crate::history;
use crate::job::{Begun, Mode};
use crate::journal::{self, Rule, Work};
use crate::report::{self, Compared, Lone, Report};
use crate::residents::{Finding, Residents};
use crate::rival::Rival;
use crate::schedule::Story;
use crate::world::{LEASES, LOCKS, Places, Profile, World};

/// Minimum gap between lines that counts as time without work. Workloads write a line every 20 ms.
const GAP: Duration = Duration::from_millis(200);
/// Maximum time until a busy machine schedules a guard that must end its command.
const SCHEDULED_MAX: Duration = Duration::from_millis(200);
const LOCK_RULES: [(Mode, Rule); 3] = [
    (Mode::Exclusive, Rule::Exclusive),
    (Mode::Shared, Rule::Readers),
    (Mode::Slot, Rule::Slots),
];

/// The exit codes for SIGABRT (a panic) and SIGSEGV. The exit code for SIGKILL does not count as a
/// crash, because the daemon also exits with this code if its guard has killed the command.
const CRASHES: [i32; 2] = [134, 139];

struct Evidence {
    places: Places,
    profile: Profile,
    bound: Duration,
    jobs: Vec<Begun>,
    traces: Vec<PathBuf>,
    changes: Vec<PathBuf>,
    /// True if a version that writes no traces took part.
    some_untraced: bool,
    rivals: &'static [Rival],
}

pub(crate) async fn of(
    world: World,
    story: &Story,
    (seed, minutes): (u64, f64),
    linearizability: Option<&Path>,
) -> Result<Report, Failure> {
    let residents = world.residents.as_ref();
    let (growths, mut missing) = residents.map(Residents::findings).unwrap_or_default();
    let (evidence, mut violations) = end(world).await?;
    let bound = evidence.bound;
    violations.append(&mut missing);
    violations.extend(growths.iter().filter_map(Finding::violation));
    violations.extend(story.leaderless.iter().map(|leaderless| {
        format!(
            "no leader {bound:?} after {:?} were healed\n{}",
            leaderless.after, leaderless.logs
        )
    }));
    let (tenures, checked) = evidence.traces(&mut violations)?;
    let led = evidence.lease(&tenures, &mut violations)?;
    let compared = evidence.compared(&led, story)?;
    let mut operations = led.history;
    let lone = report::lone(story, &led.gaps);
    violations.extend(lone.iter().filter_map(|lone| outlasted(lone, bound)));
    operations.extend(evidence.locks(&tenures, &mut violations)?);
    let linearizable = match linearizability {
        None => "skipped: no checker is named (--linearizability)".to_owned(),
        Some(program) => {
            let file = evidence.places.directory.join("history");
            let (holds, said) =
                history::check(program, &file, &operations).map_err(Failure::new)?;
            if !holds {
                violations.push(format!("history: {said}"));
            }
            said
        }
    };
    Ok(Report {
        profile: format!("{:?}", evidence.profile).to_lowercase(),
        seed,
        minutes,
        violations,
        kinds: report::by_kind(story, &lone),
        leaderships: led.works.len(),
        jobs: evidence.jobs.len(),
        compared,
        linearizable,
        checked,
        bound,
        growths,
    })
}

/// Ends all processes, so that their traces and journals are complete. Also returns the crashes.
async fn end(world: World) -> Result<(Evidence, Vec<String>), Failure> {
    let bound = world.recovery_max();
    let World {
        profile,
        candidates,
        jobs,
        rivals,
        residents,
        set,
        places,
        other,
        changes,
        ..
    } = world;
    let exits = candidates.iter().flat_map(|candidate| {
        let exits = candidate.exits().into_iter();
        exits.map(|code| (candidate.identity.clone(), code))
    });
    let mut violations = crashes(exits);
    let jobs_of_all: Vec<_> = jobs.iter().flat_map(|jobs| jobs.all()).collect();
    violations.extend(crashes(jobs_of_all.iter().filter_map(|job| {
        let (_, code) = job.exited?;
        Some((job.identity.clone(), code))
    })));
    let mut evidence = Evidence {
        places,
        profile,
        bound,
        jobs: jobs_of_all,
        traces: candidates.iter().map(|c| c.trace()).collect(),
        changes: Vec::new(),
        some_untraced: other.is_some(),
        rivals: if rivals.is_empty() { &[] } else { &Rival::ALL },
    };
    evidence.traces.extend(jobs.iter().map(|jobs| jobs.trace()));
    // End all writers first, because later changes would be missing from the recording.
    drop((candidates, jobs, rivals, residents));
    for mut changes in changes {
        // If the recording has a gap, the file contains the reason.
        let _ = changes.drain().await;
        evidence.changes.push(changes.path().to_owned());
    }
    drop(set);
    Ok((evidence, violations))
}

fn crashes(exits: impl IntoIterator<Item = (String, i32)>) -> Vec<String> {
    let crashed = exits.into_iter().filter(|(_, code)| CRASHES.contains(code));
    crashed
        .map(|(identity, code)| format!("{identity} crashed: exit code {code}"))
        .collect()
}

struct Led {
    works: Vec<Work>,
    gaps: Vec<(u64, u64)>,
    history: Vec<Value>,
}

impl Evidence {
    /// Checks the traces, and also the changes in MongoDB if all writers write traces.
    fn traces(&self, violations: &mut Vec<String>) -> Result<(Vec<Tenure>, Checked), Failure> {
        let mut checker = Checker::default();
        for path in &self.traces {
            read(path, |file| checker.read(file))?;
        }
        if self.some_untraced {
            checker.some_untraced();
        }
        let changes = if self.some_untraced {
            &[][..]
        } else {
            &self.changes
        };
        for path in changes {
            read(path, |file| checker.changes(file))?;
        }
        let tenures = checker.tenures();
        let checked = checker.finish().unwrap_or_else(|found| {
            violations.extend(found.iter().map(|violation| format!("traces: {violation}")));
            Checked::default()
        });
        Ok((tenures, checked))
    }

    fn lease(&self, tenures: &[Tenure], violations: &mut Vec<String>) -> Result<Led, Failure> {
        let lines = journal::read(&self.places.journal(LEASE)).map_err(Failure::new)?;
        let works = journal::works(&lines);
        let document = format!("leasehold.{LEASES}/{LEASE}");
        violations.extend(self.judged((LEASE, &document), Rule::Exclusive, &works, tenures));
        let mine = tenures.iter().filter(|tenure| tenure.document == document);
        let mine = mine.map(|tenure| (tenure.token, tenure.clone())).collect();
        let deadline = nanos(self.profile.timings().renew_deadline);
        Ok(Led {
            history: history::of_leaders(LEASE, &works, &mine, deadline),
            gaps: journal::gaps(&lines, nanos(GAP)),
            works,
        })
    }

    fn locks(
        &self,
        tenures: &[Tenure],
        violations: &mut Vec<String>,
    ) -> Result<Vec<Value>, Failure> {
        let mut operations = history::of_writes(&self.places.directory.join(embedder::WRITES));
        for (mode, rule) in LOCK_RULES {
            let name = mode.lock();
            let lines = journal::read(&self.places.journal(name)).map_err(Failure::new)?;
            let works = journal::works(&lines);
            let document = format!("leasehold.{LOCKS}/{name}");
            violations.extend(self.judged((name, &document), rule, &works, tenures));
            operations.extend(history::of_jobs(name, &works, &self.jobs));
        }
        Ok(operations)
    }

    fn judged(
        &self,
        (name, document): (&str, &str),
        rule: Rule,
        works: &[Work],
        tenures: &[Tenure],
    ) -> Vec<String> {
        let supervised = nanos(self.profile.timings().loss_grace + SCHEDULED_MAX);
        let grace = |work: &Work| match judges_itself(&work.writer) {
            true => 0,
            false => supervised,
        };
        let mut found = journal::exclusion(rule, works);
        let untraced = self.some_untraced;
        found.extend(journal::authority(
            document,
            works,
            tenures,
            (grace, untraced),
        ));
        if works.is_empty() {
            found.push("nothing was done".to_owned());
        }
        found
            .iter()
            .map(|found| format!("{name}: {found}"))
            .collect()
    }

    fn compared(&self, led: &Led, story: &Story) -> Result<Vec<Compared>, Failure> {
        if self.rivals.is_empty() {
            return Ok(Vec::new());
        }
        let since = nanos(self.profile.timings().lease_duration);
        let compared = |name, works: &[Work], gaps: &[(u64, u64)]| {
            let overlaps = journal::overlaps(works);
            Compared::new(name, (works.len(), &overlaps), gaps, (story, since))
        };
        let end = story.struck.iter().map(|struck| struck.healed).max();
        let end = end.unwrap_or_default();
        let mut all = vec![compared("leasehold", &led.works, &led.gaps)];
        for rival in self.rivals {
            let lines = journal::read(&self.places.journal(rival.lock())).map_err(Failure::new)?;
            let mut gaps = journal::gaps(&lines, nanos(GAP));
            // If work never resumed, no line ends the last gap.
            gaps.extend(lines.last().map(|last| (last.at, end.max(last.at))));
            let works = journal::works(&lines);
            all.push(compared(rival.lock(), &works, &gaps));
        }
        Ok(all)
    }
}

fn read(path: &Path, by: impl FnOnce(BufReader<File>) -> io::Result<()>) -> Result<(), Failure> {
    let opened = File::open(path).map(BufReader::new).and_then(by);
    opened.map_err(|error| Failure::new(format!("{}: {error}", path.display())))
}

/// True if the program has no guard and checks the deadline itself before each line.
fn judges_itself(writer: &str) -> bool {
    writer.starts_with(SIDECAR) || writer.starts_with(Mode::Library.word())
}

/// Checks that work continues within the bound (I10). If other candidates can take over during the
/// fault, the bound starts at the interruption of work. Otherwise the bound starts when the fault
/// is healed.
fn outlasted(lone: &Lone<'_>, bound: Duration) -> Option<String> {
    let fault = &lone.struck.fault;
    let counted = if fault.is_survived() {
        lone.gap
    } else {
        lone.gap_after
    };
    (counted > bound).then(|| format!("I10: no work for {counted:?} after: {}", fault.name()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn aborts_and_segmentation_faults_are_crashes() {
        let exits = [("candidate-1", 134), ("slot-4-7", 139), ("sidecar-2", 137)];
        let exits = exits.map(|(identity, code)| (identity.to_owned(), code));
        assert_eq!(
            crashes(exits),
            [
                "candidate-1 crashed: exit code 134",
                "slot-4-7 crashed: exit code 139"
            ]
        );
    }
}
