//! Creates directories and files in places where other users may write too. Never follows, reads or
//! writes a link, FIFO or file that another user planted under a name that leasehold uses. Sets
//! modes explicitly, so that the umask does not decide who may read.

use std::fs::{self, DirBuilder, File, OpenOptions, Permissions};
use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::OFlags;
use rustix::io::Errno;
use rustix::process::geteuid;

/// Mode of created parents. Without access for others, users who must read the directory could not
/// reach it.
const PARENT_MODE: u32 = 0o755;
const ROOT: &str = "leasehold";
const WRITABLE_BY_OTHERS: u32 = 0o022;

/// Creates a directory with this mode if it is missing, and its missing parents with 0755. Fails if
/// the path leads through a symbolic link owned by another user.
pub fn make_directory(path: &Path, mode: u32) -> io::Result<()> {
    refuse_planted_links(path)?;
    let missing: Vec<_> = path
        .ancestors()
        .take_while(|part| !part.as_os_str().is_empty() && !part.is_dir())
        .collect();
    for part in missing.into_iter().rev() {
        let mode = if part == path { mode } else { PARENT_MODE };
        match DirBuilder::new().mode(mode).create(part) {
            Ok(()) => {}
            // Another process has just created this directory.
            Err(error) if error.kind() == ErrorKind::AlreadyExists && part.is_dir() => continue,
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {
                return Err(ErrorKind::NotADirectory.into());
            }
            Err(error) => return Err(error),
        }
        // Set the mode explicitly, because the umask may have cleared bits of the mode at creation.
        OpenOptions::new()
            .read(true)
            .custom_flags(flags(OFlags::DIRECTORY | OFlags::NOFOLLOW))
            .open(part)?
            .set_permissions(Permissions::from_mode(mode))?;
    }
    Ok(())
}

/// Refuses a path through another user's symbolic link, which could change where we write.
pub(super) fn refuse_planted_links(path: &Path) -> io::Result<()> {
    let planted = path.ancestors().find(|part| {
        fs::symlink_metadata(part).is_ok_and(|found| found.is_symlink() && !is_ours(found.uid()))
    });
    match planted {
        Some(link) => Err(io::Error::other(format!(
            "{} is a symbolic link of another user; to fix: remove it, or name the directory that it leads to",
            link.display()
        ))),
        None => Ok(()),
    }
}

/// Reads a file of at most `bytes_max` bytes. Refuses a symbolic link, a file of another user, and
/// a file with a second name (a hard link), because another user may control their content.
pub(super) fn read_ours(path: &Path, bytes_max: u64) -> io::Result<Vec<u8>> {
    let file = open_regular(OpenOptions::new().read(true), path)?;
    let found = file.metadata()?;
    if !is_ours(found.uid()) {
        return Err(io::Error::other(
            "it belongs to another user; to fix: remove it",
        ));
    }
    if found.len() > bytes_max {
        return Err(io::Error::other(format!("longer than {bytes_max} bytes")));
    }
    let mut text = Vec::new();
    file.take(bytes_max).read_to_end(&mut text)?;
    Ok(text)
}

/// Returns the temporary path for [`replace_file`], which overwrites any file at this path.
pub fn temporary(path: &Path) -> PathBuf {
    let name = path.file_name().unwrap_or_default().display();
    path.with_file_name(format!(".{name}.tmp"))
}

/// Replaces a file atomically, without a sync. An error message begins with the name of the file.
pub fn replace_file(path: &Path, temporary: &Path, mode: u32, text: &[u8]) -> io::Result<()> {
    let named = |path: &Path, error: io::Error| {
        let name = path.file_name().unwrap_or_default().display();
        io::Error::new(error.kind(), format!("{name}: {error}"))
    };
    let written = create_anew(temporary, mode).and_then(|mut file| file.write_all(text));
    let written = written.map_err(|error| named(temporary, error));
    let renamed = || fs::rename(temporary, path).map_err(|error| named(path, in_place_of(error)));
    written.and_then(|()| renamed()).inspect_err(|_| {
        // A partial file would occupy the space that the next attempt needs.
        let _ = fs::remove_file(temporary);
    })
}

