//! Sets the program's source revision, and links release builds with fewer and smaller tables. A
//! build without a revision succeeds and reports `unknown`.

#![allow(clippy::print_stdout, reason = "cargo reads it")]

use std::env;
use std::fs;
use std::path::Path;
use std::process::Command;

/// Drops the tables for unwinding stacks, an eighth of the program. Nothing reads these tables,
/// because a panic aborts a release build and a stripped program has no names for a backtrace. The
/// startup files of a static program need their own tables, which are tiny.
const WITHOUT_UNWIND_TABLES: &str = "\
SECTIONS { /DISCARD/ : {
    *(EXCLUDE_FILE(*crtbegin*.o *crtend*.o) .eh_frame)
    *(.gcc_except_table .gcc_except_table.*)
} }
INSERT AFTER .text;
";

/// Packs the table of relocations, which every process reads when it starts: 0.31 MB of the program
/// and 0.45 MB of a daemon's resident memory. The static program for aarch64 has a fixed address and
/// no such table. In a program for the host, a glibc before 2.36 would not read a packed table.
const PACKED_RELOCATIONS: &str = "-Wl,-z,pack-relative-relocs";

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rerun-if-env-changed=LEASEHOLD_REVISION");
    let given = env::var("LEASEHOLD_REVISION").ok();
    let revision = given.filter(|given| !given.is_empty()).or_else(checked_out);
    let revision = revision.as_deref().unwrap_or("unknown");
    println!("cargo:rustc-env=LEASEHOLD_REVISION={revision}");
    if is_release() {
        let out = env::var("OUT_DIR").expect("cargo sets OUT_DIR");
        let script = format!("{out}/without-unwind-tables.ld");
        fs::write(&script, WITHOUT_UNWIND_TABLES).expect("OUT_DIR is writable");
        println!("cargo:rustc-link-arg-bin=leasehold=-Wl,--no-eh-frame-hdr,-T,{script}");
        if env::var("TARGET").as_deref() == Ok("x86_64-unknown-linux-musl") {
            println!("cargo:rustc-link-arg-bin=leasehold={PACKED_RELOCATIONS}");
        }
    }
}

fn is_release() -> bool {
    env::var("PROFILE").as_deref() == Ok("release")
}

/// Returns `None` for a development build, because otherwise each commit would recompile
/// everything.
fn checked_out() -> Option<String> {
    if !is_release() {
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
