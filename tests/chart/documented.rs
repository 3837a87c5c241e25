//! Goal: the commands and files in the documentation work when a reader copies them. Method:
//! extracts them from the pages and runs them.

use std::fs;
use std::os::unix::fs::symlink;

use leasehold_testbed::{Kubernetes, run};
use serde_json::{Value, json};

use crate::cluster::Installed;
use crate::helm::{Objects, chart, render_chart, root, succeed, tool};

/// From a page, returns the YAML block whose first line is a comment with this file name.
pub(crate) fn block(page: &str, file: &str) -> String {
    let page = fs::read_to_string(root().join(page)).unwrap();
    let start = format!("```yaml\n# {file}\n");
    let (_, rest) = page
        .split_once(&start)
        .unwrap_or_else(|| panic!("no {file}"));
    rest.split_once("```").unwrap().0.to_owned()
}

fn helm_commands(page: &str) -> Vec<String> {
    let page = fs::read_to_string(root().join(page)).unwrap();
    let blocks = page.split("```console\n").skip(1);
    let shown = blocks.map(|rest| rest.split_once("```").unwrap().0.replace("\\\n", " "));
    let commands = shown.flat_map(|block| {
        let lines = block
            .lines()
            .filter_map(|line| line.strip_prefix("$ helm "));
        lines.map(str::to_owned).collect::<Vec<_>>()
    });
    commands.collect()
}

#[test]
fn the_documented_installations_work_when_copied() {
    let place = tempfile::tempdir().unwrap();
    symlink(root().join("charts"), place.path().join("charts")).unwrap();
    for file in ["orders.yaml", "tenant.yaml", "tenant-of-one.yaml"] {
        let values = block("docs/kubernetes.md", file);
        fs::write(place.path().join(file), values).unwrap();
    }
    for (page, installations) in [("README.md", 1), ("docs/kubernetes.md", 5)] {
        let commands = helm_commands(page);
        let installing: Vec<_> = commands
            .iter()
            .filter(|command| command.contains("charts/leasehold"))
            .filter_map(|command| command.strip_prefix("install "))
            .collect();
        assert_eq!(installing.len(), installations, "{page}: {commands:?}");
        for arguments in installing {
            let mut helm = tool("helm");
            helm.args(["install", "--dry-run=client"])
                .args(arguments.split_whitespace())
                .current_dir(place.path());
            let said = succeed(&mut helm);
            assert!(said.contains("\nkind: "), "{page}: {said}");
        }
    }
}

#[test]
fn a_users_own_chart_gets_the_same_sidecar() {
    let around = tempfile::tempdir().unwrap();
    let own = around.path().join("billing");
    fs::create_dir_all(own.join("templates")).unwrap();
    let library = root().join("charts/leasehold-sidecar");
    std::os::unix::fs::symlink(library, around.path().join("leasehold-sidecar")).unwrap();
    for file in ["Chart.yaml", "templates/deployment.yaml", "values.yaml"] {
        fs::write(own.join(file), block("docs/kubernetes.md", file)).unwrap();
    }
    let commands = helm_commands("docs/kubernetes.md");
    let mut ran = 0;
    for command in commands.iter().filter(|line| line.contains("billing")) {
        let installs = command.starts_with("install ");
        let dry = installs.then_some("--dry-run=client");
        let mut helm = tool("helm");
        helm.args(command.split_whitespace()).args(dry);
        succeed(helm.current_dir(around.path()));
        ran += 1;
    }
    assert_eq!(ran, 2, "dependency build, install");
    let own = Objects::parse(&render_chart(&own, &[]).unwrap());
    let secret = r#"leasehold.mongodb.secretName="billing-mongodb""#;
    let alone = "leasehold.kubernetes.demoteOthers=false";
    let ours = Objects::of("minimal", &[secret, alone]);
    assert_eq!(own.sidecar(), ours.sidecar());
    let rights = ["Role", "RoleBinding", "ServiceAccount"];
    for kind in rights.into_iter().chain(["ValidatingAdmissionPolicy"]) {
        assert_eq!(own.one(kind)["spec"], ours.one(kind)["spec"]);
        assert_eq!(own.one(kind)["rules"], ours.one(kind)["rules"]);
    }
    let mounts = own.workload()["volumeMounts"].as_array().unwrap();
    assert!(mounts.iter().any(|mount| mount["readOnly"] == true));
    // The Pod Security level "restricted" requires these fields.
    let pod = &own.pod()["securityContext"];
    assert_eq!(pod["runAsNonRoot"], true);
    assert_eq!(pod["seccompProfile"]["type"], "RuntimeDefault");
    let context = &own.workload()["securityContext"];
    assert_eq!(context["allowPrivilegeEscalation"], false);
    assert_eq!(context["capabilities"]["drop"][0], "ALL");
}

