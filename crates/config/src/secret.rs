//! Sources of the connection string, which is never printed. Errors omit the driver's message,
//! because the driver quotes the parts that it cannot parse.

use std::fmt;
use std::io::{self, Read};
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

use leasehold_clock as clock;
use leasehold_host::bounded_file::{open_without_waiting, read_bounded};
use leasehold_mongodb::uri::{BYTES_MAX, ConnectionUri, UriProblem};

/// Placeholder that is printed instead of a secret.
pub const MASK: &str = "***";

/// A string that `Debug` masks.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    /// Wraps a string.
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// Returns the text itself.
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(MASK)
    }
}

/// Source of the connection string. Errors contain a remedy, but no part of the string.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum UriSource {
    /// The configuration itself.
    Inline(Secret),
    /// A file, which is read again for each connection.
    File(PathBuf),
    /// A pipe, with the text that was read from the pipe. A pipe can be read only once.
    Pipe(PathBuf, Secret),
}

impl Default for UriSource {
    fn default() -> Self {
        Self::Inline(Secret(String::new()))
    }
}

impl UriSource {
    pub(super) fn open(path: PathBuf) -> Result<Self, String> {
        let is_pipe = std::fs::metadata(&path).is_ok_and(|found| found.file_type().is_fifo());
        if is_pipe {
            let secret = uri_in(&path, read_pipe(&path, BYTES_MAX))?;
            return Ok(Self::Pipe(path, secret));
        }
        uri_in(&path, read_bounded(&path, BYTES_MAX))?;
        Ok(Self::File(path))
    }

    /// Returns the current connection string. Reads a file again, in case the secret was rotated.
    pub fn read(&self) -> Result<Secret, String> {
        match self {
            Self::Inline(secret) | Self::Pipe(_, secret) => {
                ConnectionUri::parse(secret.expose())
                    .map_err(|problem| format!("mongodb.uri {problem}"))?;
                Ok(secret.clone())
            }
            Self::File(path) => uri_in(path, read_bounded(path, BYTES_MAX)),
        }
    }
}

/// Returns true if a string could be a connection string or contain its password. Callers mask
/// these strings, because users often set connection strings under the wrong key.
pub fn looks_secret(text: &str) -> bool {
    let plain = (text.starts_with("http://") || text.starts_with("https://"))
        && text.matches("://").count() == 1
        && !text.contains(['@', '?']);
    (text.contains("://") && !plain) || (text.contains('@') && text.contains(':'))
}

/// Returns true for a connection string. Keys whose values are published reject it.
pub(super) fn is_misplaced_uri(text: &str) -> bool {
    let lower = text.to_lowercase();
    lower.contains("mongodb://")
        || lower.contains("mongodb+srv://")
        || (lower.contains("://") && lower.contains('@'))
}

/// Returns a string for printing: quoted and shortened, or masked.
pub fn shown(text: &str) -> String {
    const LENGTH_MAX: usize = 100;
    if looks_secret(text) {
        return MASK.to_owned();
    }
    match text.char_indices().nth(LENGTH_MAX) {
        Some((end, _)) => format!("{:?}…", &text[..end]),
        None => format!("{text:?}"),
    }
}

/// Returns a path for printing, masked if it could be a connection string.
pub fn shown_path(path: &Path) -> String {
    let text = path.to_string_lossy();
    match looks_secret(&text) {
        true => MASK.to_owned(),
        false => text.escape_debug().to_string(),
    }
}

/// Maximum time for a program, such as a vault client, to write a connection string into a pipe.
const PIPE_TIME_MAX: Duration = Duration::from_secs(30);

fn uri_in(path: &Path, read: io::Result<Option<Vec<u8>>>) -> Result<Secret, String> {
    let file = shown_path(path);
    let refused = |problem| format!("{file} {problem}");
    let read = read.map_err(|error| {
        let creation = " with the connection string in it, readable by this user";
        let why = unreadable(&error, creation, "mongodb.uri_file");
        format!("cannot read {file}: {why}")
    })?;
    let text = read.and_then(|bytes| String::from_utf8(bytes).ok());
    let text = text.ok_or_else(|| refused(UriProblem::NotText))?;
    let uri = text.trim_end_matches(['\n', '\r']);
    if uri.trim().is_empty() {
        return Err(format!(
            "{file} is empty: write the connection string into it (mongodb://…), or correct \
             mongodb.uri_file"
        ));
    }
    ConnectionUri::parse(uri).map_err(refused)?;
    Ok(Secret::new(uri))
}

