//! Goal: on a faulty disk, a reader of a status file never trusts a leader after its deadline (I4),
//! and the disk never delays the election. Method: runs the real writer on a small tmpfs that is
//! full, read-only, or hangs.

#![allow(clippy::unwrap_used, reason = "a failing fixture should fail the test")]
use std::fs;
use std::io::{self, Write};
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use leasehold::cli::CommandError;
use leasehold::cli::status::{FileVerdict, look};
use leasehold::clock::{boot_id, boot_now};
use leasehold::election::{
    Authority, Claim, Identity, ResourceName, Role, Session, Status, TimingSettings, Timings, Token,
};
use leasehold::publish::Surface;
use leasehold::publish::directory::{RecoveredState, StatusDirectory};
use leasehold::publish::file::{FileOptions, StatusFileHandle};
use leasehold::publish::metrics::Metrics;
use leasehold::publish::render::Identification;
use leasehold_testbed::{HungDisk, Mount, assert_contains, skip};
use tokio::sync::{oneshot, watch};

const REFRESH: Duration = Duration::from_millis(100);

struct Published {
    status: watch::Sender<Status>,
    handle: StatusFileHandle,
    metrics: Metrics,
}

fn orders() -> ResourceName {
    ResourceName::new("orders").unwrap()
}

/// Unchanged files are rewritten after 1.5 `renew_interval`s while leading, and otherwise after half
/// of `lease_duration`, so both are short.
fn timings() -> Timings {
    let settings = TimingSettings {
        lease_duration: Duration::from_secs(2),
        renew_deadline: Duration::from_secs(1),
        renew_interval: REFRESH,
        retry_interval: REFRESH,
        operation_timeout: REFRESH,
        loss_grace: REFRESH,
    };
    Timings::new(settings).unwrap()
}

fn publish(path: &Path, first: Status) -> Published {
    let (directory, _) = StatusDirectory::open(path, &orders()).unwrap();
    let (sender, status) = watch::channel(first);
    let (_, store) = watch::channel(None);
    let who = Identification {
        lease: ResourceName::new("orders").unwrap(),
        identity: Identity::new("me").unwrap(),
        boot_id: boot_id().unwrap(),
    };
    let metrics = Metrics::new(&who, status.clone(), store).unwrap();
    let options = FileOptions {
        who,
        timings: watch::channel(timings()).1,
        store_error: watch::channel(None).1,
        deployment: watch::channel(None).1,
    };
    let handle = StatusFileHandle::spawn(directory, status, options, metrics.clone()).unwrap();
    Published {
        status: sender,
        handle,
        metrics,
    }
}

impl Published {
    /// Fills the disk repeatedly until the writer fails, because the writer may free space while
    /// the disk is being filled.
    fn fill(&self, disk: &Mount) {
        let failures = || self.metrics.publish_failures(Surface::File);
        let before = failures();
        eventually("the disk is full", || {
            disk.fill();
            failures() > before
        });
    }

    fn say(&self, status: Status) -> bool {
        self.status.send_replace(status);
        let answer = self.handle.flush();
        within("flush", answer)
    }
}

fn within(what: &str, mut answer: oneshot::Receiver<bool>) -> bool {
    let limit = boot_now() + Duration::from_secs(10);
    loop {
        match answer.try_recv() {
            Ok(flushed) => return flushed,
            Err(oneshot::error::TryRecvError::Closed) => {
                panic!("{what}: the writer's thread has exited")
            }
            Err(oneshot::error::TryRecvError::Empty) => {}
        }
        assert!(boot_now() < limit, "{what}: no answer within 10 s");
        thread::sleep(Duration::from_millis(2));
    }
}

fn eventually(what: &str, mut condition: impl FnMut() -> bool) {
    let limit = boot_now() + Duration::from_secs(10);
    while !condition() {
        assert!(boot_now() < limit, "{what}: not within 10 s");
        thread::sleep(Duration::from_millis(5));
    }
}

