//! Goal: the steps of the release workflow work before a tag is pushed. Method: lints the workflows,
//! compares their actions and scripts with the checkout, and runs the scripts without publishing.
//! The image, the signatures and the cluster need other machines: docs/releasing.md.

#![allow(clippy::unwrap_used, reason = "a failing fixture should fail the test")]

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use leasehold_testbed::Scratch;

const VERSION: &str = env!("CARGO_PKG_VERSION");
const DIGEST: &str = "sha256:aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa";

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn command(program: &str, arguments: &[&str]) -> Command {
    let mut command = Command::new(root().join(program));
    command.args(arguments).current_dir(root());
    command
}

/// Runs a command and returns its exit code, standard output and standard error.
fn run(mut command: Command) -> (Option<i32>, String, String) {
    let output = command.output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (
        output.status.code(),
        text(output.stdout),
        text(output.stderr),
    )
}

/// Returns the value of `NAME=VALUE` in a tool's output.
fn tool(fetch: &str, name: &str) -> PathBuf {
    let (code, tools, errors) = run(command(fetch, &[]));
    assert_eq!(code, Some(0), "{errors}");
    let start = format!("{name}=");
    let path = tools.lines().find_map(|line| line.strip_prefix(&start));
    PathBuf::from(path.unwrap_or_else(|| panic!("{name} in {tools}")))
}

fn workflows() -> Vec<(PathBuf, String)> {
    let entries = fs::read_dir(root().join(".github/workflows")).unwrap();
    let paths = entries.map(|entry| entry.unwrap().path());
    paths
        .map(|path| (path.clone(), fs::read_to_string(path).unwrap()))
        .collect()
}

#[test]
fn the_workflows_pass_actionlint_and_zizmor() {
    let mut make = Command::new("make");
    make.args(["--no-print-directory", "workflows"])
        .current_dir(root());
    let (code, output, errors) = run(make);
    assert_eq!(code, Some(0), "{output}{errors}");
}

#[test]
fn every_action_is_pinned_to_a_commit_with_its_version() {
    for (path, text) in workflows() {
        for line in text.lines() {
            let Some((_, action)) = line.split_once("uses: ") else {
                continue;
            };
            if action.starts_with("./") {
                continue;
            }
            let (name, version) = action
                .split_once(" # v")
                .unwrap_or_else(|| panic!("{line}"));
            let (_, commit) = name.split_once('@').unwrap();
            let is_commit = commit.len() == 40 && commit.bytes().all(|b| b.is_ascii_hexdigit());
            assert!(
                is_commit && !version.is_empty(),
                "{}: {line}",
                path.display()
            );
        }
    }
}

#[test]
fn every_script_of_the_workflows_exists_and_can_be_run() {
    let mut scripts = 0;
    for (path, text) in workflows() {
        let words = text.split(|c: char| c.is_whitespace() || c == '"');
        let named = words.filter(|word| {
            let is_script = ["packaging/", "tests/", ".ci/"]
                .iter()
                .any(|at| word.starts_with(at));
            is_script && !word.contains(['*', '.']) || *word == ".ci/run"
        });
        for script in named.filter(|word| !word.ends_with('/')) {
            let file = root().join(script);
            let mode = fs::metadata(&file).map(|found| found.permissions().mode());
            assert!(
                mode.is_ok_and(|mode| mode & 0o111 != 0),
                "{script} in {}",
                path.display()
            );
            scripts += 1;
        }
    }
    assert!(scripts >= 8, "{scripts} scripts");
}

#[test]
fn a_run_without_a_tag_publishes_nothing() {
    let (code, outputs, errors) = run(command("packaging/release-plan", &["main", "false"]));
    assert_eq!(code, Some(0), "{errors}");
    assert!(outputs.contains("push=false\n"), "{outputs}");
    assert!(
        outputs.contains(&format!("version={VERSION}\n")),
        "{outputs}"
    );
}

#[test]
fn a_tag_of_another_version_is_refused() {
    let (code, outputs, errors) = run(command("packaging/release-plan", &["v9.8.7", "true"]));
    assert_eq!((code, outputs.as_str()), (Some(1), ""));
    assert!(errors.contains("the tag is v9.8.7"), "{errors}");
}

#[test]
fn the_image_gets_the_bases_and_its_labels_as_annotations() {
    let (code, outputs, errors) = run(command("packaging/image-arguments", &[]));
    assert_eq!(code, Some(0), "{errors}");
    for expected in [
        "\nRUST_IMAGE=docker.io/library/rust:",
        "\nBASE_IMAGE=gcr.io/distroless/static-debian13:nonroot@sha256:",
        &format!("\nLEASEHOLD_VERSION={VERSION}\n"),
        &format!("\nindex:org.opencontainers.image.version={VERSION}\n"),
        "\nindex:org.opencontainers.image.source=https://",
    ] {
        assert!(outputs.contains(expected), "{expected} in {outputs}");
    }
    assert!(!outputs.contains("${"), "{outputs}");
}

