//! The table of bounds in `docs/architecture.md` states the constants as they are in the code.

#![allow(
    clippy::unwrap_used,
    reason = "a page or a file that is missing should end its test"
)]

use std::path::Path;

const SECTION: &str = "## Bounds of waits\n";

fn read(path: &str) -> String {
    std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(path)).unwrap()
}

/// Returns a duration as the page writes it, from its constructor: `from_millis(500)` is `500 ms`.
fn written(constructor: &str) -> Option<String> {
    let (unit, rest) = constructor.split_once('(')?;
    let (number, _) = rest.split_once(')')?;
    let unit = match unit {
        "from_millis" => "ms",
        "from_secs" => "s",
        _ => return None,
    };
    Some(format!("{} {unit}", number.replace('_', "")))
}

/// Returns the value of a constant in the text of a source file.
fn constant(source: &str, name: &str) -> Option<String> {
    let definition = format!("const {name}: Duration = Duration::");
    let (_, rest) = source.split_once(&definition)?;
    written(rest)
}

/// Returns the text between the backquotes of a cell.
fn quoted(cell: &str) -> Vec<&str> {
    cell.split('`').skip(1).step_by(2).collect()
}

#[test]
fn each_constant_has_the_value_that_the_table_states() {
    let page = read("docs/architecture.md");
    let (_, section) = page.split_once(SECTION).expect("the section");
    let (section, _) = section.split_once("\n## ").expect("the next section");
    let mut constants = 0;
    for row in section
        .lines()
        .filter(|line| line.starts_with("| "))
        .skip(2)
    {
        let cells: Vec<_> = row.trim_matches('|').split(" | ").map(str::trim).collect();
        let [_, _, most, _, bound] = cells[..] else {
            panic!("five cells: {row}");
        };
        let [name, path] = quoted(bound)[..] else {
            assert!(["key", "option"].contains(&bound), "{row}");
            assert!(!quoted(most).is_empty(), "names its key or option: {row}");
            continue;
        };
        let value = constant(&read(path), name);
        let value = value.unwrap_or_else(|| panic!("no constant {name} in {path}"));
        let stated = most.split([',', ' ']).collect::<Vec<_>>().join(" ");
        let stated = format!(" {stated} ");
        assert!(
            stated.contains(&format!(" {value} ")),
            "{name} is {value}: {row}"
        );
        constants += 1;
    }
    assert!(constants >= 20, "{constants}");
}

#[test]
fn values_are_read_as_the_code_has_them() {
    let source = "/// A.\npub const A: Duration = Duration::from_millis(1_500);\n\
                  const B: Duration = Duration::from_secs(10);";
    assert_eq!(constant(source, "A").as_deref(), Some("1500 ms"));
    assert_eq!(constant(source, "B").as_deref(), Some("10 s"));
    assert_eq!(constant(source, "C"), None);
}
