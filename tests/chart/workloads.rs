//! Goal: the workload may be a Deployment, a StatefulSet, a Job or a CronJob, and gets the fields
//! of its kind. A job in supervisor mode runs under a lock. The chart refuses values that have no
//! effect on the kind. Method: parses helm's output, runs the rendered `leasehold lock` on a real
//! replica set, and creates pods of each kind on a real API server that enforces the policies.

use std::process::Command;

use kube::ResourceExt;
use kube::api::ListParams;
use leasehold_testbed::wait::found;
use leasehold_testbed::{ReplicaSet, SharedSet, run};
use serde_json::{Value, json};

use crate::cluster::{Installed, patch_status};
use crate::helm::{Objects, assert_selects, refused};

static SET: SharedSet = SharedSet::new(ReplicaSet::builder);

const STATEFUL: &str = r#"workload.kind="StatefulSet""#;

#[test]
fn a_stateful_set_has_a_headless_service_and_its_claims() {
    let plain = Objects::of("minimal", &[STATEFUL]);
    let set = &plain.one("StatefulSet")["spec"];
    assert_eq!(set["serviceName"], "orders-headless");
    assert_eq!(set["podManagementPolicy"], "Parallel");
    assert_eq!(set["updateStrategy"], json!({"type": "RollingUpdate"}));
    for absent in [
        "volumeClaimTemplates",
        "persistentVolumeClaimRetentionPolicy",
        "minReadySeconds",
    ] {
        assert_eq!(set.get(absent), None, "{absent}");
    }
    let service = &plain.named("Service", "orders-headless")["spec"];
    assert_eq!(service["clusterIP"], "None");
    assert_eq!(service["publishNotReadyAddresses"], true);
    assert_selects(&service["selector"], &set["template"]["metadata"]["labels"]);
    assert_eq!(service["ports"][0]["port"], 9402);
    assert!(plain.find("Deployment").is_none());
    let spread = &plain.pod()["topologySpreadConstraints"][0];
    assert_eq!(
        spread["matchLabelKeys"],
        json!(["controller-revision-hash"])
    );

    let all = Objects::of("stateful-set", &[]);
    let set = &all.one("StatefulSet")["spec"];
    assert_eq!(set["podManagementPolicy"], "OrderedReady");
    assert_eq!(set["updateStrategy"]["rollingUpdate"]["partition"], 1);
    let claim = &set["volumeClaimTemplates"][0];
    assert_eq!(claim["metadata"]["name"], "data");
    assert_eq!(claim["kind"], "PersistentVolumeClaim");
    assert_eq!(
        set["persistentVolumeClaimRetentionPolicy"]["whenScaled"],
        "Delete"
    );
    assert_eq!(set["minReadySeconds"], 5);
    let waits = r#"statefulSet.updateStrategy.type="OnDelete""#;
    let waits = Objects::of("stateful-set", &[waits]);
    let strategy = &waits.one("StatefulSet")["spec"]["updateStrategy"];
    assert_eq!(*strategy, json!({"type": "OnDelete"}));

    let existing = [
        STATEFUL,
        r#"statefulSet.serviceName="mine""#,
        "test.enabled=false",
    ];
    let existing = Objects::of("minimal", &existing);
    assert_eq!(existing.one("StatefulSet")["spec"]["serviceName"], "mine");
    assert!(existing.find("Service").is_none());
}

#[test]
fn the_pods_of_each_kind_have_the_same_sidecar() {
    let deployment = Objects::of("minimal", &[]);
    for (kind, more) in [
        ("StatefulSet", "test.wait=\"1m\""),
        ("Job", "job.backoffLimit=1"),
        ("CronJob", "cronJob.schedule=\"0 2 * * *\""),
    ] {
        let change = format!("workload.kind=\"{kind}\"");
        let objects = Objects::of("minimal", &[&change, more]);
        assert_eq!(objects.maker()["kind"], kind);
        assert_eq!(objects.sidecar(), deployment.sidecar(), "{kind}");
        assert_eq!(objects.workload(), deployment.workload(), "{kind}");
        assert_eq!(
            objects.template()["metadata"],
            deployment.template()["metadata"]
        );
        // Rights and policies do not depend on the workload's kind, because they apply to the
        // service account.
        for kind in ["ServiceAccount", "Role", "ValidatingAdmissionPolicy"] {
            assert_eq!(objects.one(kind), deployment.one(kind), "{kind}");
        }
    }
}

