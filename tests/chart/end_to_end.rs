//! Goal: the chart's Role grants exactly the rights that the daemon uses, and labels, Service and
//! Events stay correct throughout a handoff. Method: installs the chart on a real API server and
//! creates its pods. For each pod, runs a real daemon with the pod's bound token and the chart's
//! flags against a real replica set.

use std::path::Path;

use k8s_openapi::api::core::v1::{Container, Pod};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use k8s_openapi::api::events::v1::Event;
use k8s_openapi::api::rbac::v1::Role;
use kube::ResourceExt;
use kube::api::{Api, ListParams, Patch, PatchParams};
use leasehold_testbed::daemon::sample;
use leasehold_testbed::kubernetes::Place;
use leasehold_testbed::wait::found;
use leasehold_testbed::{
    Daemon, DaemonTimings, GuardContainer, ReplicaSet, Scratch, SharedSet, run, skip,
};
use rustix::process::geteuid;
use serde_json::json;

use crate::cluster::{Installed, RIGHTS, SOON};
use crate::policy::rights;

static SET: SharedSet = SharedSet::new(ReplicaSet::builder);

const SOCKET: &str = "guard.sock";

struct Running {
    daemon: Daemon,
    place: Place,
    /// The workload's container if it runs a guard.
    guard: Option<GuardContainer>,
    _status: Scratch,
}

/// Resolves a downward API path, as the kubelet does.
fn downward(pod: &Pod, path: &str) -> String {
    match path {
        "metadata.name" => pod.name_any(),
        "metadata.namespace" => pod.namespace().unwrap(),
        "metadata.uid" => pod.uid().unwrap(),
        "spec.serviceAccountName" => pod
            .spec
            .as_ref()
            .unwrap()
            .service_account_name
            .clone()
            .unwrap(),
        other => panic!("this test does not provide {other}"),
    }
}

/// Returns the container that runs this command of leasehold, such as `run` for the daemon.
fn container<'a>(pod: &'a Pod, command: &str) -> Option<&'a Container> {
    let spec = pod.spec.as_ref().unwrap();
    let containers = spec.init_containers.iter().flatten();
    let runs = |container: &&Container| {
        let mut arguments = container.args.iter().flatten();
        arguments.next().is_some_and(|first| first == command)
    };
    containers.chain(&spec.containers).find(runs)
}

/// Starts the container of a guard, with a different path of the socket.
fn start_guard(container: &Container, directory: &Path) -> GuardContainer {
    let arguments = container.args.as_deref().unwrap();
    let dashes = arguments.iter().position(|argument| argument == "--");
    GuardContainer::start(
        Path::new(env!("CARGO_BIN_EXE_leasehold")),
        &directory.join(SOCKET),
        &arguments[dashes.unwrap() + 1..],
        &directory.join("guard.log"),
    )
    .unwrap()
}

async fn start(installed: &Installed, uri: &str, name: &str, address: &str) -> Running {
    let pod = installed.pod(name).await;
    let kubernetes = &installed.kubernetes;
    let running = kubernetes.report_running(&installed.namespace, &pod, address);
    let place = kubernetes.place_of(running.await).await;
    let pod = &place.pod;
    let guarded = container(pod, "guard");
    let container = container(pod, "run").unwrap();
    let arguments = container.args.as_deref().unwrap();
    let dashes = arguments.iter().position(|argument| argument == "--");
    let (flags, command) = arguments.split_at(dashes.unwrap_or(arguments.len()));
    let lease = flags
        .iter()
        .find_map(|flag| flag.strip_prefix("--lease-name="));
    let mut builder = Daemon::builder(env!("CARGO_BIN_EXE_leasehold"))
        .lease(lease.unwrap())
        .identity(name)
        .uri(uri)
        .timings(DaemonTimings::SHORT)
        .workload(command.iter().skip(1));
    // The test replaces these flags, because mounts and ports differ here, and passes the chart's
    // other flags unchanged.
    let places = [
        "--lease-name=",
        "--mongodb-uri-file=",
        "--status-directory=",
        "--http-listen=",
        "--kubernetes-credentials=",
        "--workload-socket=",
    ];
    let status = Scratch::new();
    if guarded.is_some() {
        let flag = format!("--workload-socket={}", status.path().join(SOCKET).display());
        builder = builder.status_directory(status.path()).flag(&flag);
    }
    for flag in flags.iter().skip(1) {
        if !places.iter().any(|place| flag.starts_with(place)) {
            builder = builder.flag(flag);
        }
    }
    for variable in container.env.as_deref().unwrap() {
        let source = variable.value_from.as_ref().unwrap();
        let path = &source.field_ref.as_ref().unwrap().field_path;
        builder = builder.env(&variable.name, downward(pod, path));
    }
    let guard = guarded.map(|container| start_guard(container, status.path()));
    let builder = place.mounted(builder, kubernetes.environment());
    Running {
        daemon: builder.start(),
        place,
        guard,
        _status: status,
    }
}

