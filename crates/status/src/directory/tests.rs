//! Goal: the record never yields a false proof, and never loses the token. A false proof would let
//! a daemon lead while the previous command still runs, and a lost token would hide a rollback of
//! the store. Method: real directories and files.

use super::*;
use leasehold_guard::claim_share::FILE_LENGTH;

pub(super) fn claim() -> Claim {
    Claim::from_bytes([0x5a; 16])
}

pub(super) fn token(n: i64) -> Token {
    Token::new(n).unwrap()
}

pub(super) fn orders() -> ResourceName {
    ResourceName::new("orders").unwrap()
}

pub(super) fn is_locked(error: &CommandError) -> bool {
    let starts = ["status directory ", "the claim file of status directory "];
    starts.iter().any(|start| error.what.starts_with(start))
}

/// Opens a directory that is not in use. Retries, because a child that another test has forked may
/// hold every lock of this process until the child executes its program.
fn opened(path: &Path) -> (StatusDirectory, RecoveredState) {
    opened_for(&orders(), path)
}

fn opened_for(lease: &ResourceName, path: &Path) -> (StatusDirectory, RecoveredState) {
    for _ in 0..10_000 {
        match StatusDirectory::open(path, lease) {
            Err(error) if is_locked(&error) => {
                std::thread::sleep(Duration::from_millis(1));
            }
            done => return done.unwrap(),
        }
    }
    panic!("{} stays locked", path.display());
}

#[test]
fn a_new_directory_has_no_state_but_room_for_the_record() {
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("a/b");
    let (directory, memory) = opened(&path);
    assert_eq!(memory, RecoveredState::default());
    assert_eq!(directory.path(), path);
    assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o755);
    let file = fs::metadata(path.join(CLAIM_FILE)).unwrap();
    let whole = u64::try_from(FILE_LENGTH).unwrap();
    assert_eq!((file.len(), file.mode() & 0o777), (whole, 0o600));
}

#[test]
fn the_longest_record_fits() {
    let place = tempfile::tempdir().unwrap();
    let (mut directory, _) = opened(place.path());
    (directory.inode, directory.device) = (u64::MAX, u64::MAX);
    directory.lease = ResourceName::new("x".repeat(63)).unwrap();
    directory.boot_id = Some("01234567-0123-0123-0123-0123456789ab".to_owned());
    let hour = leasehold_core::election::LEASE_DURATION_MAX;
    directory
        .record(Some(claim()), token(i64::MAX), Some(hour))
        .unwrap();
}

/// A token of another lease would look like a rollback of the store.
#[test]
fn the_state_of_another_lease_is_discarded() {
    let place = tempfile::tempdir().unwrap();
    let (directory, _) = opened(place.path());
    let hour = leasehold_core::election::LEASE_DURATION_MAX;
    directory
        .record(Some(claim()), token(7), Some(hour))
        .unwrap();
    fs::write(directory.deployment_file(), "{}").unwrap();
    drop(directory);
    let billing = ResourceName::new("billing").unwrap();
    let (directory, memory) = opened_for(&billing, place.path());
    let discarded = RecoveredState {
        other_lease: true,
        ..RecoveredState::default()
    };
    assert_eq!(memory, discarded);
    assert_eq!(recorded_deployment(directory.path()).unwrap(), None);
    drop(directory);
    let (_, memory) = opened_for(&billing, place.path());
    assert_eq!(
        memory,
        RecoveredState::default(),
        "the directory belongs to this lease now"
    );
}

#[test]
fn the_longest_lease_duration_is_always_kept() {
    let place = tempfile::tempdir().unwrap();
    let (directory, _) = opened(place.path());
    let longest = Some(Duration::from_secs(40));
    directory.record(None, token(7), longest).unwrap();
    drop(directory);
    // Opening writes the record again.
    for _ in 0..2 {
        let (_, memory) = opened(place.path());
        assert_eq!((memory.token, memory.lease_longest), (token(7), longest));
    }
}

