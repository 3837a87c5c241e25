//! Goal: no kustomization makes two releases share a lease or lock by accident. The names stay as
//! rendered, or the program refuses to contend. Method: transforms helm's output with kustomize,
//! and starts the program with the flags and the environment of the transformed pod.

use std::fs;
use std::path::Path;
use std::process::Command;

use leasehold_testbed::assert_contains;
use serde_json::Value;

use crate::helm::{NAMESPACE, Objects, RELEASE, chart, render, succeed, tool, values};

/// Kustomizations that move or rename a release's objects, with the resulting namespace and service
/// account.
const MOVING: [(&str, &str); 3] = [
    ("namespace: prod", "prod/orders-leasehold"),
    ("namePrefix: a-", "shop/a-orders-leasehold"),
    ("nameSuffix: '-2'", "shop/orders-leasehold-2"),
];

const CONTENDING: [&str; 7] = [
    "minimal",
    "supervisor",
    "same-container",
    "stateful-set",
    "job",
    "cron-job",
    "leases",
];

fn kustomize(files: &[(&str, &str)], more: &[&str]) -> String {
    let place = tempfile::tempdir().unwrap();
    for (name, text) in files {
        fs::write(place.path().join(name), text).unwrap();
    }
    let mut command = tool("kustomize");
    succeed(command.arg("build").arg(place.path()).args(more))
}

fn transformed(installation: &str, transformation: &str) -> Objects {
    let rendered = render(installation, &["test.enabled=false"]).unwrap();
    let kustomization = format!("resources: [all.yaml]\n{transformation}\n");
    let files = [
        ("all.yaml", &*rendered),
        ("kustomization.yaml", &kustomization),
    ];
    Objects::parse(&kustomize(&files, &[]))
}

fn inflated(helm: &str, chart_fields: &str, kustomization: &str) -> String {
    let home = chart().parent().unwrap().to_owned();
    let minimal = fs::read_to_string(values("minimal")).unwrap();
    let kustomization = format!(
        "helmGlobals: {{chartHome: {}}}\nhelmCharts:\n- {{name: leasehold, releaseName: {RELEASE}, valuesFile: values.yaml, \
         kubeVersion: 1.36.0, skipTests: true{chart_fields}}}\n{kustomization}\n",
        home.display()
    );
    let files = [
        ("kustomization.yaml", &*kustomization),
        ("values.yaml", &minimal),
    ];
    let helm = tool(helm);
    let program = helm.get_program().to_str().unwrap();
    kustomize(&files, &["--enable-helm", "--helm-command", program])
}

fn container(objects: &Objects) -> &Value {
    let contends =
        |container: &Value| container["args"][0] == "run" || container["args"][0] == "lock";
    objects
        .container(contends)
        .expect("a container that contends")
}

/// Returns the pods' service account, and the service account that helm assumed for rendering.
fn placement(objects: &Objects) -> (String, String) {
    let container = container(objects);
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let flags = container["args"].as_array().unwrap().iter();
    let flag = flags
        .filter_map(Value::as_str)
        .find_map(|flag| flag.strip_prefix("--kubernetes-rendered-for="));
    let mut variables = container["env"].as_array().unwrap().iter();
    let variable = variables.find(|set| set["name"] == "LEASEHOLD_KUBERNETES__RENDERED_FOR");
    let rendered = flag.map_or_else(|| text(&variable.unwrap()["value"]), str::to_owned);
    let namespace = text(&objects.maker()["metadata"]["namespace"]);
    let account = text(&objects.pod()["serviceAccountName"]);
    (format!("{namespace}/{account}"), rendered)
}

