//! `leasehold install`: copies this program into a volume, where a container of another image can
//! start it. The leasehold image has no shell and no `cp`.

use std::fs::{self, File, OpenOptions, Permissions};
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use clap::{Args, ValueHint};
use rustix::fs::FlockOperation;
use rustix::io::Errno;

use super::CommandError;
use crate::exit;

const NAME: &str = "leasehold";
/// Temporary name of the copy. The name is constant, so that the next installation removes the file
/// that a killed installation left behind.
const UNFINISHED: &str = ".leasehold.unfinished";
const MODE: u32 = 0o755;
/// Path of the running program, even after its file was replaced or removed.
const MYSELF: &str = "/proc/self/exe";

const HELP: &str = "\
The copy is DIR/leasehold, mode 0755, replaced atomically; its path is printed. \
What the image must contain: docs/image.md.

Examples:
  leasehold install /opt/leasehold
                             in an init container; then, in the workload's:
  /opt/leasehold/leasehold run --lease orders -- /orders

Exit codes: 0 done, 64 usage, 78 DIR is missing or not writable.";

/// Arguments of `leasehold install`.
#[derive(Debug, Args)]
#[command(after_help = HELP)]
pub struct InstallArgs {
    /// Existing directory
    #[arg(value_name = "DIR", value_hint = ValueHint::DirPath)]
    directory: PathBuf,
}

/// Copies this program into the directory, and returns the path of the copy. Replaces an existing
/// copy atomically: a partial copy is never started, and an error leaves the old copy unchanged.
pub fn run(args: &InstallArgs) -> Result<PathBuf, CommandError> {
    let directory = &args.directory;
    let _lock = lock(directory)?;
    let unfinished = directory.join(UNFINISHED);
    let installed = directory.join(NAME);
    copy(&unfinished, &installed).inspect_err(|_| {
        // If this fails too, the next installation removes the file.
        let _ = fs::remove_file(&unfinished);
    })?;
    Ok(installed)
}

/// Locks out other installations, which would write to the same temporary file.
fn lock(directory: &Path) -> Result<File, CommandError> {
    let refused = |error: io::Error| match error.kind() {
        io::ErrorKind::NotFound => failed("open the directory", directory)(error)
            .to_fix("create it, for example as the mount of a volume"),
        _ => failed("open the directory", directory)(error),
    };
    let opened = File::open(directory).map_err(refused)?;
    if !opened.metadata().map_err(refused)?.is_dir() {
        return Err(refused(io::ErrorKind::NotADirectory.into()));
    }
    match rustix::fs::flock(&opened, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(opened),
        Err(Errno::WOULDBLOCK) => {
            let directory = directory.display();
            let what = format!("another leasehold is installing into {directory}");
            Err(CommandError::new(exit::CONFIGURATION, what))
        }
        Err(errno) => Err(refused(errno.into())),
    }
}

fn failed(step: &str, path: &Path) -> impl Fn(io::Error) -> CommandError + use<> {
    CommandError::failed(exit::CONFIGURATION, &format!("{step} {}", path.display()))
}

fn copy(unfinished: &Path, installed: &Path) -> Result<(), CommandError> {
    if let Err(error) = fs::remove_file(unfinished)
        && error.kind() != io::ErrorKind::NotFound
    {
        return Err(failed("remove", unfinished)(error));
    }
    let mut source = File::open(MYSELF).map_err(failed("read", Path::new(MYSELF)))?;
    let mut target = OpenOptions::new()
        .write(true)
        .create_new(true)
        .open(unfinished)
        .map_err(failed("create", unfinished))?;
    io::copy(&mut source, &mut target).map_err(failed("write", unfinished))?;
    // The mode is set on the open file, because the mode of a new file depends on the umask.
    target
        .set_permissions(Permissions::from_mode(MODE))
        .map_err(failed("make executable", unfinished))?;
    // Without a sync, the rename may reach the disk before the contents.
    target.sync_all().map_err(failed("write", unfinished))?;
    // A file that is open for writing cannot be executed.
    drop(target);
    fs::rename(unfinished, installed).map_err(failed("replace", installed))
}
