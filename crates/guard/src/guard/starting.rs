//! Starts a command. The start ends when the shim executes the command, or when the guard abandons
//! the shim.

use std::io;
use std::os::fd::AsFd;

use rustix::io::{Errno, retry_on_intr};
use rustix::process::{Signal, WaitId, WaitIdOptions, getpid, kill_process, waitid};

use super::{GroupLeader, Guard};
use crate::claim_share::ClaimShare;
use crate::groups::number;
use crate::progress::CommandEnd;
use crate::shim::Shim;
use crate::wire::{CommandStage, Received, ShimStart, post_with, take};

impl Guard {
    /// Checks whether the shim became CMD. The exec closes the shim's socket.
    pub(super) fn receive_from_shim(&mut self) {
        let Some(shim) = &self.shim else { return };
        match take::<CommandEnd>(shim.as_fd()) {
            Received::Nothing => return,
            Received::Record(end) => self.report.end = end,
            Received::Closed => self.report.stage = self.report.stage.max(CommandStage::Running),
        }
        self.shim = None;
    }

    pub(super) fn never_started(&mut self, end: CommandEnd) {
        let shim = self.launch.take().and_then(|launch| launch.shim);
        shim.into_iter().for_each(Shim::dismiss);
        self.report.end = end;
        self.gone();
    }

    pub(super) fn start(&mut self) -> io::Result<()> {
        let Some(launch) = self.launch.take() else {
            return Err(Errno::INVAL.into());
        };
        let start = ShimStart {
            guard: number(getpid()),
            valid_until: self.policy.valid_until(),
            foreground: self.foreground,
            place: self.claim.as_ref().map(ClaimShare::place),
        };
        let claim = self.claim.as_ref();
        let send = |shim: &Shim| {
            let (stdin, exec_spec) = (launch.stdin.as_fd(), launch.exec_spec.as_fd());
            let socket = shim.socket.as_fd();
            match claim {
                Some(claim) => post_with(socket, &start, &[stdin, exec_spec, claim.as_fd()]),
                None => post_with(socket, &start, &[stdin, exec_spec]),
            }
        };
        let shim = match launch.shim {
            Some(shim) if send(&shim).is_ok() => shim,
            lost => {
                lost.into_iter().for_each(Shim::dismiss);
                let shim = Shim::new()?;
                if let Err(error) = send(&shim) {
                    shim.dismiss();
                    return Err(error);
                }
                shim
            }
        };
        // The shim may have been stopped while it waited.
        let _ = kill_process(shim.pid, Signal::CONT);
        self.report.leader = number(shim.pid);
        self.leader = Some(GroupLeader {
            pid: shim.pid,
            reaped: false,
        });
        self.shim = Some(shim.socket);
        Ok(())
    }

    /// Counts CMD as gone if the shim was killed before its exec, even while a disk blocks the
    /// shim. A process with a pending SIGKILL executes no further instruction, and a completed exec
    /// would have closed the socket.
    pub(super) fn give_up_shim(&mut self) {
        let Some(leader) = self.leader.as_ref().filter(|leader| !leader.reaped) else {
            return;
        };
        if kill_process(leader.pid, Signal::KILL).is_err() {
            return;
        }
        self.receive_from_shim();
        if self.shim.is_some() {
            self.report.end = CommandEnd::Refused;
            self.report.by_us = true;
            self.gone();
        }
    }

    /// Waits until an abandoned shim has exited, because a late write of the shim would replace the
    /// record of the next guard.
    pub(super) fn await_shim(&self) {
        if let (Some(_), Some(leader)) = (&self.shim, &self.leader) {
            let _ = retry_on_intr(|| waitid(WaitId::Pid(leader.pid), WaitIdOptions::EXITED));
        }
    }
}
