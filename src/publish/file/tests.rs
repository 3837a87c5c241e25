use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;

use super::*;
use crate::election::{HolderView, Identity, Role};
use crate::publish::Surface;
use crate::publish::directory::RecoveredState;
use crate::publish::fixture::{self, leader, token};
use crate::publish::render::StatusDocument;

fn orders() -> crate::election::ResourceName {
    fixture::who("me").lease
}

const REFRESH: Duration = Duration::from_millis(100);

fn status(token: i64, left: Duration) -> Status {
    leader(token, boot_now() + left)
}

fn follower() -> Status {
    fixture::status(Role::Follower)
}

fn follower_of(identity: &str) -> Status {
    Status {
        holder: Some(HolderView {
            identity: Identity::new(identity).expect("an identity"),
            token: token(7),
            until: boot_now() + Duration::from_secs(60),
            unconfirmed: false,
        }),
        ..follower()
    }
}

struct Place {
    directory: tempfile::TempDir,
    status: watch::Sender<Status>,
    metrics: Metrics,
    handle: StatusFileHandle,
}

fn start(first: Status) -> Place {
    start_with(first, REFRESH)
}

fn start_with(first: Status, refresh: Duration) -> Place {
    let directory = tempfile::tempdir().unwrap();
    let (status, metrics, handle) = spawned(directory.path(), first, refresh);
    Place {
        directory,
        status,
        metrics,
        handle,
    }
}

fn spawned(
    directory: &Path,
    first: Status,
    refresh: Duration,
) -> (watch::Sender<Status>, Metrics, StatusFileHandle) {
    let (locked, _) = StatusDirectory::open(directory, &orders()).unwrap();
    let (sender, status) = watch::channel(first);
    let metrics = fixture::metrics(status.clone());
    let handle =
        StatusFileHandle::spawn(locked, status, options(refresh), metrics.clone()).unwrap();
    (sender, metrics, handle)
}

fn options(refresh: Duration) -> FileOptions {
    FileOptions {
        who: fixture::who("me"),
        timings: fixture::timings(refresh),
        store_error: watch::channel(None).1,
        deployment: watch::channel(None).1,
    }
}

impl Drop for Place {
    /// Ends the thread before the directory is removed, because the thread would recreate the
    /// directory.
    fn drop(&mut self) {
        let _ = self.handle.close().blocking_recv();
    }
}

impl Place {
    fn path(&self) -> &Path {
        self.directory.path()
    }

    /// Publishes the status of a leader, without a wake-up.
    fn lead(&self, token: i64) {
        let status = status(token, Duration::from_secs(60));
        self.status.send_replace(status);
    }

    fn flush(&self) -> bool {
        self.handle.flush().blocking_recv().unwrap()
    }
}

fn shown(first: Status) -> Place {
    let place = start(first);
    assert!(place.flush());
    place
}

fn read(directory: &Path) -> StatusDocument {
    serde_json::from_str(&fs::read_to_string(directory.join(JSON_FILE)).unwrap()).unwrap()
}

fn eventually(what: &str, mut condition: impl FnMut() -> bool) {
    let limit = boot_now() + Duration::from_secs(10);
    while !condition() {
        assert!(boot_now() < limit, "{what}: not within 10 s");
        thread::sleep(Duration::from_millis(5));
    }
}

/// Makes every rewrite of a file fail, by creating a directory with the name of its temporary file.
/// Retries while the writer uses the temporary file.
fn obstruct(path: &Path, name: &str) {
    let temporary = path.join(format!(".{name}.tmp"));
    eventually("obstructed", || fs::create_dir(&temporary).is_ok());
}

#[test]
fn a_flush_is_answered_after_the_files_are_current() {
    let place = start(follower());
    for token in 1..50 {
        place.lead(token);
        place.handle.wake();
        assert!(place.flush());
        assert_eq!(read(place.path()).token, Some(token));
    }
    let env = place.path().join(ENV_FILE);
    let text = fs::read_to_string(&env).unwrap();
    assert!(text.contains("LEASEHOLD_LEADER='true'\n"), "{text}");
    let mode = fs::metadata(&env).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o644);
}

#[test]
fn unchanged_files_are_rewritten_only_at_the_refresh() {
    let seen = |seconds| Status {
        holder: Some(HolderView {
            identity: Identity::new("other").unwrap(),
            token: token(4),
            until: boot_now() + Duration::from_secs(seconds),
            unconfirmed: false,
        }),
        ..follower()
    };
    let first = seen(60);
    let place = start_with(first.clone(), Duration::from_secs(60));

    assert!(place.flush());
    let json = place.path().join(JSON_FILE);
    let inode = || fs::metadata(&json).unwrap().ino();
    let before = inode();
    // The holder renewed. The files do not show renewals.
    let holder = seen(90).holder;
    place.status.send_replace(Status {
        holder,
        ..first.clone()
    });
    assert_eq!((place.flush(), inode()), (true, before));
    // The holder released the lease. The files show the release.
    place.status.send_replace(Status {
        holder: None,
        ..first
    });
    assert!(place.flush());
    assert_ne!(inode(), before);
    assert_eq!(read(place.path()).holder, None);
}

