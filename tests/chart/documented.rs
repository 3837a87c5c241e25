//! Goal: what the documentation tells a reader to type works when it is copied.
//! Method: the commands are taken out of the pages and run.

use std::fs;

use crate::helm::{Objects, chart, render_chart, root, text, tool};

/// The commands that start with `helm`, each on one line.
fn helm_commands(page: &str) -> Vec<String> {
    let page = fs::read_to_string(root().join(page)).unwrap();
    let blocks = page.split("```console\n").skip(1);
    let shown = blocks.map(|rest| rest.split_once("```").unwrap().0.replace("\\\n", " "));
    let commands = shown.flat_map(|block| {
        let lines = block
            .lines()
            .filter_map(|line| line.strip_prefix("$ helm "));
        lines.map(str::to_owned).collect::<Vec<_>>()
    });
    commands.collect()
}

#[test]
fn the_documented_installations_can_be_copied() {
    for (page, installations) in [("README.md", 1), ("docs/kubernetes.md", 2)] {
        let commands = helm_commands(page);
        let installing: Vec<_> = commands
            .iter()
            .filter(|command| command.contains("charts/leasehold"))
            .filter_map(|command| command.strip_prefix("install "))
            .collect();
        assert_eq!(installing.len(), installations, "{page}: {commands:?}");
        for arguments in installing {
            let output = tool("helm")
                .args(["install", "--dry-run=client"])
                .args(arguments.split_whitespace())
                .current_dir(root())
                .output()
                .unwrap();
            let said = text(&output);
            assert!(output.status.success(), "{page}: {arguments}: {said}");
            assert!(said.contains("\nkind: "), "{page}: {said}");
        }
    }
}

#[test]
fn a_chart_of_ones_own_gets_the_same_sidecar() {
    let around = tempfile::tempdir().unwrap();
    let own = around.path().join("billing");
    fs::create_dir_all(own.join("templates")).unwrap();
    let library = root().join("charts/leasehold-sidecar");
    std::os::unix::fs::symlink(library, around.path().join("leasehold-sidecar")).unwrap();
    let page = fs::read_to_string(root().join("docs/kubernetes.md")).unwrap();
    for file in ["Chart.yaml", "templates/deployment.yaml", "values.yaml"] {
        let start = format!("```yaml\n# {file}\n");
        let (_, rest) = page
            .split_once(&start)
            .unwrap_or_else(|| panic!("no {file}"));
        let (block, _) = rest.split_once("```").unwrap();
        fs::write(own.join(file), block).unwrap();
    }
    let commands = helm_commands("docs/kubernetes.md");
    let commands = commands
        .iter()
        .filter(|command| command.contains("billing"));
    let mut ran = 0;
    for command in commands {
        let dry = command
            .starts_with("install ")
            .then_some("--dry-run=client");
        let output = tool("helm")
            .args(command.split_whitespace())
            .args(dry)
            .current_dir(around.path())
            .output()
            .unwrap();
        assert!(output.status.success(), "{command}: {}", text(&output));
        ran += 1;
    }
    assert_eq!(ran, 2, "dependency build, install");
    let own = Objects::parse(&render_chart(&own, &[]).unwrap());
    let ours = Objects::of(
        "minimal",
        &["leasehold.mongodb.secretName=\"billing-mongodb\""],
    );
    assert_eq!(own.sidecar(), ours.sidecar());
    for kind in [
        "Role",
        "RoleBinding",
        "ServiceAccount",
        "ValidatingAdmissionPolicy",
    ] {
        assert_eq!(own.one(kind)["spec"], ours.one(kind)["spec"]);
        assert_eq!(own.one(kind)["rules"], ours.one(kind)["rules"]);
    }
    let mounts = own.workload()["volumeMounts"].as_array().unwrap();
    assert!(mounts.iter().any(|mount| mount["readOnly"] == true));
    // What the restricted level asks of it.
    let pod = &own.pod()["securityContext"];
    assert_eq!(pod["runAsNonRoot"], true);
    assert_eq!(pod["seccompProfile"]["type"], "RuntimeDefault");
    let context = &own.workload()["securityContext"];
    assert_eq!(context["allowPrivilegeEscalation"], false);
    assert_eq!(context["capabilities"]["drop"][0], "ALL");
}

#[test]
fn the_documented_values_of_supervisor_mode_are_an_installation() {
    let page = fs::read_to_string(root().join("docs/kubernetes.md")).unwrap();
    let (_, rest) = page.split_once("```yaml\n# supervisor.yaml\n").unwrap();
    let (values, _) = rest.split_once("```").unwrap();
    let file = tempfile::NamedTempFile::with_suffix(".yaml").unwrap();
    fs::write(file.path(), values).unwrap();
    let rendered = render_chart(&chart(), &["--values", file.path().to_str().unwrap()]);
    let objects = Objects::parse(&rendered.unwrap());
    let arguments = objects.daemon()["args"].as_array().unwrap();
    assert!(arguments.ends_with(&["--".into(), "/orders".into(), "--serve".into()]));
    // What the page says of the time that a pod has.
    assert_eq!(objects.pod()["terminationGracePeriodSeconds"], 25);
}
