//! Extracts and builds the programs in the documentation, which users copy.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::skip;

/// Returns the only code block in this language in a part of a page.
///
/// # Panics
/// If there is no such block, or more than one.
pub fn code_block(part: &str, language: &str) -> String {
    let fence = format!("```{language}\n");
    let mut blocks = part.split(&fence).skip(1);
    let rest = blocks
        .next()
        .unwrap_or_else(|| panic!("no block of {language}"));
    assert!(blocks.next().is_none(), "one block of {language}");
    let block = rest.split("```").next();
    block.unwrap_or_default().to_owned()
}

/// Builds a Go program in this directory, and returns its path, or `None` if Go is not installed.
///
/// # Panics
/// If the program does not compile.
pub fn go_program(source: &str, directory: &Path) -> Option<PathBuf> {
    if Command::new("go").arg("version").output().is_err() {
        skip("go is not installed");
        return None;
    }
    let file = directory.join("program.go");
    let program = directory.join("program");
    fs::write(&file, source).unwrap();
    let built = Command::new("go")
        .args(["build", "-o"])
        .args([&program, &file])
        .env("CGO_ENABLED", "0")
        .output()
        .unwrap();
    assert!(built.status.success(), "{built:?}");
    Some(program)
}
