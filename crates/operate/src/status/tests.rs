use std::time::UNIX_EPOCH;

use super::*;
use leasehold_status::render::{DocumentHolder, DocumentStoreError};

fn document(role: &str, until: Option<u64>) -> StatusDocument {
    StatusDocument {
        schema: 1,
        lease: "orders".to_owned(),
        identity: "me".to_owned(),
        session: "s".to_owned(),
        role: role.to_owned(),
        leader: role == "leader",
        token: until.map(|_| 7),
        valid_until: until.map(|_| "1970-01-01T00:02:00.000Z".to_owned()),
        valid_until_boottime_ns: until,
        boot_id: Some("b1".to_owned()),
        time_namespace: Some(7),
        holder: Some(DocumentHolder {
            identity: "me".to_owned(),
            token: 7,
            unconfirmed: false,
        }),
        transitions: 3,
        since: "1970-01-01T00:00:10.000Z".to_owned(),
        reason: Some("renewed".to_owned()),
        updated_at: "1970-01-01T00:01:38.000Z".to_owned(),
        store_error: None,
        rewrite_due_boottime_ns: None,
        stopped: false,
    }
}

fn judged(
    document: &StatusDocument,
    lease: Option<&str>,
    boot: Option<&str>,
    now: u64,
) -> (u8, bool) {
    let judgement = judge(
        &document.to_json(),
        lease,
        boot,
        None,
        BootTime::from_nanos(now),
    );
    (judgement.verdict.exit_code(), judgement.is_fresh())
}

#[test]
fn i4_leader_is_trusted_before_the_deadline_in_this_boot_only() {
    let leader = document("leader", Some(1_000));
    assert_eq!(judged(&leader, None, Some("b1"), 999), (0, true));
    assert_eq!(judged(&leader, Some("orders"), Some("b1"), 999), (0, true));
    assert_eq!(judged(&leader, None, None, 999), (0, true));
    assert_eq!(judged(&leader, None, Some("b1"), 1_000), (1, false));
    assert_eq!(judged(&leader, None, Some("b2"), 999), (2, false));
    assert_eq!(judged(&leader, Some("other"), Some("b1"), 999), (2, false));
    let endless = document("leader", None);
    assert_eq!(judged(&endless, None, Some("b1"), 0), (1, false));
    let odd = StatusDocument {
        role: "follower".to_owned(),
        ..leader
    };
    assert_eq!(judged(&odd, None, Some("b1"), 0), (1, true));
    let follower = document("follower", None);
    assert_eq!(judged(&follower, None, Some("b1"), 0), (1, true));
}

#[test]
fn a_file_of_another_kind_gives_unknown() {
    let newer = StatusDocument {
        schema: 2,
        ..document("leader", Some(u64::MAX))
    };
    for text in ["", "{", "[]", "null", &newer.to_json()] {
        let judgement = judge(text, None, Some("b1"), None, BootTime::default());
        assert_eq!(judgement.verdict, FileVerdict::CannotTell, "{text}");
        assert!(judgement.why.is_some());
    }
    let place = tempfile::tempdir().unwrap();
    let judgement = look(place.path(), None);
    assert_eq!(judgement.verdict.exit_code(), 2);
    let why = judgement.why.unwrap();
    assert!(why.contains("status.json"), "{why}");
}

