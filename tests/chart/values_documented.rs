//! Goal: `helm show values` and each chart's README show every key with its default and a
//! description, and the schema has exactly these keys. Method: reads values.yaml as data and as
//! text, and compares it with the application chart's copy of the library's values and with the
//! tables in the READMEs. `BLESS=1 cargo test --test chart values_documented` writes the copy and
//! the tables.

use std::fmt::Write as _;
use std::fs;
use std::io::Write as _;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

use serde_json::{Map, Value};

use crate::helm::{CHARTS, root, succeed, tool};

/// Maps that are empty by default. Their keys are documented elsewhere.
const OPEN: [&str; 4] = [
    // Documented by Kubernetes.
    "workload.lifecycle",
    // Documented in docs/configuration.md.
    "config",
    "leasehold.config",
    // The map's comment describes both keys.
    "statefulSet.persistentVolumeClaimRetentionPolicy",
];

/// Keys that helm itself adds to the values of a dependency.
const ADDED_BY_HELM: [&str; 2] = ["global", "leasehold.global"];

fn file(chart: &str, name: &str) -> PathBuf {
    root().join("charts").join(chart).join(name)
}

fn read(chart: &str, name: &str) -> String {
    fs::read_to_string(file(chart, name)).unwrap()
}

fn values(chart: &str) -> Value {
    serde_saphyr::from_str(&read(chart, "values.yaml")).unwrap()
}

/// Compares a file with its expected content. With `BLESS` set, writes the expected content to the
/// file.
fn bless(chart: &str, name: &str, expected: &str) {
    if std::env::var_os("BLESS").is_some() {
        // Replaces the file atomically, because other tests may read it.
        let mut new = tempfile::NamedTempFile::new_in(file(chart, "")).unwrap();
        new.write_all(expected.as_bytes()).unwrap();
        let readable = fs::Permissions::from_mode(0o644);
        fs::set_permissions(new.path(), readable).unwrap();
        new.persist(file(chart, name)).unwrap();
        return;
    }
    let remedy = "run: BLESS=1 cargo test --test chart values_documented";
    assert_eq!(
        read(chart, name),
        expected,
        "{chart}/{name} is stale; {remedy}"
    );
}

struct Row {
    key: String,
    description: String,
    default: Option<String>,
}

/// Returns the keys with a description. In the comment above a key, `# --` starts the description,
/// and `# @default --` overrides the default in the table.
fn rows(text: &str) -> Vec<Row> {
    let mut rows = Vec::new();
    let mut above: Vec<(usize, String)> = Vec::new();
    let mut comment = Vec::new();
    for line in text.lines() {
        let trimmed = line.trim_start();
        let indent = line.len() - trimmed.len();
        if let Some(words) = trimmed.strip_prefix('#') {
            comment.push(words.trim().to_owned());
            continue;
        }
        let about = std::mem::take(&mut comment);
        let key = trimmed.split_once(':').map(|(key, _)| key);
        let Some(key) = key.filter(|_| !trimmed.starts_with('-')) else {
            continue;
        };
        above.retain(|(outer, _)| *outer < indent);
        above.push((indent, key.to_owned()));
        let Some(begin) = about.iter().position(|line| line.starts_with("--")) else {
            continue;
        };
        let lines = about[begin..].join(" ");
        let (description, default) = match lines.split_once("@default --") {
            Some((description, default)) => (description, Some(default.trim().to_owned())),
            None => (lines.as_str(), None),
        };
        let names: Vec<_> = above.iter().map(|(_, name)| name.as_str()).collect();
        rows.push(Row {
            key: names.join("."),
            description: description.trim_start_matches("--").trim().to_owned(),
            default,
        });
    }
    rows
}

fn table(chart: &str) -> String {
    let values = values(chart);
    let mut table = "| key | default | |\n| --- | --- | --- |\n".to_owned();
    for Row {
        key,
        description,
        default,
    } in rows(&read(chart, "values.yaml"))
    {
        let pointer = format!("/{}", key.replace('.', "/"));
        let value = values
            .pointer(&pointer)
            .unwrap_or_else(|| panic!("no {key}"));
        let default = default.unwrap_or_else(|| format!("`{value}`"));
        let escaped = |text: String| text.replace('|', "\\|");
        let (default, description) = (escaped(default), escaped(description));
        writeln!(table, "| `{key}` | {default} | {description} |").unwrap();
    }
    table
}

const BEGIN: &str = "<!-- values: BLESS=1 writes this table -->\n";
const END: &str = "<!-- end of the values -->\n";

/// The tables describe the values. With `BLESS`, this test therefore writes the values first.
#[test]
fn the_readme_of_each_chart_has_a_table_of_its_values() {
    repeat_the_library();
    for chart in CHARTS {
        let readme = read(chart, "README.md");
        let (before, rest) = readme.split_once(BEGIN).expect(BEGIN);
        let (_, after) = rest.split_once(END).expect(END);
        bless(
            chart,
            "README.md",
            &format!("{before}{BEGIN}{}{END}{after}", table(chart)),
        );
    }
}

