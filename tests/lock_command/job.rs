//! Runs `leasehold lock …` as a process on the shared set, and reads its output.

use std::fmt::Write as _;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use futures_util::TryStreamExt;
use leasehold_testbed::process::exit_code;
use leasehold_testbed::trace::{self, CheckedTrace};
use leasehold_testbed::{ReplicaSet, Scratch, SharedSet, pid, run};
use mongodb::bson::{DateTime, Document, doc};
use rustix::process::Signal;

pub(crate) const PROGRAM: &str = env!("CARGO_BIN_EXE_leasehold");
/// Timeout of waits that take milliseconds on an idle machine.
pub(crate) const LONG: Duration = Duration::from_secs(30);

static SET: SharedSet = SharedSet::new(ReplicaSet::builder);

/// A directory and a database for one test's jobs, so that no test lists, breaks or prunes the
/// locks of another test.
pub(crate) struct Place {
    /// The trace of all jobs, and a recording of the changes to their locks. Dropped after all jobs
    /// have exited, and before the set stops.
    trace: CheckedTrace,
    pub(crate) set: Arc<ReplicaSet>,
    database: String,
    scratch: Scratch,
}

pub(crate) struct Job {
    child: Child,
}

#[derive(Debug)]
pub(crate) struct Output {
    pub(crate) code: i32,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Output {
    #[track_caller]
    pub(crate) fn says(&self, code: i32, text: &str) {
        assert_eq!(self.code, code, "{self:?}");
        assert!(self.stderr.contains(text), "{text}: {self:?}");
    }
}

impl Place {
    pub(crate) fn new() -> Self {
        Self::on(run(SET.get()))
    }

    pub(crate) fn on(set: Arc<ReplicaSet>) -> Self {
        let uri = set.uri();
        static PLACES: AtomicUsize = AtomicUsize::new(1);
        let number = PLACES.fetch_add(1, Ordering::Relaxed);
        let scratch = Scratch::new();
        let database = format!("place_{number}");
        let trace = CheckedTrace::new(scratch.path().join("trace")).with_changes(
            &uri,
            (&database, "leases"),
            scratch.path().join("changes"),
        );
        let place = Self {
            trace,
            set,
            database,
            scratch,
        };
        place.reached_by(uri)
    }

    /// Returns this place with another URI, such as the URI of a proxy.
    ///
    /// Jobs read the URI file at startup, so only jobs started later use the new URI.
    pub(crate) fn reached_by(self, uri: String) -> Self {
        std::fs::write(self.path("uri"), uri).unwrap();
        self
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.scratch.path().join(name)
    }

    pub(crate) fn trace(&self) -> &Path {
        self.trace.path()
    }

    pub(crate) fn store(&self) -> [String; 2] {
        let uri = self.path("uri");
        [
            format!("--mongodb-uri-file={}", uri.display()),
            format!("--mongodb-database={}", self.database),
        ]
    }

    /// Stores a document next to the locks, as another program would.
    pub(crate) fn store_document(&self, name: &str, mut document: Document) {
        document.insert("_id", name);
        self.trace.declare(name, "a document of another program");
        let database = self.set.client().database(&self.database);
        let collection = database.collection("leases");
        run(async { collection.insert_one(document).await }).unwrap();
    }

    pub(crate) fn delete_document(&self, name: &str) {
        self.trace.declare(name, "a deletion by hand");
        let database = self.set.client().database(&self.database);
        let locks = database.collection::<Document>("leases");
        run(async { locks.delete_one(doc! { "_id": name }).await }).unwrap();
    }

    /// Sets a date of a lock to 1970, as if the owner's clock were far behind.
    pub(crate) fn set_date(&self, name: &str, field: &str) {
        self.trace.declare(name, "a date of an owner");
        let database = self.set.client().database(&self.database);
        let locks = database.collection::<Document>("leases");
        let behind = doc! { "$set": { field: DateTime::from_millis(1) } };
        run(async { locks.update_one(doc! { "_id": name }, behind).await }).unwrap();
    }

