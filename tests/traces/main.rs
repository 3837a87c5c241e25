//! Goal: a daemon or job never does anything that its state machine has not decided, and the
//! checker refuses any other trace. Method: trace real daemons and jobs on a real replica set, with
//! handoffs, a kill and many contenders. The checker must accept the trace, and must refuse it
//! after any single change.

// Test code may read the clock directly.
#![allow(clippy::disallowed_methods)]
#![allow(clippy::unwrap_used, reason = "a failing fixture should fail the test")]

mod late;
mod transitions;

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use leasehold_testbed::{Daemon, DaemonBuilder, DaemonTimings, ReplicaSet, Scratch};
use leasehold_testbed::{INVARIANT_VIOLATED, leader_of, run};
use leasehold_trace_check::{Checked, Checker, Violation};
use serde_json::{Value, json};

const PROGRAM: &str = env!("CARGO_BIN_EXE_leasehold");
const LONG: Duration = Duration::from_secs(30);
/// Number of concurrent jobs in each mode.
const JOBS: usize = 4;

const SHORT: &str = "sleep 0.3";
/// Script that ends only when two jobs have begun, so that two jobs hold slots at once.
const COMPANY: &str = r#"touch "$BEGAN/began.$$"; until [ $(ls "$BEGAN" | grep -c began) -ge 2 ]; do sleep 0.05; done"#;

struct Lines(Vec<Value>);