#[test]
fn the_guard_of_a_longer_lease_is_awaited() {
    let place = tempfile::tempdir().unwrap();
    let (directory, _) = opened(place.path());
    let longest = Some(Duration::from_secs(60));
    directory.record(Some(claim()), token(7), longest).unwrap();
    let guard = std::cell::Cell::new(directory.lock_handle().ok());
    drop(directory);
    let patience = Duration::from_millis(1);
    let guard_ends = |_: &[Occupant]| {
        let guard = guard.take();
        let ends = clock::boot_now() + 20 * patience;
        std::thread::spawn(move || {
            while clock::boot_now() < ends {
                std::thread::yield_now();
            }
            drop(guard);
        });
    };
    let memory = loop {
        match StatusDirectory::open_after(place.path(), &orders(), patience, guard_ends, || false) {
            // A child that another test has forked may hold the lock, as in `opened`.
            Err(error) if error.what.contains("status directory ") => {}
            done => break done.unwrap().1,
        }
    };
    assert_eq!(
        memory.claim,
        Some(claim()),
        "the guard has ended, so the claim is proof"
    );
}

#[test]
fn a_record_with_an_invalid_lease_duration_is_not_damaged() {
    for longest in ["", r#","lease_longest_ms":0"#, r#","lease_longest_ms":-5"#] {
        let place = tempfile::tempdir().unwrap();
        let text = format!(
            r#"{{"schema":1,"claim":null,"token":7,"boot_id":null,"inode":1,"device":1{longest}}}"#
        );
        fs::write(place.path().join(CLAIM_FILE), text).unwrap();
        let (_, memory) = opened(place.path());
        let expected = RecoveredState {
            token: token(7),
            ..RecoveredState::default()
        };
        assert_eq!(memory, expected, "{longest}");
    }
}

#[test]
fn a_second_daemon_is_refused_until_the_first_and_its_guard_are_gone() {
    let place = tempfile::tempdir().unwrap();
    let (first, _) = opened(place.path());
    let refused = StatusDirectory::open(place.path(), &orders()).unwrap_err();
    assert!(is_locked(&refused), "{refused}");
    let text = refused.to_string();
    assert!(text.contains(place.path().to_str().unwrap()), "{text}");
    assert!(text.contains("status.directory"), "{text}");

    let guard = first.lock_handle().unwrap();
    drop(first);
    assert!(StatusDirectory::open(place.path(), &orders()).is_err());
    drop(guard);
    opened(place.path());
}

#[test]
fn the_claim_is_a_proof_only_in_its_file_and_boot() {
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("one");
    let (directory, _) = opened(&path);
    directory.record(Some(claim()), token(7), None).unwrap();
    drop(directory);

    let (directory, memory) = opened(&path);
    assert_eq!((memory.claim, memory.token), (Some(claim()), token(7)));
    drop(directory);
    // The proof survives a process that exited without using it.
    let (_, memory) = opened(&path);
    assert_eq!(memory.claim, Some(claim()));

    let copy = place.path().join("copy");
    fs::create_dir(&copy).unwrap();
    fs::copy(path.join(CLAIM_FILE), copy.join(CLAIM_FILE)).unwrap();
    let (_, memory) = opened(&copy);
    assert_eq!((memory.claim, memory.token), (None, token(7)));

    let text = fs::read_to_string(path.join(CLAIM_FILE)).unwrap();
    let boot = clock::boot_id().unwrap().unwrap();
    let text = text.replace(&boot, &format!("{:36}", "another boot"));
    fs::write(path.join(CLAIM_FILE), text).unwrap();
    let (_, memory) = opened(&path);
    assert_eq!((memory.claim, memory.token), (None, token(7)));
    assert!(!memory.damaged);
}

#[test]
fn a_damaged_record_is_reported_and_proves_nothing() {
    for garbage in ["{", "\0\0\0", r#"{"schema":2}"#, "null"] {
        let place = tempfile::tempdir().unwrap();
        fs::write(place.path().join(CLAIM_FILE), garbage).unwrap();
        let (_, memory) = opened(place.path());
        let expected = RecoveredState {
            damaged: true,
            ..RecoveredState::default()
        };
        assert_eq!(memory, expected, "{garbage}");
        let (_, memory) = opened(place.path());
        assert!(!memory.damaged, "the garbage was replaced");
    }
}

#[test]
fn a_file_instead_of_the_directory_is_an_error() {
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("file");
    fs::write(&path, "").unwrap();
    let error = StatusDirectory::open(&path, &orders()).unwrap_err();
    assert!(error.what.starts_with("cannot create "), "{error}");
    assert!(StatusDirectory::open(&path.join("below"), &orders()).is_err());
}

