//! Fixture: a replica set with TLS and users, and one run of `leasehold check` against this set.

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use leasehold_testbed::process::exit_code;
use leasehold_testbed::{ReplicaSet, Scratch, SharedSet, User};
use serde_json::Value;

pub(crate) const PROGRAM: &str = env!("CARGO_BIN_EXE_leasehold");
/// The role that docs/mongodb.md documents.
pub(crate) const ROLE: [&str; 4] = ["find", "insert", "update", "changeStream"];
pub(crate) const COLLECTION: &str = "leases";
pub(crate) const LEASE: &str = "orders";

/// Three members with TLS and users, started on demand and stopped after the last test that uses
/// them.
static GUARDED: SharedSet = SharedSet::new(|| ReplicaSet::builder().tls().auth());

pub(crate) struct Scene {
    pub(crate) set: Arc<ReplicaSet>,
    pub(crate) database: String,
    scratch: Scratch,
}

pub(crate) struct Check {
    wrapper: Vec<&'static str>,
    arguments: Vec<String>,
    environment: Vec<(String, OsString)>,
}

/// The parsed output of `--output json`.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) code: i32,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Scene {
    pub(crate) async fn new() -> Self {
        static SCENES: AtomicUsize = AtomicUsize::new(1);
        Self {
            set: GUARDED.get().await,
            database: format!("scene_{}", SCENES.fetch_add(1, Ordering::Relaxed)),
            scratch: Scratch::new(),
        }
    }

    /// Creates a user whose role permits only these actions on the collection.
    pub(crate) async fn user(&self, actions: &[&str]) -> User {
        let name = format!("user-of-{}", self.database);
        self.set
            .add_user_with_actions(&name, &self.database, COLLECTION, actions)
            .await
    }

    /// Adds actions on another collection to the role of [`user`](Self::user).
    pub(crate) async fn grant(&self, collection: &str, actions: &[&str]) {
        let name = format!("user-of-{}", self.database);
        self.set
            .grant(&name, &self.database, collection, actions)
            .await;
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.scratch.path().join(name)
    }

    pub(crate) fn check(&self, uri: &str) -> Check {
        let file = self.path("uri");
        std::fs::write(&file, uri).unwrap();
        let check = Check {
            wrapper: Vec::new(),
            arguments: vec!["check".to_owned()],
            environment: Vec::new(),
        };
        check
            .flag(&format!("--lease={LEASE}"))
            .flag("--identity=checker")
            .flag(&format!("--mongodb-uri-file={}", file.display()))
            .flag(&format!("--mongodb-database={}", self.database))
            .flag(&format!(
                "--status-directory={}",
                self.path("status").display()
            ))
            .flag("--http-listen=127.0.0.1:0")
            .flag("--output=json")
            .flag("--timeout=30s")
            // A login can take seconds on a busy machine.
            .flag("--lease-duration=60s")
            .flag("--lease-renew-deadline=50s")
            .flag("--mongodb-operation-timeout=15s")
    }
}

impl Check {
    pub(crate) fn flag(mut self, flag: &str) -> Self {
        let name = |flag: &str| flag.split_once('=').map(|(name, _)| name.to_owned());
        self.arguments
            .retain(|known| name(known) != name(flag) || name(flag).is_none());
        self.arguments.push(flag.to_owned());
        self
    }

    /// Drops root's capabilities, which bypass file permissions.
    pub(crate) fn without_privileges(mut self) -> Self {
        if rustix::process::geteuid().is_root() {
            let without = "--bounding-set=-dac_override,-dac_read_search,-net_bind_service";
            self.wrapper = vec!["setpriv", without, "--"];
        }
        self
    }

    pub(crate) fn env(mut self, name: &str, value: impl Into<OsString>) -> Self {
        self.environment.push((name.to_owned(), value.into()));
        self
    }

    pub(crate) async fn run(self) -> Answer {
        let (answered, answer) = tokio::sync::oneshot::channel();
        std::thread::spawn(move || answered.send(self.run_and_wait()));
        answer.await.unwrap()
    }

    fn run_and_wait(self) -> Answer {
        let mut words = self.wrapper.into_iter().chain([PROGRAM]);
        let output = Command::new(words.next().unwrap())
            .args(words)
            .args(self.arguments)
            .env_clear()
            .env("PATH", std::env::var_os("PATH").unwrap())
            .envs(self.environment)
            .stdin(Stdio::null())
            .output()
            .unwrap();
        Answer {
            code: exit_code(output.status),
            stdout: String::from_utf8(output.stdout).unwrap(),
            stderr: String::from_utf8(output.stderr).unwrap(),
        }
    }
}

impl Answer {
    pub(crate) fn checks(&self) -> Vec<Value> {
        let Ok(parsed) = serde_json::from_str::<Value>(&self.stdout) else {
            panic!("no JSON: {self:?}");
        };
        assert_eq!(parsed["schema"], 1);
        parsed["checks"].as_array().unwrap().clone()
    }

    pub(crate) fn all(&self, name: &str) -> Vec<Value> {
        let checks = self.checks().into_iter();
        let found: Vec<_> = checks.filter(|check| check["name"] == name).collect();
        assert!(!found.is_empty(), "no check {name}: {}", self.stdout);
        found
    }

    pub(crate) fn one(&self, name: &str) -> Value {
        let mut all = self.all(name);
        assert_eq!(all.len(), 1, "{all:?}");
        all.remove(0)
    }

    /// Asserts the state of the only check with this name. Its detail or remedy must contain
    /// `text`.
    #[track_caller]
    pub(crate) fn says(&self, name: &str, result: &str, text: &str) {
        let check = self.one(name);
        assert_eq!(check["result"], result, "{check:#} in {}", self.stdout);
        let said = format!("{} {}", check["detail"], check["remedy"]).replace("\\\"", "\"");
        assert!(said.contains(text), "{text}: {check:#}");
    }

    /// Lists the checks that failed or warned, except warnings that depend only on the machine and
    /// its load.
    pub(crate) fn troubles(&self) -> Vec<String> {
        let checks = self.checks().into_iter();
        let troubled = checks.filter(|check| {
            let of_machine = check["result"] == "warning" && depends_on_the_machine(check);
            !of_machine && check["result"] != "ok" && check["result"] != "skipped"
        });
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        troubled
            .map(|check| format!("{} {}", text(&check["name"]), text(&check["result"])))
            .collect()
    }

    /// Accepts a higher exit code if the machine itself causes a warning.
    #[track_caller]
    pub(crate) fn exits(&self, code: i32) {
        let warned = self
            .checks()
            .iter()
            .any(|check| check["result"] == "warning" && depends_on_the_machine(check));
        let expected = if warned { code.max(1) } else { code };
        assert_eq!(self.code, expected, "{}", self.stdout);
    }

    pub(crate) fn keeps_secrets(&self) {
        for secret in ["p@ss/word:%", "p%40ss%2Fword%3A%25", "wr0ng"] {
            let shown = self.stdout.contains(secret) || self.stderr.contains(secret);
            assert!(!shown, "{secret} is in: {self:?}");
        }
    }
}

/// Returns true for checks whose results depend on the machine: its clock and measured delays.
pub(crate) fn depends_on_the_machine(check: &Value) -> bool {
    let names = [
        "clock-source",
        "clock-rate",
        "round-trip",
        "majority-write",
        "change-stream-delay",
    ];
    names.iter().any(|name| check["name"] == *name)
}