    pub(crate) fn cursors(&self) -> usize {
        let database = self.set.client().database("admin");
        let prefix = format!("^{}\\.", self.database);
        let pipeline = [
            doc! { "$currentOp": { "idleCursors": true, "allUsers": true } },
            doc! { "$match": { "ns": { "$regex": prefix }, "cursor": { "$exists": true } } },
        ];
        let listed = run(async {
            database
                .aggregate(pipeline)
                .await?
                .try_collect::<Vec<_>>()
                .await
        });
        let mut listed = listed.unwrap();
        // Excludes the cursor of the recording. Only that cursor requests pre-images.
        listed.retain(|cursor| !cursor.to_string().contains("fullDocumentBeforeChange"));
        listed.len()
    }

    pub(crate) fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(PROGRAM);
        command
            .args(&arguments[..1])
            .args(self.store())
            .arg("--log-format=text")
            .args(&arguments[1..])
            .env_clear()
            .env("XDG_RUNTIME_DIR", self.scratch.path())
            .env(trace::VARIABLE, self.trace.path())
            .env("PATH", std::env::var_os("PATH").unwrap())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        command
    }

    pub(crate) fn start(&self, arguments: &[&str]) -> Job {
        Job::start(self.command(arguments))
    }

    pub(crate) fn run(&self, arguments: &[&str]) -> Output {
        self.start(arguments).output()
    }

    pub(crate) fn start_under(&self, lock: &str, flags: &[&str], script: &str) -> Job {
        self.start(&[&["lock", lock], flags, &["--", "sh", "-c", script]].concat())
    }

    pub(crate) fn run_under(&self, lock: &str, flags: &[&str], script: &str) -> Output {
        self.start_under(lock, flags, script).output()
    }

    pub(crate) fn start_empty(&self, lock: &str, flags: &[&str]) -> Job {
        self.start(&[&["lock", lock], flags, &["--", "true"]].concat())
    }

    pub(crate) fn run_empty(&self, lock: &str, flags: &[&str]) -> Output {
        self.start_empty(lock, flags).output()
    }

    /// Starts a job and waits until the job holds the lock. The job keeps the lock until the test
    /// ends the job.
    pub(crate) fn holder(&self, lock: &str, flags: &[&str]) -> Job {
        let holds = format!("{}; exec sleep 1000", self.note("holds"));
        let job = self.start_under(lock, flags, &holds);
        self.wait_noted("holds");
        job
    }

    pub(crate) fn wait_listed(&self, text: &str) {
        eventually(&format!("{text} is listed"), || {
            self.run(&["locks"]).stdout.contains(text)
        });
    }

    pub(crate) fn journal(&self) -> Vec<Vec<String>> {
        let text = std::fs::read_to_string(self.path("journal")).unwrap_or_default();
        let whole = text
            .split_inclusive('\n')
            .filter_map(|line| line.strip_suffix('\n'));
        let words = |line: &str| line.split(' ').map(str::to_owned).collect();
        whole.map(words).collect()
    }

    /// Returns a shell command that writes `what`, the job's token and its own process id to the
    /// journal.
    pub(crate) fn note(&self, what: &str) -> String {
        let journal = self.path("journal");
        format!(
            "echo \"{what} $LEASEHOLD_TOKEN $$\" >> {}",
            journal.display()
        )
    }

    pub(crate) fn noted(&self) -> Vec<String> {
        let journal = self.journal().into_iter();
        journal.map(|mut line| line.swap_remove(0)).collect()
    }

    pub(crate) fn wait_noted(&self, what: &str) -> Vec<String> {
        let mut found = None;
        eventually(&format!("{what} in the journal"), || {
            found = self.journal().into_iter().find(|line| line[0] == what);
            found.is_some()
        });
        found.unwrap()
    }
}

impl Job {
    pub(crate) fn start(mut command: Command) -> Self {
        Self {
            child: command.spawn().unwrap(),
        }
    }

    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn signal(&self, signal: Signal) {
        pid::signal(self.id(), signal);
    }

    pub(crate) fn input(&mut self) -> impl Write + use<> {
        self.child.stdin.take().unwrap()
    }