#[test]
fn a_job_follows_its_values() {
    let objects = Objects::of("job", &[]);
    let job = &objects.one("Job")["spec"];
    for (field, value) in [
        ("backoffLimit", json!(2)),
        ("completions", json!(3)),
        ("parallelism", json!(2)),
        ("completionMode", json!("Indexed")),
        ("activeDeadlineSeconds", json!(600)),
        ("ttlSecondsAfterFinished", json!(0)),
        ("suspend", json!(true)),
    ] {
        assert_eq!(job[field], value, "{field}");
    }
    assert_eq!(job["podFailurePolicy"]["rules"][0]["action"], "FailJob");
    assert_eq!(objects.pod()["restartPolicy"], "Never");
    // A disruption budget and a topology spread make sense only for replicas.
    assert!(objects.find("PodDisruptionBudget").is_none());
    assert!(objects.pod()["topologySpreadConstraints"].is_null());
    // The kubelet stops a native sidecar after the workload, so the Job completes.
    assert_eq!(objects.sidecar()["restartPolicy"], "Always");
    let annotations = &objects.one("Job")["metadata"]["annotations"];
    assert_eq!(
        annotations["helm.sh/hook-delete-policy"],
        "before-hook-creation"
    );
    let plain = Objects::of("minimal", &["workload.kind=\"Job\""]);
    let job = &plain.one("Job")["spec"];
    for absent in [
        "activeDeadlineSeconds",
        "ttlSecondsAfterFinished",
        "podFailurePolicy",
    ] {
        assert_eq!(job.get(absent), None, "{absent}");
    }
    assert_eq!(job["backoffLimit"], 6);
}