const REPEATED: &str = "  # All values of charts/leasehold-sidecar; BLESS=1 writes them.\n";

/// The only value whose default differs between the library chart and the application chart.
const DIFFERENT: (&str, &str) = (
    "  # -- If true, a new leader removes the label `leader` from other pods, such as a pod on a lost node. If false, a
  # Service may route to both the lost pod and the new leader for 40 s or more. Requires permission to list pods.
  demoteOthers: false
",
    "  # -- If true, a new leader removes the label `leader` from other pods, such as a pod on a lost node. If false, a
  # Service may route to both the lost pod and the new leader for 40 s or more. Requires permission to list pods. In
  # the chart leasehold-sidecar, the default is false.
  demoteOthers: true
",
);

/// Checks that the application chart repeats the library chart's values. With `BLESS`, copies the
/// values. Returns the library chart's values.
fn repeat_the_library() -> String {
    let library = read("leasehold-sidecar", "values.yaml");
    // Skips the file's first comment, which describes the library.
    let (_, library) = library.split_once("\n\n").unwrap();
    assert!(library.contains(DIFFERENT.0));
    let library = library.replace(DIFFERENT.0, DIFFERENT.1);
    let indented = library.lines().map(|line| match line {
        "" => "\n".to_owned(),
        line => format!("  {line}\n"),
    });
    let application = read("leasehold", "values.yaml");
    let (before, _) = application.split_once(REPEATED).expect(REPEATED);
    let expected = format!("{before}{REPEATED}{}", indented.collect::<String>());
    bless("leasehold", "values.yaml", &expected);
    library
}

#[test]
fn the_values_of_the_application_include_the_values_of_the_library() {
    let library = repeat_the_library();
    let shown = succeed(
        tool("helm")
            .args(["show", "values"])
            .arg(file("leasehold", "")),
    );
    for row in rows(&library) {
        assert!(
            shown.contains(&row.description.split(' ').next().unwrap().to_owned()),
            "{}",
            row.key
        );
    }
    assert!(rows(&shown).len() > 150, "{}", rows(&shown).len());
}

fn resolved<'a>(schema: &'a Value, node: &'a Value) -> &'a Value {
    match node["$ref"].as_str() {
        Some(reference) => {
            let pointer = reference.strip_prefix('#').unwrap();
            schema
                .pointer(pointer)
                .unwrap_or_else(|| panic!("no {reference}"))
        }
        None => node,
    }
}

fn compare(
    schema: &Value,
    node: &Value,
    values: &Map<String, Value>,
    path: &str,
    differences: &mut Vec<String>,
) {
    let Some(properties) = resolved(schema, node)["properties"].as_object() else {
        return;
    };
    let full = |key: &str| format!("{path}{}{key}", if path.is_empty() { "" } else { "." });
    if values.is_empty() && OPEN.contains(&path) {
        return;
    }
    for key in properties.keys() {
        let key = full(key);
        let name = key.rsplit('.').next().unwrap();
        if !values.contains_key(name) && !ADDED_BY_HELM.contains(&key.as_str()) {
            differences.push(format!("{key} is only in the schema"));
        }
    }
    for (name, value) in values {
        let key = full(name);
        let Some(property) = properties.get(name) else {
            differences.push(format!("{key} is only in values.yaml"));
            continue;
        };
        if let Value::Object(inner) = value {
            compare(schema, property, inner, &key, differences);
        }
    }
}

#[test]
fn the_schema_has_exactly_the_keys_of_the_values() {
    for chart in CHARTS {
        let schema: Value = serde_json::from_str(&read(chart, "values.schema.json")).unwrap();
        let values = values(chart);
        let mut differences = Vec::new();
        compare(
            &schema,
            &schema,
            values.as_object().unwrap(),
            "",
            &mut differences,
        );
        // These keys are only for parent charts, which use them in a dependency's condition.
        differences.retain(|it| {
            !["enabled", "leasehold.enabled", "leasehold-sidecar"]
                .iter()
                .any(|key| *it == format!("{key} is only in the schema"))
        });
        assert_eq!(differences, Vec::<String>::new(), "{chart}");
    }
    // `compare` reports differences in both directions.
    let schema = serde_json::json!({"properties": {"a": {}, "b": {"properties": {"c": {}}}}});
    let values = serde_json::json!({"b": {"d": 1}});
    let mut differences = Vec::new();
    compare(
        &schema,
        &schema,
        values.as_object().unwrap(),
        "",
        &mut differences,
    );
    assert_eq!(
        differences,
        [
            "a is only in the schema",
            "b.c is only in the schema",
            "b.d is only in values.yaml"
        ]
    );
}
