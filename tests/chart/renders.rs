//! Goal: the chart renders for every kind of installation, its errors name each missing or invalid
//! value, and every change of a manifest shows up in review. Method: runs helm's linter, schemas
//! and templates, and compares the manifests with the files in tests/chart/golden, which `BLESS=1
//! cargo test --test chart golden` writes.

use std::fs;
use std::process::Command;

use crate::helm::{self, INSTALLATIONS, Objects, refused, render, root, text, tool};

#[test]
fn the_linter_reports_no_problem() {
    for installation in INSTALLATIONS {
        let mut lint = tool("helm");
        lint.args(["lint", "--strict", "--kube-version", helm::KUBERNETES])
            .arg("--values")
            .args([helm::values(installation), helm::chart()]);
        helm::succeed(&mut lint);
    }
    let library = root().join("charts/leasehold-sidecar");
    helm::succeed(tool("helm").args(["lint", "--strict"]).arg(library));
}

#[test]
fn helm_3_and_helm_4_render_the_same_manifests() {
    for installation in INSTALLATIONS {
        let mut helm = tool("helm3");
        helm.args(["template", helm::RELEASE]).arg(helm::chart());
        helm.args([
            "--namespace",
            helm::NAMESPACE,
            "--kube-version",
            helm::KUBERNETES,
        ]);
        let rendered = helm
            .arg("--values")
            .arg(helm::values(installation))
            .output();
        let rendered = rendered.unwrap();
        assert!(
            rendered.status.success(),
            "{installation}: {}",
            text(&rendered)
        );
        let sorted = |yaml: &str| {
            let objects = Objects::parse(yaml);
            let mut objects: Vec<_> = objects.iter().map(ToString::to_string).collect();
            objects.sort_unstable();
            objects
        };
        let (third, fourth) = (
            String::from_utf8(rendered.stdout).unwrap(),
            render(installation, &[]),
        );
        assert_eq!(sorted(&third), sorted(&fourth.unwrap()), "{installation}");
    }
}

#[test]
fn the_default_manifests_are_golden() {
    assert_golden("minimal", &render("minimal", &[]).unwrap());
}

/// `helm upgrade` must not restart the pods of a release that keeps supervisor mode in one
/// container.
#[test]
fn the_pods_of_supervisor_mode_in_one_container_are_golden() {
    let rendered = render("same-container", &[]).unwrap();
    let mut objects = rendered.split("---\n");
    let deployment = objects.find(|object| object.contains("\nkind: Deployment"));
    assert_golden("same-container", deployment.unwrap());
}

fn assert_golden(name: &str, rendered: &str) {
    let path = root().join(format!("tests/chart/golden/{name}.yaml"));
    if std::env::var_os("BLESS").is_some() {
        fs::write(&path, rendered).unwrap();
        return;
    }
    let golden = fs::read_to_string(&path).unwrap();
    let remedy = "run: BLESS=1 cargo test --test chart golden";
    assert_eq!(golden, rendered, "{remedy}");
}

#[test]
fn missing_keys_are_named() {
    refused(
        r#"
        minimal: leasehold.mongodb.secretName=""
            set leasehold.mongodb.secretName

        minimal: workload.image.repository=""
            set workload.image.repository

        minimal: workload.image.tag=""
            set workload.image.tag

        minimal: leasehold.image.repository=""
            set leasehold.image.repository

        minimal: leasehold.serviceAccount.create=false
            set leasehold.serviceAccount.name

        minimal: workload.image.tag=1
            --set-string workload.image.tag=

        minimal: leasehold.image.tag=0.1
            --set-string leasehold.image.tag=
        "#,
    );
}

#[test]
fn the_schema_refuses_mistakes_and_names_their_keys() {
    refused(
        r#"
        minimal: replica=1
            'replica' not allowed

        minimal: deployment.replicas=-1
            /deployment/replicas

        minimal: service.targetPort="Http"
            /service/targetPort

        minimal: mode="daemon"
            /mode

        minimal: deployment.terminationGracePeriodSeconds=1
            /deployment/terminationGracePeriodSeconds

        minimal: leasehold.config.workload.health.failures="3"
            /leasehold/config/workload/health/failures

        minimal: leasehold.config.workload.health.ur="http://127.0.0.1/"
            'ur' not allowed

        minimal: workload.image.digest="sha256:abc"
            /workload/image/digest

        minimal: leasehold.config.lease.lease_duration="24"
            /leasehold/config/lease/lease_duration

        minimal: leasehold.kubernetes.tokenExpirationSeconds=10
            /leasehold/kubernetes/tokenExpirationSeconds

        minimal: leasehold.kubernetes.labels=true
            '/leasehold/kubernetes': additional properties 'labels' not allowed

        minimal: workload.lifecycle.preStart={}
            '/workload/lifecycle': additional properties 'preStart' not allowed
        "#,
    );
}

