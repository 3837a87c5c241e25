//! Goal: an unresponsive DNS server delays a connection but does not prevent it, and the log blames
//! the DNS server, not MongoDB or the network. Method: mount another /etc/resolv.conf whose first
//! nameserver never answers.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use leasehold_testbed::nameserver::{HOST, Nameserver, RECORD};
use leasehold_testbed::{ReplicaSet, Scratch, eventually, skip};

const PROGRAM: &str = env!("CARGO_BIN_EXE_leasehold");

struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn resolving(resolv_conf: &Path, program: &str) -> Command {
    let script = "mount --bind \"$0\" /etc/resolv.conf && exec \"$@\"";
    let mut command = Command::new("unshare");
    command.args(["--mount", "sh", "-c", script]);
    command.arg(resolv_conf).arg(program);
    command
}

/// Returns false if this user may not mount another /etc/resolv.conf.
fn can_mount(resolv_conf: &Path) -> bool {
    let trial = resolving(resolv_conf, "true").status();
    let mounts = trial.is_ok_and(|status| status.success());
    if !mounts {
        skip("needs root, to mount another /etc/resolv.conf");
    }
    mounts
}

async fn log_of_leader(resolv_conf: &Path, lease: &str, uri: &str) -> String {
    let place = Scratch::new();
    let log = place.path().join("log");
    let daemon = resolving(resolv_conf, PROGRAM)
        .args(["run", "--lease", lease, "--mongodb-uri", uri])
        .arg("--status-directory")
        .arg(place.path().join("status"))
        .args(["--http-listen=", "--log-format=text"])
        .env_clear()
        .env("XDG_RUNTIME_DIR", place.path())
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(File::create(&log).expect("a file"))
        .spawn();
    let _daemon = Running(daemon.expect("the command starts"));
    let read = || fs::read_to_string(&log).unwrap_or_default();
    let leads = async || read().contains("to=leader");
    eventually(&format!("{uri} leads; log: {}", log.display()), leads).await;
    read()
}

/// A replica set of one member, addressed by host names. The first nameserver does not answer.
struct SlowNames {
    resolv_conf: PathBuf,
    strings: [(&'static str, String); 3],
    _place: Scratch,
    _nameservers: [Nameserver; 2],
    _set: ReplicaSet,
}

impl SlowNames {
    /// Returns `None` if this user may not mount, or may not listen on port 53.
    async fn new() -> Option<Self> {
        let set = ReplicaSet::builder().members(1).start().await;
        let port = set.node(0).port();
        let (Ok(silent), Ok(answering)) =
            (Nameserver::silent(), Nameserver::answering(port, "testbed"))
        else {
            skip("needs root, to listen on port 53");
            return None;
        };
        let place = Scratch::new();
        let resolv_conf = place.path().join("resolv.conf");
        fs::write(&resolv_conf, silent.line() + &answering.line()).expect("a file");
        if !can_mount(&resolv_conf) {
            return None;
        }
        // This connection string has a single host name, because the member is listed by address in
        // the replica set's configuration.
        let strings = [
            (
                "seed",
                format!("mongodb://{HOST}:{port}/?replicaSet=testbed"),
            ),
            (
                "direct",
                format!("mongodb://{HOST}:{port}/?directConnection=true"),
            ),
            ("record", format!("mongodb+srv://{RECORD}/?tls=false")),
        ];
        Some(Self {
            resolv_conf,
            strings,
            _place: place,
            _nameservers: [silent, answering],
            _set: set,
        })
    }
}

#[tokio::test]
async fn an_unresponsive_nameserver_delays_the_connection_and_is_named() {
    let Some(names) = SlowNames::new().await else {
        return;
    };
    let logs = names
        .strings
        .iter()
        .map(|(lease, uri)| log_of_leader(&names.resolv_conf, lease, uri));
    let logs = join_all(logs).await;
    for log in logs {
        let blamed = [
            " s to resolve: check the nameservers",
            " not been resolved for ",
        ];
        assert!(blamed.iter().any(|words| log.contains(words)), "{log}");
        assert!(!log.contains("firewalls"), "{log}");
    }
}

#[tokio::test]
async fn replicas_gives_up_within_10_s_if_no_nameserver_answers() {
    let Ok(silent) = Nameserver::silent() else {
        skip("needs root, to listen on port 53");
        return;
    };
    let place = Scratch::new();
    let resolv_conf = place.path().join("resolv.conf");
    fs::write(&resolv_conf, silent.line()).expect("a file");
    if !can_mount(&resolv_conf) {
        return;
    }
    let names = ["a.leasehold.test:9402", "b.leasehold.test:9402"];
    let mut command = resolving(&resolv_conf, PROGRAM);
    command.arg("replicas").args(names);
    command.env_clear().stdin(Stdio::null());
    let began = Instant::now();
    let ran = tokio::process::Command::from(command).output().await;
    let ran = ran.expect("the command starts");
    // The names are resolved at the same time; one after the other, they would take 14 s.
    assert!(began.elapsed() < Duration::from_secs(13), "{ran:?}");
    let stderr = String::from_utf8_lossy(&ran.stderr);
    let connecting = format!("connecting to {} (1s of 10s)\n", names.join(", "));
    assert_eq!(stderr, connecting);
    let stdout = String::from_utf8_lossy(&ran.stdout);
    for name in names {
        let unresolved = format!("failed: cannot resolve {name}: no answer within 7s\n");
        assert!(stdout.contains(&unresolved), "{stdout}");
    }
}

#[tokio::test]
async fn operators_commands_wait_for_a_name_that_is_slow_to_resolve() {
    let Some(names) = SlowNames::new().await else {
        return;
    };
    let commands: [(&[&str], i32, &str); 4] = [
        (&["locks"], 0, "no locks"),
        (&["locks", "break", "unused"], 78, "no lock is named unused"),
        (
            &["locks", "prune", "--unused-for=1h"],
            1,
            "no lock has been unused",
        ),
        (&["leases", "--observe=0s"], 0, "no leases"),
    ];
    let runs = commands.iter().flat_map(|command| {
        let strings = names.strings.iter();
        strings.map(move |(_, uri)| (command, uri))
    });
    let runs = runs.map(async |((arguments, code, says), uri)| {
        let mut command = resolving(&names.resolv_conf, PROGRAM);
        command.args(*arguments).args(["--mongodb-uri", uri]);
        // On a busy machine, two lookups of 5 s each use up the default timeout of 10 s.
        command.arg("--timeout=30s");
        command.env_clear().stdin(Stdio::null());
        let ran = tokio::process::Command::from(command).output().await;
        let ran = ran.expect("the command starts");
        let said = [ran.stdout, ran.stderr].concat();
        let said = String::from_utf8_lossy(&said);
        let is_right = ran.status.code() == Some(*code) && said.contains(says);
        (!is_right).then(|| format!("{arguments:?} {uri}: {}: {said}", ran.status))
    });
    let wrong: Vec<_> = join_all(runs).await.into_iter().flatten().collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
