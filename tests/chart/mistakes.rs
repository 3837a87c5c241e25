//! Goal: helm refuses every mistake in the values, with a message that names the key, the value and
//! the remedy, before an object reaches the API server. Method: renders each mistake, and compares
//! the application chart's schema with its original, the library's schema.

use std::fs;

use serde_json::Value;

use crate::helm::{Objects, refused, render, root};

#[test]
fn a_tag_in_the_repository_is_refused() {
    refused(
        r#"
        minimal: workload.image.repository="registry.example/orders:1.0"
            workload.image.repository is registry.example/orders:1.0
            set workload.image.tag or workload.image.digest

        minimal: leasehold.image.repository="registry.example:5000/leasehold@sha256:aa"
            leasehold.image.repository is
            set leasehold.image.tag or leasehold.image.digest
        "#,
    );
    let with_port = r#"workload.image.repository="registry.example:5000/orders""#;
    let objects = Objects::of("minimal", &[with_port]);
    let image = &objects.workload()["image"];
    assert_eq!(image, "registry.example:5000/orders:1");
}

#[test]
fn the_workload_cannot_use_names_and_ports_of_leasehold() {
    refused(
        r#"
        minimal: workload.ports=[{"containerPort":9402}]
            workload.ports has containerPort 9402
            set leasehold.http.port

        minimal: workload.ports=[{"name":"leasehold","containerPort":8080}]
            workload.ports: the name leasehold
            use another value

        minimal: workload.ports=[{"name":"a","containerPort":1},{"name":"a","containerPort":2}]
            workload.ports: the name a occurs twice

        minimal: workload.volumes=[{"name":"leasehold-status","emptyDir":{}}]
            workload.volumes
            the name leasehold-status

        supervisor: workload.volumes=[{"name":"leasehold-program","emptyDir":{}}]
            workload.volumes
            the name leasehold-program

        minimal: leasehold.extraVolumes=[{"name":"leasehold-token","emptyDir":{}}]
            leasehold.extraVolumes
            the name leasehold-token

        injector: leasehold.extraVolumes=[{"name":"leasehold-status","emptyDir":{}}]
            leasehold.extraVolumes
            the name leasehold-status

        minimal: workload.volumeMounts=[{"name":"a","mountPath":"/run/leasehold/"}]
            workload.volumeMounts
            the mountPath /run/leasehold

        supervisor: workload.volumeMounts=[{"name":"a","mountPath":"/opt/leasehold"}]
            workload.volumeMounts
            the mountPath /opt/leasehold

        minimal: leasehold.extraVolumeMounts=[{"name":"a","mountPath":"/etc/leasehold/mongodb"}]
            leasehold.extraVolumeMounts
            the mountPath /etc/leasehold/mongodb

        minimal: workload.env=[{"name":"LEASEHOLD_STATUS_FILE","value":"x"}]
            workload.env
            the name LEASEHOLD_STATUS_FILE

        minimal: leasehold.extraEnv=[{"name":"POD_UID","value":"x"}]
            leasehold.extraEnv
            the name POD_UID
        "#,
    );
    // Equal port numbers with different protocols do not conflict.
    let both = r#"workload.ports=[{"containerPort":53,"protocol":"UDP"},{"containerPort":53,"protocol":"TCP"}]"#;
    render("minimal", &[both]).unwrap();
}

