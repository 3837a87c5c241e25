//! Every state with every input: the role after it, and the operations sent.
//!
//! The expected table is in `table.golden`, one line per pair. A change of the state machine shows
//! there as a diff to review; `BLESS=1` rewrites the file.

use std::fmt::Write as _;
use std::path::Path;

use super::harness::*;
use crate::election::*;

/// The name of a state, a candidate that reached it from its start, and the store.
type Case = (&'static str, Node, Stored);

fn follower_of_a() -> (Node, Stored) {
    let (_, mut stored) = leader("a", at(0));
    let node = follower("b", at(0), &mut stored);
    (node, stored)
}

/// Returns a candidate with its stream open that acquires a lease freed by another one, and the
/// store.
fn acquiring() -> (Node, Stored) {
    let (mut node, mut stored) = follower_of_a();
    stored.lease_mut().holder = None;
    stored.lease_mut().revision = Revision::from_bytes([50; 16]);
    node.event(at(1), &stored);
    (node, stored)
}

fn pending(lands: bool) -> (Node, Stored) {
    let (mut node, mut stored) = acquiring();
    let (call, operation) = node.take_call();
    if lands {
        stored.apply(&node.identity, &operation);
    }
    node.reply(at(1), call, Outcome::Unknown);
    (node, stored)
}

fn stopping(tunables: Tunables, input: Input) -> (Node, Stored) {
    let (mut node, stored) = leader_with("b", at(0), tunables);
    node.input(at(1), input);
    (node, stored)
}

fn draining() -> (Node, Stored) {
    let tunables = Tunables {
        handoff_delay: seconds(10),
        ..tunables()
    };
    let (mut node, stored) = stopping(tunables, Input::StepDown);
    node.input(at(1), Input::Demoted { shown: true });
    (node, stored)
}

fn supervising() -> (Node, Stored) {
    let mut stored = Stored::default();
    let mut node = Node::supervising("b", at(0));
    node.serve(at(0), &mut stored);
    node.open_stream(at(0), &mut stored);
    (node, stored)
}

fn states() -> Vec<Case> {
    let mut cases = Vec::new();
    let mut case = |name, (node, stored): (Node, Stored)| cases.push((name, node, stored));
    case("unread", (Node::start("b", at(0)), leader("a", at(0)).1));
    case("following", follower_of_a());
    case("polling", {
        let (mut node, mut stored) = follower_of_a();
        node.input(at(1), Input::Watch(Watch::Lost));
        node.serve(at(1), &mut stored);
        (node, stored)
    });
    case("creating", {
        let mut node = Node::start("b", at(0));
        let (call, _) = node.take_call();
        node.reply(at(1), call, Outcome::Applied(Found::Missing));
        (node, Stored::default())
    });
    case("acquiring", acquiring());
    case("pending, landed", pending(true));
    case("pending, lost", pending(false));
    case("adopting", {
        let (mut node, mut stored) = pending(true);
        let due = node.election.next_wakeup().expect("it reads again");
        node.tick(due);
        let (call, operation) = node.take_call();
        let outcome = stored.apply(&node.identity, &operation);
        node.reply(due, call, outcome);
        (node, stored)
    });
    case("leading", leader("b", at(0)));
    case("renewing", {
        let (mut node, stored) = leader("b", at(0));
        node.tick(at(3));
        (node, stored)
    });
    case("demoting", stopping(tunables(), Input::StepDown));
    case("draining", draining());
    case("draining, shutdown", {
        let (mut node, stored) = draining();
        node.input(at(1), Input::Shutdown);
        (node, stored)
    });
    case("releasing", {
        let (mut node, stored) = stopping(tunables(), Input::StepDown);
        node.input(at(1), Input::Demoted { shown: true });
        (node, stored)
    });
    case("releasing, shutdown", {
        let (mut node, stored) = stopping(tunables(), Input::Shutdown);
        node.input(at(1), Input::Demoted { shown: true });
        (node, stored)
    });
    case("lost by deadline", {
        let (mut node, stored) = leader("b", at(0));
        node.tick(at(18));
        (node, stored)
    });
    case("lost by rejection", {
        let (mut node, mut stored) = leader("b", at(0));
        stored.lease_mut().revision = Revision::from_bytes([50; 16]);
        node.tick(at(3));
        let (call, _) = node.take_call();
        node.reply(at(3), call, Outcome::Rejected);
        (node, stored)
    });
    case("paused", {
        let (mut node, mut stored) = follower_of_a();
        stored.lease_mut().paused = true;
        node.event(at(1), &stored);
        (node, stored)
    });
    case("store went back", {
        let (mut node, mut stored) = follower_of_a();
        stored.document = None;
        node.input(at(1), Input::Watch(Watch::Unclear));
        node.serve(at(1), &mut stored);
        (node, stored)
    });
    case("foreign", {
        let (mut node, stored) = (Node::start("b", at(0)), Stored::default());
        let (call, _) = node.take_call();
        node.reply(
            at(0),
            call,
            Outcome::Applied(Found::Foreign("newer".to_owned())),
        );
        (node, stored)
    });
    case("unhealthy", {
        let (mut node, mut stored) = follower_of_a();
        node.input(at(1), Input::Health { healthy: false });
        stored.lease_mut().holder = None;
        stored.lease_mut().revision = Revision::from_bytes([50; 16]);
        node.event(at(1), &stored);
        (node, stored)
    });
    case("supervising", supervising());
    case("supervised workload stopping", {
        let (mut node, stored) = supervising();
        node.input(at(1), Input::StepDown);
        node.input(at(1), Input::Demoted { shown: true });
        (node, stored)
    });
    case("supervised workload stopping, lost by deadline", {
        let (mut node, stored) = supervising();
        node.tick(at(18));
        (node, stored)
    });
    case("exited", {
        let (mut node, stored) = follower_of_a();
        node.input(at(1), Input::Shutdown);
        (node, stored)
    });
    cases
}

/// Returns all possible inputs, including answers to the oldest open call.
fn inputs(node: &Node, stored: &mut Stored) -> Vec<(&'static str, Option<Input>)> {
    let open = node.calls.front().cloned();
    let answer = |outcome: Outcome| {
        open.as_ref().map(|(call, _)| Input::Reply {
            call: *call,
            outcome,
        })
    };
    let applied = open
        .as_ref()
        .map(|(_, o)| stored.clone().apply(&node.identity, o));
    let other = {
        let mut lease = free(Revision::from_bytes([60; 16]), token(9));
        lease.request = Some(Request {
            kind: RequestKind::StepDown,
            token: token(1),
        });
        lease
    };
    let same = stored.document.clone().unwrap_or_else(|| other.clone());
    vec![
        ("tick", Some(Input::Tick)),
        ("reply: as the store says", applied.and_then(answer)),
        ("reply: rejected", answer(Outcome::Rejected)),
        ("reply: failed", answer(Outcome::Failed)),
        ("reply: unknown", answer(Outcome::Unknown)),
        (
            "reply: of nobody",
            Some(Input::Reply {
                call: CallId(999),
                outcome: Outcome::Rejected,
            }),
        ),
        ("stream: opened", Some(Input::Watch(Watch::Opened))),
        ("stream: alive", Some(Input::Watch(Watch::Alive))),
        (
            "stream: what is stored",
            Some(Input::Watch(Watch::Changed(same))),
        ),
        (
            "stream: a free lease",
            Some(Input::Watch(Watch::Changed(other))),
        ),
        ("stream: unclear", Some(Input::Watch(Watch::Unclear))),
        ("stream: lost", Some(Input::Watch(Watch::Lost))),
        ("primary changed", Some(Input::PrimaryChanged)),
        ("demoted", Some(Input::Demoted { shown: true })),
        ("not demoted", Some(Input::Demoted { shown: false })),
        (
            "workload done",
            Some(Input::WorkloadDone { token: token(1) }),
        ),
        (
            "workload ended",
            Some(Input::WorkloadEnded { token: token(1) }),
        ),
        (
            "workload gone",
            Some(Input::WorkloadGone { token: token(1) }),
        ),
        ("unhealthy", Some(Input::Health { healthy: false })),
        ("healthy", Some(Input::Health { healthy: true })),
        ("step down", Some(Input::StepDown)),
        ("shutdown", Some(Input::Shutdown)),
        ("reconfigure", Some(Input::Reconfigure(tunables()))),
    ]
}

fn table() -> String {
    let mut text = String::new();
    for (name, node, mut stored) in states() {
        let _ = writeln!(text, "{name}: {} {:?}", node.role(), node.waiting());
        for (input, what) in inputs(&node, &mut stored) {
            let Some(what) = what else { continue };
            let mut node = node.clone();
            let now = node.election.status_time() + millis(1);
            if let Input::Reply { .. } = &what
                && input != "reply: of nobody"
            {
                node.calls.pop_front();
            }
            let (sent, demotions, notices) =
                (node.sent.len(), node.demotions_asked, node.notices.len());
            let exited = node.exited;
            node.input(now, what);
            let mut done: Vec<&str> = node.sent[sent..].iter().map(Operation::as_str).collect();
            if node.demotions_asked > demotions {
                done.push("DEMOTE");
            }
            if node.notices.len() > notices {
                done.push("NOTICE");
            }
            if node.exited && !exited {
                done.push("EXIT");
            }
            let _ = writeln!(
                text,
                "    {input:<26} {:<9} {}",
                node.role().as_str(),
                done.join(" ")
            );
        }
        // One hour passes without an answer, because no state outlives its deadlines.
        let mut node = node;
        node.tick(at(3600));
        let _ = writeln!(
            text,
            "    {:<26} {}",
            "an hour of silence",
            node.role().as_str()
        );
    }
    text
}

#[test]
fn every_state_takes_every_input_as_the_table_says() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/election/tests/table.golden");
    let table = table();
    if std::env::var_os("BLESS").is_some() {
        std::fs::write(&path, &table).expect("the table can be written");
    }
    let golden = std::fs::read_to_string(&path).expect("the table is there");
    for (line, (now, before)) in table.lines().zip(golden.lines()).enumerate() {
        assert_eq!(now.trim_end(), before.trim_end(), "line {}", line + 1);
    }
    assert_eq!(table.lines().count(), golden.lines().count());
}