/// The lock may stay held for a moment, because a child that another test has just forked keeps
/// this process's descriptors open until the child executes its program.
fn reopen(path: &Path) -> Result<(StatusDirectory, RecoveredState), CommandError> {
    let mut opened = StatusDirectory::open(path, &orders());
    eventually("the directory is not locked", || {
        let locked = matches!(&opened, Err(error) if error.what.contains(" is used by "));
        if locked {
            opened = StatusDirectory::open(path, &orders());
        }
        !locked
    });
    opened
}

fn follower() -> Status {
    Status {
        role: Role::Follower,
        ..Status::initial(Session::from_bytes([1; 16]), boot_now())
    }
}

fn leader(token: i64) -> Status {
    let token = Token::new(token).unwrap();
    Status {
        role: Role::Leader,
        authority: Some(Authority {
            token,
            valid_until: boot_now() + Duration::from_secs(60),
        }),
        ..follower()
    }
}

fn verdict(path: &Path) -> FileVerdict {
    look(path, Some("orders")).verdict
}

/// Collects the log of this process. Other tests log here too, so only lines with the directory's
/// name count.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl Write for Log {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Log {
    fn count(&self, path: &Path, part: &str) -> usize {
        let path = path.to_str().unwrap();
        let log = String::from_utf8(self.0.lock().unwrap().clone()).unwrap();
        log.lines()
            .filter(|line| line.contains(path) && line.contains(part))
            .count()
    }
}

#[test]
fn i4_a_full_disk_ends_the_leadership_and_the_writer_recovers() {
    let Some(disk) = Mount::small_disk() else {
        return;
    };
    let log = Log::default();
    let writer = log.clone();
    tracing_subscriber::fmt()
        .with_ansi(false)
        .with_writer(move || writer.clone())
        .init();
    let path = disk.path().join("status");
    let published = publish(&path, follower());
    assert!(published.say(follower()));

    // On a full disk, the writer cannot publish the new leadership, but can write the claim record.
    published.fill(&disk);
    assert!(!published.say(leader(3)));
    assert_eq!(verdict(&path), FileVerdict::NotLeader);
    let claim = Claim::from_bytes([9; 16]);
    published
        .handle
        .record(Some(claim), Token::new(3).unwrap(), None);
    let failures = published.metrics.publish_failures(Surface::File);
    eventually("retries at each refresh", || {
        published.metrics.publish_failures(Surface::File) >= failures + 5
    });
    assert_eq!(log.count(&path, "failed to write the status file"), 1);
    let record = fs::read_to_string(path.join("claim")).unwrap();
    assert!(record.contains(&claim.to_string()), "{record}");

    disk.empty();
    eventually("the writer recovers", || {
        verdict(&path) == FileVerdict::Leader
    });
    eventually("the recovery is logged", || {
        log.count(&path, "status file written again") == 1
    });
    assert_eq!(
        log.count(&path, "failures="),
        2,
        "one line when the failures begin, one when they end"
    );

    // After the loss of leadership on a full disk, the files must not keep saying "leader".
    published.fill(&disk);
    assert!(published.say(follower()));
    assert_ne!(verdict(&path), FileVerdict::Leader);
    let left = fs::read_to_string(path.join("status.json")).unwrap_or_default();
    assert!(!left.contains("\"leader\":true"), "{left}");
    let left = fs::read_to_string(path.join("status.env")).unwrap_or_default();
    assert!(!left.contains("LEADER='true'"), "{left}");

    assert!(within("close", published.handle.close()));
    let (_, memory) = reopen(&path).unwrap();
    assert_eq!(memory.claim, Some(claim));
}

#[test]
fn a_disk_that_is_full_at_the_start_is_refused_unless_it_has_the_record() {
    let Some(disk) = Mount::small_disk() else {
        return;
    };
    let path = disk.path().join("status");
    fs::create_dir(&path).unwrap();
    disk.fill();
    let error = StatusDirectory::open(&path, &orders()).unwrap_err();
    assert!(error.what.starts_with("cannot write"), "{error}");
    disk.empty();
    // The kernel counts a tmpfs's free pages per processor, so it may notice freed pages late.
    eventually("room again", || {
        StatusDirectory::open(&path, &orders()).is_ok()
    });
    disk.fill();
    assert!(reopen(&path).is_ok());
}

