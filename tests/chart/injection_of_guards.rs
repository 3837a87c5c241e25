//! Goal: a pod that names one of its containers gets a sidecar that runs this container's command
//! through a guard, as in the chart's supervisor mode, and the container reads no token of the pod's
//! account. A pod is refused with the reason if its container cannot have a guard. Method: installs the policy on a real API server, and creates various pods.

use k8s_openapi::api::core::v1::Pod;
use leasehold_testbed::wait::found;
use leasehold_testbed::{assert_contains, run};
use serde_json::{Value, json};

use crate::cluster::{Installed, foreign_pod};
use crate::documented::block;
use crate::guard::assert_reads_no_secret;
use crate::helm::Objects;
use crate::injection::{asking, container, create, fields_of, wait_for_injection};
use crate::supervisor::named;

const SUPERVISE: &str = "leasehold.dev/supervise";
const TOKEN: &str = "/var/run/secrets/kubernetes.io/serviceaccount";

fn supervising(container: &str, spec: &Value) -> Pod {
    let mut pod = asking("trial", spec);
    let annotations = pod.metadata.annotations.as_mut().unwrap();
    annotations.insert(SUPERVISE.to_owned(), container.to_owned());
    pod
}

fn command(name: &str) -> Value {
    let mut container = container(name);
    container["command"] = json!(["/orders", "--for $(POD_NAME)"]);
    container
}

fn words(container: &Value) -> Vec<&str> {
    let words = container["args"].as_array().unwrap().iter();
    words.map(|word| word.as_str().unwrap()).collect()
}

fn mounts(container: &Value) -> Vec<&str> {
    let mounts = container["volumeMounts"].as_array().unwrap().iter();
    let names = mounts.map(|mount| mount["name"].as_str().unwrap());
    names
        .filter(|name| !name.starts_with("kube-api-access"))
        .collect()
}

/// Returns the volume that a container has at the path of the automatic token.
fn volume_of_token<'a>(pod: &'a Value, container: &Value) -> &'a Value {
    let mounts = container["volumeMounts"].as_array().unwrap();
    let mount = mounts.iter().find(|mount| mount["mountPath"] == TOKEN);
    let name = mount.map(|mount| mount["name"].as_str().unwrap());
    named(&pod["spec"]["volumes"], name.unwrap_or_default())
}