#[test]
fn the_text_is_aligned_and_complete() {
    let text = document("leader", Some(118_000_000_000)).to_json();
    let now = BootTime::from_nanos(100_000_000_000);
    let judgement = judge(&text, None, Some("b1"), None, now);
    assert_eq!(
        to_text(&judgement, now, UNIX_EPOCH + Duration::from_secs(100)),
        "lease      orders\n\
         verdict    leader\n\
         role       leader\n\
         candidate  me\n\
         holder     me (token 7)\n\
         token      7\n\
         time left  18s\n\
         since      1970-01-01T00:00:10Z (1m30s ago)\n\
         reason     renewed\n\
         updated    1970-01-01T00:01:38Z (2s ago)\n\
         fresh      yes\n"
    );
    let later = BootTime::from_nanos(120_500_000_000);
    let judgement = judge(&text, None, Some("b1"), None, later);
    let text = to_text(&judgement, later, UNIX_EPOCH);
    assert!(
        text.contains("verdict    not leader: the daemon was killed or is frozen: its deadline passed 2.5s ago\n"),
        "{text}"
    );
    assert!(
        text.contains("role       leader, as last written\n"),
        "{text}"
    );
    assert!(text.contains("holder     no longer known\n"), "{text}");
}

#[test]
fn the_leader_is_not_known_while_the_store_is_unread_and_the_error_is_shown() {
    let unread = StatusDocument {
        holder: None,
        store_error: Some(DocumentStoreError {
            message: "no primary: a:1: connection refused".to_owned(),
            since: "1970-01-01T00:00:10.000Z".to_owned(),
        }),
        ..document("unknown", None)
    };
    let now = BootTime::from_nanos(1);
    let judgement = judge(&unread.to_json(), None, Some("b1"), None, now);
    assert_eq!(
        judgement.verdict,
        FileVerdict::NotLeader,
        "this one does not lead"
    );
    let text = to_text(&judgement, now, UNIX_EPOCH + Duration::from_secs(100));
    assert!(text.contains("holder     not known\n"), "{text}");
    let error = "store      failing since 1970-01-01T00:00:10Z (1m30s ago): no primary: a:1: connection refused\n";
    assert!(text.ends_with(error), "{text}");
    let line_of = line(&judgement);
    assert_eq!(line_of, "orders: unknown, the leader is not known");
    // Without MongoDB, a leader cannot release the lease at its deadline.
    let mut at_deadline = StatusDocument {
        role: "follower".to_owned(),
        reason: Some("deadline".to_owned()),
        ..unread
    };
    for (holder, shown) in [
        ("not known", "the leader is not known"),
        ("nobody", "no leader, reason deadline"),
    ] {
        let judgement = judge(&at_deadline.to_json(), None, Some("b1"), None, now);
        let text = to_text(&judgement, now, UNIX_EPOCH + Duration::from_secs(100));
        assert!(text.contains(&format!("holder     {holder}\n")), "{text}");
        assert_eq!(line(&judgement), format!("orders: follower, {shown}"));
        at_deadline.store_error = None;
    }
}

#[test]
fn json_is_the_file_with_the_judged_leader_and_freshness() {
    let document = document("leader", Some(1_000));
    let judgement = judge(
        &document.to_json(),
        None,
        Some("b1"),
        None,
        BootTime::from_nanos(2_000),
    );
    let value: serde_json::Value = serde_json::from_str(&to_json(&judgement)).unwrap();
    assert_eq!(value["leader"], false);
    assert_eq!(value["fresh"], false);
    assert_eq!(value["lease"], "orders");
    let nothing = Judgement::cannot_tell("no file".to_owned());
    let value: serde_json::Value = serde_json::from_str(&to_json(&nothing)).unwrap();
    assert_eq!(
        (&value["fresh"], &value["error"]),
        (&false.into(), &"no file".into())
    );
    assert_eq!(value["leader"], false);
}

