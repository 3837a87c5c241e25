//! Making directories and files where other users may write as well: nothing
//! that was planted under a name of ours is followed, waited for or written
//! to, and no umask decides who may read.

use std::fs::{self, DirBuilder, File, OpenOptions, Permissions};
use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::Path;

use rustix::fs::OFlags;
use rustix::io::Errno;
use rustix::process::geteuid;

/// The mode of what is made above a directory that others may be meant to
/// read: a closed parent would hide it.
const PARENT_MODE: u32 = 0o755;
/// What the directory is called that has the status directories.
const ROOT: &str = "leasehold";
/// May be written by the group or by everybody.
const WRITABLE_BY_OTHERS: u32 = 0o022;

/// Makes a directory with this mode unless it is there, and what is missing
/// above it with 0755.
///
/// # Errors
/// What the file system says; `NotADirectory` if something else has the name.
pub fn make_directory(path: &Path, mode: u32) -> io::Result<()> {
    let missing: Vec<_> = path
        .ancestors()
        .take_while(|part| !part.as_os_str().is_empty() && !part.is_dir())
        .collect();
    for part in missing.into_iter().rev() {
        let mode = if part == path { mode } else { PARENT_MODE };
        match DirBuilder::new().mode(mode).create(part) {
            Ok(()) => {}
            // Another process makes the same directories at the same time.
            Err(error) if error.kind() == ErrorKind::AlreadyExists && part.is_dir() => continue,
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {
                return Err(ErrorKind::NotADirectory.into());
            }
            Err(error) => return Err(error),
        }
        // The umask has taken bits away from the mode at the creation.
        OpenOptions::new()
            .read(true)
            .custom_flags(flags(OFlags::DIRECTORY | OFlags::NOFOLLOW))
            .open(part)?
            .set_permissions(Permissions::from_mode(mode))?;
    }
    Ok(())
}

/// Reads a whole file of at most so many bytes. What is no regular file is
/// refused at once: a FIFO would hold its reader up.
///
/// # Errors
/// What the file system says, and for another kind of file or a longer one.
pub fn read_regular(path: &Path, bytes_max: u64) -> io::Result<Vec<u8>> {
    let file = OpenOptions::new()
        .read(true)
        .custom_flags(flags(OFlags::NONBLOCK))
        .open(path)?;
    if !file.metadata()?.is_file() {
        return Err(io::Error::other("not a regular file"));
    }
    read_whole(file, bytes_max)
}

/// As [`read_regular`], of a file that only this user or root can have written
/// where it stands: another one proves nothing.
pub(super) fn read_ours(path: &Path, bytes_max: u64) -> io::Result<Vec<u8>> {
    let file = open_regular(OpenOptions::new().read(true), path)?;
    if !is_ours(file.metadata()?.uid()) {
        return Err(io::Error::other("it belongs to another user. Remove it"));
    }
    read_whole(file, bytes_max)
}

fn read_whole(file: File, bytes_max: u64) -> io::Result<Vec<u8>> {
    let found = file.metadata()?;
    if found.len() > bytes_max {
        return Err(io::Error::other(format!("longer than {bytes_max} bytes")));
    }
    let mut text = Vec::new();
    file.take(bytes_max).read_to_end(&mut text)?;
    Ok(text)
}

/// Replaces a file as a whole, by way of `temporary` beside it, which a kill may
/// leave. Nothing is synced.
///
/// # Errors
/// What the file system says, with the name of the temporary file.
pub fn replace_file(path: &Path, temporary: &Path, mode: u32, text: &[u8]) -> io::Result<()> {
    let named = |path: &Path, error: io::Error| {
        let name = path.file_name().unwrap_or_default().display();
        io::Error::new(error.kind(), format!("{name}: {error}"))
    };
    let written = create_anew(temporary, mode).and_then(|mut file| file.write_all(text));
    let replaced = written
        .map_err(|error| named(temporary, error))
        .and_then(|()| {
            let renamed = fs::rename(temporary, path);
            renamed.map_err(|error| match error.kind() {
                ErrorKind::IsADirectory => named(path, in_the_way("a directory")),
                _ => named(path, error),
            })
        });
    replaced.inspect_err(|_| {
        // Half a file would keep the room that the next attempt needs.
        let _ = fs::remove_file(temporary);
    })
}

/// Creates an empty file with this mode in the place of whatever has its name,
/// unless that is a directory.
///
/// # Errors
/// What the file system says.
pub(super) fn create_anew(path: &Path, mode: u32) -> io::Result<File> {
    match fs::remove_file(path) {
        Err(error) if error.kind() == ErrorKind::IsADirectory => {
            return Err(in_the_way("a directory"));
        }
        Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
        Ok(()) | Err(_) => {}
    }
    // O_EXCL, which follows no link.
    let file = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(mode)
        .open(path)?;
    file.set_permissions(Permissions::from_mode(mode))?;
    Ok(file)
}

/// Opens a file to read and write it in place, and creates it with mode 0600
/// if it is missing.
///
/// # Errors
/// What the file system says, and if it is not a regular file, or one that has
/// a second name: then it may be anybody's.
pub(super) fn open_or_create(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600);
    open_regular(&mut options, path)
}

/// Empties a file that cannot be removed.
pub(in crate::publish) fn empty(path: &Path) -> io::Result<()> {
    open_regular(OpenOptions::new().write(true), path)?.set_len(0)
}

fn open_regular(options: &mut OpenOptions, path: &Path) -> io::Result<File> {
    let opened = options
        .custom_flags(flags(OFlags::NOFOLLOW | OFlags::NONBLOCK))
        .open(path);
    let file =
        opened.map_err(
            |error| match error.raw_os_error().map(Errno::from_raw_os_error) {
                Some(Errno::LOOP) => in_the_way("a symbolic link"),
                Some(Errno::ISDIR) => in_the_way("a directory"),
                // A FIFO without a reader, or a socket.
                Some(Errno::NXIO) => in_the_way("no regular file"),
                _ => error,
            },
        )?;
    let opened = file.metadata()?;
    if !opened.is_file() {
        return Err(in_the_way("no regular file"));
    }
    if opened.nlink() > 1 {
        return Err(in_the_way("a file with a second name (a hard link)"));
    }
    Ok(file)
}

/// Something else has the name of a file of ours.
fn in_the_way(what: &str) -> io::Error {
    io::Error::other(format!("it is {what}. Remove it"))
}

/// Why users other than this one and root could replace the files in a
/// directory; `None` if they cannot.
///
/// # Errors
/// What the file system says.
pub fn exposure(directory: &Path) -> io::Result<Option<&'static str>> {
    let found = fs::metadata(directory)?;
    Ok(if !is_ours(found.uid()) {
        Some("it belongs to another user")
    } else if found.mode() & WRITABLE_BY_OTHERS != 0 {
        Some("its mode lets others write")
    } else {
        None
    })
}

/// The directory above the status directories, if other users may not look into
/// it: somebody made it so, and what is made in it cannot be read.
pub fn closed_root(directory: &Path) -> Option<&Path> {
    const MAY_BE_PASSED: u32 = 0o001;
    let root = directory.parent().filter(|root| root.ends_with(ROOT))?;
    let found = fs::metadata(root).ok()?;
    (found.mode() & MAY_BE_PASSED == 0).then_some(root)
}

/// True for this user and for root, who can do everything anyway.
pub(super) fn is_ours(owner: u32) -> bool {
    owner == geteuid().as_raw() || owner == 0
}

fn flags(flags: OFlags) -> i32 {
    flags.bits().cast_signed()
}
