//! Goal: in supervisor mode, the workload's container has a guard, and neither the connection string
//! nor a token of the service account. Method: parses helm's output, searches the container for each
//! secret of the pod, and creates pods with a supervised container on a real API server.

use std::path::Path;

use leasehold_testbed::{assert_contains, run};
use serde_json::{Value, json};

use crate::cluster::Installed;
use crate::helm::{Objects, render};
use crate::supervisor::named;

const SUPERVISED: [&str; 2] = ["mode=\"supervisor\"", "workload.command=[\"/orders\"]"];

fn minimal(changes: &[&str]) -> Objects {
    Objects::of("minimal", &[&SUPERVISED[..], changes].concat())
}

/// Returns the value of a flag of a container.
fn flag<'a>(container: &'a Value, name: &str) -> Option<&'a str> {
    let words = container["args"].as_array().unwrap().iter();
    let mut words = words.map(|word| word.as_str().unwrap());
    words.find_map(|word| word.strip_prefix(name)?.strip_prefix('='))
}

#[test]
fn the_guard_and_the_sidecar_meet_at_a_socket_in_the_status_directory() {
    for objects in [Objects::of("supervisor", &[]), minimal(&[])] {
        let (sidecar, workload) = (objects.daemon(), objects.workload());
        assert_eq!(sidecar["name"], "leasehold");
        assert_eq!(sidecar["restartPolicy"], "Always");
        assert_eq!(workload["args"][0], "guard");
        let socket = |container, name| Path::new(flag(container, name).unwrap());
        let ours = socket(sidecar, "--workload-socket");
        let theirs = socket(workload, "--socket");
        assert_eq!(ours.file_name(), theirs.file_name());
        for (container, socket, read_only) in [
            (sidecar, ours, Value::Null),
            (workload, theirs, json!(true)),
        ] {
            let mount = named(&container["volumeMounts"], "leasehold-status");
            let directory = socket.parent().unwrap().to_str().unwrap();
            assert_eq!(mount["mountPath"], directory);
            assert_eq!(mount["readOnly"], read_only);
        }
        let directory = ours.parent().unwrap().to_str();
        assert_eq!(flag(sidecar, "--status-directory"), directory);
        // leasehold waits for the end of a workload that it runs, not for a delay.
        assert_eq!(flag(sidecar, "--workload-ends-first"), None);
        let file = &named(&workload["env"], "LEASEHOLD_STATUS_FILE")["value"];
        assert_eq!(
            *file,
            theirs.with_file_name("status.json").to_str().unwrap()
        );
        // The installer and extra init containers run before the sidecar, so a replica never leads
        // while the guard's program is missing.
        let last = objects.pod()["initContainers"].as_array().unwrap().last();
        assert_eq!(last.unwrap(), sidecar);
    }
    let deep = minimal(&["leasehold.statusDirectory=\"/run/orders/\""]);
    let socket = flag(deep.workload(), "--socket");
    assert_eq!(socket, Some("/run/orders/guard.sock"));
}

/// Searches a workload's container for everything that a sidecar reads: all of its text, and the
/// volumes that it mounts.
pub(crate) fn assert_reads_no_secret(pod: &Value, workload: &Value) {
    assert_eq!(workload.get("envFrom"), None);
    for variable in workload["env"].as_array().unwrap() {
        let source = &variable["valueFrom"];
        assert!(source.get("secretKeyRef").is_none(), "{variable}");
        let name = variable["name"].as_str().unwrap();
        assert!(!name.contains("__"), "{name}: a key of the configuration");
    }
    let text = workload.to_string();
    for secret in [
        "mongodb",
        "token",
        "kube-api-access",
        "/etc/leasehold",
        "SSL_CERT_DIR",
    ] {
        assert!(!text.contains(secret), "{secret}: {text}");
    }
    // The content of each mounted volume is known.
    for mount in workload["volumeMounts"].as_array().unwrap() {
        let name = mount["name"].as_str().unwrap();
        let volume = named(&pod["volumes"], name);
        let kinds: Vec<_> = volume.as_object().unwrap().keys().collect();
        assert_eq!(kinds, ["emptyDir", "name"], "{volume}");
        let own = name.starts_with("leasehold-");
        assert_eq!(mount["readOnly"] == true, own, "{mount}");
    }
}

