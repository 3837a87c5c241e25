//! Goal: the connection string comes from a Secret or from a file that a CSI driver or an agent
//! mounts, in every mode, and each container that runs leasehold reads it. Method: parses helm's
//! output for each mode with both sources.

use serde_json::Value;

use crate::documented::documented;
use crate::helm::{Objects, refused, render};

const FILE: [&str; 3] = [
    r#"leasehold.mongodb={"secretName":"","uriFile":"/mnt/secrets/uri"}"#,
    r#"leasehold.extraVolumes=[{"name":"secrets","csi":{"driver":"secrets-store.csi.k8s.io","readOnly":true}}]"#,
    r#"leasehold.extraVolumeMounts=[{"name":"secrets","mountPath":"/mnt/secrets","readOnly":true}]"#,
];

const FROM_FILE: &str = "--mongodb-uri-file=/mnt/secrets/uri";
const FROM_SECRET: &str = "--mongodb-uri-file=/etc/leasehold/mongodb/uri";

fn containers(objects: &Objects) -> Vec<&Value> {
    let pod = objects.pod();
    let lists = ["initContainers", "containers"].map(|list| pod[list].as_array().unwrap());
    let all = lists.into_iter().flatten();
    all.filter(|container| {
        container["args"]
            .to_string()
            .contains("--mongodb-uri-file=")
    })
    .collect()
}

fn mounts(container: &Value, name: &str) -> bool {
    let mounts = container["volumeMounts"].as_array().unwrap();
    mounts.iter().any(|mount| mount["name"] == name)
}

#[test]
fn a_file_replaces_the_secret_in_every_mode() {
    for (installation, count) in [
        ("minimal", 1),
        ("supervisor", 1),
        ("same-container", 1),
        ("cron-job", 1),
        ("leases", 3),
    ] {
        for (changes, flag, volume) in [
            (&FILE[..], FROM_FILE, "secrets"),
            (&[], FROM_SECRET, "leasehold-mongodb"),
        ] {
            let objects = Objects::of(installation, changes);
            let containers = containers(&objects);
            assert_eq!(containers.len(), count, "{installation}");
            for container in containers {
                let args = container["args"].as_array().unwrap();
                assert!(args.contains(&Value::from(flag)), "{installation}");
                assert!(mounts(container, volume), "{installation}: {volume}");
                let secret = flag == FROM_SECRET;
                assert_eq!(mounts(container, "leasehold-mongodb"), secret);
            }
            let volumes = objects.pod()["volumes"].to_string();
            assert!(volumes.contains(&format!("{volume:?}")), "{volumes}");
            let secret = volumes.contains("\"secretName\"");
            assert_eq!(secret, flag == FROM_SECRET, "{installation}: {volumes}");
        }
    }
}

#[test]
fn the_page_and_injected_pods_read_the_file_too() {
    let objects = Objects::of("platform", &[]);
    let page = &objects.named("Deployment", "orders-web")["spec"]["template"]["spec"];
    let args = page["containers"][0]["args"].to_string();
    assert!(
        args.contains("--mongodb-uri-file=/mnt/secrets/web-uri"),
        "{args}"
    );
    assert!(mounts(&page["containers"][0], "secrets"));
    assert!(!page.to_string().contains("leasehold-mongodb"), "{page}");

    let objects = Objects::of("injector", &FILE);
    let policy = objects.one("MutatingAdmissionPolicy").to_string();
    for text in [FROM_FILE, "secrets-store.csi.k8s.io"] {
        assert!(policy.contains(text), "{text}: {policy}");
    }
    assert!(!policy.contains("leasehold-mongodb"), "{policy}");
}

#[test]
fn two_sources_or_none_are_refused() {
    refused(
        r#"
        minimal: leasehold.mongodb.uriFile="/mnt/uri"
            leasehold.mongodb.secretName is orders-mongodb and leasehold.mongodb.uriFile is /mnt/uri
            leave one of them out

        minimal: leasehold.mongodb.secretName=""
            set leasehold.mongodb.secretName
            or leasehold.mongodb.uriFile

        web: web.mongodb.uriFile="/mnt/uri"
            web.mongodb.secretName is orders-web-mongodb and web.mongodb.uriFile is /mnt/uri

        web: web.mongodb.secretName=""
            or web.mongodb.uriFile

        minimal: leasehold.mongodb.uriFile="mnt/uri"
            '/leasehold/mongodb/uriFile'

        minimal: leasehold.mongodb.uriFile="/mnt/secrets/"
            '/leasehold/mongodb/uriFile'

        web: web.mongodb.uriFile="uri"
            '/web/mongodb/uriFile'

        minimal: leasehold.mongodb.uri_file="/mnt/uri"
            'uri_file' not allowed

        minimal: leasehold.config.mongodb.uri_file="/mnt/uri"
            set leasehold.mongodb.uriFile
        "#,
    );
    render("minimal", &FILE).unwrap();
}

/// In vault.yaml, the values have only a path and annotations, because Vault's agent mounts the file
/// itself. csi.yaml adds a volume of the CSI driver.
#[test]
fn the_documented_values_need_no_secret() {
    for (file, path) in [
        ("vault.yaml", "/vault/secrets/uri"),
        ("csi.yaml", "/mnt/secrets/uri"),
    ] {
        let objects = documented(file, Some("minimal"));
        assert!(objects.has_flag(&format!("--mongodb-uri-file={path}")));
        let volumes = objects.pod()["volumes"].to_string();
        assert!(!volumes.contains("\"secretName\""), "{volumes}");
        let driver = volumes.contains("secrets-store.csi.k8s.io");
        assert_eq!(driver, file == "csi.yaml", "{volumes}");
    }
    let vault = documented("vault.yaml", Some("minimal"));
    let annotations = &vault.template()["metadata"]["annotations"];
    // leasehold is an init container, so the agent must run before it.
    let first = &annotations["vault.hashicorp.com/agent-init-first"];
    assert_eq!(first, "true");
}
