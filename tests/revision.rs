//! Goal: a build never reports a commit other than its own, and reports none if the sources are not
//! from a checkout. Method: calls the build script's function in various directories.

#![allow(clippy::unwrap_used, reason = "a failing fixture should fail the test")]

#[path = "../build.rs"]
#[allow(dead_code, reason = "only cargo calls its main function")]
mod build;

use std::fs;
use std::path::Path;
use std::process::Command;

use self::build::revision;

fn git(directory: &Path, arguments: &[&str]) -> String {
    let output = Command::new("git")
        .args(["-c", "user.name=a", "-c", "user.email=a@example.com"])
        .args(arguments)
        .current_dir(directory)
        .output()
        .unwrap();
    assert!(output.status.success(), "git {arguments:?}: {output:?}");
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}

fn repository() -> tempfile::TempDir {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path();
    fs::write(path.join("Cargo.toml"), "[package]\n").unwrap();
    git(path, &["init", "--quiet"]);
    git(path, &["add", "Cargo.toml"]);
    git(path, &["commit", "--quiet", "--message=a"]);
    directory
}

#[test]
fn a_checkout_reports_its_commit_and_changed_files() {
    let repository = repository();
    let path = repository.path();
    let commit = git(path, &["rev-parse", "--short", "HEAD"]);
    assert_eq!(revision(path), Some(commit.clone()));
    // The build reports the commit even if it has a tag, because a tag can be moved.
    git(path, &["tag", "--annotate", "--message=a", "v1"]);
    assert_eq!(revision(path), Some(commit.clone()));
    fs::write(path.join("Cargo.toml"), "[package]\n# else\n").unwrap();
    assert_eq!(revision(path), Some(format!("{commit}-dirty")));
}

#[test]
fn sources_outside_a_checkout_have_no_revision() {
    let directory = tempfile::tempdir().unwrap();
    assert_eq!(revision(directory.path()), None, "no repository");
    let repository = repository();
    let copy = repository.path().join("vendor");
    fs::create_dir(&copy).unwrap();
    fs::write(copy.join("Cargo.toml"), "[package]\n").unwrap();
    assert_eq!(revision(&copy), None, "in another project's repository");
    git(
        repository.path(),
        &["rm", "--quiet", "--cached", "Cargo.toml"],
    );
    git(
        repository.path(),
        &["commit", "--quiet", "--allow-empty", "--message=b"],
    );
    assert_eq!(
        revision(repository.path()),
        None,
        "unpacked over another repository"
    );
}