#[test]
fn the_documented_values_of_supervisor_mode_render() {
    let values = block("docs/kubernetes.md", "supervisor.yaml");
    let file = tempfile::NamedTempFile::with_suffix(".yaml").unwrap();
    fs::write(file.path(), values).unwrap();
    let rendered = render_chart(&chart(), &["--values", file.path().to_str().unwrap()]);
    let objects = Objects::parse(&rendered.unwrap());
    let arguments = objects.workload()["args"].as_array().unwrap();
    assert!(arguments.ends_with(&["--".into(), "/orders".into(), "--serve".into()]));
    // The documented values result in this termination grace period.
    assert_eq!(objects.pod()["terminationGracePeriodSeconds"], 25);
}

/// Tests only the tutorial's files, because the tutorial's commands need a cluster that runs pods.
const TUTORIAL: &str = "docs/tutorial-kubernetes.md";

#[test]
fn the_values_of_the_tutorial_render() {
    let file = tempfile::NamedTempFile::with_suffix(".yaml").unwrap();
    fs::write(file.path(), block(TUTORIAL, "orders.yaml")).unwrap();
    let rendered = render_chart(&chart(), &["--values", file.path().to_str().unwrap()]);
    let objects = Objects::parse(&rendered.unwrap());
    assert_eq!(objects.one("Deployment")["spec"]["replicas"], 3);
    // Without this field, the pod would not start, because the image runs as root by default.
    assert_eq!(objects.workload()["securityContext"]["runAsUser"], 65532);
    assert_eq!(objects.one("Service")["metadata"]["name"], "orders");
}

#[test]
fn an_api_server_accepts_the_mongodb_of_the_tutorial() {
    run(async {
        let kubernetes = Kubernetes::shared().await;
        let namespace = kubernetes.namespace().await;
        let file = block(TUTORIAL, "mongodb.yaml");
        let objects = file.split("\n---\n");
        assert_eq!(objects.clone().count(), 2);
        for object in objects {
            let accepted = kubernetes.dry_run(&namespace, object).await;
            accepted.unwrap_or_else(|refused| panic!("{refused}"));
        }
    });
}

fn by_hand() -> Value {
    let deployment: Value = serde_saphyr::from_str(&example("sidecar.yaml")).unwrap();
    deployment["spec"]["template"].clone()
}

#[test]
fn the_pod_without_the_chart_is_admitted_under_the_restricted_level() {
    run(async {
        let installed = Installed::new("minimal", &[]).await;
        let mut pod = by_hand();
        pod["apiVersion"] = json!("v1");
        pod["kind"] = json!("Pod");
        pod["metadata"]["name"] = json!("orders");
        let kubernetes = &installed.kubernetes;
        let pod = pod.to_string();
        let admitted = kubernetes.dry_run(&installed.namespace, &pod);
        admitted.await.unwrap_or_else(|refused| panic!("{refused}"));
    });
}

/// The pod does not need a token. With a token, the daemon would warn that the pod's identity is
/// unknown.
#[test]
fn the_pod_without_the_chart_has_no_token() {
    assert_eq!(by_hand()["spec"]["automountServiceAccountToken"], false);
}

