//! Goal: an operator sees the holders of each lock. Only a forced break may let two holders run at
//! once.

use mongodb::bson::doc;
use rustix::process::Signal;

use crate::job::{Job, Place};

#[test]
fn the_list_shows_holders_and_free_locks() {
    let place = Place::new();
    let holds = format!("{}; exec sleep 1000", place.note("holds"));
    let holder = place.start(&[
        "lock",
        "listed",
        "--slots=2",
        "--identity=someone",
        "--",
        "sh",
        "-c",
        &holds,
    ]);
    place.wait_noted("holds");
    assert_eq!(place.run(&["lock", "listed-free", "--", "true"]).code, 0);
    let table = place.run(&["locks"]).stdout;
    let line = |name: &str| {
        table
            .lines()
            .find(|line| line.starts_with(name))
            .unwrap_or_default()
    };
    assert!(line("LOCK").contains("IDENTITY"), "{table}");
    let words: Vec<_> = line("listed ").split_whitespace().collect();
    assert_eq!(
        words[..8],
        ["listed", "1", "held", "slot", "0", "of", "2", "someone"],
        "{table}"
    );
    assert!(line("listed-free").contains("free"), "{table}");
    let json: serde_json::Value =
        serde_json::from_str(&place.run(&["locks", "--output=json"]).stdout).unwrap();
    let locks = json.as_array().unwrap();
    let listed = locks.iter().find(|lock| lock["lock"] == "listed").unwrap();
    assert_eq!(listed["holders"][0]["identity"], "someone");
    assert_eq!(listed["holders"][0]["slot"], 0);
    assert_eq!((&listed["slots"], &listed["token"]), (&2.into(), &1.into()));
    drop(holder);
}

#[test]
fn the_history_shows_how_each_command_ended() {
    let place = Place::new();
    for (flags, script) in [
        (&[][..], "exit 0"),
        (&[], "exit 3"),
        (&[], "kill -KILL $$"),
        (&["--at-least=1s"], "exit 4"),
        (&[], "sleep 1000 > /dev/null 2>&1 & exit 5"),
        (&[], "sleep 1000 > /dev/null 2>&1 & exit 0"),
    ] {
        let words = [&["lock", "ended"], flags, &["--", "sh", "-c", script]].concat();
        let mut job = place.command(&words);
        job.env("LEASEHOLD_WORKLOAD__LINGER", "0s");
        Job::start(job).output();
    }
    // Evicts the entry that was kept for the minimum hold.
    place.run_empty("ended", &[]);
    let described = place.run(&["describe", "ended"]).stdout;
    let history = described
        .lines()
        .skip_while(|line| !line.starts_with("History"));
    let results: Vec<_> = history
        .skip(2)
        .filter_map(|line| line.split_once("released").map(|(_, result)| result.trim()))
        .collect();
    let expected = [
        "exit 0",
        "exit 0, leftovers stopped",
        "exit 5, leftovers stopped",
        "exit 4",
        "SIGKILL",
        "exit 3",
        "exit 0",
    ];
    assert_eq!(results, expected, "{described}");
    let listed = place.run(&["locks"]).stdout;
    assert!(listed.contains(" ago: exit 0"), "{listed}");
}

#[test]
fn only_expired_entries_are_broken() {
    let place = Place::new();
    let flags = [
        "lock",
        "to-break",
        "--lease-duration=8s",
        "--identity=holder",
    ];
    let holds = format!("{}; exec sleep 1000", place.note("holds"));
    let holder = place.start(&[&flags[..], &["--", "sh", "-c", &holds]].concat());
    place.wait_noted("holds");
    let alive = place.run(&["locks", "break", "to-break"]);
    assert_eq!(alive.code, 1, "{alive:?}");
    assert!(alive.stdout.contains("so none is removed"), "{alive:?}");
    holder.signal(Signal::STOP);
    let broken = place.run(&["locks", "break", "to-break"]);
    assert_eq!(broken.code, 0, "{broken:?}");
    assert!(
        broken.stdout.contains("broken: held by holder"),
        "{broken:?}"
    );
    let again = place.run(&["locks", "break", "to-break"]);
    assert_eq!(again.code, 1);
    holder.signal(Signal::CONT);
    assert_eq!(holder.output().code, 76);
}

#[test]
fn force_warns_and_asks_for_confirmation() {
    let place = Place::new();
    let holds = format!("{}; exec sleep 1000", place.note("holds"));
    let holder = place.start(&[
        "lock",
        "forced",
        "--identity=holder",
        "--",
        "sh",
        "-c",
        &holds,
    ]);
    place.wait_noted("holds");
    let unasked = place.run(&["locks", "break", "forced", "--force"]);
    assert_eq!(unasked.code, 1);
    assert!(unasked.stderr.contains("--force is unsafe"), "{unasked:?}");
    assert!(unasked.stderr.contains("--yes"), "{unasked:?}");
    assert_eq!(unasked.stdout, "lock forced: nothing changed\n");
    assert_eq!(
        place
            .run(&["lock", "forced", "--no-wait", "--", "true"])
            .code,
        75
    );
    let forced = place.run(&["locks", "break", "forced", "--force", "--yes"]);
    assert_eq!(forced.code, 0, "{forced:?}");
    assert_eq!(holder.output().code, 76, "noticed at its next renewal");
    assert_eq!(place.run(&["locks", "break", "never-used"]).code, 78);
}

#[test]
fn holders_that_renew_at_different_times_are_all_alive() {
    let place = Place::new();
    let holds = format!("{}; exec sleep 1000", place.note("holds"));
    let reader = || {
        place.start(&[
            "lock",
            "readers-alive",
            "--lease-duration=6s",
            "--shared",
            "--",
            "sh",
            "-c",
            &holds,
        ])
    };
    let readers = [reader(), reader(), reader()];
    crate::job::eventually("all jobs hold the lock", || place.journal().len() == 3);
    let waiter = place.start(&["lock", "readers-alive", "--identity=waiter", "--", "true"]);
    crate::job::eventually("the job waits", || {
        place.run(&["locks"]).stdout.contains("waiter")
    });
    let alive = place.run(&["locks", "break", "readers-alive"]);
    assert_eq!(alive.code, 1, "{alive:?}");
    assert!(alive.stdout.contains("so none is removed"), "{alive:?}");
    drop((readers, waiter));
}

#[test]
fn control_characters_in_names_are_escaped() {
    let place = Place::new();
    place.store_document(
        "we\x1b[31m\u{9b}ird",
        doc! { "schema": 1, "kind": "lock", "token": 1_i64 },
    );
    for arguments in [
        &["locks", "--all"][..],
        &["locks", "--all", "--output=json"],
    ] {
        let listed = place.run(arguments);
        assert!(listed.stdout.contains("we?[31m?ird"), "{listed:?}");
        let raw = |c: char| c.is_control() && c != '\n';
        assert!(!listed.stdout.contains(raw), "{listed:?}");
    }
}