#[test]
fn a_line_of_watch_does_not_change_with_a_renewal() {
    let first = document("leader", Some(1_000));
    let renewed = StatusDocument {
        reason: Some("acquired".to_owned()),
        ..document("leader", Some(2_000))
    };
    let at = |d: &StatusDocument, now| {
        line(&judge(
            &d.to_json(),
            None,
            None,
            None,
            BootTime::from_nanos(now),
        ))
    };
    assert_eq!(at(&first, 1), at(&renewed, 2));
    assert_eq!(at(&first, 1), "orders: leader, token 7");
    assert!(
        at(&first, 1_000).starts_with("orders: not leader, the daemon was killed or is frozen")
    );
    let mut follower = document("follower", None);
    assert_eq!(at(&follower, 1), "orders: follower, me leads with token 7");
    // The holder may have died before the daemon started.
    follower.holder.as_mut().unwrap().unconfirmed = true;
    let recorded =
        "orders: follower, last recorded holder: me with token 7 (not seen to renew yet)";
    assert_eq!(at(&follower, 1), recorded);
    let now = BootTime::from_nanos(1);
    let judgement = judge(&follower.to_json(), None, Some("b1"), None, now);
    let text = to_text(&judgement, now, UNIX_EPOCH);
    let holder = "holder     me (token 7), last recorded, not seen to renew yet\n";
    assert!(text.contains(holder), "{text}");
}

#[test]
fn a_lease_names_its_directory_and_the_only_one_needs_no_name() {
    let place = tempfile::tempdir().unwrap();
    let roots = [place.path().join("run"), place.path().join("user")];
    assert_eq!(
        directory_of_lease("orders", &roots),
        roots[0].join("orders")
    );
    let none = only_directory(&roots).unwrap_err();
    assert_eq!(none.exit, exit::CANNOT_TELL);
    let second = roots[1].join("orders");
    fs::create_dir_all(&second).unwrap();
    fs::write(second.join(JSON_FILE), "").unwrap();
    assert_eq!(directory_of_lease("orders", &roots), second);
    assert_eq!(only_directory(&roots), Ok(second));
    fs::create_dir_all(roots[0].join("b")).unwrap();
    fs::write(roots[0].join("b").join(JSON_FILE), "").unwrap();
    let several = only_directory(&roots).unwrap_err();
    assert_eq!(several.exit, exit::USAGE);
    assert!(several.to_string().contains("run/b"), "{several}");
}

#[test]
fn an_unknown_lease_is_reported_with_similar_names() {
    let place = tempfile::tempdir().expect("a directory");
    for lease in ["alpha-1", "alpha-2", "stopped"] {
        fs::create_dir(place.path().join(lease)).expect("created");
    }
    for lease in ["alpha-1", "alpha-2"] {
        fs::write(place.path().join(lease).join(JSON_FILE), "").expect("written");
    }
    let near = "does not exist; did you mean alpha-1 or alpha-2?";
    let (by_name, by_parent) = (place.path().join("alhpa-1"), place.path());
    for directory in [&by_name, by_parent] {
        let text = missing(directory, Some("alhpa-1"));
        assert!(text.ends_with(near), "{text}");
    }
    let text = missing(&place.path().join("stoped"), Some("stoped"));
    let path = place.path().join("stoped").join(JSON_FILE);
    let expected = format!(
        "no daemon of this lease runs here: {} does not exist; to fix: start leasehold run, or \
         pass the daemon's --directory; to ask MongoDB: leasehold describe stoped",
        path.display()
    );
    assert_eq!(text, expected);
    let text = missing(place.path(), None);
    assert!(text.ends_with("pass the daemon's --directory"), "{text}");
}

#[test]
fn stopped_daemons_do_not_count() {
    let place = tempfile::tempdir().unwrap();
    let roots = [place.path().to_owned()];
    let write = |lease: &str, stopped, updated_at: &str| {
        let directory = place.path().join(lease);
        fs::create_dir_all(&directory).unwrap();
        let document = StatusDocument {
            lease: lease.to_owned(),
            boot_id: None,
            time_namespace: None,
            stopped,
            updated_at: updated_at.to_owned(),
            ..document("follower", None)
        };
        fs::write(directory.join(JSON_FILE), document.to_json()).unwrap();
        directory
    };
    write("a", true, "1970-01-01T00:01:38.000Z");
    let only = only_directory(&roots).unwrap_err();
    assert_eq!(only.exit, exit::CANNOT_TELL, "one stopped daemon");
    write("b", true, "1970-01-01T00:01:39.000Z");
    let none = only_directory(&roots).unwrap_err();
    assert_eq!(none.exit, exit::CANNOT_TELL);
    let text = none.to_string();
    assert!(
        text.contains("no daemon runs here; the last one, of lease b, ended"),
        "{text}"
    );
    let live = write("c", false, "1970-01-01T00:01:37.000Z");
    assert_eq!(only_directory(&roots), Ok(live));
}

