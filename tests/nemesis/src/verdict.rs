//! The check of what all processes did.

use std::fs::File;
use std::io::BufReader;
use std::path::Path;
use std::time::Duration;

use leasehold_testbed::Failure;
use leasehold_testbed::daemon::nanos;
use leasehold_trace_check::Checker;

use crate::candidate::{LEASE, SIDECAR};
use crate::embedder;
use crate::history;
use crate::job::Mode;
use crate::journal::{self, Rule, Work};
use crate::report::{self, Compared, Lone, Report};
use crate::rival::Rival;
use crate::schedule::Story;
use crate::world::World;

/// Lines of a workload are 20 ms apart, so this is a time without work.
const GAP: Duration = Duration::from_millis(200);

/// Time in which a guard of a busy machine is scheduled, to end its command.
const SCHEDULED_MAX: Duration = Duration::from_millis(200);

/// True if a program looks at the deadline before each line, and is not ended by a guard.
fn judges_itself(writer: &str) -> bool {
    writer.starts_with(SIDECAR) || writer.starts_with(Mode::Library.word())
}

/// Ends everything, and checks it.
pub(crate) fn of(
    world: World,
    story: &Story,
    (seed, minutes): (u64, f64),
    linearizability: Option<&Path>,
) -> Result<Report, Failure> {
    let (places, profile) = (world.places.clone(), world.profile);
    let rivals = if world.rivals.is_empty() {
        &[][..]
    } else {
        &Rival::ALL
    };
    let bound = world.recovery_max();
    let jobs: Vec<_> = world.jobs.iter().flat_map(|jobs| jobs.all()).collect();
    let deadline = nanos(profile.timings().renew_deadline);
    let mut traces: Vec<_> = world
        .candidates
        .iter()
        .map(|candidate| candidate.trace())
        .collect();
    traces.extend(world.jobs.iter().map(|jobs| jobs.trace()));
    let some_untraced = world.other.is_some();
    let exits = world
        .candidates
        .iter()
        .flat_map(|candidate| candidate.exits());
    let mut violations: Vec<String> = exits
        .filter(|code| *code >= 128)
        .map(|code| format!("a daemon exited with {code}, which no fault asked for"))
        .collect();
    // Ends all processes, and thereby their traces and journals.
    drop(world);

    violations.extend(story.leaderless.iter().map(|leaderless| {
        format!(
            "no leader {bound:?} after {:?} were healed\n{}",
            leaderless.after, leaderless.logs
        )
    }));
    let mut checker = Checker::default();
    for path in traces {
        let unreadable = |error| Failure::new(format!("{}: {error}", path.display()));
        let file = File::open(&path).map_err(unreadable)?;
        checker.read(BufReader::new(file)).map_err(unreadable)?;
    }
    let tenures = checker.tenures();
    let (acquisitions, calls) = match checker.finish() {
        Ok(checked) => (checked.acquisitions, checked.calls),
        Err(found) => {
            violations.extend(found.iter().map(|violation| format!("traces: {violation}")));
            (0, 0)
        }
    };
    let locks = [Mode::Exclusive, Mode::Shared, Mode::Slot].map(Mode::lock);
    let rules = [Rule::Exclusive, Rule::Readers, Rule::Slots];
    let objects = locks
        .into_iter()
        .zip(rules)
        .map(|(name, rule)| (name, "locks", rule));
    let lease = std::iter::once((LEASE, "leases", Rule::Exclusive));
    let (mut kinds, mut leaderships) = Default::default();
    let mut history = Vec::new();
    let supervised = nanos(profile.timings().loss_grace + SCHEDULED_MAX);
    let grace = |work: &Work| match judges_itself(&work.writer) {
        true => 0,
        false => supervised,
    };
    for (name, collection, rule) in lease.chain(objects) {
        let lines = journal::read(&places.journal(name)).map_err(Failure::new)?;
        let works = journal::works(&lines);
        let mut found = journal::exclusion(rule, &works);
        let document = format!("leasehold.{collection}/{name}");
        let outside = journal::authority(&document, &works, &tenures, (&grace, some_untraced));
        found.extend(outside);
        violations.extend(found.iter().map(|found| format!("{name}: {found}")));
        if name == LEASE {
            let lone = report::lone(story, &journal::gaps(&lines, nanos(GAP)));
            kinds = report::by_kind(story, &lone);
            violations.extend(lone.iter().filter_map(|lone| outlasted(lone, bound)));
            leaderships = works.len();
            let mine = tenures.iter().filter(|tenure| tenure.document == document);
            let mine = mine.map(|tenure| (tenure.token, tenure.clone())).collect();
            history.extend(history::of_leaders(name, &works, &mine, deadline));
        } else {
            history.extend(history::of_jobs(name, &works, &jobs));
        }
        if works.is_empty() {
            violations.push(format!("{name}: nothing was done"));
        }
    }
    let mut compared = Vec::new();
    for rival in rivals {
        let lines = journal::read(&places.journal(rival.lock())).map_err(Failure::new)?;
        let works = journal::works(&lines);
        let overlaps = journal::overlaps(&works);
        let after = report::attributed(story, &overlaps, nanos(profile.timings().lease_duration));
        compared.push(Compared {
            lock: rival.lock(),
            works: works.len(),
            overlaps: overlaps.len(),
            after,
        });
    }
    history.extend(history::of_writes(&places.directory.join(embedder::WRITES)));
    let linearizable = match linearizability {
        None => "skipped: no checker is named (--linearizability)".to_owned(),
        Some(program) => {
            let file = places.directory.join("history");
            let (holds, said) = history::check(program, &file, &history).map_err(Failure::new)?;
            if !holds {
                violations.push(format!("history: {said}"));
            }
            said
        }
    };
    Ok(Report {
        profile: format!("{profile:?}").to_lowercase(),
        seed,
        minutes,
        violations,
        kinds,
        leaderships,
        jobs: jobs.len(),
        compared,
        linearizable,
        acquisitions,
        calls,
        bound,
    })
}

/// I10: the work goes on within the bound, counted from its interruption if other candidates can
/// take over meanwhile, and else from the healing.
fn outlasted(lone: &Lone<'_>, bound: Duration) -> Option<String> {
    let fault = &lone.struck.fault;
    let counted = if fault.is_survived() {
        lone.gap
    } else {
        lone.gap_after
    };
    (counted > bound).then(|| format!("I10: no work for {counted:?} after: {}", fault.name()))
}
