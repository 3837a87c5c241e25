//! Goal: exactly one call explains each change of a lease or lock, and the call's state machine
//! received the right outcome. The checker refuses any other history. Method: record traces and
//! changes of real daemons and jobs on a real replica set, with an election, an unacknowledged
//! renewal, a frozen leader, a killed leader, and operators' requests. The checker must accept the
//! recording, and must refuse it after any single change.

use std::path::Path;
use std::process::Command;

use leasehold_testbed::{
    Changes, ReplicaSet, Scratch, StoredLease, eventually, leader_of, run, trace,
};
use leasehold_trace_check::{Checked, Checker, Violation};
use mongodb::bson::doc;
use rustix::process::Signal;
use serde_json::{Value, json};

use crate::{JOBS, LONG, Lines, PROGRAM, SHORT, daemon, job};

/// The lines of the traces and recorded changes of one run.
#[derive(Clone)]
struct Run {
    trace: Vec<Value>,
    leases: Vec<Value>,
    locks: Vec<Value>,
}

impl Run {
    fn check(&self) -> Result<Checked, Vec<Violation>> {
        let mut checker = Checker::default();
        for line in &self.trace {
            checker.line(&line.to_string());
        }
        for recording in [&self.leases, &self.locks] {
            let lines: String = recording.iter().map(|line| format!("{line}\n")).collect();
            let read = checker.changes(lines.as_bytes());
            read.expect("read the text");
        }
        checker.finish()
    }

    /// Returns the index of the first matching line of the trace.
    fn call(&self, condition: impl FnMut(&Value) -> bool) -> usize {
        let found = self.trace.iter().position(condition);
        found.expect("the trace contains this line")
    }

    /// Returns the index of the first matching line of the leases' changes.
    fn change(&self, condition: impl FnMut(&Value) -> bool) -> usize {
        let found = self.leases.iter().position(condition);
        found.expect("the recording contains this line")
    }

    /// Asserts that the checker refuses the changed run for the expected reason.
    fn refused(&self, expected: &str, change: impl FnOnce(&mut Self)) {
        let mut changed = self.clone();
        change(&mut changed);
        let violations = changed.check().expect_err(expected);
        let found = violations.iter().any(|found| found.what.contains(expected));
        assert!(found, "{expected:?}: {violations:#?}");
    }

    /// Asserts that, in the changed run, the checker skips the leases' changes for the expected
    /// reason.
    fn skipped(&self, expected: &str, change: impl FnOnce(&mut Self)) {
        let mut changed = self.clone();
        change(&mut changed);
        let checked = changed.check().expect("a gap is not a violation");
        assert_eq!(checked.skipped, [format!("leasehold.leases: {expected}")]);
    }
}

/// Returns the revision of a renewal that a turn requested, if any.
fn renewal(line: &Value) -> Option<&Value> {
    let effects = line["turn"]["effects"].as_array()?;
    let mut renewals = effects
        .iter()
        .map(|effect| &effect["Call"]["operation"]["Renew"]["revision"]);
    renewals.find(|revision| !revision.is_null())
}

/// Returns the document's revision after a change, as a UUID string.
fn revision(change: &Value) -> Option<String> {
    let base64 = change["change"]["after"]["revision"]["$binary"]["base64"].as_str()?;
    let document = json!({ "$binary": { "base64": base64, "subType": "04" } });
    let bson = mongodb::bson::Bson::try_from(document).ok()?;
    let mongodb::bson::Bson::Binary(binary) = bson else {
        return None;
    };
    binary.to_uuid().ok().map(|uuid| uuid.to_string())
}

fn leasehold(set: &ReplicaSet, arguments: &[&str]) {
    let mut command = Command::new(PROGRAM);
    command
        .args(arguments)
        .env("LEASEHOLD_MONGODB__URI", set.uri());
    let output = command.output().unwrap();
    assert!(output.status.success(), "{output:?}");
}