#[test]
fn a_line_of_watch_does_not_change_with_the_age_of_a_stale_file() {
    let leader = document("leader", Some(1_000));
    let overdue = StatusDocument {
        rewrite_due_boottime_ns: Some(1_000),
        ..document("follower", None)
    };
    for document in [leader, overdue] {
        let at = |now: u64| {
            let judged = judge(
                &document.to_json(),
                None,
                None,
                None,
                BootTime::from_nanos(now),
            );
            (line(&judged), judged.explanation().unwrap())
        };
        let (soon, later) = (at(1_000_000_000), at(9_000_000_000));
        assert_eq!(soon.0, later.0);
        assert_ne!(soon.1, later.1);
        assert!(later.1.ends_with(" 9s ago"), "{}", later.1);
    }
}

#[test]
fn a_file_without_a_writer_is_not_fresh() {
    let now = BootTime::from_nanos(5_000);
    let judged = |document: &StatusDocument| judge(&document.to_json(), None, None, None, now);
    let due = |at| StatusDocument {
        rewrite_due_boottime_ns: Some(at),
        ..document("follower", None)
    };
    assert!(judged(&due(5_000)).is_fresh());
    let overdue = judged(&due(4_999));
    assert_eq!(
        (overdue.verdict, overdue.is_fresh()),
        (FileVerdict::NotLeader, false)
    );
    let stopped = StatusDocument {
        stopped: true,
        holder: None,
        ..document("stopping", None)
    };
    let text = to_text(&judged(&stopped), now, UNIX_EPOCH);
    for row in [
        "not leader: the daemon has stopped\n",
        "holder     not known\n",
        "fresh      no\n",
    ] {
        assert!(text.contains(row), "{text}");
    }
    // A killed leader counts as the leader until its deadline, even if a rewrite of its file is
    // overdue.
    let leader = StatusDocument {
        rewrite_due_boottime_ns: Some(1),
        ..document("leader", Some(6_000))
    };
    assert_eq!(judged(&leader).verdict, FileVerdict::Leader);
}

#[test]
fn only_regular_files_are_read() {
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join(JSON_FILE);
    let (cwd, mode) = (rustix::fs::CWD, rustix::fs::Mode::RWXU);
    rustix::fs::mknodat(cwd, &path, rustix::fs::FileType::Fifo, mode, 0).unwrap();
    let refused = || {
        let directory = place.path().to_owned();
        let (answer, answered) = std::sync::mpsc::channel();
        std::thread::spawn(move || answer.send(look(&directory, None).why));
        let why = answered.recv_timeout(Duration::from_secs(10));
        why.expect("it hangs").unwrap()
    };
    assert!(refused().contains("not a regular file"), "{}", refused());
    fs::remove_file(&path).unwrap();
    std::os::unix::fs::symlink("/dev/zero", &path).unwrap();
    assert!(refused().contains("not a regular file"), "{}", refused());
}

#[test]
fn a_deadline_of_another_time_namespace_is_of_another_clock() {
    let judged = |ours| {
        let text = document("leader", Some(100)).to_json();
        let judgement = judge(&text, None, Some("b1"), ours, BootTime::default());
        (judgement.verdict, judgement.is_fresh())
    };
    let as_it_says = (FileVerdict::Leader, true);
    assert_eq!(judged(Some(7)), as_it_says);
    assert_eq!(judged(None), as_it_says, "it cannot be read here");
    assert_eq!(judged(Some(8)), (FileVerdict::CannotTell, false));
}
