//! `leasehold install`: a copy of this program where a container of another
//! image can start it. An image without a shell has no `cp` either.

use std::fs::{self, File, OpenOptions, Permissions};
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use rustix::fs::FlockOperation;
use rustix::io::Errno;

/// What the copy is called.
const NAME: &str = "leasehold";

/// What it is called until it is whole. Always the same, so that one that was
/// killed leaves nothing that another does not clear away.
const UNFINISHED: &str = ".leasehold.unfinished";

/// Anybody may run it, nobody but its owner may change it.
const MODE: u32 = 0o755;

/// The running program, also when its file was replaced or removed.
const MYSELF: &str = "/proc/self/exe";

/// Why there is no copy.
#[derive(Debug, thiserror::Error)]
pub enum InstallError {
    /// The directory cannot be opened.
    #[error(
        "cannot open the directory {}: it has to be there, as the mount of a volume for example",
        .0.display()
    )]
    Directory(PathBuf, #[source] io::Error),
    /// Another process installs into it.
    #[error("another leasehold is installing into {}", .0.display())]
    Busy(PathBuf),
    /// A step on the way to the copy failed; what was there before is as it was.
    #[error("cannot {step} {}", .path.display())]
    Copy {
        /// What was not done.
        step: &'static str,
        /// To which file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
}

/// Copies this program into `directory`; the path of the copy. It is replaced
/// as a whole, so that nobody ever starts half of it.
///
/// # Errors
/// [`InstallError`]
pub fn run(directory: &Path) -> Result<PathBuf, InstallError> {
    let _lock = lock(directory)?;
    let unfinished = directory.join(UNFINISHED);
    let installed = directory.join(NAME);
    copy(&unfinished, &installed).inspect_err(|_| {
        // The error says what is wrong; the next attempt clears away too.
        let _ = fs::remove_file(&unfinished);
    })?;
    Ok(installed)
}

/// Keeps others out until it is dropped: they would write into one file.
fn lock(directory: &Path) -> Result<File, InstallError> {
    let refused = |error| InstallError::Directory(directory.to_owned(), error);
    let opened = File::open(directory).map_err(refused)?;
    if !opened.metadata().map_err(refused)?.is_dir() {
        return Err(refused(io::ErrorKind::NotADirectory.into()));
    }
    match rustix::fs::flock(&opened, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(opened),
        Err(Errno::WOULDBLOCK) => Err(InstallError::Busy(directory.to_owned())),
        Err(errno) => Err(refused(errno.into())),
    }
}

fn copy(unfinished: &Path, installed: &Path) -> Result<(), InstallError> {
    let failed = |step, path: &Path| {
        let path = path.to_owned();
        move |source| InstallError::Copy { step, path, source }
    };
    match fs::remove_file(unfinished) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            return Err(failed("remove", unfinished)(error));
        }
        _ => {}
    }
    let mut source = File::open(MYSELF).map_err(failed("read", Path::new(MYSELF)))?;
    let mut target = OpenOptions::new()
        .write(true)
        .create_new(true)
        .open(unfinished)
        .map_err(failed("create", unfinished))?;
    io::copy(&mut source, &mut target).map_err(failed("write", unfinished))?;
    // Said of the open file, since what a new file may depends on the umask.
    target
        .set_permissions(Permissions::from_mode(MODE))
        .map_err(failed("make executable", unfinished))?;
    // A rename may reach the disk before what was written.
    target.sync_all().map_err(failed("write", unfinished))?;
    // A file that is open for writing cannot be executed.
    drop(target);
    fs::rename(unfinished, installed).map_err(failed("replace", installed))
}
