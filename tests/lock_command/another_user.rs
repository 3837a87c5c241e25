//! Runs jobs as a user other than root, because permissions and limits do not apply to root.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::Command;

use leasehold_testbed::skip;
use leasehold_testbed::trace::VARIABLE;

use crate::job::{PROGRAM, Place};

/// A [`Place`] whose files another user can access, with a copy of the program.
pub(crate) struct AnotherUser {
    id: String,
    place: Place,
    pub(crate) program: PathBuf,
}

impl AnotherUser {
    /// Returns `None` if this user cannot become another user.
    pub(crate) fn new(id: &str) -> Option<Self> {
        if !rustix::process::geteuid().is_root() {
            skip("needs root, to become another user");
            return None;
        }
        let place = Place::new();
        let program = place.path("leasehold");
        fs::set_permissions(place.path(""), Permissions::from_mode(0o755)).unwrap();
        // Another process copies the program. If this process wrote the file, a child that another
        // test forks during the write would inherit the open descriptor. A file that is open for
        // writing cannot be executed.
        let mut copy = Command::new("install");
        let copied = copy.arg("-m755").arg(PROGRAM).arg(&program).status();
        assert!(copied.unwrap().success());
        // The program stores its observations of the lock in this directory.
        fs::create_dir(place.path("tmp")).unwrap();
        fs::set_permissions(place.path("tmp"), Permissions::from_mode(0o777)).unwrap();
        fs::write(place.trace(), "").unwrap();
        fs::set_permissions(place.trace(), Permissions::from_mode(0o666)).unwrap();
        let id = id.to_owned();
        Some(Self { id, place, program })
    }

    pub(crate) fn command(&self) -> Command {
        let mut command = Command::new("setpriv");
        command.args([&format!("--reuid={}", self.id), "--clear-groups", "--"]);
        command
    }

    pub(crate) fn job_through(&self, stage: &[&str], lock: &str) -> Command {
        let [_, database] = self.place.store();
        let mut job = self.command();
        job.args(stage)
            .arg(&self.program)
            .args(["lock", lock, &database])
            .env_clear()
            .env("PATH", std::env::var_os("PATH").unwrap())
            .env("TMPDIR", self.place.path("tmp"))
            .env("LEASEHOLD_MONGODB__URI", self.place.set.uri())
            .env(VARIABLE, self.place.trace());
        job
    }
}
