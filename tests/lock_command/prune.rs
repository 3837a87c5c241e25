//! Goal: `locks prune` shrinks only the documents of unused locks, keeps their tokens, reports why
//! it keeps other locks, and exits within its timeout.

use std::time::{Duration, Instant};

use mongodb::bson::doc;

use crate::job::{Place, eventually};

const PRUNE: [&str; 3] = ["locks", "prune", "--unused-for=0s"];

#[test]
fn pruned_locks_keep_their_tokens() {
    let place = Place::new();
    assert_eq!(place.run(&["lock", "pruned", "--", "true"]).code, 0);
    let young = place.run(&["locks", "prune", "--unused-for=1d"]);
    assert!(!young.stdout.contains("pruned pruned"), "{young:?}");
    let pruned = place.run(&["locks", "prune", "--unused-for=0s"]);
    assert!(pruned.stdout.contains("pruned pruned\n"), "{pruned:?}");
    let next = place.run(&["lock", "pruned", "--", "sh", "-c", "echo $LEASEHOLD_TOKEN"]);
    assert_eq!(next.stdout, "2\n");
}

#[test]
fn a_pruned_lock_is_hidden_until_its_next_acquisition() {
    let place = Place::new();
    for lock in ["kept", "unused"] {
        assert_eq!(place.run_empty(lock, &[]).code, 0);
    }
    let listed = |flags: &[&str]| {
        let listed = place.run(&[&["locks", "-o", "json"], flags].concat());
        let locks: serde_json::Value = serde_json::from_str(&listed.stdout).expect("JSON");
        let locks = locks.as_array().expect("a list").iter();
        let shown = |lock: &serde_json::Value| {
            let name = lock["lock"].as_str().expect("a name");
            (name.to_owned(), lock["pruned"].as_bool().expect("a flag"))
        };
        locks.map(shown).collect::<Vec<_>>()
    };
    let shown = |locks: &[(&str, bool)]| {
        let locks = locks
            .iter()
            .map(|(name, pruned)| (name.to_string(), *pruned));
        locks.collect::<Vec<_>>()
    };
    assert_eq!(listed(&[]), shown(&[("kept", false), ("unused", false)]));

    assert_eq!(place.run(&PRUNE).code, 0);
    assert_eq!(place.run_empty("kept", &[]).code, 0);
    assert_eq!(listed(&[]), shown(&[("kept", false)]));
    let all = shown(&[("kept", false), ("unused", true)]);
    assert_eq!(listed(&["--all"]), all);
    let text = place.run(&["locks"]);
    assert!(!text.stdout.contains("unused"), "{text:?}");
    let hidden = "1 pruned lock not shown (--all)\n";
    assert!(text.stderr.contains(hidden), "{text:?}");
    let text = place.run(&["locks", "--all"]);
    let row = text.stdout.lines().find(|row| row.starts_with("unused"));
    let row: Vec<_> = row.expect("a row").split_whitespace().collect();
    assert_eq!(row[..3], ["unused", "1", "pruned"], "{text:?}");
    assert!(!text.stderr.contains("not shown"), "{text:?}");
    let described = place.run(&["describe", "unused"]).stdout;
    let state = "State:     pruned, 0 waiting\n";
    assert!(described.contains(state), "{described}");

    // An acquisition ends the pruned state. No option or command is needed.
    assert_eq!(place.run_empty("unused", &[]).code, 0);
    assert_eq!(listed(&[]), shown(&[("kept", false), ("unused", false)]));
}

