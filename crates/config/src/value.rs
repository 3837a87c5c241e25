//! Parses and checks single values. Nothing is guessed: a duration has a unit, a flag is `true` or
//! `false`, and `007` is a name.

use std::ffi::OsString;
use std::net::{Ipv4Addr, SocketAddr};

use super::rendered_for::RenderedFor;
use super::schema::ValueType;
use leasehold_core::election::{IDENTITY_LENGTH_MAX, Identity, NameError, ResourceName};
pub use leasehold_host::duration::parse_duration as duration;
pub(super) use leasehold_host::duration::unit_is_missing;
use leasehold_mongodb::uri::ConnectionUri;

/// Checks a value. The error describes the accepted values.
pub(super) fn check(kind: ValueType, text: &str) -> Result<(), String> {
    match kind {
        ValueType::ResourceName => optional(text, |text| name(ResourceName::new(text))),
        ValueType::Identity => optional(text, |text| name(Identity::new(text))),
        ValueType::Line => optional(text, line),
        ValueType::Uri => optional(text, |text| {
            let parsed = ConnectionUri::parse(text);
            parsed.map(drop).map_err(|problem| format!("it {problem}"))
        }),
        ValueType::Path => path(text),
        ValueType::Database => database(text),
        ValueType::Collection => collection(text),
        ValueType::Duration { min, max } => duration(text, min, max).map(drop),
        ValueType::Listen => listen(text).map(drop),
        ValueType::LabelPrefix => label_prefix(text),
        ValueType::RenderedFor => optional(text, |text| RenderedFor::from_text(text).map(drop)),
        ValueType::OneOf(words) if words.contains(&text) => Ok(()),
        ValueType::OneOf(words) => {
            let words: Vec<_> = words.iter().map(|word| format!("{word:?}")).collect();
            Err(format!("expected one of {}", words.join(", ")))
        }
        ValueType::Flag => flag(text).map(drop),
        ValueType::Count { min, max } => count(text, min, max).map(drop),
        ValueType::Command => command(text).map(drop),
        ValueType::HealthUrl => optional(text, health_url),
    }
}

/// Returns a text that is equal for equal values.
pub(super) fn canonical(kind: ValueType, text: &str) -> String {
    match kind {
        ValueType::Duration { min, max } => format!("{:?}", duration(text, min, max)),
        ValueType::Count { min, max } => format!("{:?}", count(text, min, max)),
        ValueType::Command => format!("{:?}", command(text)),
        ValueType::Listen => format!("{:?}", listen(text)),
        _ => text.to_owned(),
    }
}

/// Parses `true` or `false`.
pub(super) fn flag(text: &str) -> Result<bool, String> {
    match text {
        "true" => Ok(true),
        "false" => Ok(false),
        _ => Err("expected true or false".to_owned()),
    }
}

/// Parses a whole number between two bounds.
pub(super) fn count(text: &str, min: u32, max: u32) -> Result<u32, String> {
    text.parse()
        .ok()
        .filter(|count| (min..=max).contains(count))
        .ok_or_else(|| format!("expected a whole number from {min} to {max}"))
}

/// Parses a program and its arguments: a JSON list (the form of a list in a file), or words
/// separated by commas. An empty text is an empty list.
pub(super) fn command(text: &str) -> Result<Vec<OsString>, String> {
    const EXPECTED: &str = "expected a program and its arguments: a list of texts such as \
                            [\"/bin/check\", \"--fast\"], or /bin/check,--fast";
    let words: Vec<String> = if text.starts_with('[') {
        serde_json::from_str(text).map_err(|_| EXPECTED.to_owned())?
    } else if text.is_empty() {
        Vec::new()
    } else {
        text.split(',').map(str::to_owned).collect()
    };
    let nameless = !text.is_empty() && words.first().is_none_or(String::is_empty);
    if nameless || words.iter().any(|word| word.contains('\0')) {
        return Err(EXPECTED.to_owned());
    }
    Ok(words.into_iter().map(OsString::from).collect())
}

fn health_url(text: &str) -> Result<(), String> {
    let refused = |why: &str| {
        Err(format!(
            "{why}: expected a URL such as \"http://127.0.0.1:8080/healthz\""
        ))
    };
    let Ok(url) = text.parse::<http::Uri>() else {
        return refused("this is not a URL");
    };
    match (url.scheme_str(), url.host()) {
        (Some("http"), Some(host)) if !host.is_empty() => Ok(()),
        (Some("https"), _) => refused("https is not supported for health checks of the workload"),
        _ => refused("this is not an HTTP URL"),
    }
}

