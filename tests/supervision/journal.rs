//! A command that writes its events to a journal, and a parser for the journal. Each line is `<at>
//! <what> <token> <identity> <pid>`. The time is from /proc/uptime, which is CLOCK_BOOTTIME in
//! hundredths of a second. Commands append whole lines, so the lines are in the order of the
//! events.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

use leasehold_testbed::{DaemonBuilder, INVARIANT_VIOLATED, Scratch};

use crate::contest::eventually;

pub(crate) struct Journal(Scratch);

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Line {
    /// CLOCK_BOOTTIME in nanoseconds, rounded down to 10 ms.
    pub(crate) at: u64,
    pub(crate) what: String,
    pub(crate) token: i64,
    pub(crate) identity: String,
    pub(crate) pid: u32,
}

/// Reaction of a command to SIGTERM. Every command also records its start and its end.
pub(crate) enum Behaviour {
    /// The command ends as soon as it gets SIGTERM.
    Obedient,
    /// The command takes this many seconds to end after SIGTERM.
    Slow(&'static str),
    /// The command ignores SIGTERM.
    Stubborn,
    Exits(u8),
    /// The command acts as long as it holds a file lock, and records `overlap` and ends if another
    /// command holds the lock. A busy command uses a whole core. A command that is not busy has one
    /// child at a time, which holds the lock too and lives for up to 0.3 s.
    Exclusive {
        busy: bool,
    },
    /// The command allocates memory until the kernel kills a process, once [`Journal::exhaust`] was
    /// called.
    Exhausting,
}

/// Reads an endless line into memory.
pub(crate) const EXHAUST: &str = "tail /dev/zero";

impl Journal {
    pub(crate) fn new() -> Self {
        Self(Scratch::new())
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    pub(crate) fn exhaust(&self) {
        std::fs::write(self.path("exhaust"), "").unwrap();
    }

    pub(crate) fn open_to_all_users(&self) {
        let journal = self.path("journal");
        std::fs::write(&journal, "").unwrap();
        for (path, mode) in [(self.0.path(), 0o711), (&journal, 0o666)] {
            std::fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
        }
    }

    /// Returns a shell command that also writes a tick to the journal every 20 ms.
    pub(crate) fn command(&self, behaviour: &Behaviour) -> Vec<String> {
        let journal = self.path("journal");
        let (trap, after) = match behaviour {
            Behaviour::Obedient => ("trap 'line end; exit 0' TERM".to_owned(), String::new()),
            Behaviour::Slow(seconds) => (
                format!("trap 'line stopping; sleep {seconds}; line end; exit 0' TERM"),
                String::new(),
            ),
            Behaviour::Stubborn => ("trap 'line ignored' TERM".to_owned(), String::new()),
            Behaviour::Exits(code) => (String::new(), format!("line end; exit {code}")),
            Behaviour::Exclusive { busy } => {
                let lock = self.path("lock");
                let act = if *busy { ":" } else { "sleep 0.3" };
                let lock = format!(
                    "exec 9> {}; flock -n 9 || {{ line overlap; exit 99; }}",
                    lock.display()
                );
                (
                    "trap 'line end; exit 0' TERM".to_owned(),
                    format!("{lock}; line act; while :; do {act}; done"),
                )
            }
            Behaviour::Exhausting => {
                let begin = self.path("exhaust").display().to_string();
                let wait = format!("until [ -e {begin} ]; do sleep 0.02; done");
                (String::new(), format!("{wait}; exec {EXHAUST}"))
            }
        };
        let script = format!(
            r#"
            line() {{
                read -r up _ < /proc/uptime
                echo "${{up%.*}}${{up#*.}} $1 $LEASEHOLD_TOKEN $LEASEHOLD_IDENTITY $$" >> "{journal}"
            }}
            {trap}
            line start
            {after}
            while :; do sleep 0.02; line tick; done
            "#,
            journal = journal.display(),
        );
        ["sh", "-c", &script].map(str::to_owned).to_vec()
    }

    pub(crate) fn run_by(&self, daemon: DaemonBuilder, behaviour: &Behaviour) -> DaemonBuilder {
        daemon.workload(self.command(behaviour))
    }

    pub(crate) fn text(&self) -> String {
        std::fs::read_to_string(self.path("journal")).unwrap_or_default()
    }

    pub(crate) fn lines(&self) -> Vec<Line> {
        let text = self.text();
        let whole = text.split_inclusive('\n');
        whole
            .filter_map(|line| line.strip_suffix('\n'))
            .map(Line::parse)
            .collect()
    }

    pub(crate) fn of(&self, what: &str) -> Vec<Line> {
        let mut lines = self.lines();
        lines.retain(|line| line.what == what);
        lines
    }

    /// Waits for `count` lines of this kind. Returns the last.
    pub(crate) async fn wait(&self, what: &str, count: usize) -> Line {
        eventually(&format!("{count} lines of {what}"), async || {
            self.of(what).len() >= count
        })
        .await;
        self.of(what)[count - 1].clone()
    }

    /// Asserts that no command writes after a command with a newer token has written.
    pub(crate) fn assert_one_after_the_other(&self) {
        let lines = self.lines();
        let mut newest = 0;
        for line in &lines {
            assert!(
                line.token >= newest,
                "{INVARIANT_VIOLATED}: token {} ran at the same time as {newest}: {line:?}",
                line.token
            );
            newest = line.token;
        }
    }
}

impl Line {
    fn parse(line: &str) -> Self {
        let words: Vec<_> = line.split(' ').collect();
        let [at, what, token, identity, pid] = words.as_slice() else {
            panic!("an incomplete line: {line}");
        };
        Self {
            at: at.parse::<u64>().unwrap() * 10_000_000,
            what: (*what).to_owned(),
            token: token.parse().unwrap(),
            identity: (*identity).to_owned(),
            pid: pid.parse().unwrap(),
        }
    }
}