#[test]
fn the_workload_reads_no_secret_of_leasehold() {
    for objects in [Objects::of("supervisor", &[]), minimal(&[])] {
        let (pod, workload) = (objects.pod(), objects.workload());
        assert_eq!(pod["automountServiceAccountToken"], false);
        assert!(!workload.to_string().contains("serviceaccount"));
        assert_reads_no_secret(pod, workload);
        // The sidecar mounts these volumes.
        let sidecar = objects.daemon()["volumeMounts"].as_array().unwrap();
        let names: Vec<_> = sidecar.iter().map(|mount| &mount["name"]).collect();
        for name in ["leasehold-status", "leasehold-mongodb", "leasehold-token"] {
            assert!(names.contains(&&json!(name)), "{name}: {names:?}");
        }
    }
}

/// The API server mounts a token of the pod's account into each container, unless the pod or the
/// account refuses it.
#[test]
fn the_api_server_adds_no_token_to_the_workload() {
    run(async {
        let installed = Installed::new("minimal", &SUPERVISED).await;
        let pod = serde_json::to_value(installed.pod("orders-0").await).unwrap();
        let workload = &pod["spec"]["containers"][0];
        assert!(!workload.to_string().contains("serviceaccount"));
        assert_reads_no_secret(&pod["spec"], workload);
    });
}

/// An operator asks for a token, so its container gets the token at the usual path.
#[test]
fn only_the_value_for_it_mounts_a_token_into_the_workload() {
    let automount = "leasehold.serviceAccount.automountServiceAccountToken=true";
    let pod = minimal(&[automount]).pod().clone();
    assert_eq!(pod["automountServiceAccountToken"], true);
}

/// Resources, probes, ports and the rest of the sidecar do not depend on the mode.
#[test]
fn the_sidecar_differs_from_a_sidecar_without_a_guard_in_its_arguments_only() {
    let (with, without) = (minimal(&[]), Objects::of("minimal", &[]));
    let (mut with, mut without) = (with.daemon().clone(), without.daemon().clone());
    let words = |container: &mut Value, without: &str| {
        let words = container["args"].take();
        let words = words.as_array().unwrap().clone();
        let rest: Vec<_> = words
            .into_iter()
            .filter(|word| !word.as_str().unwrap().starts_with(without))
            .collect();
        rest
    };
    assert_eq!(
        words(&mut with, "--workload-socket="),
        words(&mut without, "--workload-ends-first=")
    );
    assert_eq!(with, without);
}

#[test]
fn the_container_has_the_settings_of_a_workload_without_a_guard() {
    let (with, without) = (
        minimal(&["workload.ports=[{\"name\":\"http\",\"containerPort\":8080}]"]),
        Objects::of(
            "minimal",
            &["workload.ports=[{\"name\":\"http\",\"containerPort\":8080}]"],
        ),
    );
    let (mut with, without) = (with.workload().clone(), without.workload());
    let container = with.as_object_mut().unwrap();
    assert!(container.remove("command").is_some());
    assert!(container.remove("args").is_some());
    let mounts = container["volumeMounts"].as_array_mut().unwrap();
    mounts.retain(|mount| mount["name"] != "leasehold-program");
    assert_eq!(with, *without);
}

#[test]
fn a_job_runs_under_a_lock_in_either_supervisor_mode() {
    let job = [
        "workload.kind=\"CronJob\"",
        "cronJob.schedule=\"@daily\"",
        "workload.command=[\"/report\"]",
    ];
    let [two, one] = ["supervisor", "supervisor-same-container"].map(|mode| {
        let mode = format!("mode={mode:?}");
        render("minimal", &[&job[..], &[&mode]].concat()).unwrap()
    });
    assert_eq!(two, one);
    assert_contains(&two, "- lock\n");
}