#[test]
fn a_claim_file_that_is_a_link_is_not_followed() {
    let place = tempfile::tempdir().unwrap();
    let target = place.path().join("target");
    fs::write(&target, "precious").unwrap();
    std::os::unix::fs::symlink(&target, place.path().join(CLAIM_FILE)).unwrap();
    assert!(StatusDirectory::open(place.path(), &orders()).is_err());
    assert_eq!(fs::read_to_string(&target).unwrap(), "precious");
}

#[test]
fn the_users_runtime_directory_is_the_fallback() {
    let place = tempfile::tempdir().unwrap();
    let lease = ResourceName::new("orders").unwrap();
    let run = place.path().join("run");
    let user = place.path().join("user");
    let chosen = choose(&lease, None, vec![run.clone(), user.clone()], can_be_made);
    assert_eq!(chosen, run.join("orders"));

    let blocked = place.path().join("blocked");
    fs::write(&blocked, "").unwrap();
    let chosen = choose(&lease, None, vec![blocked.clone(), user], can_be_made);
    assert_eq!(chosen, place.path().join("user/orders"));
    assert_eq!(
        choose(&lease, None, vec![blocked.clone()], can_be_made),
        blocked.join("orders")
    );
    let configured = Path::new("/elsewhere");
    assert_eq!(
        choose(&lease, Some(configured), vec![run], can_be_made),
        configured
    );
}

fn returns<T: Send + 'static>(what: impl FnOnce() -> T + Send + 'static) -> T {
    let (answer, answered) = std::sync::mpsc::channel();
    std::thread::spawn(move || answer.send(what()));
    answered
        .recv_timeout(Duration::from_secs(10))
        .expect("the call does not return")
}

fn fifo(path: &Path) {
    let (cwd, mode) = (rustix::fs::CWD, rustix::fs::Mode::RWXU);
    rustix::fs::mknodat(cwd, path, rustix::fs::FileType::Fifo, mode, 0).unwrap();
}

fn next_to_a_secret() -> (tempfile::TempDir, PathBuf, PathBuf) {
    let place = tempfile::tempdir().unwrap();
    let (precious, path) = (place.path().join("precious"), place.path().join("status"));
    fs::write(&precious, "secret").unwrap();
    fs::create_dir(&path).unwrap();
    (place, precious, path)
}

#[test]
fn a_link_planted_as_the_probe_is_not_followed() {
    let (_place, precious, path) = next_to_a_secret();
    std::os::unix::fs::symlink(&precious, path.join(".probe")).unwrap();
    opened(&path);
    assert_eq!(fs::read_to_string(&precious).unwrap(), "secret");
    assert!(fs::symlink_metadata(path.join(".probe")).is_err());
}

#[test]
fn a_fifo_planted_as_the_probe_does_not_block() {
    let place = tempfile::tempdir().unwrap();
    let path = place.path().to_owned();
    fifo(&path.join(".probe"));
    returns(move || StatusDirectory::open(&path, &orders()).map(drop)).unwrap();
}

#[test]
fn a_hard_linked_claim_file_is_not_written() {
    for name in [CLAIM_FILE, DAEMON_FILE] {
        let (_place, precious, path) = next_to_a_secret();
        fs::hard_link(&precious, path.join(name)).unwrap();
        let refused = StatusDirectory::open(&path, &orders()).unwrap_err();
        assert!(refused.what.starts_with("cannot write "), "{refused}");
        assert_eq!(fs::read_to_string(&precious).unwrap(), "secret");
    }
}

#[test]
fn a_planted_object_is_refused_with_its_kind() {
    let link = |path: &Path| std::os::unix::fs::symlink("/nowhere", path).unwrap();
    let directory = |path: &Path| fs::create_dir(path).unwrap();
    let cases = [
        (CLAIM_FILE, fifo as fn(&Path), "not a regular file"),
        (CLAIM_FILE, link, "a symbolic link"),
        (CLAIM_FILE, directory, "a directory"),
        (DAEMON_FILE, fifo, "not a regular file"),
        (DAEMON_FILE, directory, "a directory"),
        (PROBE_FILE, directory, "a directory"),
    ];
    for (name, plant, what) in cases {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().to_owned();
        plant(&path.join(name));
        let refused =
            returns(move || StatusDirectory::open(&path, &orders()).map(drop)).unwrap_err();
        let path = place.path().display();
        let expected = format!(
            "cannot write {name} in status directory {path}: it is {what}; to fix: remove it"
        );
        assert_eq!(refused.to_string(), expected);
    }
}