#[test]
fn a_cron_job_follows_its_values() {
    let objects = Objects::of("cron-job", &[]);
    let cron = &objects.one("CronJob")["spec"];
    for (field, value) in [
        ("schedule", json!("0 2 * * *")),
        ("timeZone", json!("Europe/Berlin")),
        ("concurrencyPolicy", json!("Replace")),
        ("startingDeadlineSeconds", json!(300)),
        ("suspend", json!(true)),
        ("successfulJobsHistoryLimit", json!(1)),
        ("failedJobsHistoryLimit", json!(2)),
    ] {
        assert_eq!(cron[field], value, "{field}");
    }
    assert_eq!(objects.pod()["restartPolicy"], "OnFailure");
    // The grace period is the job's `stop_grace` plus time to release the lock.
    assert_eq!(objects.pod()["terminationGracePeriodSeconds"], 25);
    let plain = [r#"workload.kind="CronJob""#, r#"cronJob.schedule="@daily""#];
    let plain = Objects::of("minimal", &plain);
    let cron = &plain.one("CronJob")["spec"];
    assert_eq!(cron["concurrencyPolicy"], "Forbid");
    for absent in ["timeZone", "startingDeadlineSeconds"] {
        assert_eq!(cron.get(absent), None, "{absent}");
    }
}

fn arguments(objects: &Objects) -> Vec<String> {
    let list = objects.workload()["args"].as_array().unwrap().iter();
    list.map(|word| word.as_str().unwrap().to_owned()).collect()
}

#[test]
fn a_job_in_supervisor_mode_runs_under_a_lock_and_its_account_has_no_permission() {
    let objects = Objects::of("cron-job", &[]);
    assert_eq!(
        arguments(&objects),
        [
            "lock",
            "shop.orders",
            "--wait=30s",
            "--conflict-exit-code=0",
            "--at-least=55s",
            "--once-per=20h",
            "--skipped-exit-code=0",
            "--key=of {day}",
            "--mongodb-uri-file=/etc/leasehold/mongodb/uri",
            "--lease-duration=15s",
            "--lease-renew-deadline=10s",
            "--lease-renew-interval=2s",
            "--mongodb-collection=jobs",
            "--mongodb-database=leasehold",
            "--workload-stop-grace=20s",
            "--",
            "/orders",
            "report",
            "--",
            "a b",
        ]
    );
    let kinds = objects.kinds();
    assert_eq!(
        kinds,
        ["NetworkPolicy", "ServiceAccount", "ConfigMap", "CronJob"]
    );
    // `leasehold lock` has no HTTP port.
    assert_eq!(objects.one("NetworkPolicy")["spec"]["ingress"], json!([]));
    let pod = objects.pod();
    assert_eq!(pod["automountServiceAccountToken"], false);
    assert_eq!(pod["serviceAccountName"], "orders-leasehold");
    assert!(objects.workload()["livenessProbe"].is_null());
    let volumes: Vec<_> = pod["volumes"]
        .as_array()
        .unwrap()
        .iter()
        .map(|v| &v["name"])
        .collect();
    assert_eq!(volumes, ["leasehold-program", "leasehold-mongodb"]);
}

#[test]
fn if_the_lock_is_held_a_job_waits_and_a_run_is_skipped() {
    let supervised = [r#"mode="supervisor""#, r#"workload.command=["/orders"]"#];
    let flags = |kind: &str, more: &[&str]| {
        let kind = format!("workload.kind=\"{kind}\"");
        let schedule = match kind.contains("Cron") {
            true => r#"cronJob.schedule="@daily""#,
            false => r#"cronJob.schedule="""#,
        };
        let changes = [&supervised[..], &[&kind, schedule], more].concat();
        let flags = arguments(&Objects::of("minimal", &changes))
            .into_iter()
            .skip(2);
        flags
            .take_while(|flag| !flag.starts_with("--mongodb"))
            .collect::<Vec<_>>()
    };
    let [waits, fails, skips] =
        ["wait", "fail", "skip"].map(|held| format!("job.lock.ifHeld=\"{held}\""));
    let limit = r#"job.lock.wait="9s""#;
    for (kind, more, expected) in [
        ("Job", &[][..], &[][..]),
        ("CronJob", &[], &["--no-wait", "--conflict-exit-code=0"]),
        ("CronJob", &[waits.as_str()], &[]),
        ("Job", &[fails.as_str()], &["--no-wait"]),
        (
            "Job",
            &[skips.as_str()],
            &["--no-wait", "--conflict-exit-code=0"],
        ),
        ("Job", &[limit], &["--wait=9s"]),
        ("Job", &["job.lock.slots=3"], &["--slots=3"]),
    ] {
        assert_eq!(flags(kind, more), expected, "{kind} {more:?}");
    }
}

/// Returns the rendered command line with a real set's connection string, this lock name and this
/// command.
fn lock(uri: &std::path::Path, lease: &str, command: &str) -> Command {
    let objects = Objects::of(
        "cron-job",
        &[r#"job.lock={"ifHeld":"skip","wait":"","atLeast":"","oncePer":"","key":""}"#],
    );
    let words = arguments(&objects)
        .into_iter()
        .take_while(|word| word != "--")
        .map(
            |word| match (word.as_str(), word.starts_with("--mongodb-uri-file=")) {
                ("shop.orders", _) => lease.to_owned(),
                (_, true) => format!("--mongodb-uri-file={}", uri.display()),
                _ => word,
            },
        );
    const EXE: &str = env!("CARGO_BIN_EXE_leasehold");
    // Simulates the container's read-only root file system for /run. Only root could write there.
    let mut program = if rustix::process::geteuid().is_root() {
        let mut program = Command::new("/usr/bin/unshare");
        let read_only = r#"/bin/mount -t tmpfs -o ro none /run && exec "$0" "$@""#;
        program.args(["--mount", "/bin/sh", "-c", read_only, EXE]);
        program
    } else {
        Command::new(EXE)
    };
    program.args(words).args(["--", "/bin/sh", "-c", command]);
    program
        .env_clear()
        .env("LEASEHOLD_IDENTITY__NAME", "orders-1")
        .env("TMPDIR", "/proc/nowhere")
        .env("XDG_RUNTIME_DIR", "/proc/nowhere");
    program
}

#[test]
fn of_two_concurrent_runs_one_is_skipped_and_both_succeed() {
    run(async {
        let set = SET.get().await;
        let place = tempfile::tempdir().unwrap();
        let uri = place.path().join("uri");
        std::fs::write(&uri, set.uri()).unwrap();
        let (ran, gate) = (place.path().join("ran"), place.path().join("gate"));
        let fifo = Command::new("mkfifo").arg(&gate).status().unwrap();
        assert!(fifo.success());
        // The first job holds the lock until the test writes to the FIFO.
        let first = format!("touch {} && read -r _ < {}", ran.display(), gate.display());
        let mut first = lock(&uri, "shop.nightly", &first).spawn().unwrap();
        found("the first job runs", async || ran.exists().then_some(())).await;
        let second = place.path().join("second");
        let touch = format!("touch {}", second.display());
        let skipped = lock(&uri, "shop.nightly", &touch).output().unwrap();
        assert_eq!(skipped.status.code(), Some(0), "{skipped:?}");
        assert!(!second.exists(), "two jobs ran at the same time");
        std::fs::write(&gate, "go\n").unwrap();
        assert_eq!(first.wait().unwrap().code(), Some(0));
        let after = lock(&uri, "shop.nightly", &touch).status().unwrap();
        assert_eq!((after.code(), second.exists()), (Some(0), true));
    });
}

#[test]
fn values_without_an_effect_on_the_kind_are_refused_with_the_remedy() {
    refused(
        r#"
        minimal: workload.kind="ReplicaSet"
            /workload/kind

        minimal: workload.kind="CronJob"
            set cronJob.schedule

        minimal: cronJob.schedule="@daily"
            cronJob.schedule is for a CronJob, and workload.kind is Deployment
            set workload.kind to CronJob

        cron-job: job.suspend=true
            set cronJob.suspend

        minimal: statefulSet.volumeClaimTemplates=[{"metadata":{"name":"data"},"spec":{}}]
            statefulSet.volumeClaimTemplates is for a StatefulSet
            set workload.kind to StatefulSet

        stateful-set: statefulSet.volumeClaimTemplates=[{"metadata":{"name":"leasehold-status"},"spec":{}}]
            statefulSet.volumeClaimTemplates
            the name leasehold-status

        stateful-set: deployment.strategy.type="Recreate"
            workload.kind is StatefulSet
            set statefulSet.updateStrategy

        stateful-set: fullnameOverride="aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
            longer than 52 characters

        stateful-set: fullnameOverride="2orders"
            must begin with a letter

        job: service.enabled=true
            the pods of a Job end

        job: prometheusRule.enabled=true
            between the runs of a Job

        job: deployment.minReadySeconds=1
            leave out deployment.minReadySeconds

        job: job.lock.oncePer="1h"
            job.lock.oncePer is for a Job or CronJob with mode supervisor

        minimal: job.lock.ifHeld="skip"
            job.lock.ifHeld is for a Job or CronJob with mode supervisor

        cron-job: podMonitor.enabled=true
            a lock, which serves no metrics
            set mode to sidecar

        cron-job: job.lock.oncePer=""
            set job.lock.oncePer too

        cron-job: job.lock.slots=2
            leave out job.lock.slots

        cron-job: workload.livenessProbe={"tcpSocket":{"port":1}}
            leave out workload.livenessProbe
            set job.activeDeadlineSeconds

        cron-job: leasehold.config.http.ready_when="leader"
            leave out leasehold.config.http.ready_when: it has no effect on a lock

        cron-job: leasehold.config.lease.prefer="priority"
            leave out leasehold.config.lease.prefer: it has no effect on a lock

        cron-job: leasehold.config.workload.health.url="http://127.0.0.1/"
            leave out leasehold.config.workload.health.url

        cron-job: leasehold.extraLeases={"reports":{"port":9403}}
            leave out leasehold.extraLeases (reports)
            set mode to sidecar
        "#,
    );
}

fn labelled(key: &str, value: &str) -> Value {
    json!({"metadata": {"labels": {key: value}}})
}

/// Disables features that this API server does not support: a runtime class, a cluster-wide node
/// port, the Prometheus operator's kind, and the volume claims that the StatefulSet controller
/// creates.
const PLAIN: [&str; 6] = [
    "service.nodePort=0",
    "statefulSet.volumeClaimTemplates=[]",
    "workload.volumeMounts=[]",
    "deployment.runtimeClassName=\"\"",
    "podMonitor.enabled=false",
    "test.enabled=false",
];

#[test]
fn the_policies_apply_to_the_pods_of_a_stateful_set_and_of_a_job() {
    run(async {
        for installation in ["stateful-set", "job"] {
            let alone = "leasehold.kubernetes.demoteOthers=false";
            let changes = [&PLAIN[..], &[alone]].concat();
            let installed = Installed::new(installation, &changes).await;
            let own = installed.pod("own").await;
            installed.pod("other").await;
            let pods = installed.pods(installed.client_of(&own).await);
            let label = installed.label();
            found("the policy takes effect", async || {
                let annotated = json!({"metadata": {"annotations": {"a": "b"}}});
                let refused = patch_status(&pods, "own", annotated, true).await.err()?;
                refused.contains("ValidatingAdmissionPolicy").then_some(())
            })
            .await;
            let led = patch_status(&pods, "own", labelled(&label, "leader"), false).await;
            assert_eq!(led.unwrap().labels()[&label], "leader", "{installation}");
            let other = patch_status(&pods, "other", labelled(&label, "leader"), false).await;
            let refused = other.unwrap_err();
            assert!(refused.contains("only the pod that its token"), "{refused}");
        }
    });
}

#[test]
fn the_controllers_of_each_kind_create_its_pods_under_the_restricted_level() {
    run(async {
        for (kind, more, names) in [
            (
                "StatefulSet",
                "test.enabled=false",
                &["orders-0", "orders-1"][..],
            ),
            ("Job", "job.parallelism=1", &["orders-"]),
        ] {
            let kind_of = format!("workload.kind=\"{kind}\"");
            let installed = Installed::new("minimal", &[&kind_of, more]).await;
            let pods = installed.pods(installed.kubernetes.client());
            let created = found(&format!("the pods of the {kind} exist"), async || {
                let mut found = pods.list(&ListParams::default()).await.ok()?.items;
                found.retain(|pod| {
                    pod.owner_references()
                        .iter()
                        .any(|owner| owner.kind == kind)
                });
                found.sort_by_key(ResourceExt::name_any);
                (found.len() == names.len()).then_some(found)
            })
            .await;
            for (pod, name) in created.iter().zip(names) {
                assert!(pod.name_any().starts_with(name), "{}", pod.name_any());
                let spec = pod.spec.as_ref().unwrap();
                let sidecar = &spec.init_containers.as_ref().unwrap()[0];
                assert_eq!(sidecar.restart_policy.as_deref(), Some("Always"), "{kind}");
                // Each pod has the service account that the policies restrict.
                assert_eq!(
                    spec.service_account_name.as_deref(),
                    Some("orders-leasehold")
                );
            }
        }
    });
}

#[test]
fn the_restricted_level_admits_the_pods_of_each_kind() {
    run(async {
        for installation in ["stateful-set", "job", "cron-job", "leases"] {
            let more = ["prometheusRule.enabled=false"];
            let changes = [&PLAIN[..], &more].concat();
            let installed = Installed::new(installation, &changes).await;
            installed.pod("by-hand").await;
        }
    });
}
