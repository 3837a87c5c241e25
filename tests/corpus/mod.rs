//! Reads the corpus: inputs for the parsers, in one file for each format. `README.md` describes the
//! corpus.
//!
//! The crates' unit tests include this file by its path, so it may use only the standard library.

#![allow(unreachable_pub, reason = "public in the testbed, private elsewhere")]

use std::path::Path;

/// Returns the inputs in the file of this name.
///
/// # Panics
/// If there are no inputs, or an input is not in the format.
pub fn inputs(surface: &str) -> Vec<Vec<u8>> {
    let above = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors();
    let mut files = above.map(|above| above.join(format!("tests/corpus/{surface}.txt")));
    let file = files.find(|file| file.exists()).expect("a corpus");
    let text = std::fs::read_to_string(&file).expect("a readable corpus");
    let lines = text
        .lines()
        .filter(|line| !line.is_empty() && !line.starts_with('#'));
    let inputs: Vec<_> = lines
        .map(|line| unescape(line).unwrap_or_else(|| panic!("{}: {line}", file.display())))
        .collect();
    assert!(!inputs.is_empty(), "{}: no inputs", file.display());
    inputs
}

/// Replaces the escapes in a line. Returns `None` if an escape is invalid.
fn unescape(line: &str) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    let mut rest = line;
    while let Some((before, escape)) = rest.split_once('\\') {
        bytes.extend_from_slice(before.as_bytes());
        let (kind, after) = escape.split_at_checked(1)?;
        rest = after;
        match kind {
            "r" => bytes.push(b'\r'),
            "n" => bytes.push(b'\n'),
            "t" => bytes.push(b'\t'),
            "\\" => bytes.push(b'\\'),
            "x" => {
                let (digits, after) = after.split_at_checked(2)?;
                bytes.push(u8::from_str_radix(digits, 16).ok()?);
                rest = after;
            }
            "(" => {
                let (repeated, after) = after.split_once(')')?;
                let (times, part) = repeated.split_once('*')?;
                bytes.extend(unescape(part)?.repeat(times.parse().ok()?));
                rest = after;
            }
            _ => return None,
        }
    }
    bytes.extend_from_slice(rest.as_bytes());
    Some(bytes)
}
