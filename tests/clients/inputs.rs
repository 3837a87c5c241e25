//! Generates status files and event lines for the packages' tests. The inputs are those in the
//! corpus and further cases. This machine's boot id and time namespace, and a deadline, replace
//! their placeholders.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use leasehold_testbed::corpus;
use leasehold_testbed::daemon::boottime_ns;

/// The status of a leader, valid for an hour. Placeholders: `@UNTIL` is the deadline, `@BOOT` the
/// boot id and `@TIME` the time namespace.
const GOOD: &str = r#"{"schema":1,"lease":"orders","identity":"{a}\" b","session":"s","role":"leader","leader":true,"token":7,"valid_until":"x","valid_until_boottime_ns":@UNTIL,"boot_id":"@BOOT","time_namespace":@TIME,"holder":{"identity":"a","token":7},"transitions":1,"since":"x","reason":null,"updated_at":"x","store_error":null}"#;

/// Replacements in `GOOD`. A reader must not lead after any of these replacements.
const CHANGES: &[(&str, &str)] = &[
    (r#""schema":1,"#, ""),
    (r#""schema":1"#, r#""schema":2"#),
    (r#""schema":1"#, r#""schema":"1""#),
    (r#""schema":1"#, r#""schema":true"#),
    (r#""leader":true"#, r#""leader":false"#),
    (r#""leader":true"#, r#""leader":null"#),
    (r#""leader":true"#, r#""leader":1"#),
    (r#""leader":true"#, r#""LEADER":true"#),
    (r#""token":7"#, r#""token":0"#),
    (r#""token":7"#, r#""token":-7"#),
    (r#""token":7"#, r#""token":7.5"#),
    (r#""token":7"#, r#""token":true"#),
    (r#""token":7"#, r#""token":null"#),
    (r#""token":7"#, r#""token":99999999999999999999999"#),
    (r#":@UNTIL"#, r#":1"#),
    (r#":@UNTIL"#, r#":-@UNTIL"#),
    (r#":@UNTIL"#, r#":null"#),
    (r#":@UNTIL"#, r#":true"#),
    (r#":@UNTIL"#, r#":9223372036854775808"#),
    (r#":@UNTIL"#, r#":100000000000000000000"#),
    (r#":@UNTIL"#, r#":1e300"#),
    (r#":@UNTIL"#, r#":"@UNTIL""#),
    (r#""valid_until_boottime_ns":@UNTIL,"#, ""),
    (r#""boot_id":"@BOOT","#, ""),
    (r#""boot_id":"@BOOT""#, r#""boot_id":"another""#),
    (r#""boot_id":"@BOOT""#, r#""boot_id":["@BOOT"]"#),
    (r#""boot_id":"@BOOT""#, r#""boot_id":"""#),
    (r#""time_namespace":@TIME"#, r#""time_namespace":1"#),
    (r#""time_namespace":@TIME"#, r#""time_namespace":true"#),
    (r#""time_namespace":@TIME"#, r#""time_namespace":"@TIME""#),
];

/// The status of a daemon that could not read the boot id. A reader accepts this status from a
/// file, but not from an event.
const OF_EVENTS: &[(&str, &str)] = &[(r#""boot_id":"@BOOT""#, r#""boot_id":null"#)];

/// Writes the file `good`, and the directories `files` and `lines` with inputs that must not make a
/// reader lead. Readers ignore lines that do not begin with `data:`.
pub(crate) fn write(directory: &Path) {
    fs::write(directory.join("good"), this_machine(GOOD.as_bytes())).unwrap();
    let changed = |changes: &[(&str, &str)]| -> Vec<Vec<u8>> {
        let change = |(old, new): &(&str, &str)| {
            assert!(GOOD.contains(old), "{old}");
            GOOD.replacen(old, new, 1).into_bytes()
        };
        changes.iter().map(change).collect()
    };
    let events = corpus::inputs("events").into_iter().map(of_this_schema);
    let mut lines: Vec<_> = events.collect();
    let data = lines.iter().filter_map(|line| line.strip_prefix(b"data: "));
    let mut files: Vec<_> = data.map(<[u8]>::to_vec).collect();
    files.extend(corpus::inputs("status"));
    files.extend(changed(CHANGES));
    let data = [changed(CHANGES), changed(OF_EVENTS)].concat();
    lines.extend(data.iter().map(|json| [b"data: ", &json[..]].concat()));
    write_all(&directory.join("files"), &files);
    write_all(&directory.join("lines"), &lines);
}

fn write_all(directory: &Path, inputs: &[Vec<u8>]) {
    fs::create_dir(directory).unwrap();
    for (number, input) in inputs.iter().enumerate() {
        fs::write(directory.join(format!("{number:03}")), this_machine(input)).unwrap();
    }
}

/// Adds the schema to an event of the corpus. Without the schema, a reader would reject the event
/// for the missing schema instead of the event's own fault.
fn of_this_schema(line: Vec<u8>) -> Vec<u8> {
    match line.windows(2).position(|pair| pair == b"{\"") {
        Some(at) => [&line[..=at], br#""schema":1,"#, &line[at + 1..]].concat(),
        None => line,
    }
}

fn this_machine(input: &[u8]) -> Vec<u8> {
    let boot_id = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap();
    let time = fs::metadata("/proc/self/ns/time").map_or(1, |namespace| namespace.ino());
    let values = [
        ("@UNTIL", (boottime_ns() + 3_600_000_000_000).to_string()),
        ("@BOOT", boot_id.trim().to_owned()),
        ("@TIME", time.to_string()),
    ];
    let mut bytes = input.to_vec();
    for (name, value) in values {
        let mut from = 0;
        let at = |bytes: &[u8], from: usize| {
            let found = bytes[from..].windows(name.len());
            found
                .into_iter()
                .position(|part| part == name.as_bytes())
                .map(|at| from + at)
        };
        while let Some(found) = at(&bytes, from) {
            bytes.splice(found..found + name.len(), value.bytes());
            from = found + value.len();
        }
    }
    bytes
}
