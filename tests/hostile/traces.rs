//! Runs the trace checker on mutated traces. The checker must accept each trace or report a
//! violation, and must not panic.

use leasehold_testbed::{Mutator, corpus};
use leasehold_trace_check::{Checked, Checker, Violation};
use serde_json::{Value, json};

const TRACES: usize = 4_000;
const BYTES_MAX: usize = 300;

const TOKENS: &[&[u8]] = &[
    b"\n",
    b"\0",
    b"\"",
    b"{",
    b"}",
    b"[[[[[[[[[[[[[[[[",
    b"null",
    b"-1",
    b"1e999",
    b"18446744073709551615",
    b"18446744073709551616",
    b"\"number\":0,",
    b"\"machine\":\"\",",
    b"\"started\":{},",
    b"\"turn\":null,",
    b"\"Unknown\"",
    b"\"TimerFired\"",
    b"\xff",
    b"\\ud800",
];

fn other_value(mutator: &mut Mutator) -> Value {
    let values = [
        json!(null),
        json!(true),
        json!(0),
        json!(1),
        json!(-1),
        json!(i64::MAX),
        json!(u64::MAX),
        json!(1.5e300),
        json!(""),
        json!("x".repeat(300)),
        json!("ffffffff-ffff-4fff-bfff-ffffffffffff"),
        json!("Unknown"),
        json!([]),
        json!({}),
        json!({ "secs": u64::MAX, "nanos": 999_999_999 }),
        json!([[1], { "a": null }]),
    ];
    mutator.pick(&values).clone()
}

fn paths(value: &Value, path: &str, into: &mut Vec<String>) {
    into.push(path.to_owned());
    match value {
        Value::Object(fields) => {
            for (name, value) in fields {
                paths(value, &format!("{path}/{name}"), into);
            }
        }
        Value::Array(values) => {
            for (index, value) in values.iter().enumerate() {
                paths(value, &format!("{path}/{index}"), into);
            }
        }
        _ => {}
    }
}

/// Replaces one value in a line with an unexpected value, or with the value at the same path in
/// another line.
fn other_field(line: &[u8], others: &[Vec<u8>], mutator: &mut Mutator) -> Vec<u8> {
    let Ok(mut value) = serde_json::from_slice::<Value>(line) else {
        return line.to_vec();
    };
    let mut all = Vec::new();
    paths(&value, "", &mut all);
    let path = mutator.pick(&all);
    let other: &Vec<u8> = mutator.pick(others);
    let other: Value = serde_json::from_slice(other).unwrap();
    let other = other.pointer(path).cloned();
    let new = match other.filter(|_| mutator.below(2) == 0) {
        Some(other) => other,
        None => other_value(mutator),
    };
    *value.pointer_mut(path).unwrap() = new;
    value.to_string().into_bytes()
}

fn changed(lines: &[Vec<u8>], mutator: &mut Mutator) -> Vec<u8> {
    let mut changed = lines.to_vec();
    let at = mutator.below(lines.len());
    match mutator.below(8) {
        0 => drop(changed.remove(at)),
        1 => changed.insert(at, lines[at].clone()),
        2 => changed.swap(at, mutator.below(lines.len())),
        3 => return mutator.bytes(BYTES_MAX),
        4 | 5 => changed[at] = mutator.mutated(&lines[at..=at], TOKENS),
        _ => changed[at] = other_field(&lines[at], lines, mutator),
    }
    trace(&changed)
}

fn trace(lines: &[Vec<u8>]) -> Vec<u8> {
    let mut trace = lines.join(&b'\n');
    trace.push(b'\n');
    trace
}

fn check(trace: &[u8]) -> Result<Checked, Vec<Violation>> {
    let mut checker = Checker::default();
    checker.read(trace).unwrap();
    checker.finish()
}

#[test]
fn every_trace_is_accepted_or_reported_as_a_violation() {
    let lines = corpus::inputs("trace");
    let checked = check(&trace(&lines)).unwrap_or_else(|found| panic!("{found:#?}"));
    assert!(
        checked.machines >= 2 && checked.acquisitions >= 2,
        "{checked:?}"
    );
    let seed = Mutator::seed();
    let mut mutator = Mutator::new(seed);
    let mut refused = 0;
    for number in 0..TRACES {
        let trace = changed(&lines, &mut mutator);
        let found = std::panic::catch_unwind(|| check(&trace));
        let found = found.unwrap_or_else(|_| {
            panic!(
                "HOSTILE_SEED={seed}, trace {number}: {}",
                trace.escape_ascii()
            )
        });
        refused += usize::from(found.is_err());
    }
    // A checker that accepted most of these traces would overlook mutations.
    assert!(refused > TRACES / 2, "{refused} of {TRACES} are refused");
}

/// Joins each line with the next one after so many of its bytes.
fn torn(lines: &[Vec<u8>], places: &[(usize, usize)]) -> Vec<u8> {
    let mut trace = Vec::new();
    for (number, line) in lines.iter().enumerate() {
        match places.iter().find(|(torn, _)| *torn == number) {
            Some((_, length)) => trace.extend(&line[..*length]),
            None => trace.extend([line.as_slice(), b"\n"].concat()),
        }
    }
    trace
}

#[test]
fn a_killed_writer_may_leave_an_incomplete_record_before_the_record_of_another_writer() {
    let lines = corpus::inputs("trace");
    let begins = |line: &Vec<u8>| String::from_utf8_lossy(line).contains("\"started\"");
    let other = lines.iter().rposition(begins).unwrap();
    let last = other - 1;
    for length in 0..lines[last].len() {
        let checked = check(&torn(&lines, &[(last, length)]));
        assert!(checked.is_ok(), "{length}: {checked:#?}");
    }
    // If only the newline is missing, no record is lost.
    let without_newline = torn(&lines, &[(last, lines[last].len())]);
    assert_eq!(check(&without_newline), check(&trace(&lines)));
    // The last records of three writers: each of the first two is cut.
    let mut three = lines[..=other].to_vec();
    three.insert(other, lines[0].clone());
    let halves = [(last, 9), (other, lines[0].len() / 2)];
    let checked = check(&torn(&three, &halves));
    assert!(checked.is_ok(), "{checked:#?}");
    // The writer continues, so a record was lost.
    for (places, expected) in [
        (vec![(last - 1, 40)], "is missing"),
        (vec![(last - 1, 0)], "is missing"),
    ] {
        let found = check(&torn(&lines, &places)).unwrap_err();
        assert!(found[0].what.contains(expected), "{found:#?}");
    }
    let mut garbled = lines.clone();
    garbled[last][11] = b'{';
    let found = check(&torn(&garbled, &[(last, 30)])).unwrap_err();
    assert!(found[0].what.contains("not a record"), "{found:#?}");
}