impl Lines {
    fn of(path: &Path) -> Self {
        let text = std::fs::read_to_string(path).unwrap();
        let line = |line: &str| {
            // The killed leader's last record may be incomplete, at the beginning of a line.
            let begin = line.rfind(r#"{"machine":"#).unwrap_or(0);
            serde_json::from_str(&line[begin..]).unwrap()
        };
        Self(text.lines().map(line).collect())
    }

    fn check(&self) -> Result<Checked, Vec<Violation>> {
        let mut checker = Checker::default();
        for line in &self.0 {
            checker.line(&line.to_string());
        }
        checker.finish()
    }

    fn position(&self, condition: impl FnMut(&Value) -> bool) -> usize {
        let found = self.0.iter().position(condition);
        found.expect("the trace contains this line")
    }

    /// Asserts that the checker refuses the changed trace for the expected reason.
    fn refused(&self, expected: &str, change: impl FnOnce(&mut Vec<Value>)) {
        let mut changed = Self(self.0.clone());
        change(&mut changed.0);
        let violations = changed.check().expect_err(expected);
        let found = violations.iter().any(|found| found.what.contains(expected));
        assert!(found, "{expected:?}: {violations:#?}");
    }
}

fn daemon(set: &ReplicaSet, lease: &str, identity: &str, trace: &Path) -> DaemonBuilder {
    Daemon::builder(PROGRAM)
        .lease(lease)
        .identity(identity)
        .uri(&set.uri())
        .timings(DaemonTimings::SHORT)
        .handoff_delay("0s")
        .workload(["sleep", "infinity"])
        .env("LEASEHOLD_TRACE", trace)
}

fn job(set: &ReplicaSet, arguments: &[&str], work: &str, trace: &Path, scratch: &Path) -> Child {
    let mut command = Command::new(PROGRAM);
    command
        .args(["lock", "--mongodb-database=traces"])
        .args(arguments)
        .args(["--", "sh", "-c", work])
        .env("LEASEHOLD_MONGODB__URI", set.uri())
        .env("LEASEHOLD_TRACE", trace)
        .env("XDG_RUNTIME_DIR", scratch)
        .env("BEGAN", scratch)
        .stdin(Stdio::null());
    command.spawn().unwrap()
}

/// Runs three candidates for one lease (one is stopped, one is killed, one steps down), a leader of
/// another lease, and jobs in all modes.
async fn drama(set: &ReplicaSet, trace: &Path, scratch: &Path) {
    let candidate = |identity| daemon(set, "traced", identity, trace);
    let a = candidate("a").leading(LONG).await;
    let b = candidate("b").following("a", LONG).await;
    let c = candidate("c").following("a", LONG).await;
    let other = daemon(set, "other", "d", trace).leading(LONG).await;
    other.wait_logged("workload started", LONG).await;
    a.term();
    a.wait_exit(LONG).await;
    let leader = leader_of(&[&b, &c]).await;
    let follower = if std::ptr::eq(leader, &b) { &c } else { &b };
    leader.kill();
    follower.wait_leads(LONG).await;
    // The commands of both leases run concurrently.
    follower.wait_logged("workload started", LONG).await;
    follower.signal(rustix::process::Signal::USR1);
    follower.wait_role("follower", LONG).await;
    for (modes, work) in [
        (&["jobs"][..], SHORT),
        (&["readers", "--shared"], SHORT),
        (&["places", "--slots=2"], COMPANY),
    ] {
        let jobs = (0..JOBS).map(|_| job(set, modes, work, trace, scratch));
        let jobs: Vec<_> = jobs.collect();
        for mut job in jobs {
            assert!(job.wait().unwrap().success());
        }
    }
    follower.term();
    follower.wait_exit(LONG).await;
    drop(other);
}

#[test]
fn daemons_and_jobs_do_what_their_machines_decide() {
    let scratch = Scratch::new();
    let trace = scratch.path().join("trace");
    run(async {
        let set = ReplicaSet::builder().members(1).start().await;
        drama(&set, &trace, scratch.path()).await;
    });
    let lines = Lines::of(&trace);
    let checked = lines.check();
    let checked = checked.unwrap_or_else(|found| panic!("{INVARIANT_VIOLATED}: {found:#?}"));
    let text = std::fs::read_to_string(&trace).unwrap();
    let offset = text.split(r#""shared_clock_offset":{"secs":"#).nth(1);
    let seconds = offset.and_then(|offset| offset.split(',').next()?.parse().ok());
    // Without the wall clock, the leaders of a deployment would not renew together.
    assert!(seconds > Some(1_000_000_000_u64), "{seconds:?}");
    // The daemons, the witness of the killed leader, which may need several attempts, and the jobs.
    assert!(checked.machines >= 5 + 3 * JOBS, "{checked:?}");
    // At least three leaders of one lease, the leader of the other lease, and every job acquired
    // and started a command.
    assert!(checked.acquisitions >= 4 + 3 * JOBS, "{checked:?}");
    assert!(checked.guards >= 4 + 3 * JOBS, "{checked:?}");
    assert!(
        !lines
            .0
            .iter()
            .any(|line| line.to_string().contains("mongodb://"))
    );
    tampered(&lines);
    tampered_guards(&lines);
}

fn tampered(lines: &Lines) {
    let acquires = lines.position(|line| line["turn"]["effects"].to_string().contains("Acquire"));
    lines.refused("but the machine returns", |lines| {
        let effects = lines[acquires]["turn"]["effects"].as_array_mut().unwrap();
        let acquisition =
            |effect: &&mut Value| effect["Call"]["operation"].get("Acquire").is_some();
        let acquire = effects.iter_mut().find(acquisition).unwrap();
        acquire["Call"]["operation"]["Acquire"]["token"] = json!(77);
    });
    lines.refused("replay: ", |lines| {
        lines[acquires]["turn"]["effects"] = json!([])
    });
    lines.refused("is missing", |lines| drop(lines.remove(acquires)));
    lines.refused("random bits", |lines| {
        lines[acquires]["turn"]["random"] = json!([]);
    });
    // Some replies change nothing, so find a reply that has an effect.
    let applied = lines.position(|line| {
        let outcome = &line["turn"]["input"]["Reply"]["outcome"];
        let orders = line["turn"]["effects"].to_string().contains("Workload");
        orders && !outcome["Applied"].is_null()
    });
    lines.refused("replay: ", |lines| {
        lines[applied]["turn"]["input"]["Reply"]["outcome"] = json!("Unknown");
    });
    let sent = lines.position(|line| !line["sent"].is_null());
    let machine = &lines.0[sent]["machine"];
    let again = lines.position(|line| {
        line["machine"] == *machine
            && line["sent"]["call"].as_u64() > lines.0[sent]["sent"]["call"].as_u64()
    });
    lines.refused("is sent a second time", |lines| {
        lines[again]["sent"]["call"] = lines[sent]["sent"]["call"].clone();
    });
    lines.refused("no turn requested it", |lines| {
        lines[sent]["sent"]["call"] = json!(999)
    });
    let answered = lines.position(|line| line["answered"]["late"] == json!(false));
    lines.refused("is answered, but was not sent", |lines| {
        lines[answered]["answered"]["call"] = json!(999);
    });
    lines.refused("has a late answer, but no timeout", |lines| {
        lines[answered]["answered"]["late"] = json!(true);
    });
    let started = lines.position(|line| !line["started"].is_null());
    lines.refused("has no beginning", |lines| drop(lines.remove(started)));
    lines.refused("schema 2", |lines| {
        lines[started]["started"]["schema"] = json!(2)
    });
    lines.refused("not a record", |lines| lines.insert(0, json!("nonsense")));
    // Move the leader of another lease to this lease.
    lines.refused("I1: ", |lines| {
        replace(
            lines,
            "/started/document",
            &json!("leasehold.leases/other"),
            &json!("leasehold.leases/traced"),
        );
    });
    // Copy each job with slots to another machine.
    let in_slots = |line: &&Value| !line["started"]["options"]["want"]["Slot"].is_null();
    let machines = lines.0.iter().filter(in_slots);
    let machines: Vec<_> = machines.map(|line| line["machine"].clone()).collect();
    lines.refused("for 2 slots", |lines| {
        let of_twin = |mut line: Value| {
            line["machine"] = json!(format!("{}-twin", line["machine"].as_str().unwrap()));
            line
        };
        let theirs = lines
            .iter()
            .filter(|line| machines.contains(&line["machine"]));
        let twins: Vec<_> = theirs.cloned().map(of_twin).collect();
        lines.extend(twins);
    });
}

/// Changes a guard's trace in one place at a time.
fn tampered_guards(lines: &Lines) {
    let guarded = |line: &Value| line["started"]["options"]["guarded"] == "command";
    let began = lines.position(guarded);
    let guard = lines.0[began]["machine"].clone();
    let turn = |condition: fn(&Value) -> bool| {
        lines.position(|line| line["machine"] == guard && condition(&line["turn"]))
    };
    let starts = turn(|turn| turn["effects"] == json!(["Start"]));
    lines.refused("replay: effect 0 is nothing", |lines| {
        lines[starts]["turn"]["effects"] = json!([]);
    });
    lines.refused("but the machine returns Refuse", |lines| {
        lines[starts]["turn"]["now"] = json!(u64::MAX);
    });
    lines.refused("is missing", |lines| drop(lines.remove(starts)));
    let extended = turn(|turn| !turn["input"]["Order"].is_null());
    let later = |value: &mut Value| *value = json!(value.as_u64().unwrap() + 1);
    lines.refused("I5: the deadline", |lines| {
        later(&mut lines[extended]["turn"]["input"]["Order"]["terms"]["valid_until"])
    });
    lines.refused("I5: a guard would kill its command", |lines| {
        later(&mut lines[extended]["turn"]["input"]["Order"]["terms"]["kill_at"])
    });
    lines.refused("a guard has a record that is not a turn", |lines| {
        let turn = lines[starts]["turn"].take();
        lines[starts]["sent"] = turn;
        lines[starts].as_object_mut().unwrap().remove("turn");
    });
    // Move the leader of another lease to this lease.
    lines.refused("runs until", |lines| {
        replace(
            lines,
            "/started/document",
            &json!("leasehold.leases/other"),
            &json!("leasehold.leases/traced"),
        );
    });
}

fn replace(lines: &mut [Value], place: &str, old: &Value, new: &Value) {
    for value in lines.iter_mut().filter_map(|line| line.pointer_mut(place)) {
        if value == old {
            value.clone_from(new);
        }
    }
}
