use std::collections::BTreeSet;

use proptest::prelude::*;
use serde_json::json;

use super::*;
use leasehold_mongodb::store::mongo::operators::{CollectionEntry, Content};
use leasehold_status::fixture::at;

fn entry(name: &str, why: &str) -> CollectionEntry {
    CollectionEntry {
        name: name.to_owned(),
        content: Content::Foreign(why.to_owned()),
        kind: None,
    }
}

fn changed(name: &str, why: &str) -> ViewEvent {
    ViewEvent::Changed {
        entry: entry(name, why),
        at: at(1),
    }
}

fn names(piece: &Delta) -> Vec<&str> {
    let names = piece.documents.iter().map(|document| &document["name"]);
    names.filter_map(Value::as_str).collect()
}

#[test]
fn a_browser_gets_what_is_newest_once() {
    let mut board = Snapshot::default();
    for (name, why) in [("a", "1"), ("b", "1"), ("a", "2"), ("a", "3")] {
        board.apply(changed(name, why), at(1));
    }
    let first = board.since(Position::default(), at(2));
    assert_eq!(names(&first), ["b", "a"]);
    assert!(first.reset && first.complete);
    assert!(board.since(first.at, at(2)).is_empty());
    board.apply(changed("b", "1"), at(3));
    assert!(board.since(first.at, at(3)).is_empty(), "nothing differs");
    let name = "a".to_owned();
    board.apply(ViewEvent::Removed { name }, at(3));
    let second = board.since(first.at, at(3));
    assert_eq!(second.removed, ["a"]);
    assert!(!second.reset);
    assert_eq!(names(&board.since(Position::default(), at(3))), ["b"]);
}

/// Returns the number of documents in each event for a new browser.
fn sizes(board: &Snapshot) -> Vec<usize> {
    let (mut position, mut sizes) = (Position::default(), Vec::new());
    loop {
        let delta = board.since(position, at(2));
        sizes.push(delta.documents.len());
        position = delta.at;
        if delta.complete {
            return sizes;
        }
    }
}

#[test]
fn a_large_list_comes_in_pieces() {
    let entries: Vec<_> = (0..150).map(|n| entry(&format!("{n:03}"), "x")).collect();
    let mut board = Snapshot::default();
    board.apply(ViewEvent::Listed { entries, at: at(1) }, at(1));
    assert_eq!(sizes(&board), [64, 64, 22]);
    delete_many(&mut board);
    assert_eq!(
        sizes(&board),
        [64, 64, 22],
        "even after deletions were forgotten"
    );
}

fn renew(board: &mut Snapshot, names: &[String]) {
    board.apply(ViewEvent::Failed(Failure::new("no primary", "")), at(1));
    for name in names {
        let known = board.get(name).map(|seen| seen.entry.clone());
        if let Some(entry) = known {
            board.apply(ViewEvent::Changed { entry, at: at(1) }, at(1));
        }
    }
}

fn numbered(count: usize) -> Vec<String> {
    (0..count).map(|number| format!("{number:03}")).collect()
}

fn list(names: &[String]) -> Snapshot {
    let entries = names.iter().map(|name| entry(name, "x")).collect();
    let mut board = Snapshot::default();
    board.apply(ViewEvent::Listed { entries, at: at(1) }, at(1));
    board
}

/// Applies deltas as the page's script does.
#[derive(Default)]
struct Browser {
    position: Position,
    known: BTreeMap<String, Value>,
    stale: BTreeSet<String>,
}

impl Browser {
    fn receive(&mut self, board: &Snapshot) -> bool {
        let delta = board.since(self.position, at(2));
        self.position = delta.at;
        if delta.reset {
            self.stale = self.known.keys().cloned().collect();
        }
        assert!(delta.documents.len() <= DOCUMENTS_MAX && delta.renewed.len() <= RENEWALS_MAX);
        for mut document in delta.documents {
            let name = document["name"].as_str().expect("a name").to_owned();
            self.stale.remove(&name);
            self.known.insert(name, document["foreign"].take());
        }
        for (name, _) in delta.renewed {
            assert!(self.known.contains_key(&name), "unknown: {name}");
        }
        for name in delta.removed {
            self.known.remove(&name);
        }
        if delta.complete {
            for name in std::mem::take(&mut self.stale) {
                self.known.remove(&name);
            }
        }
        delta.complete
    }

    fn receive_all(&mut self, board: &Snapshot) {
        while !self.receive(board) {}
        let shown: Vec<_> = self.known.iter().collect();
        let rows: Vec<_> = board
            .documents()
            .map(|seen| board.row(seen, at(2)))
            .collect();
        assert_eq!(shown.len(), rows.len(), "the number of documents");
        for ((name, content), row) in shown.into_iter().zip(rows) {
            assert_eq!((&row["name"], &row["foreign"]), (&json!(name), content));
        }
    }
}

#[test]
fn renewals_before_and_during_the_first_list_hide_no_document() {
    let names = numbered(150);
    let mut board = list(&names);
    renew(&mut board, &names);
    Browser::default().receive_all(&board);
    let mut browser = Browser::default();
    while !browser.receive(&board) {
        renew(&mut board, &names[..100]);
    }
    browser.receive_all(&board);
}

#[test]
fn a_reconnected_browser_loses_no_document() {
    let names = numbered(150);
    let mut board = list(&names);
    let mut browser = Browser::default();
    browser.receive_all(&board);
    renew(&mut board, &names);
    browser.receive_all(&board);
    browser.position = Position::default();
    browser.receive_all(&board);
}

