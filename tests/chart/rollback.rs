//! Goal: `helm rollback`, which renders no templates, has the effect that the table in
//! docs/kubernetes.md states, for each change that an upgrade checks. An injector's collection must
//! not change while injected pods may be using it. Method: runs helm 3 and 4 on a real API server.

use k8s_openapi::api::apps::v1::Deployment;
use kube::api::{Api, ApiResource, DeleteParams, DynamicObject, GroupVersionKind};
use leasehold_testbed::{assert_contains, run};

use crate::release::Place;

/// Values that an upgrade changes and a rollback restores.
struct Change {
    values: &'static str,
    /// Values of an upgrade that must precede the change. If `None`, the test deletes the
    /// Deployment instead.
    before: Option<&'static str>,
    refused: bool,
}

const NO_PODS: Option<&str> = Some("deployment.replicas=0");

const CHANGES: [Change; 7] = [
    Change {
        values: "leasehold.leaseName=else",
        before: None,
        refused: true,
    },
    Change {
        values: "leasehold.config.mongodb.database=else",
        before: None,
        refused: true,
    },
    Change {
        values: "leasehold.config.mongodb.collection=else",
        before: None,
        refused: true,
    },
    Change {
        values: "fullnameOverride=web",
        before: NO_PODS,
        refused: false,
    },
    Change {
        values: "workload.kind=StatefulSet,leasehold.leaseName=else",
        before: NO_PODS,
        refused: false,
    },
    Change {
        values: "leasehold.extraLeases.reports.leaseName=else",
        before: NO_PODS,
        refused: false,
    },
    Change {
        values: "leasehold.kubernetes.labelPrefix=lead.example.com",
        before: NO_PODS,
        refused: false,
    },
];

#[test]
fn a_rollback_past_each_change_is_refused_or_accepted_as_documented() {
    run(async {
        for version in ["helm", "helm3"] {
            let place = Place::new().await;
            let deployments: Api<Deployment> = place.kubernetes.objects(&place.namespace);
            for (index, change) in CHANGES.iter().enumerate() {
                let release = format!("orders-{index}");
                let with = |verb: &str, more: &str| {
                    let port = "leasehold.extraLeases.reports.port=9403";
                    let values = ["--set", port, "--set", more];
                    place.chart_of(version, verb, &release, &values)
                };
                with("install", "deployment.replicas=1").unwrap();
                with("upgrade", change.values).unwrap_err();
                match change.before {
                    Some(values) => drop(with("upgrade", values).unwrap()),
                    None => place.delete::<Deployment>(&release).await,
                }
                with("upgrade", change.values).unwrap();
                let back = place.helm_of(version, &["rollback", &release, "1"]);
                if change.refused {
                    assert_contains(&back.unwrap_err(), "field is immutable");
                    continue;
                }
                back.unwrap_or_else(|error| panic!("{version} {}: {error}", change.values));
                let there = deployments.get(&release).await.unwrap();
                assert_eq!(there.spec.unwrap().replicas, Some(1));
            }
        }
    });
}

/// If the lease of a key could change, a rollback would run pods with the old lease and pods with
/// the new lease at the same time.
#[test]
fn a_key_of_additional_leases_keeps_its_lease_after_its_removal() {
    run(async {
        for version in ["helm", "helm3"] {
            let place = Place::new().await;
            let port = "leasehold.extraLeases.reports.port=9403";
            let with = |verb: &str, more: &[&str]| {
                let values: Vec<_> = more.iter().flat_map(|set| ["--set", set]).collect();
                place.chart_of(version, verb, "orders", &values)
            };
            with("install", &[port]).unwrap();
            with("upgrade", &[]).unwrap();
            with("upgrade", &["workload.args={--serve}"]).unwrap();
            let other = [port, "leasehold.extraLeases.reports.leaseName=second"];
            let refused = with("upgrade", &other).unwrap_err();
            let first = format!("contend for the lease {}.orders-reports", place.namespace);
            for words in [&first, "use another key", "or a rollback"] {
                assert_contains(&refused, words);
            }
            with("upgrade", &[port]).unwrap();
            // A new key may have any lease.
            let key = "leasehold.extraLeases.second.port=9404";
            with("upgrade", &[key]).unwrap();
            place
                .helm_of(version, &["rollback", "orders", "1"])
                .unwrap();
        }
    });
}

/// Injected pods belong to other users' workloads. If the database could change, each rollout of
/// these workloads would temporarily have pods on both databases.
#[test]
fn an_injector_keeps_its_collection_while_pods_may_use_it() {
    run(async {
        for version in ["helm", "helm3"] {
            let place = Place::new().await;
            let namespace = &place.namespace;
            let only = format!(
                r#"inject={{"enabled":true,"namespaceSelector":{{"matchLabels":{{"kubernetes.io/metadata.name":"{namespace}"}}}}}}"#
            );
            let with = |verb: &str, more: &[&str]| {
                let only = ["--set", "deployment.enabled=false", "--set-json", &only];
                let values = [&only[..], more].concat();
                place.chart_of(version, verb, "injector", &values)
            };
            with("install", &[]).unwrap();
            with("upgrade", &["--set", "leasehold.config.log.level=debug"]).unwrap();
            let other = ["--set", "leasehold.config.mongodb.database=other"];
            let refused = with("upgrade", &other).unwrap_err();
            let policy = format!("injector.{namespace}.leasehold.inject");
            for words in [
                "injected pods contend in leasehold.leases, and new ones would contend in other.leases",
                &format!("kubectl delete mutatingadmissionpolicy {policy}"),
            ] {
                assert_contains(&refused, words);
            }
            let kind = GroupVersionKind::gvk(
                "admissionregistration.k8s.io",
                "v1",
                "MutatingAdmissionPolicy",
            );
            let client = place.kubernetes.client();
            let policies: Api<DynamicObject> = Api::all_with(client, &ApiResource::from_gvk(&kind));
            policies
                .delete(&policy, &DeleteParams::default())
                .await
                .unwrap();
            with("upgrade", &other).unwrap();
            place.helm_of(version, &["uninstall", "injector"]).unwrap();
        }
    });
}
