//! Reads files that other processes may write. Never blocks, and limits the number of bytes read.

use std::fs::{File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use rustix::fs::OFlags;

/// Returns the bytes of a regular file; `None` if the file has more than `bytes_max`. Refuses a
/// pipe, because a pipe blocks its reader and can be read only once.
pub fn read_bounded(path: &Path, bytes_max: usize) -> io::Result<Option<Vec<u8>>> {
    let limit = (bytes_max as u64).saturating_add(1);
    let file = open_without_waiting(path)?;
    let kind = file.metadata()?.file_type();
    if kind.is_dir() {
        return Err(io::ErrorKind::IsADirectory.into());
    }
    if !kind.is_file() {
        return Err(io::Error::other("it is not a regular file"));
    }
    let mut bytes = Vec::new();
    file.take(limit).read_to_end(&mut bytes)?;
    Ok((bytes.len() <= bytes_max).then_some(bytes))
}

/// Opens a file for reading. Does not block on a FIFO without a writer.
pub fn open_without_waiting(path: &Path) -> io::Result<File> {
    OpenOptions::new()
        .read(true)
        .custom_flags(OFlags::NONBLOCK.bits().cast_signed())
        .open(path)
}
