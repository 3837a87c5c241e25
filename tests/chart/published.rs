//! Goal: the chart never renders an object or a field that Kubernetes refuses. Method: runs
//! kubeconform in strict mode with the real API server's schemas (including the Prometheus
//! operator's and the Gateway API's definitions), and a dry run of a server-side apply, because a server-side apply
//! refuses unknown fields.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use http::Request;
use leasehold_testbed::wait::found;
use leasehold_testbed::{Kubernetes, run};
use serde_json::{Map, Value, json};

use crate::cluster::render;
use crate::helm::{INSTALLATIONS, Objects, root, text, tool};

fn openapi_path(api_version: &str) -> String {
    match api_version.contains('/') {
        true => format!("/openapi/v3/apis/{api_version}"),
        false => format!("/openapi/v3/api/{api_version}"),
    }
}

/// Returns kubeconform's file name for the schema of a kind.
fn file_name(kind: &str, api_version: &str) -> String {
    let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
    let group = group.split('.').next().unwrap_or_default();
    let suffix: String = [group, version]
        .iter()
        .filter(|part| !part.is_empty())
        .map(|part| format!("-{part}"))
        .collect();
    format!("{}{suffix}.json", kind.to_lowercase())
}

fn tighten(schema: &mut Value) {
    match schema {
        Value::Object(fields) => {
            if let Some(Value::String(reference)) = fields.get_mut("$ref") {
                *reference = reference.replace("#/components/schemas/", "#/definitions/");
            }
            let open = fields.contains_key("additionalProperties")
                || fields.contains_key("x-kubernetes-preserve-unknown-fields");
            if fields.get("properties").is_some_and(Value::is_object) && !open {
                fields.insert("additionalProperties".to_owned(), json!(false));
            }
            fields.values_mut().for_each(tighten);
        }
        Value::Array(items) => items.iter_mut().for_each(tighten),
        _ => {}
    }
}

/// Writes the schemas of all kinds of a group and version. Returns the number of schemas.
fn write_schemas(document: &Value, api_version: &str, directory: &Path) -> usize {
    let mut definitions = document["components"]["schemas"].clone();
    tighten(&mut definitions);
    let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
    let mut written = 0;
    for (name, schema) in definitions.as_object().unwrap() {
        let kinds = schema["x-kubernetes-group-version-kind"].as_array();
        for kind in kinds.map_or(&[][..], Vec::as_slice) {
            if kind["group"] != group || kind["version"] != version {
                continue;
            }
            let mut file = Map::new();
            file.insert("$ref".to_owned(), json!(format!("#/definitions/{name}")));
            file.insert("definitions".to_owned(), definitions.clone());
            let path = directory.join(file_name(kind["kind"].as_str().unwrap(), api_version));
            fs::write(path, Value::Object(file).to_string()).unwrap();
            written += 1;
        }
    }
    written
}

/// Installs the CRDs of the Prometheus operator and of the Gateway API, and waits until the API server serves them.
async fn define(kubernetes: &Kubernetes) {
    for file in [
        "podmonitors",
        "servicemonitors",
        "prometheusrules",
        "httproutes",
    ] {
        let path = root().join(format!("tests/chart/crds/{file}.yaml"));
        let definition = fs::read_to_string(path).unwrap();
        kubernetes.apply("default", &definition).await;
    }
    found("the kinds are served", async || {
        for (version, kinds) in [
            (
                "monitoring.coreos.com/v1",
                &["PodMonitor", "ServiceMonitor", "PrometheusRule"][..],
            ),
            ("gateway.networking.k8s.io/v1", &["HTTPRoute"]),
        ] {
            let served = openapi(kubernetes, version).await?.to_string();
            if !kinds
                .iter()
                .all(|kind| served.contains(&format!("{kind:?}")))
            {
                return None;
            }
        }
        Some(())
    })
    .await;
}

async fn openapi(kubernetes: &Kubernetes, api_version: &str) -> Option<Value> {
    let request = Request::get(openapi_path(api_version))
        .body(Vec::new())
        .unwrap();
    let document = kubernetes.client().request_text(request).await.ok()?;
    serde_json::from_str(&document).ok()
}

fn kubeconform(schemas: &Path, manifests: &str) -> Result<String, String> {
    let file = tempfile::NamedTempFile::with_suffix(".yaml").unwrap();
    fs::write(file.path(), manifests).unwrap();
    let location = format!(
        "{}/{{{{ .ResourceKind }}}}{{{{ .KindSuffix }}}}.json",
        schemas.display()
    );
    let output = tool("kubeconform")
        .args(["-strict", "-summary", "-schema-location", &location])
        .arg(file.path())
        .output()
        .unwrap();
    let said = text(&output);
    if output.status.success() {
        Ok(said)
    } else {
        Err(said)
    }
}

#[test]
fn kubeconform_finds_no_unknown_field() {
    run(async {
        let kubernetes = Kubernetes::shared().await;
        define(&kubernetes).await;
        let directory = tempfile::tempdir().unwrap();
        let mut versions = BTreeSet::new();
        for installation in INSTALLATIONS {
            for object in Objects::of(installation, &[]).iter() {
                versions.insert(object["apiVersion"].as_str().unwrap().to_owned());
            }
        }
        for version in &versions {
            let document = openapi(&kubernetes, version).await.unwrap();
            assert!(
                write_schemas(&document, version, directory.path()) > 0,
                "{version}"
            );
        }
        for installation in INSTALLATIONS {
            let manifests = render(installation, "shop", &[]);
            let summary = kubeconform(directory.path(), &manifests);
            let summary = summary.unwrap_or_else(|said| panic!("{installation}: {said}"));
            assert!(summary.contains("Skipped: 0"), "{summary}");
            let wrong = manifests.replacen("automountServiceAccountToken:", "automountToken:", 1);
            if wrong != manifests {
                let said = kubeconform(directory.path(), &wrong).unwrap_err();
                assert!(said.contains("automountToken"), "{said}");
            }
        }
    });
}

#[test]
fn the_api_server_accepts_everything_in_a_dry_run() {
    run(async {
        let kubernetes = Kubernetes::shared().await;
        define(&kubernetes).await;
        let namespace = kubernetes.namespace().await;
        for installation in INSTALLATIONS {
            let manifests = render(installation, &namespace, &[]);
            let accepted = kubernetes.dry_run(&namespace, &manifests).await;
            let accepted = accepted.unwrap_or_else(|error| panic!("{installation}: {error}"));
            assert_eq!(accepted.len(), Objects::parse(&manifests).iter().count());
        }
        let manifests = render("minimal", &namespace, &[]);
        let wrong = manifests.replacen("enableServiceLinks:", "enableLinks:", 1);
        let refused = kubernetes.dry_run(&namespace, &wrong).await.unwrap_err();
        assert!(refused.to_string().contains("enableLinks"), "{refused}");
    });
}