/// Parses an address and a port; `None` for the empty text. `localhost` and a missing address are
/// accepted, as by other programs. Other names are not resolved.
pub(super) fn listen(text: &str) -> Result<Option<SocketAddr>, String> {
    if text.is_empty() {
        return Ok(None);
    }
    let port = |text: &str| text.parse::<u16>().ok();
    let address = match text.rsplit_once(':') {
        Some(("", number)) => port(number).map(|port| (Ipv4Addr::UNSPECIFIED, port).into()),
        Some(("localhost", number)) => port(number).map(|port| (Ipv4Addr::LOCALHOST, port).into()),
        _ => text.parse().ok(),
    };
    address.map(Some).ok_or_else(|| {
        "expected an IP address and a port such as \"127.0.0.1:9402\", \"localhost:9402\", \
         \":9402\" (all IPv4 addresses) or \"[::]:9402\" (all addresses), or \"\" to turn it off"
            .to_owned()
    })
}

/// Checks for a DNS subdomain, as Kubernetes requires.
fn label_prefix(text: &str) -> Result<(), String> {
    const LENGTH_MAX: usize = 253;
    let legal = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    let part = |part: &str| {
        !part.is_empty()
            && part.chars().all(legal)
            && !part.starts_with('-')
            && !part.ends_with('-')
    };
    accepted(
        text.len() <= LENGTH_MAX && text.split('.').all(part),
        "expected a domain such as \"leasehold.dev\": lower-case letters, digits, \"-\" and \".\", \
         at most 253 bytes",
    )
}

fn optional(text: &str, check: impl Fn(&str) -> Result<(), String>) -> Result<(), String> {
    if text.is_empty() { Ok(()) } else { check(text) }
}

fn accepted(legal: bool, expected: &str) -> Result<(), String> {
    legal.then_some(()).ok_or_else(|| expected.to_owned())
}

fn name<T>(name: Result<T, NameError>) -> Result<(), String> {
    name.map(drop)
        .map_err(|error| format!("expected {}", error.expected))
}

fn line(text: &str) -> Result<(), String> {
    accepted(
        text.len() <= IDENTITY_LENGTH_MAX && !text.chars().any(char::is_control),
        "expected 1 to 253 bytes without control characters",
    )
}

fn path(text: &str) -> Result<(), String> {
    accepted(!text.contains('\0'), "expected a path without NUL")
}

/// Checks MongoDB's rules for database names, including those for Windows, so that a name is valid
/// on every server.
fn database(text: &str) -> Result<(), String> {
    /// MongoDB requires fewer than 64 bytes.
    const LENGTH_MAX: usize = 63;
    if ["local", "config"].contains(&text.to_lowercase().as_str()) {
        return Err(
            "expected another database: MongoDB does not replicate this one like data".to_owned(),
        );
    }
    let illegal = |c: char| c.is_whitespace() || c.is_control() || "/\\.\"$*<>:|?".contains(c);
    accepted(
        !text.is_empty() && text.len() <= LENGTH_MAX && !text.contains(illegal),
        "expected 1 to 63 bytes without spaces and without any of / \\ . \" $ * < > : | ?",
    )
}

