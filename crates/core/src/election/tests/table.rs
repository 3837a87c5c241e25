//! Every state with every input: the resulting role, and the operations sent.
//!
//! The expected table is in `table.golden`, one line per pair. A change of the state machine
//! appears as a diff of that file; `BLESS=1` rewrites the file.

use std::fmt::Write as _;
use std::path::Path;

use super::harness::*;
use crate::election::*;

/// The name of a state, a candidate that was brought into this state by inputs, and the store.
type Case = (&'static str, Node, Stored);

fn pending(lands: bool) -> (Node, Stored) {
    let (mut node, mut stored) = acquiring();
    if lands {
        node.lose_reply(at(1), &mut stored);
    } else {
        node.answer_with(at(1), Outcome::Unknown);
    }
    (node, stored)
}

fn stopping(tunables: Tunables, input: Input) -> (Node, Stored) {
    let (mut node, stored) = leader_with("b", at(0), tunables);
    node.input(at(1), input);
    (node, stored)
}

fn draining() -> (Node, Stored) {
    let (mut node, stored) = stopping(with_handoff(seconds(10)), Input::StepDown);
    node.input(at(1), FILES_DEMOTED);
    (node, stored)
}

/// Applies these steps, and returns the resulting state.
fn then(
    (mut node, mut stored): (Node, Stored),
    steps: impl FnOnce(&mut Node, &mut Stored),
) -> (Node, Stored) {
    steps(&mut node, &mut stored);
    (node, stored)
}

fn states() -> Vec<Case> {
    let mut cases = Vec::new();
    let mut case = |name, (node, stored): (Node, Stored)| cases.push((name, node, stored));
    let unread = || (Node::start("b", at(0)), Stored::default());
    let leading = || leader("b", at(0));
    case("unread", (unread().0, leader("a", at(0)).1));
    case("following", follower_of_vanished());
    let polling = then(follower_of_vanished(), |node, stored| {
        node.input(at(1), Input::Watch(Watch::Lost));
        node.serve(at(1), stored);
    });
    case("polling", polling);
    let creating = then(unread(), |node, _| {
        node.answer_with(at(1), MISSING);
    });
    case("creating", creating);
    case("acquiring", acquiring());
    case("pending, landed", pending(true));
    case("pending, lost", pending(false));
    let adopting = then(pending(true), |node, stored| {
        let due = node.wake();
        node.answer(due, stored);
    });
    case("adopting", adopting);
    case("leading", leading());
    case("renewing", then(leading(), |node, _| node.tick(at(3))));
    case("demoting", stopping(tunables(), Input::StepDown));
    case("draining", draining());
    let shut_down = |node: &mut Node, _: &mut Stored| node.input(at(1), Input::Shutdown);
    case("draining, shutdown", then(draining(), shut_down));
    let demoted = |node: &mut Node, _: &mut Stored| {
        node.input(at(1), FILES_DEMOTED);
    };
    let releasing = then(stopping(tunables(), Input::StepDown), demoted);
    case("releasing", releasing);
    let releasing = then(stopping(tunables(), Input::Shutdown), demoted);
    case("releasing, shutdown", releasing);
    let lost = then(leading(), |node, _| node.tick(at(18)));
    case("lost by deadline", lost);
    let lost = then(leading(), |node, stored| {
        stored.rewrite();
        node.tick(at(3));
        node.answer_with(at(3), Outcome::Rejected);
    });
    case("lost by rejection", lost);
    let paused = then(follower_of_vanished(), |node, stored| {
        stored.lease_mut().paused = true;
        node.event(at(1), stored);
    });
    case("paused", paused);
    let rolled_back = then(follower_of_vanished(), |node, stored| {
        stored.document = None;
        node.reread(at(1), stored);
    });
    case("store went back", rolled_back);
    let unrecognized = then(unread(), |node, _| {
        node.answer_with(at(0), foreign());
    });
    case("foreign", unrecognized);
    let unhealthy = then(follower_of_vanished(), |node, stored| {
        node.input(at(1), Input::Health { healthy: false });
        stored.vacate();
        node.event(at(1), stored);
    });
    case("unhealthy", unhealthy);
    case("supervising", supervisor("b"));
    let stopping = then(supervisor("b"), |node, _| {
        node.demote(at(1), Input::StepDown);
    });
    case("supervised workload stopping", stopping);
    let lost = then(supervisor("b"), |node, _| node.tick(at(18)));
    case("supervised workload stopping, lost by deadline", lost);
    case("exited", then(follower_of_vanished(), shut_down));
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
    let mut inputs = vec![
        ("tick", Some(Input::Tick)),
        ("reply: as the store says", applied.and_then(answer)),
        ("reply: acknowledged", answer(Outcome::PrimaryOnly)),
        ("reply: rejected", answer(Outcome::Rejected)),
        ("reply: failed", answer(Outcome::Failed)),
        ("reply: unknown", answer(Outcome::Unknown)),
    ];
    let call = CallId(999);
    let outcome = Outcome::Rejected;
    let token = token(1);
    let claim = stored.document.as_ref().and_then(|lease| lease.claim());
    let released = Released {
        claim: claim.unwrap_or(Claim::from_bytes([61; 16])),
        revision: Revision::from_bytes([62; 16]),
        reserved_for: node.identity.clone(),
    };
    inputs.extend(
        [
            ("reply: of nobody", Input::Reply { call, outcome }),
            ("stream: opened", Input::Watch(Watch::Opened)),
            ("late stream: opened", Input::Watch(Watch::LateStreamOpened)),
            ("stream: alive", Input::Watch(Watch::Alive)),
            ("stream: what is stored", Input::Watch(Watch::Changed(same))),
            ("stream: a free lease", Input::Watch(Watch::Changed(other))),
            ("stream: unclear", Input::Watch(Watch::Unclear)),
            ("stream: lost", Input::Watch(Watch::Lost)),
            ("hints: opened", Input::Watch(Watch::HintsOpened)),
            ("hints: one", Input::Watch(Watch::Hint)),
            ("hints: a release", Input::Watch(Watch::Released(released))),
            ("primary changed", Input::PrimaryChanged),
            ("demoted", FILES_DEMOTED),
            ("not demoted", FILES_STUCK),
            ("label demoted", Input::LabelDemoted),
            ("workload done", Input::WorkloadDone { token }),
            ("workload ended", Input::WorkloadEnded { token }),
            ("workload gone", Input::WorkloadGone { token }),
            ("workload stuck", Input::WorkloadStuck { token }),
            ("unhealthy", Input::Health { healthy: false }),
            ("healthy", Input::Health { healthy: true }),
            ("step down", Input::StepDown),
            ("shutdown", Input::Shutdown),
            ("reconfigure", Input::Reconfigure(tunables())),
        ]
        .map(|(name, input)| (name, Some(input))),
    );
    inputs
}

fn table() -> String {
    let mut text = String::new();
    for (name, node, mut stored) in states() {
        let _ = writeln!(text, "{name}: {} {:?}", node.role(), node.waiting());
        for (input, what) in inputs(&node, &mut stored) {
            let Some(what) = what else { continue };
            let mut node = node.clone();
            let now = node.now() + millis(1);
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
        // One hour passes without an answer. The deadlines of all states are shorter.
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
        std::fs::write(&path, &table).expect("table.golden can be written");
    }
    let golden = std::fs::read_to_string(&path).expect("table.golden can be read");
    for (line, (now, before)) in table.lines().zip(golden.lines()).enumerate() {
        assert_eq!(now.trim_end(), before.trim_end(), "line {}", line + 1);
    }
    assert_eq!(table.lines().count(), golden.lines().count());
}
