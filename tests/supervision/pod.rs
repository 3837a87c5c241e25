//! A pod with two containers: a daemon, and a guard in a PID namespace of its own. They share the
//! status directory.

use std::path::Path;

use leasehold_testbed::{Cgroup, Daemon, DaemonBuilder, GuardContainer};

use crate::contest::PROGRAM;

pub(crate) struct Pod {
    pub(crate) daemon: Daemon,
    pub(crate) workload: Option<GuardContainer>,
}

impl Pod {
    /// Starts only the daemon, with this status directory.
    pub(crate) fn new(daemon: DaemonBuilder, directory: &Path) -> Self {
        let daemon = daemon.status_directory(directory);
        Self {
            daemon: daemon.guard_socket(&directory.join("guard.sock")).start(),
            workload: None,
        }
    }

    /// Starts another container of the workload, which does not replace the first.
    pub(crate) fn container(&self, command: &[String], cgroup: Option<&Cgroup>) -> GuardContainer {
        let directory = self.daemon.status_directory();
        let socket = directory.join("guard.sock");
        let log = directory.with_extension("workload.log");
        let program = Path::new(PROGRAM);
        let container = match cgroup {
            Some(cgroup) => GuardContainer::start_in(cgroup, program, &socket, command, &log),
            None => GuardContainer::start(program, &socket, command, &log),
        };
        container.expect("a container")
    }

    pub(crate) fn start_workload(&mut self, command: &[String]) {
        self.workload = Some(self.container(command, None));
    }

    pub(crate) fn start_workload_in(&mut self, cgroup: &Cgroup, command: &[String]) {
        self.workload = Some(self.container(command, Some(cgroup)));
    }

    pub(crate) fn workload(&self) -> &GuardContainer {
        self.workload.as_ref().expect("the workload was started")
    }
}
