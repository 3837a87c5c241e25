//! Prints the log of a daemon when its test fails.

use std::path::PathBuf;

#[derive(Debug)]
pub(super) struct LastLines(pub(super) PathBuf);

impl Drop for LastLines {
    #[allow(clippy::print_stderr, reason = "printed when a test fails")]
    fn drop(&mut self) {
        const LINES_MAX: usize = 60;
        if std::thread::panicking() {
            let log = std::fs::read(&self.0).unwrap_or_default();
            let log = String::from_utf8_lossy(&log);
            let lines: Vec<_> = log.lines().collect();
            let last = &lines[lines.len().saturating_sub(LINES_MAX)..];
            eprintln!("-- log of a daemon:\n{}", last.join("\n"));
        }
    }
}