impl Running {
    fn name(&self) -> String {
        self.place.pod.name_any()
    }

    /// Stops the containers in the order of the kubelet: a sidecar is the last.
    async fn stop(&self) {
        if let Some(container) = &self.guard {
            container.stop().await;
            let code = container.wait_exit(SOON).await;
            assert_eq!(code, 0, "{}", container.logs());
        }
        self.daemon.term();
    }
}

async fn labelled(installed: &Installed, value: &str) -> Vec<String> {
    let pods = installed.pods(installed.kubernetes.client());
    let selector = ListParams::default().labels(&format!("{}={value}", installed.label()));
    let found = pods.list(&selector).await.unwrap();
    found.items.iter().map(ResourceExt::name_any).collect()
}

async fn routed(installed: &Installed) -> Vec<String> {
    let slices: Api<EndpointSlice> = installed.kubernetes.objects(&installed.namespace);
    let selector = ListParams::default().labels("kubernetes.io/service-name=orders");
    let slices = slices.list(&selector).await.unwrap();
    let endpoints = slices.items.into_iter().flat_map(|slice| slice.endpoints);
    endpoints.flat_map(|endpoint| endpoint.addresses).collect()
}

async fn events(installed: &Installed, reason: &str) -> Vec<Event> {
    let events: Api<Event> = installed.kubernetes.objects(&installed.namespace);
    let found = events.list(&ListParams::default()).await.unwrap();
    let of_reason = |event: &Event| event.reason.as_deref() == Some(reason);
    found.items.into_iter().filter(of_reason).collect()
}

async fn leads(installed: &Installed, leader: &str, follower: &[&str], address: &str) {
    found(
        &format!("{leader} is labelled and gets the Service's traffic"),
        async || {
            let right = labelled(installed, "leader").await == [leader]
                && labelled(installed, "follower").await == follower
                && routed(installed).await == [address];
            right.then_some(())
        },
    )
    .await;
}

const SERVICE: &str = "service.enabled=true";

/// Makes the leader step down. Waits until the other pod leads, has the label and gets the
/// Service's traffic.
async fn hand_over(changes: &[&str]) -> (Running, Running) {
    let set = SET.get().await;
    let installed = Installed::new("minimal", changes).await;
    let first = start(&installed, &set.uri(), "a", "10.9.0.1").await;
    leads(&installed, "a", &[], "10.9.0.1").await;
    let second = start(&installed, &set.uri(), "b", "10.9.0.2").await;
    leads(&installed, "a", &["b"], "10.9.0.1").await;
    elected(&installed, &first.place.pod).await;
    first.stop().await;
    leads(&installed, "b", &[&first.name()], "10.9.0.2").await;
    assert!(second.daemon.leads());
    (first, second)
}

#[test]
fn labels_service_and_events_follow_the_leader() {
    run(async {
        for rights in RIGHTS {
            hand_over(&[rights, SERVICE]).await;
        }
    });
}

#[test]
fn a_supervisor_runs_the_workload_on_the_labelled_pod() {
    run(async {
        for rights in RIGHTS {
            hand_over_the_workload(rights, "mode=\"supervisor-same-container\"").await;
        }
    });
}

#[test]
fn a_guard_runs_the_workload_on_the_labelled_pod() {
    if !geteuid().is_root() {
        return skip("PID namespaces need root");
    }
    run(async {
        for rights in RIGHTS {
            hand_over_the_workload(rights, "mode=\"supervisor\"").await;
        }
    });
}

async fn hand_over_the_workload(rights: &str, mode: &str) {
    let journal = tempfile::tempdir().unwrap();
    let script = format!(
        "cd {} && env > new && mv new $LEASEHOLD_TOKEN && exec sleep 600",
        journal.path().display()
    );
    let command = format!("workload.command={}", json!(["/bin/sh", "-c", script]));
    let (first, _second) = hand_over(&[rights, SERVICE, mode, &command]).await;
    let code = first.daemon.wait_exit(SOON).await;
    assert_eq!(code, 0, "{}", first.daemon.logs());
    for (token, identity) in [("1", "a"), ("2", "b")] {
        let environment = found(&format!("{identity} starts its workload"), async || {
            std::fs::read_to_string(journal.path().join(token)).ok()
        })
        .await;
        let said = format!("LEASEHOLD_IDENTITY={identity}");
        let mut lines = environment.lines();
        assert!(lines.any(|line| line == said), "{environment}");
        // The workload does not inherit leasehold's configuration.
        for ours in ["LEASEHOLD_KUBERNETES__", "LEASEHOLD_IDENTITY__"] {
            assert!(!environment.contains(ours), "{environment}");
        }
    }
    let runs = std::fs::read_dir(journal.path()).unwrap().count();
    assert_eq!(runs, 2, "one start for each leader");
}

