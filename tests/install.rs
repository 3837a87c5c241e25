//! Goal: `leasehold install` never leaves a partial program, and reports why it failed. Method:
//! runs the real binary with a limit on the file size (in place of a full disk), with the leftover
//! of a killed run, with a locked directory, and with an invalid path.

#![allow(clippy::unwrap_used, reason = "a failing fixture should fail the test")]

use std::fs::{self, File};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;
use std::process::{Command, Output, Stdio};

use rustix::fs::FlockOperation;

const PROGRAM: &str = env!("CARGO_BIN_EXE_leasehold");

fn install(directory: &Path) -> Output {
    let output = Command::new(PROGRAM).arg("install").arg(directory).output();
    output.unwrap()
}

fn install_after(preparation: &str, directory: &Path) -> Output {
    let script = format!("{preparation}; exec \"$0\" install \"$1\"");
    let mut shell = Command::new("sh");
    let shell = shell.args(["-c", &script, PROGRAM]).arg(directory);
    shell.output().unwrap()
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn names(directory: &Path) -> Vec<String> {
    let entries = fs::read_dir(directory).unwrap();
    let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let mut names: Vec<_> = names.collect();
    names.sort();
    names
}

#[test]
fn the_copy_is_the_same_program_for_all_users() {
    let directory = tempfile::tempdir().unwrap();
    let copy = directory.path().join("leasehold");
    // The copy's mode must not depend on the umask.
    let output = install_after("umask 077", directory.path());
    assert!(output.status.success(), "{}", stderr(&output));
    assert_eq!(
        String::from_utf8(output.stdout).unwrap(),
        format!("{}\n", copy.display())
    );
    assert_eq!(names(directory.path()), ["leasehold"]);
    assert_eq!(
        fs::metadata(&copy).unwrap().permissions().mode() & 0o7777,
        0o755
    );
    assert!(fs::read(&copy).unwrap() == fs::read(PROGRAM).unwrap());
    let version = |program: &Path| Command::new(program).arg("--version").output().unwrap();
    assert_eq!(version(&copy).stdout, version(Path::new(PROGRAM)).stdout);
}

#[test]
fn a_running_copy_is_replaced_atomically() {
    let directory = tempfile::tempdir().unwrap();
    assert!(install(directory.path()).status.success());
    let copy = directory.path().join("leasehold");
    let before = fs::metadata(&copy).unwrap().ino();
    // This run waits for a status file until the test kills the process.
    let mut running = Command::new(&copy)
        .args(["status", "--watch", "--directory"])
        .arg(directory.path())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let output = install(directory.path());
    assert!(output.status.success(), "{}", stderr(&output));
    assert_eq!(running.try_wait().unwrap(), None, "the copy was running");
    running.kill().unwrap();
    running.wait().unwrap();
    assert_ne!(fs::metadata(&copy).unwrap().ino(), before, "another file");
    assert_eq!(names(directory.path()), ["leasehold"]);
}

#[test]
fn without_disk_space_the_old_copy_stays() {
    let directory = tempfile::tempdir().unwrap();
    let copy = directory.path().join("leasehold");
    fs::write(&copy, "the old one").unwrap();
    let output = install_after("trap '' XFSZ; ulimit -f 64", directory.path());
    assert_eq!(output.status.code(), Some(78));
    let said = stderr(&output);
    let cannot = said.contains("cannot write /") && said.contains(": file too large");
    assert!(cannot, "{said}");
    assert_eq!(fs::read_to_string(&copy).unwrap(), "the old one");
    assert_eq!(names(directory.path()), ["leasehold"]);
}

#[test]
fn leftovers_of_a_killed_run_are_removed() {
    let directory = tempfile::tempdir().unwrap();
    let copy = directory.path().join("leasehold");
    fs::write(&copy, "the old one").unwrap();
    // A run that is killed during the copy leaves this file.
    fs::write(directory.path().join(".leasehold.unfinished"), "half").unwrap();
    assert_eq!(
        names(directory.path()),
        [".leasehold.unfinished", "leasehold"]
    );
    assert_eq!(fs::read_to_string(&copy).unwrap(), "the old one");
    let output = install(directory.path());
    assert!(output.status.success(), "{}", stderr(&output));
    assert_eq!(names(directory.path()), ["leasehold"]);
    assert!(fs::read(&copy).unwrap() == fs::read(PROGRAM).unwrap());
}

#[test]
fn only_one_installation_runs_at_a_time() {
    let directory = tempfile::tempdir().unwrap();
    let lock = File::open(directory.path()).unwrap();
    rustix::fs::flock(&lock, FlockOperation::LockExclusive).unwrap();
    let output = install(directory.path());
    assert_eq!(output.status.code(), Some(78));
    let said = stderr(&output);
    assert!(said.contains("another leasehold is installing"), "{said}");
    assert_eq!(names(directory.path()), [""; 0]);
    drop(lock);
    assert!(install(directory.path()).status.success());
}

#[test]
fn a_path_that_is_not_a_directory_is_named() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("file");
    fs::write(&file, "").unwrap();
    for (wrong, why) in [
        (
            &directory.path().join("absent"),
            "no such file or directory",
        ),
        (&file, "not a directory"),
    ] {
        let output = install(wrong);
        assert_eq!(output.status.code(), Some(78));
        let said = stderr(&output);
        let open = format!("cannot open the directory {}: {why}", wrong.display());
        assert!(said.contains(&open) && !said.contains("os error"), "{said}");
    }
    assert_eq!(names(directory.path()), ["file"]);
    let missing = Command::new(PROGRAM).arg("install").output().unwrap();
    assert_eq!(missing.status.code(), Some(64), "{}", stderr(&missing));
}
