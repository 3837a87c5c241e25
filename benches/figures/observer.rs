//! Observes each status file when it is renamed into place. Inotify wakes a thread for each rename,
//! because polling the files would occupy a core that the measured daemons need. [`own_cost`]
//! measures the thread's delay.

use std::collections::HashMap;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use leasehold_testbed::Scratch;
use leasehold_testbed::daemon::boottime_ns;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::inotify::{self, CreateFlags, ReadFlags, WatchFlags};
use serde_json::Value;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use crate::launch::seconds;

const FILE: &str = "status.json";
/// Interval at which the thread checks that it is still needed.
const STOP_POLL: Timespec = Timespec {
    tv_sec: 0,
    tv_nsec: 100_000_000,
};

#[derive(Debug)]
pub(crate) struct Seen {
    /// Index of the file's directory in the list given to the observer.
    pub(crate) index: usize,
    /// CLOCK_BOOTTIME when the observer woke.
    pub(crate) at_ns: u64,
    pub(crate) status: Value,
}

impl Seen {
    /// Returns the deadline if the file says leader and the deadline is in the future.
    pub(crate) fn leads_until_ns(&self) -> Option<u64> {
        let until = self.status["valid_until_boottime_ns"].as_u64();
        until.filter(|until| self.status["leader"] == true && *until > self.at_ns)
    }

    pub(crate) fn token(&self) -> Option<i64> {
        self.status["token"].as_i64()
    }
}

#[derive(Debug)]
pub(crate) struct Observer {
    raw: UnboundedReceiver<(usize, u64, Vec<u8>)>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Observer {
    pub(crate) fn start(directories: &[PathBuf]) -> Self {
        let fd = inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK)
            .expect("create an inotify descriptor");
        let mut places = HashMap::new();
        for (index, path) in directories.iter().enumerate() {
            let watch = inotify::add_watch(&fd, path, WatchFlags::MOVED_TO)
                .expect("watch a status directory");
            places.insert(watch, (index, path.join(FILE)));
        }
        let (sender, raw) = unbounded_channel();
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let thread = std::thread::Builder::new()
            .name("observer".to_owned())
            .spawn(move || observe(&fd, &places, &sender, &stopped))
            .expect("start a thread");
        Self {
            raw,
            stop,
            thread: Some(thread),
        }
    }

    pub(crate) async fn next(&mut self) -> Seen {
        let (index, at_ns, text) = self.raw.recv().await.expect("the observer continues");
        Seen {
            index,
            at_ns,
            status: serde_json::from_slice(&text).expect("the status file is complete"),
        }
    }

    /// Skips statuses until one satisfies `condition`. Panics after `deadline`, with a message that
    /// `what` did not happen.
    pub(crate) async fn find(
        &mut self,
        what: &str,
        deadline: Duration,
        mut condition: impl FnMut(&Seen) -> bool,
    ) -> Seen {
        let found = tokio::time::timeout(deadline, async {
            loop {
                let seen = self.next().await;
                if condition(&seen) {
                    return seen;
                }
            }
        });
        found
            .await
            .unwrap_or_else(|_| panic!("did not happen within {deadline:?}: {what}"))
    }

    pub(crate) fn forget(&mut self) {
        while self.raw.try_recv().is_ok() {}
    }
}

impl Drop for Observer {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

type Place = (usize, PathBuf);

fn observe(
    fd: &OwnedFd,
    places: &HashMap<i32, Place>,
    sender: &UnboundedSender<(usize, u64, Vec<u8>)>,
    stopped: &AtomicBool,
) {
    let mut buffer = [MaybeUninit::uninit(); 16 * 1024];
    let mut events = inotify::Reader::new(fd, &mut buffer);
    while !stopped.load(Ordering::Relaxed) {
        let _ = poll(&mut [PollFd::new(fd, PollFlags::IN)], Some(&STOP_POLL));
        // Read the clock before the file, because the observer notices the change at this time.
        let mut at_ns = boottime_ns();
        while let Ok(event) = events.next() {
            let ours = event.events().contains(ReadFlags::MOVED_TO)
                && event.file_name().is_some_and(|name| name == c"status.json");
            let place = places.get(&event.wd()).filter(|_| ours);
            if let Some((index, path)) = place
                && let Ok(text) = std::fs::read(path)
                && sender.send((*index, at_ns, text)).is_err()
            {
                return;
            }
            // If the buffer is empty, the next events may be newer than `at_ns`, so read the clock
            // again.
            if events.is_buffer_empty() {
                at_ns = boottime_ns();
            }
        }
    }
}

/// Measures the time from a rename to the observer's wakeup, in seconds. Figures whose last event
/// is a status file include this delay.
pub(crate) async fn own_cost(count: usize) -> Vec<f64> {
    let scratch = Scratch::new();
    let directories = crate::launch::directories(scratch.path(), 1);
    let mut observer = Observer::start(&directories);
    let mut series = Vec::new();
    for _ in 0..count {
        tokio::time::sleep(Duration::from_millis(5)).await;
        let renamed_ns = put(&directories[0]);
        let seen = observer.next().await;
        series.push(seconds(renamed_ns, seen.at_ns));
    }
    series
}

fn put(directory: &Path) -> u64 {
    let temporary = directory.join("temporary");
    std::fs::write(&temporary, "{}").expect("write a file");
    let now = boottime_ns();
    std::fs::rename(temporary, directory.join(FILE)).expect("rename a file");
    now
}
