//! What the claim record proves and keeps, on real files.

use super::*;

fn claim() -> Claim {
    Claim::from_bytes([0x5a; 16])
}

fn token(n: i64) -> Token {
    Token::new(n).unwrap()
}

#[test]
fn a_new_directory_remembers_nothing_and_has_room_for_the_record() {
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("a/b");
    let (directory, memory) = StatusDirectory::open(&path).unwrap();
    assert_eq!(memory, Memory::default());
    assert_eq!(directory.path(), path);
    assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o755);
    let file = fs::metadata(path.join(CLAIM_FILE)).unwrap();
    assert_eq!((file.len(), file.mode() & 0o777), (256, 0o600));
}

#[test]
fn the_longest_record_fits() {
    let place = tempfile::tempdir().unwrap();
    let (mut directory, _) = StatusDirectory::open(place.path()).unwrap();
    (directory.inode, directory.device) = (u64::MAX, u64::MAX);
    directory.boot_id = Some("01234567-0123-0123-0123-0123456789ab".to_owned());
    let hour = crate::election::LEASE_DURATION_MAX;
    directory
        .record(Some(claim()), token(i64::MAX), Some(hour))
        .unwrap();
}

#[test]
fn the_longest_lease_duration_is_kept_whatever_else_the_record_proves() {
    let place = tempfile::tempdir().unwrap();
    let (directory, _) = StatusDirectory::open(place.path()).unwrap();
    let longest = Some(Duration::from_secs(40));
    directory.record(None, token(7), longest).unwrap();
    drop(directory);
    // Opening writes the record again.
    for _ in 0..2 {
        let (_, memory) = StatusDirectory::open(place.path()).unwrap();
        assert_eq!((memory.token, memory.lease_longest), (token(7), longest));
    }
}

#[test]
fn a_record_without_a_believable_lease_duration_is_in_order() {
    for longest in ["", r#","lease_longest_ms":0"#, r#","lease_longest_ms":-5"#] {
        let place = tempfile::tempdir().unwrap();
        let text = format!(
            r#"{{"schema":1,"claim":null,"token":7,"boot_id":null,"inode":1,"device":1{longest}}}"#
        );
        fs::write(place.path().join(CLAIM_FILE), text).unwrap();
        let (_, memory) = StatusDirectory::open(place.path()).unwrap();
        let expected = Memory {
            token: token(7),
            ..Memory::default()
        };
        assert_eq!(memory, expected, "{longest}");
    }
}

#[test]
fn a_second_daemon_is_refused_until_the_first_and_its_guard_are_gone() {
    let place = tempfile::tempdir().unwrap();
    let (first, _) = StatusDirectory::open(place.path()).unwrap();
    let refused = StatusDirectory::open(place.path()).unwrap_err();
    assert!(matches!(refused, DirectoryError::Locked { .. }));
    let text = refused.to_string();
    assert!(text.contains(place.path().to_str().unwrap()), "{text}");
    assert!(text.contains("status.directory"), "{text}");

    let guard = first.lock_handle().unwrap();
    drop(first);
    assert!(StatusDirectory::open(place.path()).is_err());
    drop(guard);
    assert!(StatusDirectory::open(place.path()).is_ok());
}

#[test]
fn the_claim_is_proof_in_this_file_of_this_boot_only() {
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("one");
    let (directory, _) = StatusDirectory::open(&path).unwrap();
    directory.record(Some(claim()), token(7), None).unwrap();
    drop(directory);

    let (directory, memory) = StatusDirectory::open(&path).unwrap();
    assert_eq!((memory.claim, memory.token), (Some(claim()), token(7)));
    drop(directory);
    // The proof survives a process that died before it could use it.
    let (_, memory) = StatusDirectory::open(&path).unwrap();
    assert_eq!(memory.claim, Some(claim()));

    let copy = place.path().join("copy");
    fs::create_dir(&copy).unwrap();
    fs::copy(path.join(CLAIM_FILE), copy.join(CLAIM_FILE)).unwrap();
    let (_, memory) = StatusDirectory::open(&copy).unwrap();
    assert_eq!((memory.claim, memory.token), (None, token(7)));

    let text = fs::read_to_string(path.join(CLAIM_FILE)).unwrap();
    let boot = clock::boot_id().unwrap();
    fs::write(path.join(CLAIM_FILE), text.replace(&boot, "another boot")).unwrap();
    let (_, memory) = StatusDirectory::open(&path).unwrap();
    assert_eq!((memory.claim, memory.token), (None, token(7)));
    assert!(!memory.damaged);
}

#[test]
fn garbage_is_told_and_proves_nothing() {
    for garbage in ["{", "\0\0\0", r#"{"schema":2}"#, "null"] {
        let place = tempfile::tempdir().unwrap();
        fs::write(place.path().join(CLAIM_FILE), garbage).unwrap();
        let (_, memory) = StatusDirectory::open(place.path()).unwrap();
        assert_eq!(
            (memory.claim, memory.token),
            (None, Token::ZERO),
            "{garbage}"
        );
        assert!(memory.damaged, "{garbage}");
        let (_, memory) = StatusDirectory::open(place.path()).unwrap();
        assert!(!memory.damaged, "the garbage was replaced");
    }
}

#[test]
fn a_file_in_the_place_of_the_directory_is_an_error() {
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("file");
    fs::write(&path, "").unwrap();
    let error = StatusDirectory::open(&path).unwrap_err();
    assert!(matches!(error, DirectoryError::Make { .. }), "{error}");
    assert!(StatusDirectory::open(&path.join("below")).is_err());
}

#[test]
fn a_claim_file_that_is_a_link_is_not_followed() {
    let place = tempfile::tempdir().unwrap();
    let target = place.path().join("target");
    fs::write(&target, "precious").unwrap();
    std::os::unix::fs::symlink(&target, place.path().join(CLAIM_FILE)).unwrap();
    assert!(StatusDirectory::open(place.path()).is_err());
    assert_eq!(fs::read_to_string(&target).unwrap(), "precious");
}

#[test]
fn the_runtime_directory_of_the_user_is_the_second_choice() {
    let place = tempfile::tempdir().unwrap();
    let lease = LeaseName::new("orders").unwrap();
    let run = place.path().join("run");
    let user = place.path().join("user");
    let chosen = choose(&lease, None, &run, Some(&user));
    assert_eq!(chosen, run.join("orders"));

    let blocked = place.path().join("blocked");
    fs::write(&blocked, "").unwrap();
    let chosen = choose(&lease, None, &blocked, Some(&user));
    assert_eq!(chosen, user.join("leasehold/orders"));
    assert_eq!(choose(&lease, None, &blocked, None), blocked.join("orders"));
    let configured = Path::new("/elsewhere");
    assert_eq!(choose(&lease, Some(configured), &run, None), configured);
}