/// Causes every kind of change to a lease while three candidates contend for the lease.
async fn elections(set: &ReplicaSet, changes: &Changes, trace: &Path) {
    let candidate = |identity| daemon(set, "traced", identity, trace);
    let a = candidate("a").leading(LONG).await;
    let b = candidate("b").following("a", LONG).await;
    let c = candidate("c").following("a", LONG).await;
    a.wait_renewal(LONG).await;
    // The server applies a renewal without acknowledging it.
    let primary = set.primary().await;
    let unknown = a.operations("renew", "unknown").await;
    let error = doc! { "writeConcernError": { "code": 64, "errmsg": "planted" } };
    set.fail_commands_of(
        (primary, "leasehold/a"),
        &["findAndModify"],
        doc! { "times": 1 },
        error,
    )
    .await;
    a.wait_operations("renew", "unknown", unknown + 1.0).await;
    set.clear_fail_point(primary).await;
    a.wait_renewal(LONG).await;
    leasehold(set, &["pause", "traced", "--by=olga"]);
    leasehold(set, &["resume", "traced", "--by=olga"]);
    set.step_down_primary().await;
    let all = [&a, &b, &c];
    let leader = leader_of(&all).await;
    leader.signal(Signal::STOP);
    let others: Vec<_> = all
        .into_iter()
        .filter(|one| !std::ptr::eq(*one, leader))
        .collect();
    let killed = leader_of(&others).await;
    leader.signal(Signal::CONT);
    let rest = match std::ptr::eq(killed, others[0]) {
        true => others[1],
        false => others[0],
    };
    killed.kill();
    leader_of(&[rest, leader]).await;
    for one in [leader, rest] {
        one.term();
        one.wait_exit(LONG).await;
    }
    changes.declare("traced", "a restore that forgets the lease");
    StoredLease::new(&set.client(), "leasehold", "leases", "traced")
        .delete()
        .await;
}

fn jobs(set: &ReplicaSet, trace: &Path, scratch: &Path) {
    for modes in [
        &["jobs"][..],
        &["readers", "--shared"],
        &["places", "--slots=2"],
        &["nightly", "--once-per=1h"],
    ] {
        let jobs: Vec<_> = (0..JOBS)
            .map(|_| job(set, modes, SHORT, trace, scratch))
            .collect();
        for mut job in jobs {
            let code = job.wait().unwrap().code();
            // Code 77 means that the job skipped the work, because it was done recently.
            assert!([Some(0), Some(77)].contains(&code), "{modes:?}: {code:?}");
        }
    }
    // Another job evicts the killed job.
    let mut killed = job(
        set,
        &["jobs", "--lease-duration=3s"],
        "exec sleep 60",
        trace,
        scratch,
    );
    run(async {
        let stored = StoredLease::new(&set.client(), "traces", "leases", "jobs");
        eventually("it holds", async || {
            let holders = stored.get().await;
            holders
                .get_array("holders")
                .is_ok_and(|all| !all.is_empty())
        })
        .await;
    });
    killed.kill().unwrap();
    killed.wait().unwrap();
    let mut next = job(set, &["jobs"], SHORT, trace, scratch);
    assert!(next.wait().unwrap().success());
}

fn recorded(path: &Path) -> Vec<Value> {
    Lines::of(path).0
}

#[test]
fn every_change_of_a_document_is_explained_by_one_call() {
    let scratch = Scratch::new();
    let path = |name| scratch.path().join(name);
    let (trace, leases, locks) = (path("trace"), path("leases"), path("locks"));
    let set = run(ReplicaSet::start());
    let (mut of_leases, mut of_locks) = run(async {
        let uri = set.uri();
        (
            Changes::record(&uri, "leasehold", "leases", &leases).await,
            Changes::record(&uri, "traces", "leases", &locks).await,
        )
    });
    run(elections(&set, &of_leases, &trace));
    jobs(&set, &trace, scratch.path());
    run(async {
        of_leases.drain().await.unwrap();
        of_locks.drain().await.unwrap();
    });
    let checked = trace::check(&[&leases, &locks], &[&trace]);
    let checked = checked.unwrap_or_else(|found| panic!("{found:#?}"));
    assert_eq!(checked.skipped, [""; 0]);
    let transitions = checked.transitions;
    assert!(transitions.unknown >= 1, "{checked:?}");
    assert_eq!(
        (transitions.operators, transitions.edits),
        (2, 1),
        "{checked:?}"
    );
    let others = transitions.operators + transitions.edits;
    assert_eq!(transitions.calls + others, transitions.all, "{checked:?}");
    // Each job has at least joined and left the lock.
    assert!(transitions.calls > 8 * JOBS, "{checked:?}");
    let run = Run {
        trace: recorded(&trace),
        leases: recorded(&leases),
        locks: recorded(&locks),
    };
    calls_are_changed(&run);
    changes_are_changed(&run);
    locks_are_changed(&run);
}

