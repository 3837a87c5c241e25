//! A command that must fail, and its expected output.

use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use leasehold_testbed::{Scratch, process};

const PROGRAM: &str = env!("CARGO_BIN_EXE_leasehold");
/// Time limit of a command whose error must not be retried. With `--no-wait`, leasehold retries MongoDB
/// calls for 18 s. The limit is below 18 s, but much longer than a busy machine needs.
const FINAL_MAX: Duration = Duration::from_secs(14);
const LONG: Duration = Duration::from_secs(60);
/// Longest warning or error without its date: a message, a cause with one remedy, and the fields.
const LINE_MAX: usize = 240;
const POLL: Duration = Duration::from_millis(10);
const SECRETS: [&str; 4] = ["p@ss/word:%", "p%40ss", "wr0ng", "hunter2"];

pub(crate) struct Situation {
    pub(crate) name: &'static str,
    wrapper: Vec<String>,
    arguments: Vec<String>,
    command: &'static [&'static str],
    environment: Vec<(String, std::ffi::OsString)>,
    uri: Option<String>,
    /// Expected exit code, or `None` if the command keeps running. The test then kills the command
    /// after it has printed all texts.
    code: Option<i32>,
    says: Vec<String>,
    /// Pairs of a text and a text that must not follow it.
    unsaid: Vec<(String, String)>,
    within: Duration,
    place: Scratch,
    /// Values to keep alive until the command exits, such as the process that holds a lock.
    kept: Vec<Box<dyn Send>>,
}

pub(crate) struct Ending(pub(crate) std::process::Child);

impl Drop for Ending {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Situation {
    fn new(name: &'static str, arguments: &[&str]) -> Self {
        Self {
            name,
            wrapper: Vec::new(),
            arguments: arguments.iter().map(|a| (*a).to_owned()).collect(),
            command: &[],
            environment: Vec::new(),
            uri: None,
            code: None,
            says: Vec::new(),
            unsaid: Vec::new(),
            within: LONG,
            place: Scratch::new(),
            kept: Vec::new(),
        }
    }

    pub(crate) fn locks(name: &'static str, uri: &str) -> Self {
        let asked = Self::new(
            name,
            &["locks", "--mongodb-operation-timeout=5s", "--timeout=5s"],
        );
        asked.uri(uri).exits(69).says("cannot list the locks: ")
    }

    /// With a long `--timeout`, the command must not retry, so it must fail within [`FINAL_MAX`].
    pub(crate) fn leases(name: &'static str, uri: &str) -> Self {
        let mut asked = Self::new(name, &["leases", "--timeout=60s"]).uri(uri);
        asked.within = FINAL_MAX;
        asked.exits(69).says("cannot list the leases: ")
    }

    /// With `--no-wait`, the command must not retry, so it must fail within [`FINAL_MAX`].
    pub(crate) fn lock(name: &'static str, uri: &str, lock: &str) -> Self {
        let mut asked = Self::new(name, &["lock", lock, "--no-wait"]).uri(uri);
        asked.command = &["true"];
        asked.within = FINAL_MAX;
        asked
    }

    pub(crate) fn run(name: &'static str, uri: &str, lease: &str) -> Self {
        let asked = Self::new(name, &["run", "--http-listen="]).uri(uri);
        let directory = asked.path("status").display().to_string();
        asked
            .flag(&format!("--lease={lease}"))
            .flag(&format!("--status-directory={directory}"))
    }

    /// Returns a path in the situation's own directory. Dropping the situation removes the
    /// directory.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.place.path().join(name)
    }

    pub(crate) fn flag(mut self, flag: &str) -> Self {
        let (name, _) = flag.split_once('=').unwrap_or((flag, ""));
        let same = |known: &String| known.split_once('=').is_some_and(|(n, _)| n == name);
        let at_once = |known: &String| name == "--wait" && known == "--no-wait";
        self.arguments
            .retain(|known| !(same(known) || at_once(known)));
        self.arguments.push(flag.to_owned());
        self
    }

    pub(crate) fn patient(mut self) -> Self {
        self.arguments.retain(|known| known != "--no-wait");
        self.within = LONG;
        self
    }

    pub(crate) fn uri(mut self, uri: &str) -> Self {
        self.uri = Some(uri.to_owned());
        self
    }

    pub(crate) fn without_uri(mut self) -> Self {
        self.uri = None;
        self
    }

    pub(crate) fn by(mut self, wrapper: &[&str]) -> Self {
        self.wrapper = wrapper.iter().map(|a| (*a).to_owned()).collect();
        self
    }

