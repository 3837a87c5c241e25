//! Goal: in supervisor mode, leasehold runs the workload in the workload's container, through a guard
//! or itself, and keeps all of the container's settings. The chart refuses settings that leasehold
//! cannot keep. Method: parses helm's output, runs the rendered commands, and creates pods on a real
//! API server. The module `guard` has the tests of the pods with a guard.

use std::path::Path;
use std::process::Command;

use leasehold_testbed::{assert_contains, run};
use serde_json::{Value, json};

use crate::cluster::Installed;
use crate::helm::{Objects, render};

/// The modes with a guard, and with leasehold in the workload's container.
const MODES: [&str; 2] = ["mode=\"supervisor\"", "mode=\"supervisor-same-container\""];
const FORMS: [&str; 2] = ["supervisor", "same-container"];
const COMMAND: &str = "workload.command=[\"/orders\"]";

fn minimal(changes: &[&str]) -> Result<String, String> {
    render("minimal", &[&[MODES[1], COMMAND], changes].concat())
}

pub(crate) fn named<'a>(list: &'a Value, name: &str) -> &'a Value {
    let mut list = list.as_array().unwrap().iter();
    list.find(|item| item["name"] == name)
        .unwrap_or(&Value::Null)
}

#[test]
fn the_container_runs_the_installed_program() {
    for (form, containers) in FORMS.into_iter().zip([2, 1]) {
        let objects = Objects::of(form, &[]);
        assert_runs_the_installed_program(&objects, containers);
    }
}

fn assert_runs_the_installed_program(objects: &Objects, containers: usize) {
    let pod = objects.pod();
    assert_eq!(pod["initContainers"].as_array().unwrap().len(), containers);
    assert_eq!(pod["containers"].as_array().unwrap().len(), 1);
    let installer = &pod["initContainers"][0];
    assert!(installer["restartPolicy"].is_null(), "{installer}");
    assert!(installer["command"].is_null(), "the image's own");
    let place = installer["args"][1].as_str().unwrap();
    let written = named(&installer["volumeMounts"], "leasehold-program");
    assert_eq!(written["mountPath"], place);
    let workload = objects.workload();
    let mounts = &workload["volumeMounts"];
    let read = named(mounts, "leasehold-program");
    assert_eq!(read["mountPath"], place);
    assert_eq!(read["readOnly"], true);
    assert!(named(&pod["volumes"], "leasehold-program").is_object());
    // Runs the installer's command with a directory of this machine.
    let directory = tempfile::tempdir().unwrap();
    let installed = Command::new(env!("CARGO_BIN_EXE_leasehold"))
        .arg(installer["args"][0].as_str().unwrap())
        .arg(directory.path())
        .output()
        .unwrap();
    assert!(installed.status.success());
    let command = workload["command"].as_array().unwrap();
    assert_eq!(command.len(), 1);
    let program = Path::new(command[0].as_str().unwrap());
    assert_eq!(program.parent().unwrap(), Path::new(place));
    let copy = directory.path().join(program.file_name().unwrap());
    let version = Command::new(copy).arg("--version").output().unwrap();
    assert!(version.status.success());
}

#[test]
fn the_complete_workload_command_follows_two_dashes() {
    for form in FORMS {
        let objects = Objects::of(form, &[]);
        let workload = objects.workload();
        let arguments = workload["args"].as_array().unwrap();
        let dashes = arguments.iter().position(|a| a == "--").unwrap();
        let command = ["/orders", "--for $(POD_NAME)", "--serve", "a b", "--"];
        assert_eq!(arguments[dashes + 1..], command);
        let port = named(&workload["ports"], "http");
        assert_eq!(port["containerPort"], 8080);
        let variable = &named(&workload["env"], "POD_NAME")["valueFrom"];
        assert_eq!(variable["fieldRef"]["fieldPath"], "metadata.name");
        let work = named(&workload["volumeMounts"], "work");
        assert_eq!(work["mountPath"], "/work");
        assert_eq!(workload["resources"]["requests"]["memory"], "80Mi");
    }
}