#[test]
fn errors_about_mistakes_contain_the_remedy() {
    refused(
        r#"
        minimal: leasehold.leaseName="-orders"
            letter or digit at both ends

        minimal: leasehold.leaseName="a b"
            letter or digit at both ends

        minimal: leasehold.config.lease.lease_duration=24
            write "24s"

        minimal: leasehold.config.workload.health.period=10
            leasehold.config.workload.health.period is a duration and has a unit: write "10s"

        minimal: leasehold.kubernetes.labelPrefix="a..b"
            a domain such as

        minimal: leasehold.kubernetes.labelPrefix=""
            a domain such as
        "#,
    );
    let too_long = "a".repeat(254);
    let too_long = format!("leasehold.kubernetes.labelPrefix=\"{too_long}\"");
    let complaint = render("minimal", &[&too_long]).unwrap_err();
    assert!(complaint.contains("a domain such as"), "{complaint}");
}

#[test]
fn a_lease_name_that_is_not_a_label_is_refused() {
    let long = "a".repeat(60);
    let file = helm::values("minimal");
    let arguments = ["--values", file.to_str().unwrap(), "--namespace", &long];
    let complaint = helm::render_chart(&helm::chart(), &arguments).unwrap_err();
    assert!(complaint.contains("set leasehold.leaseName"), "{complaint}");
}

#[test]
fn a_release_name_that_is_not_a_service_name_is_refused() {
    let file = helm::values("minimal");
    let named = |name: &str, service: &str| {
        let output = tool("helm")
            .args(["template", name, "--values"])
            .args([&file, &helm::chart()])
            .args(["--kube-version", helm::KUBERNETES, "--set", service])
            .output()
            .unwrap();
        output.status.success().then_some(()).ok_or(text(&output))
    };
    for name in ["orders.v2", "2orders"] {
        let complaint = named(name, "service.enabled=true").unwrap_err();
        assert!(
            complaint.contains("must begin with a letter"),
            "{complaint}"
        );
        named(name, "service.enabled=false").unwrap();
    }
}

#[test]
fn a_cluster_that_is_too_old_is_refused() {
    let file = helm::values("minimal");
    let old = |version: &str, more: &[&str]| {
        let arguments = ["--values", file.to_str().unwrap(), "--kube-version"];
        helm::render_chart(&helm::chart(), &[&arguments, &[version][..], more].concat())
    };
    let complaint = old("1.29.14", &[]).unwrap_err();
    assert!(complaint.contains(">=1.30.0-0"), "{complaint}");
    assert!(old("1.30.0", &[]).is_ok());
    let complaint = old("1.35.9", &["--set", "inject.enabled=true"]).unwrap_err();
    assert!(complaint.contains("needs Kubernetes 1.36"), "{complaint}");
}

#[test]
fn the_notes_show_how_to_query_the_leader() {
    let notes = |installation: &str| {
        let mut install = tool("helm");
        install
            .args(["install", helm::RELEASE, "--namespace", helm::NAMESPACE])
            .args(["--dry-run=client", "--values"])
            .args([helm::values(installation), helm::chart()]);
        let shown = helm::succeed(&mut install);
        let (_, notes) = shown.split_once("NOTES:").unwrap();
        notes.to_owned()
    };
    assert!(notes("minimal").contains("--label-columns leasehold.dev/shop.orders"));
    let unlabelled = notes("unlabelled");
    assert!(unlabelled.contains("/status"), "{unlabelled}");
    assert!(unlabelled.contains("Pods carry no label"), "{unlabelled}");
    assert!(notes("injector").contains("leasehold.dev/inject"));
    for (form, exposed) in [("supervisor", false), ("same-container", true)] {
        let notes = notes(form);
        assert!(notes.contains("in the leader's pod only"), "{notes}");
        let warns = notes.contains("the token of the service account");
        assert_eq!(warns, exposed, "{form}: {notes}");
        assert!(!notes.contains("status.json"), "{notes}");
    }
    assert!(notes("minimal").contains("helm test orders"));
    assert!(!notes("job").contains("helm test"));
    assert!(notes("leases").contains(" billing shop.orders-reports"));
    let lock = notes("cron-job");
    assert!(lock.contains("runs under the lock shop.orders"), "{lock}");
    assert!(!lock.contains("the leader"), "{lock}");
}

