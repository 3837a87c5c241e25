//! Goal: after a dependency's alias changes, new pods never lead at the same time as old pods, and
//! two releases never share a lease by accident. Method: installs and upgrades our chart, and
//! charts that depend on it, with helm on a real API server.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use leasehold_testbed::{assert_contains, run};
use tempfile::TempDir;

use crate::helm::{chart, values};
use crate::release::{Place, path};

/// Creates a chart that depends on our chart under these aliases, with the minimal values for each
/// alias.
fn umbrella(aliases: &[&str]) -> TempDir {
    let around = tempfile::tempdir().unwrap();
    depend(around.path(), "shop", aliases, None);
    around
}

/// Writes a chart that depends on our chart under these aliases. If the value `inner.enabled` is
/// true, the chart also depends on the chart `inner`.
fn depend(directory: &Path, name: &str, aliases: &[&str], inner: Option<&str>) {
    fs::create_dir_all(directory.join("charts")).unwrap();
    symlink(chart(), directory.join("charts/leasehold")).unwrap();
    let minimal = fs::read_to_string(values("minimal")).unwrap();
    let minimal = minimal.replace('\n', "\n  ");
    let mut text = format!("apiVersion: v2\nname: {name}\nversion: 1.0.0\ndependencies:\n");
    let mut given = String::new();
    for alias in aliases {
        let version = env!("CARGO_PKG_VERSION");
        text += &format!(
            "- {{name: leasehold, alias: {alias}, version: {version}, repository: file://x}}\n"
        );
        given += &format!("{alias}:\n  {minimal}\n");
    }
    if let Some(inner) = inner {
        text += &format!(
            "- {{name: {inner}, version: 1.0.0, repository: file://x, condition: {inner}.enabled}}\n"
        );
        given += &format!("{inner}: {{enabled: false}}\n");
    }
    fs::write(directory.join("Chart.yaml"), text).unwrap();
    fs::write(directory.join("values.yaml"), given).unwrap();
}

#[test]
fn a_change_of_a_dependencys_alias_is_refused_while_old_pods_run() {
    run(async {
        for version in ["helm", "helm3"] {
            let place = Place::new().await;
            let helm = |verb: &str, aliases: &[&str], more: &[&str]| {
                let chart = umbrella(aliases);
                place.helm_of(
                    version,
                    &[&[verb, "prod", path(chart.path())], more].concat(),
                )
            };
            helm("install", &["orders"], &[]).unwrap();
            let refused = helm("upgrade", &["sales"], &[]).unwrap_err();
            let namespace = &place.namespace;
            for words in [
                &format!("contend for the lease {namespace}.prod-orders in leasehold.leases"),
                &format!("would contend for the lease {namespace}.prod-sales"),
                "set deployment.replicas to 0 in an update of the Deployment prod-orders before",
            ] {
                assert_contains(&refused, words);
            }
            // Adding or removing an instance does not count as a rename.
            helm("upgrade", &["orders", "billing"], &[]).unwrap();
            let refused = helm("upgrade", &["sales", "billing"], &[]).unwrap_err();
            assert_contains(&refused, "an update of the Deployment prod-orders before");
            helm("upgrade", &["orders"], &[]).unwrap();

            // A rename is allowed if the new pods contend for the old pods' lease.
            let lease = format!("sales.leasehold.leaseName={namespace}.prod-orders");
            helm("upgrade", &["sales"], &["--set", &lease]).unwrap();
            helm(
                "upgrade",
                &["sales"],
                &["--set", &lease, "--set", "sales.deployment.replicas=0"],
            )
            .unwrap();
            helm("upgrade", &["orders"], &[]).unwrap();
        }
    });
}

#[test]
fn a_chart_that_becomes_a_dependency_is_refused_while_its_pods_run() {
    run(async {
        let place = Place::new().await;
        place.chart("install", "one", &[]).unwrap();
        let around = umbrella(&["orders"]);
        let into = || place.helm_of("helm", &["upgrade", "one", path(around.path())]);
        let remedy = "set deployment.replicas to 0 in an update of the Deployment one before";
        assert_contains(&into().unwrap_err(), remedy);
        place
            .chart("upgrade", "one", &["--set", "deployment.replicas=0"])
            .unwrap();
        into().unwrap();
        let back = place.chart("upgrade", "one", &[]).unwrap_err();
        assert_contains(&back, "an update of the Deployment one-orders before");
    });
}