#[test]
fn leasehold_gets_the_settings_of_a_sidecar() {
    let objects = Objects::of("same-container", &[]);
    let workload = objects.workload();
    for (probe, path) in [
        ("startupProbe", "/livez"),
        ("livenessProbe", "/livez"),
        ("readinessProbe", "/readyz"),
    ] {
        let asked = &workload[probe]["httpGet"];
        assert_eq!(*asked, json!({"path": path, "port": 9402}), "{probe}");
    }
    let port = named(&workload["ports"], "leasehold");
    assert_eq!(port["containerPort"], 9402);
    let scraped = &objects.one("PodMonitor")["spec"]["podMetricsEndpoints"][0];
    assert_eq!(scraped["port"], "leasehold");
    // The daemon writes its status files into the mounted directory.
    let status = named(&workload["volumeMounts"], "leasehold-status");
    let mounted = json!({"name": "leasehold-status", "mountPath": "/status"});
    assert_eq!(*status, mounted);
    assert!(objects.has_flag("--status-directory=/status"));
    // `ends-first` is only for a native sidecar, whose workload has exited before the sidecar gets
    // SIGTERM.
    assert!(!workload["args"].to_string().contains("ends-first"));
    for (list, name) in [("env", "SSL_CERT_DIR"), ("volumeMounts", "ca")] {
        assert!(named(&workload[list], name).is_object(), "{name}");
    }
    assert!(named(&objects.pod()["volumes"], "ca").is_object());
}

#[test]
fn variables_of_leasehold_do_not_collide_with_variables_of_the_workload() {
    let objects = Objects::parse(&minimal(&[]).unwrap());
    let variables = objects.workload()["env"].as_array().unwrap();
    assert_eq!(variables.len(), 5);
    for variable in variables {
        let name = variable["name"].as_str().unwrap();
        // The daemon removes its own configuration variables from the workload's environment.
        let key = name.strip_prefix("LEASEHOLD_").unwrap().to_lowercase();
        let key = key.replacen("__", ".", 1);
        assert!(leasehold::config::find(&key).is_some(), "{name}");
    }
}

#[test]
fn client_libraries_do_not_find_the_token_and_it_can_be_omitted() {
    let objects = Objects::parse(&minimal(&[]).unwrap());
    let mounts = &objects.workload()["volumeMounts"];
    let token = named(mounts, "leasehold-token");
    let place = token["mountPath"].as_str().unwrap();
    assert!(!place.starts_with("/var/run/secrets"), "{place}");
    assert_eq!(token["readOnly"], true);
    assert!(objects.has_flag(&format!("--kubernetes-credentials={place}")));
    let secret = named(mounts, "leasehold-mongodb");
    assert_eq!(secret["readOnly"], true);
    let without = minimal(&["leasehold.kubernetes.enabled=false"]).unwrap();
    assert!(!without.contains("leasehold-token"), "{without}");
    assert!(!without.contains("kubernetes-credentials"), "{without}");
    assert!(without.contains("--kubernetes-enabled=off"), "{without}");
    let installer = Objects::of("same-container", &[]).pod()["initContainers"][0].clone();
    assert_eq!(installer["volumeMounts"].as_array().unwrap().len(), 1);
}

#[test]
fn unsupported_values_are_refused_with_the_remedy() {
    for mode in MODES {
        let arguments = [mode, "workload.args=[\"a\"]"];
        for changes in [&arguments[..1], &arguments] {
            let complaint = render("minimal", changes).unwrap_err();
            assert_contains(&complaint, "set workload.command");
        }
        let refused = |change: &str| render("minimal", &[mode, COMMAND, change]).unwrap_err();
        for probe in ["startupProbe", "livenessProbe", "readinessProbe"] {
            let change = format!("workload.{probe}={{\"tcpSocket\":{{\"port\":8080}}}}");
            let complaint = refused(&change);
            assert_contains(&complaint, &format!("leave out workload.{probe}"));
            assert_contains(&complaint, "leasehold.config.workload.health.url");
        }
        let complaint = refused("workload.lifecycle={\"preStop\":{\"sleep\":{\"seconds\":5}}}");
        assert_contains(&complaint, "leave out workload.lifecycle");
        let complaint = refused("leasehold.config.lease.handoff_delay=\"1s\"");
        assert_contains(
            &complaint,
            "leave out leasehold.config.lease.handoff_delay: ",
        );
        let complaint = refused("leasehold.extraLeases={\"reports\":{\"port\":9403}}");
        assert_contains(&complaint, "leave out leasehold.extraLeases");
    }
    let exits = "leasehold.config.workload.on_exit=\"release\"";
    for refused in [
        render("minimal", &[MODES[0], COMMAND, exits]),
        render("injector", &[exits]),
    ] {
        let complaint = refused.unwrap_err();
        assert_contains(&complaint, "leave out leasehold.config.workload.on_exit: ");
        assert_contains(&complaint, "set mode to supervisor-same-container");
    }
    let complaint = minimal(&["inject.enabled=true"]).unwrap_err();
    assert_contains(&complaint, "deployment.enabled=false");
    let only = ["inject.enabled=true", "deployment.enabled=false"];
    let injects = minimal(&only);
    assert!(injects.is_ok(), "a release that only injects has no mode");
}

