use std::path::PathBuf;
use std::process::{Child, Command as Process};

use super::*;
use leasehold_core::election::{Identity, ResourceName};
use leasehold_guard::StopScope;
use leasehold_guard::socket::stand_in_guard;

struct Nobody;

impl WorkloadObserver for Nobody {
    fn up(&mut self, _: bool) {}
    fn stopped(&mut self, _: Duration) {}
    fn not_started(&mut self, _: Token, _: &str) {}
    fn ended(&mut self, _: u8, _: bool) {}
}

struct Sleeper(Child);

impl Drop for Sleeper {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

const STOPPING: StopMethod = StopMethod {
    signal: 15,
    scope: StopScope::Group,
    grace: Duration::ZERO,
    linger: Duration::ZERO,
};

fn options(
    socket: GuardSocket,
    inputs: &mpsc::Sender<Input>,
    directory: &tempfile::TempDir,
) -> SupervisorOptions {
    let claim = std::fs::File::create(directory.path().join("claim")).expect("a file");
    SupervisorOptions {
        program: Program {
            lease: ResourceName::new("orders").expect("legal"),
            identity: Identity::new("a").expect("legal"),
            status_file: PathBuf::from("/nowhere/status.json"),
        },
        command: SupervisedProgram::Attached(socket),
        stopping: STOPPING,
        hooks: HooksConfig {
            on_lead: Vec::new(),
            on_step_down: Vec::new(),
            on_step_down_stops_workload: false,
            timeout: Duration::ZERO,
        },
        readiness: Arc::new(Readiness::new(inputs.clone(), true, false)),
        claims: ClaimShares::new(claim.into()),
        witness: None,
    }
}

#[tokio::test]
async fn a_start_that_is_dropped_leaves_its_guard_available() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("guard.sock");
    let socket = GuardSocket::bind(&path).expect("bound");
    let (inputs, mut received) = mpsc::channel(9);
    let (orders, desired) = Orders::channel(STOPPING);
    let options = options(socket, &inputs, &directory);
    tokio::spawn(Supervisor::new(options, desired, inputs, Nobody).run());
    let health = |healthy| Some(Input::Health { healthy });
    assert_eq!(received.recv().await, health(false));
    let process = Process::new("sleep").arg("600").spawn();
    let container = Sleeper(process.expect("sleep is installed"));
    let _guard = stand_in_guard(&path, &container.0).expect("connected");
    assert_eq!(received.recv().await, health(true));
    let token = Token::new(1).expect("not negative");
    let kill_at = clock::boot_now();
    let terms = Terms::without_grace(kill_at + Duration::from_secs(600));
    // The supervisor sees only the newest state, in which the leadership has already ended.
    for kind in [OrderKind::Start(terms), OrderKind::Lost { kill_at }] {
        orders.give(Order { token, kind });
    }
    let gone = Some(Input::WorkloadGone { token });
    assert_eq!(
        received.recv().await,
        gone,
        "and not that no guard is there"
    );
}

#[test]
fn a_command_that_never_began_was_not_killed() {
    const EAGAIN: i32 = 11;
    const ENOSPC: i32 = 28;
    let ended = |end| exit_code(end, false);
    assert_eq!(ended(CommandEnd::Refused), None);
    assert_eq!(ended(CommandEnd::NotSpawned(ENOSPC)), Some(126));
    assert_eq!(ended(CommandEnd::NotSpawned(EAGAIN)), Some(71));
    assert_eq!(ended(CommandEnd::Unknown), Some(137));
    assert_eq!(ended(CommandEnd::Exited(3)), Some(3));
}