/// Returns the program's command as the kubelet would start it, with this machine's paths and
/// addresses.
fn program(objects: &Objects, place: &Path) -> Command {
    let uri = place.join("uri");
    fs::write(&uri, "mongodb://127.0.0.1:1/").unwrap();
    let container = container(objects);
    let mut program = Command::new(env!("CARGO_BIN_EXE_leasehold"));
    program.env_clear();
    let words = container["args"].as_array().unwrap();
    let flags = words.iter().map(|word| word.as_str().unwrap());
    for flag in flags.take_while(|word| *word != "--") {
        match flag.split_once('=') {
            Some(("--mongodb-uri-file", _)) => {
                program.arg(format!("--mongodb-uri-file={}", uri.display()))
            }
            Some(("--status-directory", _)) => {
                program.arg(format!("--status-directory={}", place.display()))
            }
            Some(("--http-listen", _)) => program.arg("--http-listen="),
            _ => program.arg(flag),
        };
    }
    let object = objects.maker();
    for variable in container["env"].as_array().unwrap() {
        let value = match variable
            .pointer("/valueFrom/fieldRef/fieldPath")
            .map(|path| path.as_str().unwrap())
        {
            None => &variable["value"],
            Some("metadata.namespace") => &object["metadata"]["namespace"],
            Some("spec.serviceAccountName") => &objects.pod()["serviceAccountName"],
            // The values of the pod's name and uid do not matter here.
            Some(_) => &object["metadata"]["name"],
        };
        program.env(variable["name"].as_str().unwrap(), value.as_str().unwrap());
    }
    // The container's command does not exist on this machine, but the program must never start the
    // command.
    if words.iter().any(|word| word == "--") {
        program.args(["--", "/bin/false"]);
    }
    program
}

#[test]
fn a_moved_or_renamed_release_does_not_contend_for_the_name_of_another_release() {
    for installation in CONTENDING {
        for (transformation, account) in MOVING {
            let case = format!("{installation}, {transformation}");
            let objects = transformed(installation, transformation);
            let rendered = "shop/orders-leasehold";
            let expected = (account.to_owned(), rendered.to_owned());
            assert_eq!(placement(&objects), expected, "{case}");
            let place = tempfile::tempdir().unwrap();
            let output = program(&objects, place.path()).output().unwrap();
            let text = String::from_utf8(output.stderr).unwrap();
            assert_eq!(output.status.code(), Some(78), "{case}: {text}");
            for part in [rendered, account, "--namespace", "shop.orders"] {
                assert!(text.contains(part), "{case}: {part}: {text}");
            }
        }
    }
}

#[test]
fn a_kustomization_that_moves_no_object_keeps_the_rendered_account() {
    let patch = "patches:\n- target: {kind: Deployment}\n  patch: |-\n    - {op: replace, path: /spec/replicas, value: 3}";
    for transformation in [
        "labels: [{pairs: {team: orders}, includeTemplates: true}]",
        "commonLabels: {team: orders}",
        "commonAnnotations: {team: orders}",
        "images: [{name: registry.example/orders, newTag: '2'}]",
        "namespace: shop",
        patch,
    ] {
        for installation in CONTENDING {
            let (account, rendered) = placement(&transformed(installation, transformation));
            assert_eq!(account, rendered, "{installation}, {transformation}");
        }
    }
}

/// Tests the documented usage: kustomize passes the overlay's namespace to helm.
#[test]
fn each_overlay_that_passes_its_namespace_to_helm_has_its_own_lease() {
    for helm in ["helm", "helm3"] {
        for (fields, kustomization) in [(", namespace: prod", ""), ("", "namespace: prod")] {
            let yaml = inflated(helm, fields, kustomization);
            let objects = Objects::parse(&yaml);
            let account = "prod/orders-leasehold".to_owned();
            assert_eq!(
                placement(&objects),
                (account.clone(), account),
                "{helm}{fields}"
            );
            assert!(
                objects.has_flag("--lease-name=prod.orders"),
                "{helm}{fields}"
            );
            let policy = &objects.one("ValidatingAdmissionPolicy")["spec"];
            assert_contains(
                &policy.to_string(),
                "system:serviceaccount:prod:orders-leasehold",
            );
            assert!(!yaml.contains(NAMESPACE), "{helm}{fields}: {yaml}");
        }
    }
}

/// kustomize does not rename the policy in a MutatingAdmissionPolicyBinding, so the sidecar is no
/// longer injected. The ValidatingAdmissionPolicy stays bound, and refuses pods that lack their
/// requested sidecar.
#[test]
fn a_renamed_injector_refuses_pods_that_lack_their_sidecar() {
    let objects = transformed("injector", "namePrefix: a-");
    let names = |kind: &str| {
        let binding = objects.one(&format!("{kind}Binding"));
        let policy = &objects.one(kind)["metadata"]["name"];
        (&binding["spec"]["policyName"] == policy, policy.clone())
    };
    assert!(names("ValidatingAdmissionPolicy").0);
    let (bound, policy) = names("MutatingAdmissionPolicy");
    assert!(!bound, "{policy}: update docs/kubernetes.md");
}
