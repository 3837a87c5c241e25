use std::process::{Child, Command as Process};

use rustix::net::connect;
use rustix::process::{Pid, PidfdFlags, pidfd_open};

use super::*;
use crate::claim_share::{ClaimPlace, ClaimShare};
use crate::progress::CommandProgress;
use crate::wire::{GuardStart, Received, ToGuard, post_with, socket, take};
use crate::{GuardedCommand, Terms};
use leasehold_clock::boot_now;

/// A container whose process 1 is this child.
struct Container(Child);

impl Container {
    fn new() -> Self {
        let mut process = Process::new("sleep");
        Self(process.arg("600").spawn().expect("sleep is installed"))
    }

    fn kill(&mut self) {
        self.0.kill().expect("a child");
        self.0.wait().expect("a child");
    }

    /// Connects as a guard of this container.
    fn connect(&self, path: &Path, hello: GuardHello) -> OwnedFd {
        let guard = socket().expect("a socket");
        let address = SocketAddrUnix::new(path).expect("a short path");
        connect(&guard, &address).expect("a listener");
        let pid = Pid::from_child(&self.0);
        let pidfd = pidfd_open(pid, PidfdFlags::empty()).expect("a child");
        post_with(guard.as_fd(), &hello, &[pidfd.as_fd()]).expect("room");
        guard
    }
}