/// Returns why a file cannot be read, and the remedy. `creation` is appended to "create it".
pub fn unreadable(error: &io::Error, creation: &str, setting: &str) -> String {
    match error.kind() {
        io::ErrorKind::NotFound => {
            format!("there is no such file; create it{creation}, or correct {setting}")
        }
        io::ErrorKind::PermissionDenied => {
            format!("permission denied; let this user read it, or correct {setting}")
        }
        io::ErrorKind::Other => format!("{error}; correct {setting}"),
        kind => format!("{kind}; correct {setting}"),
    }
}

/// Returns the bytes of a pipe once all writers have closed it; `None` if there are more than
/// `bytes_max`.
fn read_pipe(path: &Path, bytes_max: usize) -> io::Result<Option<Vec<u8>>> {
    let mut pipe = open_without_waiting(path)?;
    let until = clock::boot_now() + PIPE_TIME_MAX;
    let mut bytes = Vec::new();
    let mut buffer = [0; 4096];
    while bytes.len() <= bytes_max {
        let left = Timespec::try_from(until.since(clock::boot_now())).map_err(io::Error::other)?;
        let mut ready = [PollFd::new(&pipe, PollFlags::IN)];
        match poll(&mut ready, Some(&left)) {
            Ok(0) => return Err(io::ErrorKind::TimedOut.into()),
            Ok(_) | Err(Errno::INTR) => {}
            Err(errno) => return Err(errno.into()),
        }
        match pipe.read(&mut buffer) {
            Ok(0) => return Ok(Some(bytes)),
            Ok(length) => bytes.extend_from_slice(&buffer[..length]),
            Err(error) => match error.kind() {
                io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted => {}
                _ => return Err(error),
            },
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_are_not_in_debug_output() {
        let source = UriSource::Inline(Secret::new("mongodb://u:hunter2@h"));
        assert_eq!(format!("{source:?}"), "Inline(***)");
    }

    #[test]
    fn the_file_is_read_each_time_without_its_newline() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("uri");
        let source = UriSource::File(path.clone());
        let text = |source: &UriSource| source.read().map(|s| s.expose().to_owned()).expect("read");

        std::fs::write(&path, "mongodb://u:one@h\n").expect("written");
        assert_eq!(text(&source), "mongodb://u:one@h");
        std::fs::write(&path, "mongodb://u:two@h\r\n").expect("written");
        assert_eq!(text(&source), "mongodb://u:two@h");
    }

    #[test]
    fn a_pipe_is_read_once() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("pipe");
        let made = std::process::Command::new("mkfifo").arg(&path).status();
        assert!(made.expect("mkfifo").success());
        let writer = {
            let path = path.clone();
            std::thread::spawn(move || std::fs::write(path, "mongodb://u:one@h\n"))
        };
        let source = UriSource::open(path.clone()).expect("read");
        writer.join().expect("no panic").expect("written");
        let secret = Secret::new("mongodb://u:one@h");
        assert_eq!(source, UriSource::Pipe(path.clone(), secret.clone()));
        assert_eq!(source.read().expect("kept"), secret);
        // `UriSource::File` refuses a pipe, because a file is read repeatedly.
        let refused = UriSource::File(path).read().expect_err("refused");
        assert!(refused.contains("not a regular file"), "{refused}");
    }

    #[test]
    fn an_absent_or_empty_file_is_named_with_the_remedy() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("uri");
        let source = UriSource::File(path.clone());
        let assert_refused = |remedy: &str| {
            let refused = source.read().expect_err("refused");
            assert!(refused.contains(path.to_str().expect("UTF-8")), "{refused}");
            assert!(refused.contains(remedy), "{refused}");
            assert!(!refused.contains("hunt"), "{refused}");
        };
        assert_refused("create it");
        let too_long = "x".repeat(BYTES_MAX + 1);
        for (content, remedy) in [
            (&b""[..], "is empty"),
            (b"\n", "is empty"),
            (b"  \n", "is empty"),
            (b"mongodb://u:hunt/er2@h", "percent-encode"),
            (&[0xff, 0xfe], "UTF-8"),
            (too_long.as_bytes(), "64 KiB"),
        ] {
            std::fs::write(&path, content).expect("written");
            assert_refused(remedy);
        }
    }
}