#[test]
fn a_read_only_directory_is_a_configuration_error() {
    let Some(disk) = Mount::small_disk() else {
        return;
    };
    let path = disk.path().join("status");
    drop(StatusDirectory::open(&path, &orders()).unwrap());
    // A child that another test has just forked may keep the files open until it executes its
    // program.
    eventually("the disk is read-only", || disk.make_read_only());
    let error = reopen(&path).unwrap_err();
    assert!(error.what.starts_with("cannot write"), "{error}");
    let error = StatusDirectory::open(&path.join("new"), &orders()).unwrap_err();
    assert!(error.what.starts_with("cannot create"), "{error}");
    let text = error.to_string();
    assert_contains(&text, path.to_str().unwrap());
    assert_contains(&text, "status.directory");
}

#[test]
fn a_hanging_disk_delays_no_caller_and_recovers() {
    let place = tempfile::tempdir().unwrap();
    let published = publish(place.path(), follower());
    assert!(published.say(follower()));
    let progress = published.handle.progress();
    let Some(hung) = HungDisk::over(place.path()) else {
        skip("needs root, to mount a disk that hangs");
        return;
    };
    published.status.send_replace(leader(3));
    published.handle.wake();

    let started = boot_now();
    let mut answers = Vec::new();
    for token in 4..1_000 {
        published.status.send_replace(leader(token));
        published.handle.wake();
        published
            .handle
            .record(None, Token::new(token).unwrap(), None);
        answers.push(published.handle.flush());
    }
    let took = boot_now().since(started);
    assert!(took < Duration::from_secs(5), "calls took {took:?}");
    // The queue is full, so the last request fails immediately.
    assert!(answers.pop().unwrap().blocking_recv().is_err());
    eventually("the writer reports that the disk hangs", || {
        progress
            .busy_for(boot_now())
            .is_some_and(|busy| busy > REFRESH * 3)
    });
    let age = status_file_age(&published.metrics);
    assert!(age >= (REFRESH * 3).as_secs_f64(), "{age}");
    assert_eq!(published.metrics.publish_failures(Surface::File), 0);

    drop(hung);
    eventually("the newest status is shown", || {
        look(place.path(), None).document.and_then(|d| d.token) == Some(999)
    });
    eventually("the writer no longer hangs", || {
        progress
            .busy_for(boot_now())
            .is_none_or(|busy| busy < REFRESH)
    });
    eventually("the status file is written again", || {
        status_file_age(&published.metrics) < age
    });
}

fn status_file_age(metrics: &Metrics) -> f64 {
    let page = metrics.text().unwrap();
    let age = "leasehold_status_file_age_seconds";
    leasehold_testbed::daemon::sample(&page, age).unwrap()
}

#[test]
fn readers_never_see_a_partial_file() {
    let place = tempfile::tempdir().unwrap();
    let published = publish(place.path(), leader(1));
    assert!(published.say(leader(1)));
    let path = place.path().to_owned();
    let reader = thread::spawn(move || {
        for _ in 0..5_000 {
            let judgement = look(&path, Some("orders"));
            assert_eq!(
                judgement.verdict,
                FileVerdict::Leader,
                "{:?}",
                judgement.why
            );
        }
    });
    let mut token = 1;
    while !reader.is_finished() {
        token += 1;
        published.status.send_replace(leader(token));
        published.handle.wake();
        thread::yield_now();
    }
    reader.join().unwrap();
}

#[test]
fn a_file_of_another_lease_or_boot_is_rejected() {
    let place = tempfile::tempdir().unwrap();
    let published = publish(place.path(), leader(3));
    assert!(published.say(leader(3)));
    assert_eq!(look(place.path(), None).verdict, FileVerdict::Leader);
    assert_eq!(
        look(place.path(), Some("other")).verdict,
        FileVerdict::CannotTell
    );
    drop(published);
}
