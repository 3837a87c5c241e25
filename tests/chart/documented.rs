//! Goal: what the documentation tells a reader to type works when it is copied.
//! Method: the commands are taken out of the pages and run.

use std::fs;

use crate::helm::{root, text, tool};

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