    pub(crate) fn standard_output(&mut self) -> impl Read + use<> {
        self.child.stdout.take().unwrap()
    }

    pub(crate) fn wait_logged(&mut self, text: &str) {
        let stderr = self.child.stderr.as_mut().unwrap();
        let mut said = Vec::new();
        while !String::from_utf8_lossy(&said).contains(text) {
            let mut byte = [0];
            let read = stderr.read(&mut byte).unwrap();
            let so_far = String::from_utf8_lossy(&said);
            assert_eq!(read, 1, "standard error ended without {text:?}: {so_far}");
            said.push(byte[0]);
        }
    }

    pub(crate) fn output(mut self) -> Output {
        let status = self.wait();
        let mut output = Output {
            code: exit_code(status),
            stdout: String::new(),
            stderr: String::new(),
        };
        if let Some(mut stdout) = self.child.stdout.take() {
            stdout.read_to_string(&mut output.stdout).unwrap();
        }
        if let Some(mut stderr) = self.child.stderr.take() {
            stderr.read_to_string(&mut output.stderr).unwrap();
        }
        output
    }

    fn wait(&mut self) -> ExitStatus {
        let end = Instant::now() + LONG;
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                return status;
            }
            if Instant::now() > end {
                panic!("the job does not exit: {}", self.looked_at());
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    fn looked_at(&mut self) -> String {
        let mut seen = vec![self.child.id()];
        let mut text = String::new();
        let mut next = 0;
        while let Some(pid) = seen.get(next).copied() {
            next += 1;
            let read = |name: &str| {
                let text = std::fs::read_to_string(format!("/proc/{pid}/{name}"));
                text.unwrap_or_default()
            };
            let _ = write!(
                text,
                "\n{pid}: {} | waits in {} | {}",
                read("cmdline").replace('\0', " "),
                read("wchan"),
                read("stat"),
            );
            seen.extend(pid::children(pid));
        }
        if let Some(mut stderr) = self.child.stderr.take() {
            // Reads the available text without waiting for more.
            rustix::io::ioctl_fionbio(&stderr, true).unwrap();
            let mut said = Vec::new();
            let _ = stderr.read_to_end(&mut said);
            let _ = write!(text, "\nsaid: {}", String::from_utf8_lossy(&said));
        }
        text
    }
}

impl Drop for Job {
    fn drop(&mut self) {
        // An error means that the job has already exited.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Returns a lock whose slots are all held, with this many waiters. The entries are never renewed,
/// but do not expire before the end of the test.
pub(crate) fn crowd(holders: u32, waiters: u32) -> Document {
    let id = |kind: u8, number: u32| mongodb::bson::Binary {
        subtype: mongodb::bson::spec::BinarySubtype::Uuid,
        bytes: [[kind; 12].as_slice(), &number.to_be_bytes()].concat(),
    };
    let entry = |who: &str, number: u32, token: Option<i64>| {
        doc! {
            "claim": id(1, number), "session": id(2, number), "revision": id(3, number),
            "identity": format!("{who}-{number}"), "mode": "slot",
            "lease_duration_ms": 3_600_000_i64, "token": token,
        }
    };
    let holding = (0..holders).map(|n| entry("holder", n, Some(i64::from(n) + 1)));
    let waiting = (holders..holders + waiters).map(|n| entry("waiter", n, None));
    doc! {
        "schema": 1, "kind": "lock", "token": i64::from(holders), "slots": holders,
        "holders": holding.collect::<Vec<_>>(), "queue": waiting.collect::<Vec<_>>(),
    }
}

pub(crate) fn eventually(what: &str, mut condition: impl FnMut() -> bool) {
    let end = Instant::now() + LONG;
    while !condition() {
        assert!(Instant::now() < end, "not so: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Returns `stage` with a job's command line appended to its arguments, and with the job's
/// environment and pipes.
pub(crate) fn through(mut stage: Command, job: &Command) -> Command {
    let set = job.get_envs();
    stage
        .arg(job.get_program())
        .args(job.get_args())
        .env_clear()
        .envs(set.filter_map(|(name, value)| Some((name, value?))))
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    stage
}