#[test]
fn the_named_container_gets_the_guard_and_the_pod_the_sidecar_of_supervisor_mode() {
    run(async {
        let changes = [
            r#"leasehold.config.workload.stop_grace="9s""#,
            r#"leasehold.config.lease.handoff_delay="1s""#,
        ];
        let installed = Installed::new("injector", &changes).await;
        let mut app = command("app");
        app["args"] = json!(["--serve", "--"]);
        let other = command("other");
        let spec = json!({"containers": [other, app, container("third")]});
        wait_for_injection(&installed, &spec).await;
        let pod = create(&installed, &supervising("app", &spec), true).await;
        let pod = pod.unwrap();

        let containers = &pod["spec"]["containers"];
        let app = named(containers, "app");
        assert_eq!(app["command"], json!(["/opt/leasehold/leasehold"]));
        let socket = "/run/leasehold/guard.sock";
        let flag = format!("--socket={socket}");
        let own = ["/orders", "--for $(POD_NAME)", "--serve", "--"];
        let expected = [&["guard", &flag, "--"], &own[..]].concat();
        assert_eq!(words(app), expected);
        let own = ["leasehold-empty", "leasehold-program", "leasehold-status"];
        assert_eq!(mounts(app), own);
        for mount in app["volumeMounts"].as_array().unwrap() {
            assert_eq!(mount["readOnly"], true, "{mount}");
        }
        let other = named(containers, "other");
        assert_eq!(other["command"], json!(["/orders", "--for $(POD_NAME)"]));
        assert!(other["args"].is_null(), "{other}");
        assert_eq!(mounts(other), ["leasehold-status"]);

        let started = pod["spec"]["initContainers"].as_array().unwrap();
        let names: Vec<_> = started.iter().map(|container| &container["name"]).collect();
        assert_eq!(names, ["leasehold-install", "leasehold"]);
        let of_the_chart = Objects::of(
            "unlabelled",
            &[r#"mode="supervisor""#, r#"workload.command=["/orders"]"#],
        );
        let installer = &of_the_chart.pod()["initContainers"][0];
        assert_eq!(fields_of(&started[0], installer), *installer);
        let flags = words(&started[1]);
        let socket = format!("--workload-socket={socket}");
        for expected in [&*socket, "--workload-stop-grace=9s"] {
            assert!(flags.contains(&expected), "{expected}: {flags:?}");
        }
        // leasehold waits for the end of a workload that it runs, not for a delay.
        for other in ["--workload-ends-first", "--lease-handoff-delay"] {
            let mut flags = flags.iter();
            assert!(!flags.any(|flag| flag.starts_with(other)), "{other}");
        }
        assert_eq!(
            mounts(&started[1]),
            ["leasehold-status", "leasehold-mongodb"]
        );
        let program = named(&pod["spec"]["volumes"], "leasehold-program");
        assert!(program["emptyDir"].is_object(), "{program}");

        // Another pod of the release has a sidecar without a guard.
        let plain = create(&installed, &asking("plain", &spec), true).await;
        let plain = plain.unwrap();
        let [sidecar] = &plain["spec"]["initContainers"].as_array().unwrap()[..] else {
            panic!("one init container: {plain}")
        };
        let flags = words(sidecar);
        assert!(flags.contains(&"--workload-ends-first=true"), "{flags:?}");
        assert!(flags.contains(&"--lease-handoff-delay=1s"), "{flags:?}");
        let mut flags = flags.iter();
        assert!(!flags.any(|flag| flag.starts_with("--workload-s")));
    });
}

#[test]
fn the_supervised_container_has_no_automatic_token_and_other_containers_keep_it() {
    run(async {
        let installed = Installed::new("injector", &[]).await;
        let mut spec = json!({"containers": [command("other"), command("app")]});
        wait_for_injection(&installed, &spec).await;
        let pod = create(&installed, &supervising("app", &spec), true).await;
        let pod = pod.unwrap();
        let containers = &pod["spec"]["containers"];
        let app = named(containers, "app");
        assert_reads_no_secret(&pod["spec"], app);
        let empty = volume_of_token(&pod, app);
        assert_eq!(empty["name"], "leasehold-empty");
        let (inits, other) = (&pod["spec"]["initContainers"], named(containers, "other"));
        for container in [other, named(inits, "leasehold")] {
            let sources = &volume_of_token(&pod, container)["projected"]["sources"];
            let mut sources = sources.as_array().unwrap().iter();
            assert!(sources.any(|source| source["serviceAccountToken"].is_object()));
        }

        // The mutation does not change a pod that has the sidecar, such as a copy of an old pod.
        let mut with_token = pod["spec"].clone();
        let mounts_of_app = &mut with_token["containers"][1]["volumeMounts"];
        let mounts_of_app = mounts_of_app.as_array_mut().unwrap();
        mounts_of_app.retain(|mount| mount["mountPath"] != TOKEN);
        let refused = found("the policy refuses the token", async || {
            let refused = create(&installed, &supervising("app", &with_token), true).await;
            refused.err()
        })
        .await;
        assert_contains(&refused, "the token of the pod's service account at /var");

        // A token that the pod itself mounts is deliberate, also at the usual path.
        let documented = block("docs/kubernetes.md", "own-token.yaml");
        let documented: Value = serde_saphyr::from_str(&documented).unwrap();
        spec["volumes"] = documented["spec"]["volumes"].clone();
        let mount = &documented["spec"]["containers"][0]["volumeMounts"][0];
        for (path, at_path) in [(TOKEN, "api"), ("/run/api", "leasehold-empty")] {
            let mut mount = mount.clone();
            assert_eq!(mount["mountPath"], TOKEN);
            mount["mountPath"] = json!(path);
            spec["containers"][1]["volumeMounts"] = json!([mount]);
            let pod = create(&installed, &supervising("app", &spec), true).await;
            let pod = pod.unwrap();
            let app = named(&pod["spec"]["containers"], "app");
            assert_eq!(volume_of_token(&pod, app)["name"], at_path);
            assert_eq!(named(&app["volumeMounts"], "api")["mountPath"], path);
        }

        // This pod has no automatic token, so there is nothing to hide.
        let mut spec = json!({"containers": [command("app")]});
        spec["automountServiceAccountToken"] = json!(false);
        let pod = create(&installed, &supervising("app", &spec), true).await;
        let pod = pod.unwrap();
        let app = named(&pod["spec"]["containers"], "app");
        assert_eq!(mounts(app), ["leasehold-program", "leasehold-status"]);
        assert_reads_no_secret(&pod["spec"], app);
        assert!(named(&pod["spec"]["volumes"], "leasehold-empty").is_null());
    });
}

#[test]
fn a_pod_whose_container_cannot_be_supervised_is_refused_with_the_reason() {
    run(async {
        let installed = Installed::new("injector", &[]).await;
        let plain = json!({"containers": [command("app")]});
        wait_for_injection(&installed, &plain).await;
        found("the validating policy takes effect", async || {
            let refused = create(&installed, &supervising("missing", &plain), true).await;
            refused.err()
        })
        .await;
        let with = |field: &str, value: Value| {
            let mut container = command("app");
            container[field] = value;
            json!({"containers": [container]})
        };
        let mut shared = plain.clone();
        shared["shareProcessNamespace"] = json!(true);
        let probe = json!({"tcpSocket": {"port": 8080}});
        let handlers = json!({"preStop": {"sleep": {"seconds": 5}}});
        let mut own = container("leasehold");
        own["restartPolicy"] = json!("Always");
        let lease = format!("--lease-name={}.orders", installed.namespace);
        own["args"] = json!(["run", lease]);
        let has_one = json!({"initContainers": [own], "containers": [command("app")]});
        let process = "must be process 1 of its container";
        for (name, spec, reason) in [
            ("else", plain.clone(), "the pod has no container else"),
            ("", plain.clone(), "the pod has no container ,"),
            (
                "app",
                json!({"containers": [container("app")]}),
                "the container has no command",
            ),
            (
                "app",
                with("livenessProbe", probe.clone()),
                "leave out the probes",
            ),
            (
                "app",
                with("startupProbe", probe.clone()),
                "leave out the probes",
            ),
            ("app", with("readinessProbe", probe), "leave out the probes"),
            ("app", with("lifecycle", handlers), "leave out the probes"),
            ("app", shared, process),
            ("app", has_one, "the pod has its own sidecar"),
        ] {
            let refused = create(&installed, &supervising(name, &spec), true).await;
            let refused = refused.expect_err(&spec.to_string());
            assert!(refused.contains(reason), "{spec}: {refused}");
        }
        // The annotation alone requests nothing, because the lease has no name.
        let mut alone = foreign_pod("alone", &plain);
        alone.metadata.annotations = Some([(SUPERVISE.to_owned(), "app".to_owned())].into());
        let refused = create(&installed, &alone, true).await.unwrap_err();
        assert!(refused.contains("leasehold.dev/inject"), "{refused}");
        create(&installed, &supervising("app", &plain), true)
            .await
            .unwrap();
    });
}