#[test]
fn a_wake_up_or_the_refresh_rewrites_the_files() {
    let place = start(follower());
    place.lead(3);
    place.handle.wake();
    let path = place.path();
    eventually("token 3", || {
        path.join(JSON_FILE).exists() && read(path).token == Some(3)
    });
    let before = read(path).updated_at;
    eventually("refresh", || read(path).updated_at != before);
}

#[test]
fn i4_the_leader_field_becomes_false_at_the_deadline() {
    // The refresh interval is too long to matter here.
    let first = status(3, Duration::from_millis(50));
    let place = start_with(first, 20 * MINUTE);
    let path = place.path();
    eventually("not leader", || {
        path.join(JSON_FILE).exists() && read(path).reason.as_deref() == Some("deadline")
    });
    assert!(!read(path).leader);
}

const MINUTE: Duration = Duration::from_secs(60);

/// Returns a writer whose files show a leader with a minute left. The refresh interval is too long
/// to matter.
fn leading() -> (tempfile::TempDir, watch::Sender<Status>, StatusWriter) {
    leading_with(options(20 * MINUTE))
}

fn leading_with(options: FileOptions) -> (tempfile::TempDir, watch::Sender<Status>, StatusWriter) {
    let place = tempfile::tempdir().unwrap();
    let (locked, _) = StatusDirectory::open(place.path(), &orders()).unwrap();
    let (sender, receiver) = watch::channel(status(3, MINUTE));
    let metrics = fixture::metrics(receiver.clone());
    let records = watch::channel(None).1;
    let mut writer = StatusWriter::new(locked, receiver, records, options, metrics);
    assert!(writer.show_if_due(false));
    assert!(writer.wait() <= MINUTE);
    (place, sender, writer)
}

#[test]
fn a_follower_rewrites_its_files_seldom_unless_the_holder_expires_or_a_write_failed() {
    let options = FileOptions {
        timings: watch::channel(Timings::default()).1,
        ..options(REFRESH)
    };
    let (place, sender, mut writer) = leading_with(options);
    let mut wait_with = |status| {
        sender.send_replace(status);
        writer.show_if_due(true);
        writer.wait().as_secs_f64()
    };
    // The wait is half of the lease_duration of 24 s, and not the renew_interval of 3 s.
    let wait = wait_with(follower());
    assert!(wait > 10.0 && wait <= 12.0, "{wait}");
    let due = read(place.path()).rewrite_due_boottime_ns.unwrap();
    let due = BootTime::from_nanos(due).since(boot_now()).as_secs_f64();
    assert!(due > 13.0 && due <= 15.0, "{due}");
    let silent = HolderView {
        identity: Identity::new("other").unwrap(),
        token: token(4),
        until: boot_now() + Duration::from_secs(7),
        unconfirmed: false,
    };
    let wait = wait_with(Status {
        holder: Some(silent),
        ..follower()
    });
    assert!(wait > 5.0 && wait <= 7.0, "{wait}");
    obstruct(place.path(), JSON_FILE);
    let wait = wait_with(follower());
    assert!(wait > 1.0 && wait <= 3.0, "{wait}");
}

#[test]
fn i4_a_deadline_during_a_write_is_shown_immediately() {
    let (place, sender, mut writer) = leading();
    let passed = status(3, Duration::ZERO);
    writer.leader_until = passed.authority.map(|authority| authority.valid_until);
    (writer.shown, _) = (Some(passed.clone()), sender.send_replace(passed));
    assert_eq!(writer.wait(), Duration::ZERO);
    assert!(writer.show_if_due(false));
    let shown = read(place.path());
    let expected = (false, Some("deadline"));
    assert_eq!((shown.leader, shown.reason.as_deref()), expected);
    assert!(writer.wait() > MINUTE);
}

#[test]
fn i4_a_failed_refresh_does_not_postpone_the_end_at_the_deadline() {
    let (place, sender, mut writer) = leading();
    obstruct(place.path(), ENV_FILE);
    sender.send_replace(status(3, 2 * MINUTE));
    assert!(!writer.show_if_due(false));
    assert!(writer.wait() > MINUTE && writer.wait() <= 2 * MINUTE);
    // The deadline passes while one file still cannot be written, so the file is removed.
    sender.send_replace(status(3, Duration::ZERO));
    assert!(writer.show_if_due(false));
    assert!(!place.path().join(ENV_FILE).exists() && !read(place.path()).leader);
    assert!(writer.wait() > 2 * MINUTE);
}