    pub(crate) fn env(mut self, variables: &[(String, std::ffi::OsString)]) -> Self {
        self.environment.extend(variables.iter().cloned());
        self
    }

    pub(crate) fn keeps(mut self, what: impl Send + 'static) -> Self {
        self.kept.push(Box::new(what));
        self
    }

    pub(crate) fn exits(mut self, code: i32) -> Self {
        self.code = Some(code);
        self
    }

    pub(crate) fn says(mut self, text: &str) -> Self {
        self.says.push(text.to_owned());
        self
    }

    pub(crate) fn never_says(self, text: &str) -> Self {
        self.never_says_after("", text)
    }

    /// The output must not contain `text` after the first occurrence of `said`.
    pub(crate) fn never_says_after(mut self, said: &str, text: &str) -> Self {
        self.unsaid.push((said.to_owned(), text.to_owned()));
        self
    }

    /// Runs the command. Returns an error text if the result differs from the expected result.
    pub(crate) async fn verdict(self) -> Option<String> {
        let log = self.path("said");
        let mut child = self.start(&log);
        let began = Instant::now();
        let read = || std::fs::read_to_string(&log).unwrap_or_default();
        let code = loop {
            // Check for the exit before reading, so that the text includes the last lines of an
            // exited command.
            let ended = child.try_wait().unwrap();
            let said = read();
            if let Some(status) = ended {
                break Some(process::exit_code(status));
            }
            let all = self.says.iter().all(|text| said.contains(text));
            if (self.code.is_none() && all) || began.elapsed() > self.within {
                break None;
            }
            tokio::time::sleep(POLL).await;
        };
        if code.is_none() {
            let _ = child.kill();
            let _ = child.wait();
        }
        let said = read();
        // Makes the directories writable again, because otherwise only root could remove them.
        for name in ["status", "parent"] {
            let writable = std::fs::Permissions::from_mode(0o755);
            let _ = std::fs::set_permissions(self.path(name), writable);
        }
        let mut wrong = Vec::new();
        if code != self.code {
            let after = began.elapsed();
            wrong.push(format!(
                "exit code {code:?} after {after:.1?}, expected {:?}",
                self.code
            ));
        }
        let missing = self.says.iter().filter(|text| !said.contains(*text));
        wrong.extend(missing.map(|text| format!("missing text: {text}")));
        let unwanted = self.unsaid.iter().filter(|(before, text)| {
            let rest = said.split_once(before.as_str());
            rest.is_some_and(|(_, rest)| rest.contains(text))
        });
        wrong.extend(unwanted.map(|(_, text)| format!("unwanted text: {text}")));
        let warnings = said.lines().filter_map(|line| {
            let (_, line) = line.split_once(" WARN ").or(line.split_once(" ERROR "))?;
            (line.chars().count() > LINE_MAX).then_some(line)
        });
        wrong.extend(warnings.map(|line| format!("too long: {line}")));
        let secrets = SECRETS.iter().filter(|secret| said.contains(*secret));
        wrong.extend(secrets.map(|secret| format!("password in the output: {secret}")));
        let (name, wrong_text) = (self.name, wrong.join("\n  "));
        (!wrong.is_empty()).then(|| format!("{name}:\n  {wrong_text}\nit said:\n{said}"))
    }

    fn start(&self, log: &std::path::Path) -> std::process::Child {
        let mut words = self.wrapper.clone();
        words.push(PROGRAM.to_owned());
        words.extend(self.arguments.iter().take(1).cloned());
        if let Some(uri) = &self.uri {
            std::fs::write(self.path("uri"), uri).unwrap();
            words.push(format!("--mongodb-uri-file={}", self.path("uri").display()));
        }
        words.push("--log-format=text".to_owned());
        words.extend(self.arguments.iter().skip(1).cloned());
        if !self.command.is_empty() {
            words.push("--".to_owned());
            words.extend(self.command.iter().map(|word| (*word).to_owned()));
        }
        let said = std::fs::File::create(log).unwrap();
        Command::new(&words[0])
            .args(&words[1..])
            .env_clear()
            .env("PATH", std::env::var_os("PATH").unwrap())
            .env("XDG_RUNTIME_DIR", self.place.path())
            .envs(self.environment.iter().map(|(n, v)| (n, v)))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(said)
            .spawn()
            .unwrap_or_else(|error| panic!("{}: start {words:?}: {error}", self.name))
    }
}
