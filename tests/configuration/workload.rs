//! Goal: the workload's settings have their documented meaning in every layer. Method: sets lists
//! and nested values in files, variables and flags.

use std::time::Duration;

use leasehold::config::{Choice, HealthCheck, OnExit, SignalNumber};

use crate::setup::{Files, REQUIRED, config, refused, required_and, sources};

#[test]
fn a_nested_section_is_read_from_each_layer() {
    let files = Files::new();
    let toml = files.write(
        "a.toml",
        "[workload]\non_exit = \"release\"\nstop_signal = \"QUIT\"\n\
         [workload.health]\ncommand = [\"/bin/check\", \"a,b\"]\nfailures = 5\n\
         [hooks]\non_lead = [\"/bin/lead\"]\n",
    );
    let yaml = files.write("b.yaml", "workload:\n  health:\n    period: 20s\n");
    let variables = [
        ("LEASEHOLD_WORKLOAD__HEALTH__TIMEOUT", "2s"),
        ("LEASEHOLD_HOOKS__ON_STEP_DOWN", "/bin/stop,-v"),
    ];
    let config = config(&sources(&[toml, yaml], &variables, &REQUIRED));
    assert_eq!(config.workload.on_exit, OnExit::Release);
    assert_eq!(Some(config.workload.stop_signal), SignalNumber::of("QUIT"));
    let health = config.workload.health;
    let words = ["/bin/check", "a,b"].map(Into::into).to_vec();
    assert_eq!(health.check(), Some(HealthCheck::Command(words)));
    assert_eq!(health.period, Duration::from_secs(20));
    assert_eq!(
        (health.timeout, health.failures),
        (Duration::from_secs(2), 5)
    );
    assert_eq!(config.hooks.on_lead, ["/bin/lead"]);
    assert_eq!(config.hooks.on_step_down, ["/bin/stop", "-v"]);
}

#[test]
fn without_a_check_the_health_section_is_empty() {
    let config = config(&sources(&[], &[], &REQUIRED));
    assert_eq!(config.workload.health.check(), None);
    assert_eq!(config.workload.on_exit, OnExit::Exit);
    assert_eq!(config.workload.stop_grace, Duration::from_secs(30));
}

#[test]
fn mistakes_name_the_key_the_value_and_the_remedy() {
    let files = Files::new();
    let file = files.write(
        "a.toml",
        "[workload.health]\nurl = \"https://localhost\"\nfailures = \"3\"\ncolour = 1\n\
         [hooks]\non_lead = [1]\n",
    );
    let variables = [
        ("LEASEHOLD_WORKLOAD__HEALTH__NAME", "x"),
        ("LEASEHOLD_WORKLOAD__ON_EXIT", "die"),
    ];
    let flags = required_and(&[("workload.health.timeout", "20s")]);
    let expected = [
        "7 problems",
        "workload.health.url = \"https://localhost\"",
        "https is not supported for health checks of the workload",
        "expected a whole number from 1 to 1000, without quotes",
        "workload.health.colour",
        "workload.health.name (environment variable LEASEHOLD_WORKLOAD__HEALTH__NAME): there is no such key",
        "expected a list of strings: put each word in quotes",
        "workload.on_exit = \"die\"",
        "workload.health.timeout = \"20s\" (flag --workload-health-timeout): expected at most workload.health.period, 10s",
    ];
    refused(&sources(&[file], &variables, &flags), &expected);
}

#[test]
fn two_health_checks_are_refused() {
    let flags = required_and(&[
        ("workload.health.url", "http://localhost/"),
        ("workload.health.command", "/bin/true"),
    ]);
    refused(
        &sources(&[], &[], &flags),
        &["workload.health.url is set too (flag --workload-health-url)"],
    );
}