/// Creates an empty file with this mode, replacing any file of that name except a directory.
pub(super) fn create_anew(path: &Path, mode: u32) -> io::Result<File> {
    // `create_new` sets O_EXCL, so that `open` follows no link.
    let mut options = OpenOptions::new();
    options.write(true).create_new(true).mode(mode);
    let file = match options.open(path) {
        Err(error) if error.kind() == ErrorKind::AlreadyExists => {
            remove(path)?;
            options.open(path)?
        }
        opened => opened?,
    };
    file.set_permissions(Permissions::from_mode(mode))?;
    Ok(file)
}

pub(super) fn remove(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        removed => removed.map_err(in_place_of),
    }
}

/// Opens a file for reading and writing in place, and creates it with mode 0600 if it is missing.
/// Refuses a file with a second name (a hard link), because this may be another user's file.
pub(super) fn open_or_create(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false);
    open_regular(options.mode(0o600), path)
}

/// Truncates a file that cannot be removed.
pub fn empty(path: &Path) -> io::Result<()> {
    open_regular(OpenOptions::new().write(true), path)?.set_len(0)
}

fn open_regular(options: &mut OpenOptions, path: &Path) -> io::Result<File> {
    options.custom_flags(flags(OFlags::NOFOLLOW | OFlags::NONBLOCK));
    let file = options.open(path).map_err(in_place_of)?;
    let opened = file.metadata()?;
    if !opened.is_file() {
        return Err(in_the_way("not a regular file"));
    }
    if opened.nlink() > 1 {
        return Err(in_the_way("a file with a second name (a hard link)"));
    }
    Ok(file)
}

/// Returns an error that names the kind of file in the way, if `error` shows which kind it is.
fn in_place_of(error: io::Error) -> io::Error {
    match Errno::from_io_error(&error) {
        Some(Errno::LOOP) => in_the_way("a symbolic link"),
        // The file is a FIFO without a reader, or a socket.
        Some(Errno::NXIO) => in_the_way("not a regular file"),
        Some(Errno::ISDIR) => io::Error::new(error.kind(), in_the_way("a directory")),
        _ => error,
    }
}

fn in_the_way(what: &str) -> io::Error {
    io::Error::other(format!("it is {what}; to fix: remove it"))
}

/// Returns the reason why users other than this user and root can replace files in a directory, or
/// `None` if they cannot.
pub fn exposure(directory: &Path) -> io::Result<Option<&'static str>> {
    let found = fs::metadata(directory)?;
    Ok(if !is_ours(found.uid()) {
        Some("it belongs to another user")
    } else if found.mode() & WRITABLE_BY_OTHERS != 0 {
        Some("its mode lets other users write")
    } else if directory.ancestors().skip(1).any(can_be_replaced_in) {
        Some("the mode or owner of a parent directory lets other users replace it")
    } else {
        None
    })
}

fn can_be_replaced_in(directory: &Path) -> bool {
    const STICKY: u32 = 0o1000;
    fs::metadata(directory).is_ok_and(|found| {
        let written_by_others = found.mode() & WRITABLE_BY_OTHERS != 0;
        !is_ours(found.uid()) || (written_by_others && found.mode() & STICKY == 0)
    })
}

/// Returns the parent of the status directories if an administrator closed it to other users.
pub fn closed_root(directory: &Path) -> Option<&Path> {
    const MAY_BE_PASSED: u32 = 0o001;
    let root = directory.parent().filter(|root| root.ends_with(ROOT))?;
    let found = fs::metadata(root).ok()?;
    (found.mode() & MAY_BE_PASSED == 0).then_some(root)
}

/// Returns true for this user and root.
pub(super) fn is_ours(owner: u32) -> bool {
    owner == geteuid().as_raw() || owner == 0
}

fn flags(flags: OFlags) -> i32 {
    flags.bits().cast_signed()
}