#[test]
fn a_recreated_directory_is_locked_without_a_proof() {
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("status");
    let (mut directory, _) = opened(&path);
    assert!(!directory.keep().unwrap());
    fs::remove_dir_all(&path).unwrap();
    assert!(directory.keep().unwrap());
    assert!(!directory.keep().unwrap());
    let refused = StatusDirectory::open(&path, &orders()).unwrap_err();
    assert!(is_locked(&refused), "{refused}");
    // A guard that holds the lock of the removed file may still run.
    directory.record(Some(claim()), token(7), None).unwrap();
    drop(directory);
    let (_, memory) = opened(&path);
    assert_eq!((memory.claim, memory.token), (None, token(7)));
}

#[test]
fn a_directory_recreated_by_another_daemon_is_not_used() {
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("status");
    let (mut first, _) = opened(&path);
    fs::remove_dir_all(&path).unwrap();
    let (mut second, _) = opened(&path);
    let refused = first.keep().unwrap_err();
    assert!(is_locked(&refused), "{refused}");
    assert!(!second.keep().unwrap());
}

#[test]
fn an_empty_or_relative_runtime_directory_is_ignored() {
    let root = |text: &str| user_root(Some(OsString::from(text)));
    assert_eq!(root("/run/user/1"), Some(PathBuf::from("/run/user/1")));
    for ignored in ["", "run", "./run", "../run"] {
        assert_eq!(root(ignored), None, "{ignored:?}");
    }
    assert_eq!(user_root(None), None);
}

#[test]
fn a_directory_writable_by_other_users_is_logged() {
    use std::os::unix::fs::PermissionsExt;

    let place = tempfile::tempdir().unwrap();
    for (mode, exposed) in [(0o755, false), (0o700, false), (0o777, true), (0o775, true)] {
        fs::set_permissions(place.path(), fs::Permissions::from_mode(mode)).unwrap();
        let why = exposure(place.path()).unwrap();
        assert_eq!(why.is_some(), exposed, "{mode:o}: {why:?}");
    }
    let (parent, inner) = (place.path(), place.path().join("status"));
    fs::create_dir(&inner).unwrap();
    for (mode, exposed) in [(0o755, false), (0o777, true), (0o1777, false)] {
        fs::set_permissions(parent, fs::Permissions::from_mode(mode)).unwrap();
        let why = exposure(&inner).unwrap();
        assert_eq!(why.is_some(), exposed, "{mode:o}: {why:?}");
    }
}

#[test]
fn a_link_of_another_user_is_not_followed() {
    use std::os::unix::fs::{lchown, symlink};

    if !rustix::process::geteuid().is_root() {
        return leasehold_testbed::skip("only root can give a link to another user");
    }
    let place = tempfile::tempdir().unwrap();
    let target = place.path().join("target");
    fs::create_dir(&target).unwrap();
    let link = |name: &str| {
        let link = place.path().join(name);
        symlink(&target, &link).unwrap();
        link
    };
    let (ours, planted) = (link("ours"), link("planted"));
    lchown(&planted, Some(65534), None).unwrap();
    for path in [planted.clone(), planted.join("status")] {
        let refused = StatusDirectory::open(&path, &orders())
            .unwrap_err()
            .to_string();
        assert!(
            refused.contains("is a symbolic link of another user"),
            "{refused}"
        );
        assert_eq!(fs::read_dir(&target).unwrap().count(), 0);
    }
    let status = ours.join("status");
    let (mut directory, _) = opened(&status);
    fs::remove_dir_all(&status).unwrap();
    fs::rename(&planted, &status).unwrap();
    assert!(directory.keep().is_err());
    assert_eq!(
        fs::read_dir(&target).unwrap().count(),
        1,
        "the directory contains only the link"
    );
}

#[test]
fn a_closed_parent_directory_is_reported() {
    use std::fs::Permissions;
    use std::os::unix::fs::PermissionsExt;
    let place = tempfile::tempdir().unwrap();
    let root = place.path().join("leasehold");
    let directory = root.join("orders");
    std::fs::create_dir_all(&directory).unwrap();
    for (mode, expected) in [(0o755, None), (0o700, Some(root.as_path()))] {
        std::fs::set_permissions(&root, Permissions::from_mode(mode)).unwrap();
        assert_eq!(closed_root(&directory), expected, "{mode:o}");
    }
    // Other parents, such as a home directory, are the administrator's decision and are not
    // reported.
    let elsewhere = place.path().join("status");
    assert_eq!(closed_root(&elsewhere), None);
}