#[test]
fn a_packaged_chart_contains_the_library() {
    let directory = tempfile::tempdir().unwrap();
    let places = [directory.path(), &helm::chart()];
    helm::succeed(tool("helm").args(["package", "--destination"]).args(places));
    let package = format!("leasehold-{}.tgz", env!("CARGO_PKG_VERSION"));
    let package = directory.path().join(package);
    let file = helm::values("minimal");
    let rendered = helm::render_chart(&package, &["--values", file.to_str().unwrap()]);
    assert_eq!(rendered, render("minimal", &[]));
}

#[test]
fn a_package_leaves_out_files_of_editors_and_of_git() {
    let directory = tempfile::tempdir().unwrap();
    for chart in helm::CHARTS {
        let (from, copy) = (
            root().join("charts").join(chart),
            directory.path().join(chart),
        );
        helm::succeed(Command::new("cp").arg("-rL").args([&from, &copy]));
        fs::create_dir(copy.join(".git")).unwrap();
        for junk in [
            ".git/config",
            ".DS_Store",
            "values.yaml.swp",
            "templates/a.yaml~",
        ] {
            fs::write(copy.join(junk), "a: b").unwrap();
        }
        let places = [directory.path(), &copy];
        helm::succeed(tool("helm").args(["package", "--destination"]).args(places));
        let package = format!("{chart}-{}.tgz", env!("CARGO_PKG_VERSION"));
        let package = directory.path().join(package);
        let files = helm::succeed(Command::new("tar").arg("-tzf").arg(package));
        assert!(files.contains(&format!("{chart}/README.md")), "{files}");
        for junk in [".git", ".DS_Store", ".swp", "~"] {
            assert!(!files.contains(junk), "{junk}: {files}");
        }
    }
}

#[test]
fn the_error_about_a_missing_alias_names_it() {
    let own = tempfile::tempdir().unwrap();
    fs::create_dir_all(own.path().join("templates")).unwrap();
    fs::create_dir(own.path().join("charts")).unwrap();
    let library = root().join("charts/leasehold-sidecar");
    std::os::unix::fs::symlink(library, own.path().join("charts/leasehold-sidecar")).unwrap();
    let chart = "apiVersion: v2\nname: own\nversion: 0.1.0\ndependencies:\n- name: leasehold-sidecar\n  version: 0.1.0\n  repository: file://x\n";
    fs::write(own.path().join("Chart.yaml"), chart).unwrap();
    let template = "{{ include \"leasehold.sidecar\" . }}";
    fs::write(own.path().join("templates/a.yaml"), template).unwrap();
    let complaint = helm::render_chart(own.path(), &[]).unwrap_err();
    assert!(complaint.contains("alias: leasehold"), "{complaint}");
}

#[test]
fn the_charts_have_the_version_of_the_daemon() {
    let version = env!("CARGO_PKG_VERSION");
    for chart in helm::CHARTS {
        let path = root().join("charts").join(chart).join("Chart.yaml");
        let text = fs::read_to_string(path).unwrap();
        let stated = format!("\nappVersion: {version}\n");
        assert!(text.contains(&stated), "{chart}");
    }
    let image = Objects::of("minimal", &[]).sidecar()["image"].clone();
    assert_eq!(image, format!("registry.example/leasehold:{version}"));
}

#[test]
fn every_value_has_a_comment() {
    for chart in helm::CHARTS {
        let path = root().join("charts").join(chart).join("values.yaml");
        let text = fs::read_to_string(path).unwrap();
        let lines: Vec<_> = text.lines().collect();
        let mut values = 0;
        // A map without a comment only groups values. A map with a comment counts as one value, and
        // the comment describes the map's contents.
        let mut passed_on = None;
        for (index, line) in lines.iter().enumerate() {
            let indent = line.len() - line.trim_start().len();
            if line.trim().is_empty() || line.trim_start().starts_with(['#', '-']) {
                continue;
            }
            if passed_on.is_some_and(|outer| indent > outer) {
                continue;
            }
            let commented = index > 0 && lines[index - 1].trim_start().starts_with('#');
            passed_on = None;
            if line.ends_with(':') {
                passed_on = commented
                    .then_some(indent)
                    .filter(|_| !line.starts_with("leasehold"));
                continue;
            }
            assert!(commented, "{chart}: {line}");
            values += 1;
        }
        let least = if chart == "leasehold-cluster" { 3 } else { 21 };
        assert!(values >= least, "{chart}: {values}");
    }
}