/// An upgrade compares the old and the new values, which do not include environment variables.
#[test]
fn environment_variables_that_set_the_configuration_are_refused() {
    refused(
        r#"
        minimal: leasehold.extraEnv=[{"name":"LEASEHOLD_MONGODB__DATABASE","value":"x"}]
            leave LEASEHOLD_MONGODB__DATABASE out of leasehold.extraEnv
            set leasehold.config.mongodb.database

        minimal: leasehold.extraEnv=[{"name":"LEASEHOLD_MONGODB__COLLECTION","valueFrom":{"secretKeyRef":{"name":"a","key":"b"}}}]
            leave LEASEHOLD_MONGODB__COLLECTION out of leasehold.extraEnv
            set leasehold.config.mongodb.collection

        leases: leasehold.extraEnv=[{"name":"LEASEHOLD_LEASE__NAME","value":"x"}]
            leave LEASEHOLD_LEASE__NAME out of leasehold.extraEnv: set leasehold.leaseName

        injector: leasehold.extraEnv=[{"name":"LEASEHOLD_MONGODB__URI","value":"x"}]
            leave LEASEHOLD_MONGODB__URI out of leasehold.extraEnv
            the Secret that leasehold.mongodb.secretName names

        web: leasehold.extraEnv=[{"name":"LEASEHOLD_WORKLOAD__HEALTH__URL","value":"x"}]
            leave LEASEHOLD_WORKLOAD__HEALTH__URL out of leasehold.extraEnv
            set leasehold.config.workload.health.url

        same-container: workload.env=[{"name":"LEASEHOLD_MONGODB__DATABASE","value":"x"}]
            leave LEASEHOLD_MONGODB__DATABASE out of workload.env
            set leasehold.config.mongodb.database

        cron-job: workload.env=[{"name":"LEASEHOLD_LEASE__LEASE_DURATION","value":"9s"}]
            leave LEASEHOLD_LEASE__LEASE_DURATION out of workload.env
            set leasehold.config.lease.lease_duration

        same-container: workload.env=[{"value":"x"}]
            an item of workload.env has no name

        minimal: leasehold.extraEnv=[{"name":5}]
            the name of an item of leasehold.extraEnv is 5, not a string: quote it

        minimal: leasehold.config.mongodb.database="$(DATABASE)"
            leasehold.config.mongodb.database is $(DATABASE)
            write the name itself

        minimal: leasehold.extraLeases={"a":{"port":9500,"config":{"mongodb":{"collection":"$(A)"}}}}
            leasehold.extraLeases.a.config.mongodb.collection is $(A)
            write the name itself
        "#,
    );
    // In sidecar mode, the workload's variables do not affect the daemon. The workload may use
    // these variables for a separate lock.
    let own = r#"workload.env=[{"name":"LEASEHOLD_MONGODB__DATABASE","value":"x"}]"#;
    render("minimal", &[own]).unwrap();
}

#[test]
fn a_label_that_leasehold_writes_is_refused_in_the_pod_template() {
    refused(
        r#"
        minimal: deployment.podLabels={"leasehold.dev/shop.orders":"leader"}
            deployment.podLabels has leasehold.dev/shop.orders
            leave it out

        minimal: deployment.podLabels={"app.kubernetes.io/instance":"else"}
            deployment.podLabels has app.kubernetes.io/instance
            set nameOverride or fullnameOverride

        minimal: leasehold.kubernetes.labelPrefix="kubernetes.io"
            leasehold.kubernetes.labelPrefix is kubernetes.io:
            set another domain, such as leasehold.dev

        minimal: leasehold.kubernetes.labelPrefix="node.k8s.io"
            leasehold.kubernetes.labelPrefix is node.k8s.io:
            set another domain, such as leasehold.dev
        "#,
    );
    let accepted = r#"leasehold.kubernetes.labelPrefix="notk8s.io""#;
    render("minimal", &[accepted]).unwrap();
}

#[test]
fn a_disruption_budget_that_blocks_drains_is_refused() {
    for blocking in ["0", "\"0%\"", "\"0\"", "-1"] {
        let change = format!("podDisruptionBudget.maxUnavailable={blocking}");
        let complaint = render("minimal", &[&change]).unwrap_err();
        let named = format!(
            "podDisruptionBudget.maxUnavailable is {}: ",
            blocking.trim_matches('"')
        );
        assert!(complaint.contains(&named), "{complaint}");
        assert!(complaint.contains("set it to 1 or more"), "{complaint}");
    }
    for letting in ["1", "\"30%\"", "\"100%\""] {
        let change = format!("podDisruptionBudget.maxUnavailable={letting}");
        render("minimal", &[&change]).unwrap();
    }
}