pub(crate) async fn take_away(installed: &Installed, resource: &str, verb: &str) {
    let roles: Api<Role> = installed.kubernetes.objects(&installed.namespace);
    let mut role = roles.get("orders-leasehold").await.unwrap();
    let mut taken = 0;
    for rule in role.rules.as_mut().unwrap() {
        let mut resources = rule.resources.iter().flatten();
        if resources.any(|r| r == resource) {
            let before = rule.verbs.len();
            rule.verbs.retain(|v| v != verb);
            taken += before - rule.verbs.len();
        }
    }
    assert_eq!(taken, 1, "{verb} {resource} in {role:?}");
    let rules = role.rules.as_mut().unwrap();
    rules.retain(|rule| !rule.verbs.is_empty());
    let (parameters, rules) = (PatchParams::default(), json!({"rules": rules}));
    let rules = Patch::Merge(rules);
    let patched = roles.patch("orders-leasehold", &parameters, &rules);
    patched.await.unwrap();
}

/// Returns the number of failures that the daemon's metrics report for `surface`, such as labels or
/// Events.
async fn failures(installed: &Installed, daemon: &Daemon, surface: &str) -> Option<f64> {
    let lease = format!("{}.orders", installed.namespace);
    let series =
        format!("leasehold_publish_failures_total{{lease=\"{lease}\",surface=\"{surface}\"}}");
    let (_, page) = daemon.http("/metrics").await.ok()?;
    sample(&page, &series)
}

async fn elected(installed: &Installed, pod: &Pod) {
    found("the election is recorded as an Event", async || {
        let of_pod = |event: &Event| {
            let regarding = event.regarding.as_ref();
            regarding.and_then(|about| about.uid.clone()) == pod.uid()
        };
        let found = events(installed, "LeaderElected").await;
        let taken = events(installed, "TakenOver").await;
        found.iter().chain(&taken).any(of_pod).then_some(())
    })
    .await;
}

/// Kills the leader and starts a successor. If `missing` names a right, first removes this right
/// from the Role, and then waits until the successor's metrics report failures.
async fn takeover_without(missing: Option<(&str, &str, &str)>, rights_of: &str) {
    let set = SET.get().await;
    let demoting = "leasehold.kubernetes.demoteOthers=true";
    let installed = Installed::new("minimal", &[rights_of, SERVICE, demoting]).await;
    let first = start(&installed, &set.uri(), "a", "10.9.0.1").await;
    leads(&installed, "a", &[], "10.9.0.1").await;
    elected(&installed, &first.place.pod).await;
    if let Some((resource, verb, _)) = missing {
        take_away(&installed, resource, verb).await;
        let client = installed.client_of(&first.place.pod).await;
        let right = format!("{verb} {resource}");
        found("the right has been revoked", async || {
            let rights = rights(client.clone(), &installed.namespace).await;
            (!rights.contains(&right)).then_some(())
        })
        .await;
    }
    first.daemon.kill();
    let second = start(&installed, &set.uri(), "b", "10.9.0.2").await;
    match missing {
        Some((resource, verb, surface)) => {
            found(&format!("{verb} {resource} is missed"), async || {
                let count = failures(&installed, &second.daemon, surface).await;
                count.filter(|count| *count > 0.0)
            })
            .await;
        }
        None => {
            // The successor must also remove the label from the killed leader's pod.
            leads(&installed, "b", &["a"], "10.9.0.2").await;
            elected(&installed, &second.place.pod).await;
            for surface in ["label", "event"] {
                let count = failures(&installed, &second.daemon, surface).await;
                assert_eq!(count, Some(0.0), "{surface}: {}", second.daemon.logs());
            }
        }
    }
}

#[test]
fn the_rights_of_the_role_are_sufficient() {
    run(async {
        for rights_of in RIGHTS {
            takeover_without(None, rights_of).await;
        }
    });
}

#[test]
fn each_right_of_the_role_is_necessary() {
    run(async {
        for missing in [
            ("pods/status", "patch", "label"),
            ("pods", "list", "label"),
            ("events", "create", "event"),
        ] {
            takeover_without(Some(missing), RIGHTS[0]).await;
        }
    });
}
