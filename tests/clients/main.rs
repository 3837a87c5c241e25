//! Goal: a program that uses a package in `clients/` never leads after its status file or event has
//! expired (I4), and always notices the loss of a lock. Method: runs each package's own tests as a
//! child process, with daemons on a real replica set.

#![allow(clippy::unwrap_used, reason = "a failing fixture should fail the test")]

mod inputs;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use leasehold_testbed::process::exit_code;
use leasehold_testbed::{
    DaemonTimings, Launch, ReplicaSet, ReservedPort, Scratch, SharedSet, skip,
};

/// Timeout for one language's tests. On an idle machine, these tests take half a minute.
const LONG: Duration = Duration::from_secs(400);

/// Maximum number of daemons that one language's tests start.
const DAEMONS_MAX: usize = 20;

static SET: SharedSet = SharedSet::new(ReplicaSet::builder);

fn package(language: &str) -> PathBuf {
    let clients = Path::new(env!("CARGO_MANIFEST_DIR")).join("clients");
    clients.join(language)
}

/// Variables that locate the caches and settings of Python, Go, Node and Java.
const CACHES: [&str; 8] = [
    "HOME",
    "JAVA_HOME",
    "LEASEHOLD_CACHE",
    "XDG_CACHE_HOME",
    "GOCACHE",
    "GOENV",
    "GOPATH",
    "PYENV_ROOT",
];

/// Runs a script in a package's directory, with the environment that the package's tests need.
/// Returns the output. The script must `exec` the tests, so that the tests and their daemons end if
/// this process is killed.
async fn run(language: &str, script: &str) -> String {
    let (code, output) = outcome(language, script).await;
    assert_eq!(code, Some(0), "{language}:\n{output}");
    output
}

/// Runs a script as [`run`] does. Returns the exit code and the output.
async fn outcome(language: &str, script: &str) -> (Option<i32>, String) {
    let set = SET.get().await;
    let scratch = Scratch::new();
    let path = |name: &str| scratch.path().join(name);
    fs::write(path("uri"), set.uri()).unwrap();
    for directory in ["inputs", "temporary", "runtime"] {
        fs::create_dir(path(directory)).unwrap();
    }
    inputs::write(&path("inputs"));
    let ports: Vec<_> = (0..DAEMONS_MAX).map(|_| ReservedPort::new()).collect();
    let numbers: Vec<_> = ports.iter().map(|port| port.number().to_string()).collect();
    let process = Launch::new("/bin/sh")
        .arguments(["-c", &format!("cd \"$0\" && exec >&2 && {script}")])
        .argument(package(language))
        // Lets Go reuse its build cache.
        .envs(
            CACHES
                .iter()
                .filter_map(|name| Some((*name, std::env::var_os(name)?))),
        )
        .envs([
            ("TMPDIR", path("temporary")),
            ("XDG_RUNTIME_DIR", path("runtime")),
            ("CLIENT_TEST_URI_FILE", path("uri")),
            ("CLIENT_TEST_INPUTS", path("inputs")),
        ])
        .env("CLIENT_TEST_PROGRAM", env!("CARGO_BIN_EXE_leasehold"))
        .env("CLIENT_TEST_PORTS", numbers.join(" "))
        .env("CLIENT_TEST_TIMINGS", DaemonTimings::DEMO.flags().join(" "))
        .stderr(path("output"))
        .start()
        .unwrap();
    let status = process.wait(LONG).await;
    let output = fs::read(path("output")).unwrap();
    let output = String::from_utf8_lossy(&output).into_owned();
    (status.map(exit_code), output)
}

fn installed(program: &str, version: &str) -> bool {
    let found = Command::new(program).arg(version).output().is_ok();
    if !found {
        skip(&format!("{program} is not installed"));
    }
    found
}

/// Some tests run a program as another user, and therefore need root.
fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

#[track_caller]
fn ran(output: &str, summary: &str) {
    assert!(output.contains(summary), "no {summary:?} in {output}");
}

#[tokio::test]
async fn i4_the_python_package() {
    if installed("python3", "--version") {
        // -B: Python writes no bytecode into the source tree.
        let tests = "PYTHONPATH=src exec python3 -B -W error -m unittest discover --start-directory tests --verbose";
        let output = run("python", tests).await;
        if is_root() {
            assert!(!output.contains("skipped"), "{output}");
            ran(&output, "\nOK\n");
        } else {
            ran(&output, "\nOK (skipped=1)\n");
            skip("a test of the Python package needs root");
        }
    }
}

#[tokio::test]
async fn i4_the_go_package() {
    if installed("go", "version") {
        let tests = "export GOTOOLCHAIN=local GOFLAGS=-mod=readonly GOWORK=off \
             && if gofmt -d . | grep .; then exit 1; fi && go vet ./... && go test -c -o \"$TMPDIR/tests\" . \
             && exec \"$TMPDIR/tests\" -test.v";
        let output = run("go", tests).await;
        if is_root() {
            assert!(!output.contains("--- SKIP"), "{output}");
        } else {
            skip("a test of the Go package needs root");
        }
        ran(&output, "\nPASS\n");
    }
}

#[tokio::test]
async fn i4_the_node_package() {
    if installed("node", "--version") {
        // `node --test` would start a process for each file.
        for file in ["status", "events", "lock", "lock_processes"] {
            let tests = format!("exec node --test-reporter=tap tests/{file}.test.js");
            let output = run("node", &tests).await;
            ran(&output, "\n# fail 0\n");
            if output.contains("# SKIP") {
                skip("a test of the Node package needs root or user namespaces");
            } else {
                ran(&output, "\n# skipped 0\n");
            }
        }
    }
}

#[tokio::test]
async fn i4_the_java_package() {
    if installed("mvn", "--version") {
        // Once the artifacts are in the cache, Maven does not connect to the registry.
        let tests = "export MAVEN_OPTS=\"-XX:-UsePerfData -Djava.io.tmpdir=$TMPDIR\" \
             && exec mvn --batch-mode --no-transfer-progress -Dtarget=\"$TMPDIR/target\" \
             -Dmaven.repo.local=\"${LEASEHOLD_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/leasehold}/maven\" test";
        let (code, output) = outcome("java", tests).await;
        if code != Some(0) && output.contains("Could not transfer artifact") {
            return skip("Maven cannot fetch its artifacts");
        }
        assert_eq!(code, Some(0), "java:\n{output}");
        ran(&output, ", Failures: 0, Errors: 0, Skipped: 0");
    }
}