fn collection(text: &str) -> Result<(), String> {
    /// With the 63 bytes of the database and the dot, the total stays below MongoDB's limit of 255.
    const LENGTH_MAX: usize = 180;
    let legal = !text.is_empty()
        && text.len() <= LENGTH_MAX
        && !text.contains(|c: char| c == '$' || c.is_control())
        && !text.starts_with("system.")
        && !text.starts_with('.')
        && !text.ends_with('.');
    accepted(
        legal,
        "expected 1 to 180 bytes without $, not beginning with \"system.\", and with no point \
         at either end",
    )
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const HOUR: Duration = Duration::from_secs(3600);

    /// Asserts that each of these values is refused, with a text that contains `hint`.
    fn assert_refused(kind: ValueType, values: &[&str], hint: &str) {
        for value in values {
            let expected = check(kind, value).expect_err(value);
            assert!(expected.contains(hint), "{value}: {expected}");
        }
    }

    fn assert_accepted(kind: ValueType, values: &[&str]) {
        for value in values {
            assert_eq!(check(kind, value), Ok(()), "{value}");
        }
    }

    const LEAST: Duration = Duration::from_millis(50);
    const UP_TO_AN_HOUR: ValueType = ValueType::Duration {
        min: LEAST,
        max: HOUR,
    };

    fn parsed(text: &str) -> Result<Duration, String> {
        duration(text, LEAST, HOUR)
    }

    #[test]
    fn durations_have_units() {
        assert_eq!(parsed("18s"), Ok(Duration::from_secs(18)));
        assert_eq!(parsed("500ms"), Ok(Duration::from_millis(500)));
        assert_eq!(parsed("1m30s"), Ok(Duration::from_secs(90)));
        assert_eq!(parsed("19.2s"), Ok(Duration::from_millis(19_200)));
        for bare in ["18", "1.5"] {
            let hint = parsed(bare).expect_err("a bare number");
            assert!(hint.contains(&format!("write \"{bare}s\"")), "{hint}");
        }
        let unit = "with its unit, between 50ms and 1h";
        assert_refused(UP_TO_AN_HOUR, &["0", ".", "4000"], unit);
        let wrong = ["", " ", "-1s", "s", "18 parsecs", "1s,", "٣s"];
        assert_refused(UP_TO_AN_HOUR, &wrong, "");
        assert_refused(UP_TO_AN_HOUR, &["1500us"], "milliseconds");
    }

    #[test]
    fn durations_out_of_range_say_the_range() {
        let outside = ["49ms", "0s", "3601s", "999999999years"];
        assert_refused(UP_TO_AN_HOUR, &outside, "between 50ms and 1h");
        assert_eq!(duration("0s", Duration::ZERO, HOUR), Ok(Duration::ZERO));
        // The sum of these two would panic in the humantime parser.
        assert!(parsed("18446744073709551615s 1000000000ns").is_err());
    }

    #[test]
    fn names_are_not_numbers() {
        assert_accepted(ValueType::ResourceName, &["007"]);
        assert_refused(ValueType::ResourceName, &["-7"], "");
    }

    #[test]
    fn databases_that_are_not_replicated_are_refused() {
        assert_accepted(ValueType::Database, &["leasehold"]);
        let wrong = ["", "local", "Config", "a.b", "a b", &"x".repeat(64)];
        assert_refused(ValueType::Database, &wrong, "");
        let wrong = ["", "system.users", "a$b", ".a", "a."];
        assert_refused(ValueType::Collection, &wrong, "");
    }

    #[test]
    fn label_prefixes_are_domains() {
        assert_accepted(ValueType::LabelPrefix, &["leasehold.dev", "a", "1-2.x"]);
        let long = "x".repeat(254);
        let wrong = ["", "A.dev", "a..b", "-a", "a-", "a/b", "a.", &long];
        assert_refused(ValueType::LabelPrefix, &wrong, "");
    }

    #[test]
    fn commands_are_lists() {
        let words = |text| -> Vec<_> { command(text).expect("a command") };
        assert_eq!(words(""), [""; 0]);
        assert_eq!(words("/bin/check"), ["/bin/check"]);
        assert_eq!(words("/bin/check,-v,"), ["/bin/check", "-v", ""]);
        assert_eq!(words(r#"["a b","c,d"]"#), ["a b", "c,d"]);
        let wrong = [",x", "[]", "[1]", "[\"\"]", "[\"a\"", "a,b\0"];
        let example = "such as [\"/bin/check\", \"--fast\"]";
        assert_refused(ValueType::Command, &wrong, example);
    }

    #[test]
    fn counts_say_their_range() {
        assert_eq!(count("3", 1, 5), Ok(3));
        for wrong in ["0", "6", "-1", "three", "", "1.0"] {
            let error = count(wrong, 1, 5).expect_err(wrong);
            assert_eq!(error, "expected a whole number from 1 to 5");
        }
    }

    #[test]
    fn health_is_asked_over_plain_http() {
        let local = ["", "http://localhost/", "http://[::1]:1"];
        assert_accepted(ValueType::HealthUrl, &local);
        assert_accepted(ValueType::HealthUrl, &["http://127.0.0.1:8080/healthz?x=1"]);
        let example = "http://127.0.0.1:8080/healthz";
        let tls = ["https://localhost/"];
        assert_refused(ValueType::HealthUrl, &tls, example);
        let wrong = ["localhost:80", "/healthz", "http://", "ftp://a", "a b"];
        assert_refused(ValueType::HealthUrl, &wrong, example);
    }

    #[test]
    fn addresses_have_ports() {
        assert_eq!(listen(""), Ok(None));
        assert!(listen("[::1]:0").is_ok());
        let address = |text: &str| listen(text).map(|address| address.map(|a| a.to_string()));
        let all = Ok(Some("0.0.0.0:9402".to_owned()));
        assert_eq!(address(":9402"), all);
        let local = Ok(Some("127.0.0.1:9402".to_owned()));
        assert_eq!(address("localhost:9402"), local);
        let no_port = ["9402", ":", "localhost", "127.0.0.1", "localhost:http"];
        assert_refused(ValueType::Listen, &no_port, "");
        let wrong = [":99999", "elsewhere:9402", "127.0.0.1:99999"];
        assert_refused(ValueType::Listen, &wrong, "");
    }
}