impl Drop for Container {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn hello(ended: Option<BootTime>) -> GuardHello {
    GuardHello {
        protocol: GuardHello::PROTOCOL,
        network_namespace: namespace("net"),
        time_namespace: namespace("time"),
        ended,
    }
}

fn terms() -> Terms {
    let valid_until = boot_now() + Duration::from_secs(600);
    Terms::without_grace(valid_until)
}

fn listening() -> (tempfile::TempDir, Arc<GuardSocket>) {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("guard.sock");
    (
        directory,
        Arc::new(GuardSocket::bind(&path).expect("bound")),
    )
}

/// Starts a command through a new connection. Returns the command, the guard's
/// side of the connection, and the order that the guard received.
async fn started(
    socket: &Arc<GuardSocket>,
    container: &Container,
    ended: Option<BootTime>,
) -> (GuardedCommand, OwnedFd, GuardStart) {
    let guard = container.connect(socket.path(), hello(ended));
    let command = Command::of_attached_guard().witness(["--mongodb-uri=secret".into()]);
    let standby = socket.accept(&command).await.expect("accepted");
    let unordered = take::<GuardStart>(guard.as_fd());
    assert!(matches!(unordered, Received::Nothing), "an old order");
    let claim = tempfile::tempfile().expect("a file");
    let claim = ClaimShare::new(claim.into(), ClaimPlace::Command);
    let command = standby.start([], terms(), Some(claim)).expect("started");
    let (start, descriptors) = wait_with::<GuardStart>(guard.as_fd())
        .expect("a record")
        .expect("an open connection");
    assert!(
        matches!(descriptors, [Some(_), Some(_), None]),
        "no witness"
    );
    (command, guard, start)
}

async fn ending(command: &mut GuardedCommand) {
    while command.progress() == CommandProgress::Starting {
        command.changed().await;
    }
}

/// Returns true if the command does not count as gone, even after the daemon has read everything
/// that it can read.
async fn is_unproven(command: &mut GuardedCommand) -> bool {
    tokio::time::timeout(Duration::from_millis(50), command.ended())
        .await
        .is_err()
}

#[tokio::test]
async fn i6_a_closed_connection_does_not_prove_the_end_but_the_exit_of_process_1_does() {
    let (_directory, socket) = listening();
    let mut container = Container::new();
    let (mut command, guard, _) = started(&socket, &container, None).await;
    drop(guard);
    ending(&mut command).await;
    assert!(is_unproven(&mut command).await);
    container.kill();
    assert!(command.ended().await.guard_lost);
}

#[tokio::test]
async fn i6_only_the_same_guard_proves_the_end_by_another_connection() {
    let (_directory, socket) = listening();
    let (container, other) = (Container::new(), Container::new());
    let (mut command, guard, start) = started(&socket, &container, None).await;
    drop(guard);
    ending(&mut command).await;
    let earlier = Some(BootTime::from_nanos(start.session.as_nanos() - 1));
    let _fresh = other.connect(socket.path(), hello(None));
    let _earlier = other.connect(socket.path(), hello(earlier));
    assert!(is_unproven(&mut command).await);
    let _same = container.connect(socket.path(), hello(Some(start.session)));
    assert!(command.ended().await.guard_lost);
}

#[tokio::test]
async fn a_later_command_gets_no_order_of_an_earlier_one() {
    let (_directory, socket) = listening();
    let container = Container::new();
    let (first, guard, start) = started(&socket, &container, None).await;
    first.kill();
    let order = loop {
        match take::<ToGuard>(guard.as_fd()) {
            Received::Nothing => tokio::task::yield_now().await,
            received => break received,
        }
    };
    assert!(matches!(order, Received::Record(order) if order.desired.kill));
    drop(guard);
    // The client of the first command accepts the next connection as proof that the command is
    // gone, and closes the connection.
    let mut first = first;
    let _proof = container.connect(socket.path(), hello(Some(start.session)));
    first.ended().await;
    let (second, _guard, start) = started(&socket, &container, Some(start.session)).await;
    assert!(!second.desired().kill && start.policy.terms.valid_until > boot_now());
}

#[tokio::test]
async fn guards_of_other_pods_and_releases_are_refused() {
    let (_directory, socket) = listening();
    let container = Container::new();
    let accept = async |hello| {
        let _guard = container.connect(socket.path(), hello);
        let refused = socket.accept(&Command::of_attached_guard()).await;
        refused.expect_err("refused")
    };
    let pod = GuardHello {
        network_namespace: 1,
        ..hello(None)
    };
    assert!(matches!(accept(pod).await, RefusedGuard::OtherPod));
    let clock = GuardHello {
        time_namespace: 1,
        ..hello(None)
    };
    assert!(matches!(accept(clock).await, RefusedGuard::OtherClock));
    let release = GuardHello {
        protocol: GuardHello::PROTOCOL + 1,
        ..hello(None)
    };
    assert!(matches!(accept(release).await, RefusedGuard::OtherRelease));
}

#[tokio::test]
async fn a_waiting_guard_that_goes_away_is_lost() {
    let (_directory, socket) = listening();
    let container = Container::new();
    let guard = container.connect(socket.path(), hello(None));
    let standby = socket.accept(&Command::of_attached_guard()).await;
    let standby = standby.expect("accepted");
    drop(guard);
    standby.lost().await.expect("a socket");
    assert!(
        standby.start([], terms(), None).is_err(),
        "nothing was started"
    );
}

#[tokio::test]
async fn a_guard_that_ended_in_the_queue_is_skipped() {
    let (_directory, socket) = listening();
    let mut killed = Container::new();
    let open = killed.connect(socket.path(), hello(None));
    let container = Container::new();
    drop(container.connect(socket.path(), hello(None)));
    killed.kill();
    let _living = container.connect(socket.path(), hello(None));
    let standby = socket.accept(&Command::of_attached_guard()).await;
    let standby = standby.expect("accepted");
    let lost = tokio::time::timeout(Duration::from_millis(50), standby.lost());
    assert!(lost.await.is_err(), "the living guard was accepted");
    drop(open);
}

#[tokio::test]
async fn only_a_socket_is_replaced() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("guard.sock");
    drop(GuardSocket::bind(&path).expect("bound"));
    drop(GuardSocket::bind(&path).expect("the old socket is replaced"));
    let living = GuardSocket::bind(&path).expect("bound");
    let error = GuardSocket::bind(&path).expect_err("the daemon lives");
    assert!(matches!(error, BindError::InUse));
    drop(living);
    let long = directory.path().join("x".repeat(PATH_MAX));
    let error = GuardSocket::bind(&long).expect_err("too long");
    assert!(matches!(error, BindError::TooLong));
    let file = directory.path().join("file");
    std::fs::write(&file, "mine").expect("written");
    let error = GuardSocket::bind(&file).expect_err("a file");
    assert!(matches!(error, BindError::NotASocket));
    assert_eq!(std::fs::read(&file).expect("unchanged"), b"mine");
}