fn example(name: &str) -> String {
    let text = fs::read_to_string(root().join("examples").join(name)).unwrap();
    let lines = text.lines().skip_while(|line| line.starts_with('#'));
    lines.map(|line| format!("{line}\n")).collect()
}

#[test]
fn an_api_server_accepts_the_example_manifests() {
    run(async {
        let kubernetes = Kubernetes::shared().await;
        let namespace = kubernetes.namespace().await;
        for name in ["sidecar.yaml", "cron-job.yaml"] {
            let accepted = kubernetes.dry_run(&namespace, &example(name)).await;
            accepted.unwrap_or_else(|refused| panic!("{name}: {refused}"));
        }
    });
}

#[test]
fn the_command_of_the_example_job_has_flags_that_exist() {
    let job: Value = serde_saphyr::from_str(&example("cron-job.yaml")).unwrap();
    let pod = &job["spec"]["jobTemplate"]["spec"]["template"]["spec"];
    let command = pod["containers"][0]["command"].as_array().unwrap();
    let words = command.iter().skip(1).map(|word| word.as_str().unwrap());
    let output = std::process::Command::new(env!("CARGO_BIN_EXE_leasehold"))
        .args(words)
        .output()
        .unwrap();
    // All flags are valid, but the secret's file does not exist.
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(stderr.contains("/secret/uri"), "{stderr}");
}

/// Renders a block of values from docs/kubernetes.md on top of the installation `base`.
pub(crate) fn documented(file: &str, base: Option<&str>) -> Objects {
    let values = tempfile::NamedTempFile::with_suffix(".yaml").unwrap();
    fs::write(values.path(), block("docs/kubernetes.md", file)).unwrap();
    let base = base.map(|base| crate::helm::values(base).to_str().unwrap().to_owned());
    let mut arguments: Vec<_> = base.iter().flat_map(|base| ["--values", base]).collect();
    arguments.extend(["--values", values.path().to_str().unwrap()]);
    Objects::parse(&render_chart(&chart(), &arguments).unwrap())
}

#[test]
fn the_documented_kinds_leases_and_alerts_render() {
    let nightly = documented("nightly.yaml", None);
    assert_eq!(nightly.one("CronJob")["spec"]["timeZone"], "Europe/Berlin");
    let args = nightly.workload()["args"].to_string();
    assert!(
        args.contains("--no-wait") && args.contains("--once-per=20h"),
        "{args}"
    );
    let leases = documented("leases.yaml", None);
    assert_eq!(leases.pod()["initContainers"].as_array().unwrap().len(), 3);
    let alerts = documented("alerts.yaml", Some("minimal"));
    let rules = alerts.one("PrometheusRule")["spec"]["groups"][0]["rules"].clone();
    assert_eq!(
        rules[0]["labels"],
        json!({"severity": "page", "lease": "shop.orders", "team": "orders"})
    );
    assert!(!rules.to_string().contains("LeaseholdLeadershipFlaps"));
}

/// Checks only the pods' annotations and ports, because no service mesh runs here.
#[test]
fn pods_get_the_documented_annotations_of_meshes_with_the_ports_of_the_chart() {
    for (file, inbound, outbound) in [
        (
            "istio.yaml",
            "traffic.sidecar.istio.io/excludeInboundPorts",
            "traffic.sidecar.istio.io/excludeOutboundPorts",
        ),
        (
            "linkerd.yaml",
            "config.linkerd.io/skip-inbound-ports",
            "config.linkerd.io/skip-outbound-ports",
        ),
    ] {
        let objects = documented(file, Some("minimal"));
        let annotations = &objects.template()["metadata"]["annotations"];
        let port = &objects.sidecar()["ports"][0]["containerPort"];
        assert_eq!(
            annotations[inbound].as_str().unwrap(),
            port.to_string(),
            "{file}"
        );
        let open = Objects::of("minimal", &["networkPolicy.enabled=true"]);
        let mongodb = &open.one("NetworkPolicy")["spec"]["egress"][1]["ports"][0]["port"];
        assert_eq!(
            annotations[outbound].as_str().unwrap(),
            mongodb.to_string(),
            "{file}"
        );
    }
}
