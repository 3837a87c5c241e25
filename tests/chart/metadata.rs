//! Goal: the charts' metadata for registries is complete, valid and true.

use std::fs;

use serde_json::Value;

use crate::helm::{CHARTS, root};

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
    for chart in CHARTS {
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

/// `packaging/owner` writes the values; tests/release_check.rs compares them.
#[test]
fn the_charts_name_their_publisher() {
    for chart in CHARTS {
        let chart = metadata(chart);
        for key in ["home", "icon"] {
            let address = chart[key].as_str().unwrap();
            assert!(address.starts_with("https://"), "{key}: {address}");
        }
        assert!(chart["sources"][0].is_string());
        let maintainer = &chart["maintainers"][0];
        assert!(maintainer["name"].is_string() && maintainer["email"].is_string());
    }
}

#[test]
fn the_charts_need_the_kubernetes_version_whose_features_they_use() {
    for chart in CHARTS {
        assert_eq!(metadata(chart)["kubeVersion"], ">=1.30.0-0");
    }
}