#[test]
fn closing_writes_not_leader_and_unlocks_the_directory() {
    let place = start(status(3, Duration::from_secs(60)));
    let claim = Claim::from_bytes([9; 16]);
    let longest = Some(Duration::from_secs(40));
    place.handle.record(Some(claim), token(3), longest);
    let ended = place.handle.close().blocking_recv();
    assert_eq!(ended, Ok(true));
    let last = read(place.path());
    assert_eq!((last.role.as_str(), last.leader), ("stopping", false));
    assert_eq!((last.valid_until_boottime_ns, last.holder), (None, None));
    // A child process of another test may briefly hold the lock.
    let path = place.path();
    let mut opened = None;
    eventually("the lock is free", || {
        opened = StatusDirectory::open(path, &orders()).ok();
        opened.is_some()
    });
    let (_, memory) = opened.unwrap();
    let expected = RecoveredState {
        claim: Some(claim),
        token: token(3),
        lease_longest: longest,
        other_lease: false,
        damaged: false,
        unproven: None,
    };
    // The thread writes the last record before it exits.
    assert_eq!(memory, expected);
}

#[test]
fn dropping_the_handle_ends_the_thread_too() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path();
    let (_status, _, handle) = spawned(path, status(3, Duration::from_secs(60)), REFRESH);
    drop(handle);
    eventually("the lock is free", || {
        StatusDirectory::open(path, &orders()).is_ok()
    });
    assert!(!read(path).leader);
}

#[test]
fn a_failed_write_of_a_leader_is_logged_and_counted() {
    let place = shown(follower());
    obstruct(place.path(), JSON_FILE);
    place.lead(3);
    assert!(!place.flush());
    assert!(place.metrics.publish_failures(Surface::File) > 0);
    assert!(!read(place.path()).leader);

    fs::remove_dir(place.path().join(".status.json.tmp")).unwrap();
    let path = place.path();
    eventually("retried by itself", || read(path).leader);
}

#[test]
fn files_that_cannot_be_rewritten_are_removed() {
    let place = shown(status(3, Duration::from_secs(60)));
    let path = place.path();
    assert!(read(path).leader);
    obstruct(path, JSON_FILE);
    obstruct(path, ENV_FILE);
    place.status.send_replace(follower());
    assert!(place.flush());
    assert!(!path.join(JSON_FILE).exists());
    assert!(!path.join(ENV_FILE).exists());
}

#[test]
fn one_outdated_file_is_removed_too() {
    let place = shown(follower());
    let path = place.path();
    obstruct(path, ENV_FILE);
    place.lead(3);
    assert!(!place.flush());
    assert!(read(path).leader, "the first file could be written");

    obstruct(path, JSON_FILE);
    place.status.send_replace(follower());
    assert!(place.flush());
    assert!(!path.join(JSON_FILE).exists());
}

#[test]
fn objects_planted_as_the_temporary_file_are_replaced() {
    let place = shown(follower());
    let path = place.path();
    let precious = path.join("precious");
    fs::write(&precious, "secret").unwrap();
    fs::set_permissions(&precious, fs::Permissions::from_mode(0o600)).unwrap();
    let temporary = path.join(".status.json.tmp");
    eventually("linked", || fs::hard_link(&precious, &temporary).is_ok());
    place.lead(3);
    assert!(place.flush());
    assert_eq!(read(path).token, Some(3));
    assert_eq!(fs::read_to_string(&precious).unwrap(), "secret");
    assert_eq!(fs::metadata(&precious).unwrap().mode() & 0o777, 0o600);

    let (cwd, mode) = (rustix::fs::CWD, rustix::fs::Mode::RWXU);
    let fifo = rustix::fs::FileType::Fifo;
    eventually("planted", || {
        rustix::fs::mknodat(cwd, &temporary, fifo, mode, 0).is_ok()
    });
    // If the writer opened the FIFO, it would wait for a reader indefinitely.
    let (answer, answered) = std::sync::mpsc::channel();
    let flushed = place.handle.flush();
    thread::spawn(move || answer.send(flushed.blocking_recv()));
    let flushed = answered.recv_timeout(Duration::from_secs(10));
    assert_eq!(flushed.expect("it hangs"), Ok(true));
}

#[test]
fn a_removed_directory_is_created_again() {
    let place = shown(follower());
    let path = place.path();
    // Removal fails if the writer writes a file after the other files are removed.
    eventually("removed", || fs::remove_dir_all(path).is_ok());
    place.lead(3);
    place.handle.wake();
    eventually("written again", || {
        path.join(JSON_FILE).exists() && read(path).token == Some(3)
    });
    // The writer has locked the new directory.
    assert!(StatusDirectory::open(path, &orders()).is_err());
}

#[test]
fn a_change_of_others_is_delayed_except_for_a_flush() {
    let place = start_with(follower_of("a"), Duration::from_secs(60));
    let shows = |identity: &str| {
        let holder = read(place.path()).holder;
        holder.is_some_and(|holder| holder.identity == identity)
    };
    assert!(place.flush());
    let changed_at = boot_now();
    place.status.send_replace(follower_of("b"));
    place.handle.wake();
    eventually("the other holder is shown", || shows("b"));
    assert!(boot_now().since(changed_at) >= OTHERS_SETTLE);
    place.status.send_replace(follower_of("c"));
    assert!(place.flush());
    assert!(shows("c"));
}