#[test]
fn the_notes_are_the_versions_section_with_absolute_links() {
    let scratch = Scratch::new();
    let changelog = "# Changelog\n\n## 1.2.0 (2026-11-24)\n\n- New ([page](docs/page.md#top), [site](https://a.test/)).\n\n## 1.1.0 (2026-10-01)\n\n- Old.\n";
    fs::write(scratch.path().join("CHANGELOG.md"), changelog).unwrap();
    let directory = scratch.path().to_str().unwrap();
    let (code, notes, errors) = run(command("packaging/notes", &["1.2.0", directory]));
    assert_eq!(code, Some(0), "{errors}");
    assert!(notes.starts_with("- New ([page](https://"), "{notes}");
    assert!(notes.contains("/blob/v1.2.0/docs/page.md#top)"), "{notes}");
    assert!(
        notes.contains("[site](https://a.test/)") && !notes.contains("Old"),
        "{notes}"
    );
    let (code, _, errors) = run(command("packaging/notes", &["1.3.0", directory]));
    assert_eq!(code, Some(1));
    assert!(errors.contains("no section \"## 1.3.0"), "{errors}");
}

#[test]
fn the_packaged_charts_run_the_image_of_the_release_by_digest() {
    let helm = tool("tests/testbed/fetch-chart-tools", "helm");
    let scratch = Scratch::new();
    let directory = scratch.path().to_str().unwrap();
    let image = "registry.acme.test/platform/leasehold";
    let mut package = command("packaging/charts", &[directory, image, DIGEST]);
    package.env("HELM", &helm);
    let (code, _, errors) = run(package);
    assert_eq!(code, Some(0), "{errors}");
    let mut rehearsal = command(
        "packaging/publish",
        &["charts", "registry.acme.test", directory],
    );
    rehearsal.env("HELM", &helm).env("REHEARSAL", "1");
    let (code, _, errors) = run(rehearsal);
    assert_eq!(code, Some(0), "{errors}");
    assert_eq!(errors.matches("would push").count(), 3, "{errors}");
    let chart = scratch.path().join(format!("leasehold-{VERSION}.tgz"));
    let mut template = Command::new(&helm);
    template.args(["template", "orders"]).arg(chart).args([
        "--set=leasehold.mongodb.secretName=mongodb",
        "--set=workload.image.repository=registry.acme.test/orders",
        "--set-string=workload.image.tag=1.0.0",
    ]);
    let (code, manifests, errors) = run(template);
    assert_eq!(code, Some(0), "{errors}");
    let expected = format!("image: {image}@{DIGEST}");
    assert!(
        manifests.replace('"', "").contains(&expected),
        "{manifests}"
    );
    for wrong in [
        [directory, "leasehold", DIGEST],
        [directory, image, "sha256:12"],
    ] {
        assert_eq!(run(command("packaging/charts", &wrong)).0, Some(64));
    }
}

const IN_THE_WHEEL: &[&str] = &[
    "would publish",
    ".whl",
    "leasehold/py.typed",
    "leasehold/aio.py",
    "LICENSE-MIT",
    "Description-Content-Type: text/markdown",
    "pip install leasehold",
];

#[test]
fn the_packages_for_python_and_node_have_their_page_and_licences() {
    let scratch = Scratch::new();
    for (part, expected) in [
        ("npm", &["README.md", "LICENSE-MIT"][..]),
        ("pypi", IN_THE_WHEEL),
    ] {
        let mut rehearsal = command("packaging/publish", &[part]);
        // npm would write a log into the home.
        rehearsal
            .env("REHEARSAL", "1")
            .env("npm_config_cache", scratch.path());
        let (code, output, errors) = run(rehearsal);
        let output = output + &errors;
        assert_eq!(code, Some(0), "{part}: {output}");
        for text in expected {
            assert!(output.contains(text), "{text} in {output}");
        }
    }
    for wrong in [&["everything"][..], &[], &["charts"]] {
        assert_eq!(
            run(command("packaging/publish", wrong)).0,
            Some(64),
            "{wrong:?}"
        );
    }
}

#[test]
fn the_programs_of_a_mongodb_image_run_with_its_libraries() {
    let scratch = Scratch::new();
    let docker = scratch.path().join("docker");
    // An engine whose only image has programs that print their library path.
    let engine = "#!/bin/sh\ncase $1 in\ncreate) echo container ;;\n\
        cp) case $2 in\n  */bin/*) printf '#!/bin/sh\\necho \"${0##*/} $LD_LIBRARY_PATH\"\\n' >\"$3\"; chmod +x \"$3\" ;;\n\
        *) exit 1 ;;\n  esac ;;\nesac\n";
    leasehold_testbed::process::write_program(&docker, engine);
    let target = scratch.path().join("with space");
    let mut fetch = command("tests/testbed/fetch-mongodb-image", &["mongo:8.0"]);
    fetch.arg(&target).env("DOCKER", &docker);
    let (code, _, errors) = run(fetch);
    assert_eq!(code, Some(0), "{errors}");
    for program in ["mongod", "mongos"] {
        let (code, output, errors) = run(Command::new(target.join(program)));
        let expected = format!("{program} {}/files\n", target.display());
        assert_eq!((code, output), (Some(0), expected), "{errors}");
    }
}