#[test]
fn a_sidecar_gets_no_settings_for_running_the_workload() {
    for setting in [
        r#"stop_signal="INT""#,
        r#"stop_grace="9s""#,
        r#"on_exit="release""#,
    ] {
        let change = format!("leasehold.config.workload.{setting}");
        let complaint = render("minimal", &[&change]).unwrap_err();
        let (key, _) = setting.split_once('=').unwrap();
        let named = format!("leave out leasehold.config.workload.{key}: ");
        assert_contains(&complaint, &named);
        for mode in MODES {
            let rendered = render("minimal", &[mode, COMMAND, &change]);
            let exits = key == "on_exit" && mode == MODES[0];
            assert_eq!(rendered.is_err(), exits, "{mode}, {change}");
        }
    }
    let health = "leasehold.config.workload.health.url=\"http://127.0.0.1:8080/\"";
    let objects = Objects::of("minimal", &[health]);
    assert!(objects.has_flag("--workload-health-url=http://127.0.0.1:8080/"));
    let hook = Objects::of("minimal", &["leasehold.config.hooks.on_lead=[]"]);
    assert!(hook.has_flag("--hooks-on-lead="));
}

#[test]
fn the_termination_grace_exceeds_the_stop_grace_of_the_workload() {
    let period = "deployment.terminationGracePeriodSeconds=";
    let grace = |text: &str| format!("leasehold.config.workload.stop_grace=\"{text}\"");
    let hook = "leasehold.config.hooks.on_step_down=[\"/orders\",\"flush\"]".to_owned();
    let timeout = "leasehold.config.hooks.timeout=\"4s\"".to_owned();
    // `expected` is the rendered grace period, or the stop grace and the required minimum in the
    // error.
    for (given, changes, expected) in [
        (0, vec![], Ok(35)),
        (0, vec![grace("2m")], Ok(125)),
        (0, vec![grace("0s")], Ok(5)),
        (0, vec![grace("1s1ms")], Ok(7)),
        (0, vec![hook.clone()], Ok(45)),
        (0, vec![timeout.clone()], Ok(35)),
        (0, vec![grace("10s"), hook.clone(), timeout.clone()], Ok(19)),
        (32, vec![], Ok(32)),
        (31, vec![], Err(("30s", 32))),
        (3, vec![grace("1s1ms")], Err(("1s1ms", 4))),
        (
            35,
            vec![hook, timeout],
            Err(("30s and leasehold.config.hooks.timeout 4s", 36)),
        ),
    ] {
        let given = format!("{period}{given}");
        let mut settings = vec![given.as_str()];
        settings.extend(changes.iter().map(String::as_str));
        for mode in MODES {
            let changes = [&[mode, COMMAND], &settings[..]].concat();
            match (render("minimal", &changes), expected) {
                (Ok(rendered), Ok(seconds)) => {
                    let objects = Objects::parse(&rendered);
                    let rendered = &objects.pod()["terminationGracePeriodSeconds"];
                    assert_eq!(*rendered, seconds, "{changes:?}");
                }
                (Err(complaint), Err((stop, least))) => {
                    let said = format!("leasehold.config.workload.stop_grace is {stop}: ");
                    assert_contains(&complaint, &said);
                    assert_contains(&complaint, &given.replace('=', " is "));
                    assert_contains(&complaint, &format!("at least {least},"));
                }
                (rendered, _) => panic!("{changes:?}: {rendered:?}"),
            }
        }
    }
    // With a native sidecar, the chart keeps the default, because the kubelet stops the workload
    // itself.
    let sidecar = Objects::of("minimal", &[]);
    assert_eq!(sidecar.pod()["terminationGracePeriodSeconds"], 30);
}

#[test]
fn the_restricted_level_admits_the_pods_of_a_supervisor() {
    run(async {
        // This cluster may not have the Prometheus operator's kinds.
        let plain = ["podMonitor.enabled=false", "prometheusRule.enabled=false"];
        for (form, containers) in FORMS.into_iter().zip([2, 1]) {
            let installed = Installed::new(form, &plain).await;
            let pod = installed.pod("orders-0").await;
            let spec = pod.spec.unwrap();
            assert_eq!(spec.init_containers.unwrap().len(), containers);
            let command = spec.containers[0].command.as_deref();
            assert_eq!(command.unwrap(), ["/opt/leasehold/leasehold"]);
        }
        // Without this check, a namespace that does not enforce the level would pass too.
        let root = "workload.securityContext.runAsNonRoot=false";
        let lax = Installed::new("supervisor", &[&plain[..], &[root]].concat()).await;
        let refused = lax.try_pod("orders-0").await.unwrap_err().to_string();
        assert!(refused.contains("restricted"), "{refused}");
    });
}
