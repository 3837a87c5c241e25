//! Goal: the charts' metadata for registries is complete, valid and true.

use std::fs;

use serde_json::Value;

use crate::helm::root;

fn metadata(chart: &str) -> Value {
    let path = root().join("charts").join(chart).join("Chart.yaml");
    serde_saphyr::from_str(&fs::read_to_string(path).unwrap()).unwrap()
}

const CATEGORIES: [&str; 9] = [
    "ai-machine-learning",
    "database",
    "integration-delivery",
    "monitoring-logging",
    "networking",
    "security",
    "skip-prediction",
    "storage",
    "streaming-messaging",
];

#[test]
fn the_annotations_have_the_format_of_artifact_hub() {
    for chart in ["leasehold", "leasehold-sidecar"] {
        let chart = metadata(chart);
        let annotations = chart["annotations"].as_object().unwrap();
        for (key, value) in annotations {
            assert!(key.starts_with("artifacthub.io/"), "{key}");
            // The value must be a string, even if the string contains a YAML list.
            assert!(value.is_string(), "{key}: {value}");
        }
        let category = annotations["artifacthub.io/category"].as_str().unwrap();
        assert!(CATEGORIES.contains(&category), "{category}");
        let manifest = fs::read_to_string(root().join("Cargo.toml")).unwrap();
        let license = annotations["artifacthub.io/license"].as_str().unwrap();
        assert!(
            manifest.contains(&format!("license = \"{license}\"")),
            "{license}"
        );
        let changes = annotations["artifacthub.io/changes"].as_str().unwrap();
        let changes: Vec<Value> = serde_saphyr::from_str(changes).unwrap();
        assert!(!changes.is_empty());
        for change in changes {
            let kind = change["kind"].as_str().unwrap();
            let kinds = [
                "added",
                "changed",
                "deprecated",
                "removed",
                "fixed",
                "security",
            ];
            assert!(kinds.contains(&kind), "{kind}");
            assert!(change["description"].is_string(), "{change}");
        }
    }
}

/// Cargo.toml forbids publication, so the charts must not name a registry yet.
#[test]
fn no_metadata_names_a_registry_before_publication() {
    let manifest = fs::read_to_string(root().join("Cargo.toml")).unwrap();
    assert!(
        manifest.contains("\npublish = false\n"),
        "add home, sources, icon and maintainers to the charts"
    );
    for chart in ["leasehold", "leasehold-sidecar"] {
        let chart = metadata(chart);
        for key in ["home", "sources", "icon", "maintainers"] {
            assert!(chart.get(key).is_none(), "{key}");
        }
        let annotations = chart["annotations"].as_object().unwrap();
        for key in ["images", "links", "screenshots", "signKey"] {
            assert!(
                !annotations.contains_key(&format!("artifacthub.io/{key}")),
                "{key}"
            );
        }
        assert_eq!(annotations["artifacthub.io/prerelease"], "true");
    }
}

#[test]
fn both_charts_need_the_kubernetes_version_whose_features_they_use() {
    for chart in ["leasehold", "leasehold-sidecar"] {
        assert_eq!(metadata(chart)["kubeVersion"], ">=1.30.0-0");
    }
}