#[test]
fn a_release_without_effect_and_ignored_values_are_refused() {
    refused(
        r#"
        minimal: deployment.enabled=false
            deployment.enabled is false
            set inject.enabled

        minimal: global={"storageClass":"fast"}
            leave out global.storageClass
            would be ignored
        "#,
    );
}

#[test]
fn alerts_and_scrapes_that_conflict_are_refused() {
    refused(
        r#"
        everything: podMonitor.interval="1m"
            podMonitor.interval is 1m
            set it to 4s

        everything: leasehold.rules.alerts.LeaseholdMoreThanOneLeader.for="8s"
            leasehold.rules.alerts.LeaseholdMoreThanOneLeader.for is 8s
            more than twice

        everything: leasehold.rules.alerts.LeaseholdMoreThanOneLeader.for=""
            leasehold.rules.alerts.LeaseholdMoreThanOneLeader.for is empty
            more than twice
        "#,
    );
    // Without the chart's alerts, any scrape interval is allowed.
    let own = ["podMonitor.enabled=true", r#"podMonitor.interval="1m""#];
    render("minimal", &own).unwrap();
}

#[test]
fn a_request_above_its_limit_is_refused() {
    refused(
        r#"
        minimal: leasehold.resources.requests.memory="64Mi"
            leasehold.resources.requests.memory is 64Mi
            leasehold.resources.limits.memory, which is 32Mi
            raise the limit

        minimal: leasehold.resources.requests="64Mi"
            '/leasehold/resources/requests': got string, want

        minimal: workload.resources.limits=true
            '/workload/resources/limits': got boolean, want

        minimal: workload.resources={"requests":{"cpu":2},"limits":{"cpu":"1500m"}}
            workload.resources.requests.cpu is 2
            which is 1500m
        "#,
    );
    for fitting in [
        r#"{"requests":{"cpu":"1","memory":"1e6"},"limits":{"cpu":"1500m","memory":"1M"}}"#,
        r#"{"requests":{"cpu":0.5,"memory":"1023Ki"},"limits":{"cpu":"500m","memory":"1Mi"}}"#,
        r#"{"requests":{"cpu":4}}"#,
        r#"{"limits":{"cpu":4}}"#,
    ] {
        let change = format!("workload.resources={fitting}");
        render("minimal", &[&change]).unwrap_or_else(|complaint| panic!("{change}: {complaint}"));
    }
}

/// Without this check, the API server would refuse some objects after helm has created others, or
/// the pods could not run.
#[test]
fn conflicting_fields_are_refused() {
    refused(
        r#"
        minimal: deployment.dnsPolicy="None"
            set deployment.dnsConfig.nameservers

        job: job={"restartPolicy":"OnFailure","podFailurePolicy":{"rules":[]}}
            job.podFailurePolicy needs job.restartPolicy: Never

        minimal: leasehold.http.address="0.0.0.0\n::"
            '/leasehold/http/address'

        minimal: leasehold.serviceAccount.name="orders: a"
            '/leasehold/serviceAccount/name'

        minimal: leasehold.statusDirectory="/run/a #b"
            '/leasehold/statusDirectory'

        minimal: leasehold.http.address="127.0.0.1"
            leasehold.http.address is 127.0.0.1
            set it to 0.0.0.0

        minimal: deployment.extraContainers=[{"name":"x","ports":[{"containerPort":9402}]}]
            deployment.extraContainers: x has containerPort 9402
            set leasehold.http.port

        minimal: podMonitor={"enabled":true,"interval":"10s","scrapeTimeout":"30s"}
            podMonitor.scrapeTimeout is 30s
            lower it or raise the interval

        minimal: service={"enabled":true,"type":"LoadBalancer","clusterIP":"None"}
            service.clusterIP is None
            leave service.clusterIP out

        minimal: service={"enabled":true,"port":80,"extraPorts":[{"name":"x","port":80}]}
            service.extraPorts: the port 80/TCP

        minimal: service.extraPorts=[{"name":"x","port":"80"}]
            /service/extraPorts/0/port

        minimal: service.portName="Leader_X"
            /service/portName

        minimal: service.trafficDistribution="Foo"
            /service/trafficDistribution

        minimal: service.loadBalancerSourceRanges=["all"]
            /service/loadBalancerSourceRanges/0

        stateful-set: statefulSet.serviceName="Own_X"
            /statefulSet/serviceName

        cron-job: cronJob.schedule="every day"
            /cronJob/schedule

        cron-job: cronJob.schedule="TZ=UTC 0 2 * * *"
            /cronJob/schedule

        minimal: commonLabels.a="b c"
            /commonLabels/a

        web: fullnameOverride="2orders"
            set fullnameOverride
        "#,
    );
    for schedule in ["@daily", "*/5 0-6 1,15 * MON-FRI"] {
        let change = format!("cronJob.schedule={schedule:?}");
        render("cron-job", &[&change]).unwrap();
    }
    let slash = Objects::of("leases", &[r#"leasehold.statusDirectory="/run/lh/""#]);
    let mounts = slash.workload()["volumeMounts"].as_array().unwrap();
    assert!(
        mounts
            .iter()
            .any(|mount| mount["mountPath"] == "/run/lh-reports"),
        "{mounts:?}"
    );
}

#[test]
fn an_error_in_an_additional_lease_names_the_value_of_that_lease() {
    let long = "a".repeat(64);
    refused(&format!(
        r#"
        minimal: leasehold.extraLeases={{"alpha":{{"port":9402}},"zeta":{{"port":9500}}}}
            the same port, 9402: set leasehold.extraLeases.alpha.port

        minimal: leasehold.extraLeases={{"a":{{"port":9500,"leaseName":"{long}"}}}}
            set leasehold.extraLeases.a.leaseName

        minimal: leasehold.extraLeases={{"a":{{"port":9500,"config":{{"lease":{{"name":"x"}}}}}}}}
            leave out leasehold.extraLeases.a.config.lease.name: set leasehold.extraLeases.a.leaseName

        minimal: leasehold.extraLeases={{"a":{{"port":9500,"config":{{"http":{{"listen":"x"}}}}}}}}
            set leasehold.http.address and leasehold.extraLeases.a.port

        minimal: leasehold.extraLeases={{"a":{{"port":9500,"config":{{"status":{{"directory":"x"}}}}}}}}
            set leasehold.extraLeases.a.statusDirectory
        "#
    ));
    let name = format!("leasehold.leaseName={:?}", &long[..62]);
    let further = r#"leasehold.extraLeases={"ab":{"port":9500}}"#;
    let complaint = render("minimal", &[&name, further]).unwrap_err();
    assert!(
        complaint.contains("set leasehold.extraLeases.ab.leaseName"),
        "{complaint}"
    );
}

fn schema(chart: &str) -> Value {
    let path = root().join("charts").join(chart).join("values.schema.json");
    serde_json::from_str(&fs::read_to_string(path).unwrap()).unwrap()
}

/// Helm also checks the values against the library's schema, but reports paths relative to the
/// subchart. The application's schema repeats the library's schema, so errors contain the full
/// path.
#[test]
fn the_schema_repeats_the_schema_of_the_library() {
    let (application, library) = (schema("leasehold"), schema("leasehold-sidecar"));
    let repeated = &application["properties"]["leasehold"];
    for part in ["type", "additionalProperties", "properties"] {
        assert_eq!(repeated[part], library[part], "{part}");
    }
    for (name, definition) in library["definitions"].as_object().unwrap() {
        assert_eq!(application["definitions"][name], *definition, "{name}");
    }
}
