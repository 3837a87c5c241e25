//! Sets the program's source revision. A build without a revision succeeds and reports `unknown`.

#![allow(clippy::print_stdout, reason = "cargo reads it")]

use std::env;
use std::path::Path;
use std::process::Command;

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rerun-if-env-changed=LEASEHOLD_REVISION");
    let given = env::var("LEASEHOLD_REVISION").ok();
    let revision = given.filter(|given| !given.is_empty()).or_else(checked_out);
    let revision = revision.as_deref().unwrap_or("unknown");
    println!("cargo:rustc-env=LEASEHOLD_REVISION={revision}");
}

/// Returns the revision of the checked-out sources, only in release builds, because otherwise each
/// commit would recompile everything during development.
fn checked_out() -> Option<String> {
    if env::var("PROFILE").as_deref() != Ok("release") {
        return None;
    }
    let directory = env::var_os("CARGO_MANIFEST_DIR")?;
    let directory = Path::new(&directory);
    for path in ["src", "crates", "config", "Cargo.toml", "Cargo.lock"] {
        println!("cargo:rerun-if-changed={path}");
    }
    for name in ["HEAD", "logs/HEAD"] {
        let path = git(directory, &["rev-parse", "--git-path", name])?;
        if directory.join(&path).exists() {
            println!("cargo:rerun-if-changed={path}");
        }
    }
    revision(directory)
}

/// Returns the checked-out commit, with `-dirty` if files have changed.
pub(crate) fn revision(directory: &Path) -> Option<String> {
    // If the sources are a copy inside another repository, that repository's commits do not
    // describe them.
    if !git(directory, &["rev-parse", "--show-prefix"])?.is_empty() {
        return None;
    }
    git(directory, &["ls-files", "--error-unmatch", "Cargo.toml"])?;
    let describe = ["describe", "--always", "--dirty", "--exclude", "*"];
    git(directory, &describe)
}

/// Returns the output of git, if git exists and succeeds.
fn git(directory: &Path, arguments: &[&str]) -> Option<String> {
    let output = Command::new("git")
        .args(arguments)
        .current_dir(directory)
        .output();
    let output = output.ok().filter(|output| output.status.success())?;
    Some(String::from_utf8(output.stdout).ok()?.trim().to_owned())
}