fn calls_are_changed(run: &Run) {
    let asked = run.call(|line| renewal(line).is_some());
    run.refused("no recorded call explains this change of", |run| {
        let effects = run.trace[asked]["turn"]["effects"].as_array_mut().unwrap();
        effects.retain(|effect| effect["Call"]["operation"]["Renew"].is_null());
    });
    // Find a renewal with an unknown outcome, because a read with an unknown outcome explains no
    // change.
    let renews = |line: &Value, call: &Value| {
        let effects = line["turn"]["effects"].as_array().into_iter().flatten();
        let mut asked = effects.filter(|effect| effect["Call"]["id"] == *call);
        asked.any(|effect| {
            let revision = effect["Call"]["operation"]["Renew"]["revision"].as_str();
            let mut changes = run.leases.iter().map(self::revision);
            revision.is_some() && changes.any(|changed| changed.as_deref() == revision)
        })
    };
    let unknown = run.call(|line| {
        let (machine, answered) = (&line["machine"], &line["answered"]);
        let mut turns = run.trace.iter().filter(|turn| turn["machine"] == *machine);
        answered["outcome"] == "unknown" && turns.any(|turn| renews(turn, &answered["call"]))
    });
    for outcome in ["failed", "rejected"] {
        run.refused(
            &format!("it would produce this change, but was {outcome}"),
            |run| {
                run.trace[unknown]["answered"]["outcome"] = json!(outcome);
            },
        );
    }
    run.refused("was answered with a document that differs", |run| {
        let applied = run.call(|line| {
            let lease = &line["turn"]["input"]["Reply"]["outcome"]["Applied"]["Lease"];
            // Find the reply to a write of the leader, not to a read.
            let orders = line["turn"]["effects"].to_string().contains("Workload");
            orders && !lease["holder"].is_null()
        });
        let reply = &mut run.trace[applied]["turn"]["input"]["Reply"];
        reply["outcome"]["Applied"]["Lease"]["revision"] =
            json!("01234567-89ab-cdef-0123-456789abcdef");
    });
    let rejected = |line: &Value| line["answered"]["outcome"] == "rejected";
    run.refused("was applied, but no change shows it", |run| {
        let line = run.call(rejected);
        run.trace[line]["answered"]["outcome"] = json!("applied");
    });
    run.refused("but the machine received", |run| {
        let line = run.call(rejected);
        run.trace[line]["answered"]["outcome"] = json!("failed");
    });
    run.refused("were made in a different order", |run| {
        let acquisition = |line: &Value| {
            let effects = line["turn"]["effects"].as_array()?;
            let mut calls = effects.iter().map(|effect| &effect["Call"]);
            calls
                .find(|call| call["operation"].get("Acquire").is_some())
                .cloned()
        };
        let asked = run.call(|line| acquisition(line).is_some());
        let (machine, call) = (&run.trace[asked]["machine"], acquisition(&run.trace[asked]));
        let answer = run.call(|line| {
            line["machine"] == *machine
                && Some(&line["answered"]["call"]) == call.as_ref().map(|call| &call["id"])
        });
        run.trace[answer]["answered"]["at"] = json!(1);
    });
    let sent = run.call(|line| !line["sent"].is_null());
    run.refused("is missing", |run| drop(run.trace.remove(sent)));
}