/// helm renders the deepest chart first, so the nested instance may be rendered before the other
/// instances.
#[test]
fn adding_and_removing_an_instance_in_a_nested_chart_is_not_a_rename() {
    run(async {
        let around = tempfile::tempdir().unwrap();
        let mut directory = around.path().to_owned();
        let levels = ["shop", "one", "two", "three", "four", "five"];
        for (depth, level) in levels.into_iter().enumerate() {
            let inner = levels.get(depth + 1).copied();
            depend(&directory, level, &[&format!("{level}-web")], inner);
            directory = directory.join("charts").join(inner.unwrap_or_default());
        }
        let down_to = |depth: usize| {
            let path = |end: usize| format!("{}.enabled=true", levels[1..=end].join("."));
            let on: Vec<_> = (1..=depth).map(path).collect();
            on.join(",")
        };
        for version in ["helm", "helm3"] {
            let place = Place::new().await;
            let helm = |verb: &str, depth: usize| {
                let (shop, values) = (path(around.path()), down_to(depth));
                let done = place.helm_of(version, &[verb, "prod", shop, "--set", &values]);
                done.unwrap_or_else(|error| panic!("{version} {verb} {depth}: {error}"))
            };
            helm("install", 0);
            for depth in [1, 5, 2, 0, 3, 0] {
                helm("upgrade", depth);
            }
        }
    });
}

#[test]
fn two_releases_share_a_lease_only_if_one_of_them_names_it() {
    run(async {
        for version in ["helm", "helm3"] {
            let place = Place::new().await;
            let with = |verb: &str, release: &str, set: &[&str]| {
                let values: Vec<_> = set.iter().flat_map(|set| ["--set", set]).collect();
                place.chart_of(version, verb, release, &values)
            };
            let port = "leasehold.extraLeases.reports.port=9403";
            with("install", "orders", &[port]).unwrap();
            let shared = format!("{}.orders-reports", place.namespace);
            let refused = with("install", "orders-reports", &[]).unwrap_err();
            for words in [
                &format!("the release orders also contends for {shared} in leasehold.leases"),
                &format!("set leasehold.leaseName to another name, or to {shared} to share it"),
            ] {
                assert_contains(&refused, words);
            }
            let lock = [
                "mode=supervisor,workload.kind=CronJob,workload.command={/report},cronJob.schedule=@daily",
            ];
            assert_contains(
                &with("install", "orders-reports", &lock).unwrap_err(),
                &shared,
            );

            let other = "leasehold.leaseName=reports";
            with("install", "orders-reports", &[other]).unwrap();
            place
                .helm_of(version, &["uninstall", "orders-reports"])
                .unwrap();
            let named = format!("leasehold.leaseName={shared}");
            with("install", "orders-reports", &[&named]).unwrap();
            with("upgrade", "orders", &[port]).unwrap();
            place.helm_of(version, &["uninstall", "orders"]).unwrap();
            with("upgrade", "orders-reports", &[]).unwrap();
            let key = "leasehold.extraLeases.reports.leaseName";
            let refused = with("install", "orders", &[port]).unwrap_err();
            assert_contains(&refused, &format!("set {key} to another name"));
        }
    });
}

/// The default name of an additional lease is the first lease's name plus the additional lease's
/// key.
#[test]
fn an_additional_lease_is_shared_only_together_with_the_first_lease() {
    run(async {
        for version in ["helm", "helm3"] {
            let place = Place::new().await;
            let with = |verb: &str, release: &str, set: &[&str]| {
                let values: Vec<_> = set.iter().flat_map(|set| ["--set", set]).collect();
                place.chart_of(version, verb, release, &values)
            };
            let namespace = &place.namespace;
            let first = format!("leasehold.leaseName={namespace}.web");
            let jobs = [&first, "leasehold.extraLeases.jobs.port=9403"];
            let shared = format!("also contends for {namespace}.web-jobs in leasehold.leases");
            with("install", "a", &jobs).unwrap();
            with("install", "b", &jobs).unwrap();
            let refused = with("install", "web-jobs", &[]).unwrap_err();
            assert_contains(&refused, &shared);
            assert_contains(&refused, "set leasehold.leaseName to another name");
            let longer = format!("leasehold.leaseName={namespace}.web-jobs");
            with("install", "web-jobs", &[&longer]).unwrap();
            with("upgrade", "a", &jobs).unwrap();

            for release in ["a", "b", "web-jobs"] {
                place.helm_of(version, &["uninstall", release]).unwrap();
            }
            with("install", "web-jobs", &[]).unwrap();
            let refused = with("install", "a", &jobs).unwrap_err();
            assert_contains(&refused, &format!("the release web-jobs {shared}"));
            assert_contains(
                &refused,
                "set leasehold.extraLeases.jobs.leaseName to another",
            );

            let by_key = [&first, "leasehold.extraLeases.at-night.port=9403"];
            with("install", "a", &by_key).unwrap();
            let by_name = format!("leasehold.leaseName={namespace}.web-at");
            let by_name = [&by_name, "leasehold.extraLeases.night.port=9403"];
            let refused = with("install", "b", &by_name).unwrap_err();
            assert_contains(
                &refused,
                &format!("the release a also contends for {namespace}.web-at-night"),
            );
        }
    });
}