#[test]
fn every_lock_is_reported_in_order_with_a_reason() {
    let place = Place::new();
    let foreign = doc! { "schema": 2, "kind": "lock", "token": 1_i64 };
    place.store_document("e-newer", foreign);
    let kept = place.run_empty("d-kept", &["--at-least=1h", "--identity=quick"]);
    assert_eq!(kept.code, 0, "{kept:?}");
    let holder = place.holder("c-held", &["--identity=someone"]);
    for lock in ["a-unused", "b-unused"] {
        assert_eq!(place.run_empty(lock, &[]).code, 0);
    }
    let young = place.run(&["locks", "prune", "--unused-for=1h"]);
    assert_eq!(young.code, 1, "{young:?}");
    assert!(young.stdout.contains("kept a-unused: used "), "{young:?}");
    let none = "no lock has been unused for 1h: 5 kept, 0 pruned before";
    assert!(young.stdout.ends_with(&format!("{none}\n")), "{young:?}");

    let pruned = place.run(&PRUNE);
    assert_eq!(pruned.code, 0, "{pruned:?}");
    let lines: Vec<_> = pruned.stdout.lines().collect();
    assert_eq!(
        lines[..3],
        [
            "pruned a-unused",
            "pruned b-unused",
            "kept c-held: held by someone (exclusive)"
        ]
    );
    let rest =
        "kept d-kept: the work of quick (exclusive) has ended; its minimum hold lasts another 59m";
    assert!(lines[3].starts_with(rest), "{pruned:?}");
    assert_eq!(
        lines[4..],
        [
            "kept e-newer: not a lock: its schema 2 is newer than 1",
            "2 pruned, 3 kept, 0 pruned before"
        ]
    );

    let again = place.run(&[&PRUNE[..], &["--output=json"]].concat());
    assert_eq!(again.code, 1, "{again:?}");
    let json: serde_json::Value = serde_json::from_str(&again.stdout).unwrap();
    assert_eq!(json["pruned"], serde_json::json!([]));
    assert_eq!(json["pruned_before"], 2);
    let reasons = json["kept"].as_array().unwrap().iter();
    let reasons: Vec<_> = reasons
        .map(|kept| (kept["lock"].as_str(), kept["reason"].as_str()))
        .collect();
    let expected = [
        ("c-held", "held"),
        ("d-kept", "kept"),
        ("e-newer", "not_a_lock"),
    ];
    assert_eq!(
        reasons,
        expected.map(|(lock, reason)| (Some(lock), Some(reason)))
    );
    drop(holder);
}

#[test]
fn a_lock_that_was_used_after_it_was_listed_is_skipped() {
    let place = Place::new();
    let once = ["--once-per=1h"];
    for lock in ["first", "second"] {
        assert_eq!(place.run_empty(lock, &once).code, 0);
    }
    let direct = place.set.uri();
    let proxy = place.set.proxy();
    let proxied = place.set.proxied_uri(&proxy);
    let place = place.reached_by(proxied);
    // Requests that write to the first lock contain its name. The request for the list does not.
    proxy.hold_requests_containing("first");
    let pruning = place.start(&PRUNE);
    eventually("the first lock is being pruned", || {
        proxy.held_requests() > 0
    });
    let place = place.reached_by(direct);
    assert_eq!(place.run_empty("second", &[]).code, 0);
    proxy.resume();
    let pruned = pruning.output();
    let (first, second) = pruned.stdout.split_once('\n').expect("two lines");
    assert!(first.starts_with("pruned first; its success "), "{first}");
    assert!(first.ends_with(" ago is forgotten, so --once-per may run the job again"));
    let kept = "kept second: changed after it was listed\n1 pruned, 1 kept, 0 pruned before\n";
    assert_eq!(second, kept);
    // The success of the skipped lock is still recorded.
    assert_eq!(place.run_empty("second", &once).code, 77);
}

#[test]
fn a_prune_whose_write_is_not_answered_exits_within_its_timeout() {
    let place = Place::new();
    assert_eq!(place.run_empty("hangs", &[]).code, 0);
    let proxy = place.set.proxy();
    let proxied = place.set.proxied_uri(&proxy);
    let place = place.reached_by(proxied);
    // The request for the list contains no name, but the write and the subsequent read contain the
    // name.
    proxy.hold_requests_containing("hangs");
    let began = Instant::now();
    let pruned = place.run(&[&PRUNE[..], &["--timeout=4s"]].concat());
    pruned.says(69, "lock hangs: the outcome is not known");
    // The read shares the write's timeout. With a separate timeout, the command could take twice as
    // long.
    let took = began.elapsed();
    assert!(took < Duration::from_millis(7_500), "{took:?}");
}
