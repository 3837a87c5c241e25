//! Goal: a chart that depends on the library may have its own values. If the library cannot use a
//! value, the error names this value. Method: renders the documented chart with various values,
//! with helm 3 and 4.

use std::fs;
use std::os::unix::fs::symlink;

use leasehold_testbed::assert_contains;
use tempfile::TempDir;

use crate::documented::block;
use crate::helm::{Objects, render_by, root};

const VERSIONS: [&str; 2] = ["helm", "helm3"];

/// Creates the chart of docs/kubernetes.md, and adds the library's other templates that read the
/// chart's own values.
fn own() -> TempDir {
    let own = tempfile::tempdir().unwrap();
    let path = own.path();
    for directory in ["templates", "charts"] {
        fs::create_dir(path.join(directory)).unwrap();
    }
    let library = root().join("charts/leasehold-sidecar");
    symlink(library, path.join("charts/leasehold-sidecar")).unwrap();
    for file in ["Chart.yaml", "templates/deployment.yaml", "values.yaml"] {
        fs::write(path.join(file), block("docs/kubernetes.md", file)).unwrap();
    }
    let more = r#"{{ include "leasehold.rules" . }}
---
kind: Note
secrets:
  {{- include "leasehold.imagePullSecrets" . | nindent 2 }}
"#;
    fs::write(path.join("templates/more.yaml"), more).unwrap();
    own
}

#[test]
fn values_of_the_chart_itself_are_used_or_refused_by_name() {
    let own = own();
    for version in VERSIONS {
        let render = |change: &str| render_by(version, own.path(), &["--set-json", change]);
        for accepted in [
            "deployment=true",
            r#"deployment="orders""#,
            "deployment=[1]",
            r#"deployment={"replicas":{"min":1}}"#,
            "commonLabels=null",
            "imagePullSecrets=null",
            "leasehold.enabled=true",
        ] {
            let rendered = render(accepted).unwrap_or_else(|error| panic!("{accepted}: {error}"));
            assert_contains(&rendered, "absent(leasehold_leader");
        }
        // As in charts/leasehold, no alert expects a leader if the release has no replicas.
        let scaled = render(r#"deployment={"replicas":0}"#).unwrap();
        assert!(!scaled.contains("absent(leasehold_leader"), "{scaled}");
        let secrets = render(r#"imagePullSecrets=[{"name":"a"},"b"]"#).unwrap();
        let secrets = Objects::parse(&secrets).one("Note")["secrets"].to_string();
        assert_contains(&secrets, r#"[{"name":"a"},{"name":"b"}]"#);
        for (change, complaint) in [
            ("global=true", "global is true, not a map"),
            (
                r#"global={"imageRegistry":5}"#,
                "global.imageRegistry is 5, not a string: quote it",
            ),
            (
                r#"global={"imagePullSecrets":"a"}"#,
                "global.imagePullSecrets is a, not a list",
            ),
            (
                r#"imagePullSecrets="a""#,
                "imagePullSecrets is a, not a list",
            ),
            (
                r#"imagePullSecrets=[{"secret":"a"}]"#,
                "an item of imagePullSecrets has no name",
            ),
            (
                "nameOverride=5",
                "nameOverride is 5, not a string: quote it",
            ),
            (
                r#"fullnameOverride={"a":"b"}"#,
                "fullnameOverride is map[a:b], not a string",
            ),
            (r#"commonLabels=["a"]"#, "commonLabels is [a], not a map"),
            (
                r#"commonLabels={"a":1}"#,
                "commonLabels.a is 1, not a string: quote it",
            ),
            (
                "leasehold.enabled=false",
                "leasehold.enabled is false, and has no effect",
            ),
        ] {
            assert_contains(&render(change).unwrap_err(), complaint);
        }
    }
}

/// If a chart depends on another chart twice, Helm 3 passes the values of the second use under the
/// dependency's name instead of its alias.
#[test]
fn a_chart_that_uses_the_library_can_be_a_dependency_twice() {
    let own = own();
    let around = tempfile::tempdir().unwrap();
    let path = around.path();
    fs::create_dir(path.join("charts")).unwrap();
    symlink(own.path(), path.join("charts/billing")).unwrap();
    let chart = "apiVersion: v2\nname: shop\nversion: 1.0.0\ndependencies:
- {name: billing, alias: first, version: 1.0.0, repository: file://x}
- {name: billing, alias: second, version: 1.0.0, repository: file://x}\n";
    fs::write(path.join("Chart.yaml"), chart).unwrap();
    let render = |version| render_by(version, path, &[]);
    let leases = |rendered: &str| rendered.matches("--lease-name=shop.orders-").count();
    assert_eq!(leases(&render("helm").unwrap()), 2);
    let remedy = "use helm 4, or copy values.yaml of leasehold-sidecar into values.yaml of second";
    assert_contains(&render("helm3").unwrap_err(), remedy);

    let library = root().join("charts/leasehold-sidecar/values.yaml");
    let defaults = fs::read_to_string(library).unwrap();
    let defaults = defaults.replace("repository: \"\"", "repository: registry.example/leasehold");
    let defaults = defaults.replace("secretName: \"\"", "secretName: billing-mongodb");
    let values = format!("leasehold:\n  {}", defaults.replace('\n', "\n  "));
    fs::write(own.path().join("values.yaml"), values).unwrap();
    assert_eq!(leases(&render("helm3").unwrap()), 2);
}