#[test]
fn renewals_hide_no_change_that_takes_several_events() {
    let names = numbered(150);
    let mut board = list(&names);
    let mut browser = Browser::default();
    browser.receive_all(&board);
    for name in &names {
        board.apply(changed(name, "y"), at(1));
    }
    renew(&mut board, &names);
    browser.receive_all(&board);
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_browser_shows_the_collection_after_any_changes(
        steps in proptest::collection::vec((0..5_u8, 0..200_usize, 0..200_usize), 1..12)
    ) {
        let names = numbered(200);
        let mut board = list(&names[..100]);
        let mut browser = Browser::default();
        for (step, (kind, first, last)) in steps.into_iter().enumerate() {
            let some = names.get(first..last).unwrap_or_default();
            match kind {
                0 => some.iter().for_each(|name| board.apply(changed(name, &step.to_string()), at(1))),
                1 => renew(&mut board, some),
                2 => some.iter().cloned().for_each(|name| board.apply(ViewEvent::Removed { name }, at(1))),
                3 => drop(browser.receive(&board)),
                _ => browser.position = Position::default(),
            }
        }
        browser.receive_all(&board);
    }
}

/// Adds and deletes documents, one more than the number of deletions that the board remembers.
fn delete_many(board: &mut Snapshot) {
    for number in 0..=REMOVED_MAX {
        let name = format!("deleted-{number}");
        board.apply(changed(&name, "x"), at(1));
        board.apply(ViewEvent::Removed { name }, at(1));
    }
}

#[test]
fn forgotten_deletions_make_a_browser_start_again() {
    let mut board = Snapshot::default();
    board.apply(changed("stays", "x"), at(1));
    let seen = board.since(Position::default(), at(1)).at;
    delete_many(&mut board);
    let again = board.since(seen, at(2));
    assert!(again.reset);
    assert_eq!(names(&again), ["stays"]);
    assert!(!board.since(again.at, at(2)).reset, "once");
    assert_eq!(board.changes.len(), REMOVED_MAX + 1);
}

#[test]
fn the_documents_are_old_since_mongodb_was_lost() {
    let mut board = Snapshot::default();
    let failure = Failure::new("no primary", "");
    board.apply(ViewEvent::Failed(failure.clone()), at(1));
    assert!(!board.is_listed());
    board.apply(ViewEvent::Streaming, at(2));
    assert!(!board.is_listed() && board.link.state != LinkState::Current);
    let entries = vec![entry("a", "x")];
    board.apply(ViewEvent::Listed { entries, at: at(2) }, at(2));
    assert!(board.is_listed() && board.link.state == LinkState::Current);
    board.apply(ViewEvent::Failed(failure.clone()), at(3));
    board.apply(ViewEvent::Failed(failure), at(5));
    assert_eq!(board.link.age(at(7)), Some(Duration::from_secs(4)));
    board.apply(ViewEvent::Streaming, at(8));
    assert_eq!(board.link.age(at(9)), None);
}

#[test]
fn an_overdue_answer_counts_as_a_lost_connection() {
    const WITHIN: Duration = Duration::from_secs(5);
    let mut board = Snapshot::default();
    let state = |board: &Snapshot, now| {
        let link = board.link_at(Some(at(1)), WITHIN, at(now));
        (link.state, link.age(at(now)).map(|age| age.as_secs()))
    };
    assert_eq!(state(&board, 9), (LinkState::Connecting, None));
    let entries = vec![entry("a", "x")];
    board.apply(ViewEvent::Listed { entries, at: at(1) }, at(1));
    assert_eq!(state(&board, 6), (LinkState::Current, None));
    assert_eq!(state(&board, 7), (LinkState::Lost, Some(6)));
    let failure = Failure::new("no primary", "");
    board.apply(ViewEvent::Polling(failure.clone()), at(1));
    assert_eq!(state(&board, 6), (LinkState::Polling, None));
    assert_eq!(state(&board, 8), (LinkState::Lost, Some(7)));
    // The read fails after 10 s without an answer, so the data is 10 s old.
    board.apply(ViewEvent::Failed(failure.clone()), at(1));
    assert_eq!(state(&board, 11), (LinkState::Lost, Some(10)));
    let link = board.link_at(Some(at(1)), WITHIN, at(11));
    assert_eq!(link.why, Some(failure), "the reason of the failed read");
}

#[test]
fn the_connection_is_described_as_by_a_daemon() {
    let now = ClockPair {
        boot: at(400),
        wall: std::time::UNIX_EPOCH + Duration::from_secs(1_000_000_372),
        time_namespace: None,
    };
    let failure = Failure::new("no primary", "db-1:27017 is down");
    for (state, why, since, expected) in [
        (LinkState::Current, None, None, "connected to MongoDB"),
        (
            LinkState::Polling,
            Some(&failure),
            None,
            "connected to MongoDB",
        ),
        (
            LinkState::Connecting,
            None,
            None,
            "MongoDB has not answered yet",
        ),
        (
            LinkState::Lost,
            Some(&failure),
            None,
            "MongoDB has not answered yet: no primary",
        ),
        (
            LinkState::Lost,
            Some(&failure),
            Some(at(28)),
            "not connected to MongoDB since 2001-09-09T01:46:40Z (6m12s ago): no primary",
        ),
    ] {
        assert_eq!(Link::of(state, why, since).description(now), expected);
    }
}