fn changes_are_changed(run: &Run) {
    let renewed = run.call(|line| renewal(line).is_some());
    let renewed = renewal(&run.trace[renewed]).and_then(Value::as_str);
    let change = run.change(|line| revision(line).as_deref() == renewed);
    run.refused("a change is missing", |run| {
        run.leases.remove(change);
    });
    run.refused("was applied, but no change shows it", |run| {
        run.leases.remove(change);
    });
    run.refused("changes instead of", |run| {
        run.leases.remove(change);
    });
    // Edit the next change too, so that the two changes stay consistent and only the comparison
    // with the call fails.
    let change_field = |field: &'static str, value: Value| {
        move |run: &mut Run| {
            run.leases[change]["change"]["after"][field] = value.clone();
            run.leases[change + 1]["change"]["before"][field] = value;
        }
    };
    let token = json!({ "$numberLong": "77" });
    run.refused(
        "its update produces a different document: token is Token(77) instead of",
        change_field("token", token),
    );
    run.refused(
        "its update produces a different document: holder is None instead of",
        change_field("holder", Value::Null),
    );
    run.refused(
        "it does not write the field schema",
        change_field("schema", json!({ "$numberLong": "1" })),
    );
    run.refused("the history was rewritten", |run| {
        let change = run.change(|line| {
            let (before, after) = (&line["change"]["before"], &line["change"]["after"]);
            let history = before["history"].as_array();
            let writes = before["revision"] != after["revision"];
            writes && history.is_some_and(|entries| !entries.is_empty())
        });
        run.leases[change]["change"]["after"]["history"] = json!([]);
    });
    run.refused("its filter does not match the document before", |run| {
        let before = &mut run.leases[change]["change"]["before"]["revision"];
        before["$binary"]["base64"] = json!("AAAAAAAAAAAAAAAAAAAAAA==");
    });
    run.refused(
        "update: no recorded call explains this change of holder",
        |run| {
            let mut foreign = run.leases[change].clone();
            let after = foreign["change"]["after"].clone();
            foreign["change"]["before"] = after;
            foreign["change"]["after"]["holder"] = Value::Null;
            run.leases.insert(change + 1, foreign);
        },
    );
    run.refused("delete: no recorded call explains this change", |run| {
        run.leases.retain(|line| line["edit"].is_null());
    });
    run.skipped("the recording was not drained", |run| {
        run.leases.retain(|line| line["drained"].is_null());
    });
    run.skipped("the oplog is too short", |run| {
        run.leases
            .insert(change, json!({ "lost": "the oplog is too short" }));
    });
}

fn locks_are_changed(run: &Run) {
    let tamper = |expected: &str, change: fn(&mut Value) -> bool| {
        run.refused(expected, |run| {
            let lines = run.locks.iter_mut();
            let mut changes = lines.filter_map(|line| line.get_mut("change"));
            assert!(changes.any(change), "no such change");
        });
    };
    let held = |change: &Value| change["after"]["holders"].get(0).is_some();
    assert!(run.locks.iter().any(|line| held(&line["change"])));
    tamper(
        "its update produces a different document: token is",
        |change| {
            let granted = change["after"]["holders"].get(0).is_some();
            if granted {
                change["after"]["token"] = json!({ "$numberLong": "77" });
            }
            granted
        },
    );
    tamper(
        "its update produces a different document: holders is",
        |change| {
            let holder = change["after"]["holders"].get_mut(0);
            holder
                .map(|holder| holder["identity"] = json!("mallory"))
                .is_some()
        },
    );
    tamper(
        "its update produces a different document: slot_owners is",
        |change| {
            let owner = change["after"]["slot_owners"].get_mut(0);
            owner.map(|owner| *owner = json!("mallory")).is_some()
        },
    );
    tamper("the field next is", |change| {
        let has = change["after"]["next"].is_string();
        if has {
            change["after"]["next"] = json!("mallory");
        }
        has
    });
    tamper("the history gained", |change| {
        let entries = |of: &str| change[of]["history"].as_array().map_or(0, Vec::len);
        let last = entries("after").checked_sub(1);
        let grows = entries("after") > entries("before");
        if let (true, Some(last)) = (grows, last) {
            change["after"]["history"][last]["reason"] = json!("expired");
        }
        grows
    });
    // Without any request to evict, no call explains the eviction.
    run.refused("no recorded call explains this change of", |run| {
        let evicts = |effect: &Value| !effect["Call"]["operation"]["Evict"].is_null();
        for line in &mut run.trace {
            if let Some(effects) = line["turn"]["effects"].as_array_mut() {
                effects.retain(|effect| !evicts(effect));
            }
        }
    });
}
