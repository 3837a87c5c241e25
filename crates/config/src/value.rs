use std::net::{Ipv4Addr, SocketAddr};

use config::ValueKind;
use serde_json::{Value, json};

use super::rendered_for::RenderedFor;
use super::schema::ValueType;
use super::secret::shown;
use leasehold_core::election::{IDENTITY_LENGTH_MAX, Identity, NameError, ResourceName};
pub use leasehold_host::duration::parse_duration as duration;
pub(super) use leasehold_host::duration::unit_is_missing;
use leasehold_mongodb::uri::ConnectionUri;

/// Parses a value into JSON; an empty value becomes null. The error describes the accepted values.
pub(super) fn parse(kind: ValueType, text: &str) -> Result<Value, String> {
    let text_if = |checked: Result<(), String>| checked.map(|()| Value::from(text));
    match kind {
        ValueType::ResourceName
        | ValueType::Identity
        | ValueType::Line
        | ValueType::Uri
        | ValueType::Path
        | ValueType::Listen
        | ValueType::RenderedFor
        | ValueType::HealthUrl
            if text.is_empty() =>
        {
            Ok(Value::Null)
        }
        ValueType::ResourceName => text_if(name(ResourceName::new(text))),
        ValueType::Identity => text_if(name(Identity::new(text))),
        ValueType::Line => text_if(line(text)),
        ValueType::Uri => {
            let parsed = ConnectionUri::parse(text);
            text_if(parsed.map(drop).map_err(|problem| format!("it {problem}")))
        }
        ValueType::Path if text.contains('\0') => Err("expected a path without NUL".to_owned()),
        ValueType::Path => Ok(text.into()),
        ValueType::Database => text_if(database(text)),
        ValueType::Collection => text_if(collection(text)),
        ValueType::Duration(min, max) => duration(text, min, max).map(|time| json!(time)),
        ValueType::Listen => match listen(text, 9402) {
            Ok(address) => Ok(address.to_string().into()),
            Err(expected) => Err(expected + ", or \"\" to turn it off"),
        },
        ValueType::LabelPrefix => text_if(label_prefix(text)),
        ValueType::RenderedFor => text_if(RenderedFor::try_from(text.to_owned()).map(drop)),
        ValueType::OneOf(words) if words.contains(&text) => Ok(text.into()),
        ValueType::OneOf(words) => {
            let words: Vec<_> = words.iter().map(|word| format!("{word:?}")).collect();
            Err(format!("expected one of {}", words.join(", ")))
        }
        ValueType::Flag => match text {
            "true" => Ok(true.into()),
            "false" => Ok(false.into()),
            _ => Err("expected true or false".to_owned()),
        },
        ValueType::Count(min, max) => {
            let count = text.parse().ok();
            let count = count.filter(|count| (min..=max).contains(count));
            let expected = || format!("expected a whole number from {min} to {max}");
            count.map(Value::from).ok_or_else(expected)
        }
        ValueType::Command => command(text).map(Value::from),
        ValueType::HealthUrl => text_if(health_url(text)),
    }
}

/// Parses a program and its arguments, given as a JSON list or as words separated by commas.
fn command(text: &str) -> Result<Vec<String>, String> {
    const EXPECTED: &str = "expected a program and its arguments: a list of strings such as \
                            [\"/bin/check\", \"--fast\"], or /bin/check,--fast";
    if text.is_empty() {
        return Ok(Vec::new());
    }
    let words: Vec<String> = match text.starts_with('[') {
        true => serde_json::from_str(text).unwrap_or_default(),
        false => text.split(',').map(str::to_owned).collect(),
    };
    let nameless = words.first().is_none_or(String::is_empty);
    if nameless || words.iter().any(|word| word.contains('\0')) {
        return Err(EXPECTED.to_owned());
    }
    Ok(words)
}

fn health_url(text: &str) -> Result<(), String> {
    let url = text.parse::<http::Uri>().ok();
    let why = match url.as_ref().map(|url| (url.scheme_str(), url.host())) {
        Some((Some("http"), Some(host))) if !host.is_empty() => return Ok(()),
        Some((Some("https"), _)) => "https is not supported for health checks of the workload",
        Some(_) => "this is not an HTTP URL",
        None => "this is not a URL",
    };
    let example = "expected a URL such as \"http://127.0.0.1:8080/healthz\"";
    Err(format!("{why}: {example}"))
}

/// Parses an address and a port to listen on. The address may be `localhost`. A missing address
/// means all IPv4 addresses. The error gives examples, with `port_usual` if the text has no port.
pub fn listen(text: &str, port_usual: u16) -> Result<SocketAddr, String> {
    let port = |text: &str| text.parse::<u16>().ok();
    let address = match text.rsplit_once(':') {
        Some(("", number)) => port(number).map(|port| (Ipv4Addr::UNSPECIFIED, port).into()),
        Some(("localhost", number)) => port(number).map(|port| (Ipv4Addr::LOCALHOST, port).into()),
        _ => text.parse().ok(),
    };
    address.ok_or_else(|| {
        let number = text.rsplit(':').next().unwrap_or_default();
        if !number.is_empty()
            && number.bytes().all(|it| it.is_ascii_digit())
            && port(number).is_none()
        {
            return format!("the port {number} does not exist: expected a port from 1 to 65535");
        }
        let given = text.rsplit(':').next().and_then(port);
        let port = given.unwrap_or(port_usual);
        format!(
            "expected an IP address and a port such as \"127.0.0.1:{port}\", \"localhost:{port}\", \
             \":{port}\" (all IPv4 addresses) or \"[::]:{port}\" (all addresses)"
        )
    })
}

/// Accepts a DNS subdomain, as Kubernetes requires.
fn label_prefix(text: &str) -> Result<(), String> {
    const LENGTH_MAX: usize = 253;
    let legal = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    let ends = |part: &str| part.starts_with('-') || part.ends_with('-');
    let part = |part: &str| !part.is_empty() && part.chars().all(legal) && !ends(part);
    accepted(
        text.len() <= LENGTH_MAX && text.split('.').all(part),
        "expected a domain such as \"leasehold.dev\": lower-case letters, digits, \"-\" and \".\", \
         at most 253 bytes",
    )
}

fn accepted(legal: bool, expected: &str) -> Result<(), String> {
    legal.then_some(()).ok_or_else(|| expected.to_owned())
}

fn name<T>(name: Result<T, NameError>) -> Result<(), String> {
    let error = |error: NameError| format!("expected {}", error.expected);
    name.map(drop).map_err(error)
}

fn line(text: &str) -> Result<(), String> {
    accepted(
        text.len() <= IDENTITY_LENGTH_MAX && !text.chars().any(char::is_control),
        "expected 1 to 253 bytes without control characters",
    )
}

/// Checks the rules that MongoDB has for database names on any platform, including Windows.
fn database(text: &str) -> Result<(), String> {
    const LENGTH_MAX: usize = 63;
    if ["local", "config"].contains(&text.to_lowercase().as_str()) {
        let expected = "expected a database other than local and config, which MongoDB reserves";
        return Err(expected.to_owned());
    }
    let illegal = |c: char| c.is_whitespace() || c.is_control() || "/\\.\"$*<>:|?".contains(c);
    accepted(
        !text.is_empty() && text.len() <= LENGTH_MAX && !text.contains(illegal),
        "expected 1 to 63 bytes without spaces and without any of / \\ . \" $ * < > : | ?",
    )
}

fn collection(text: &str) -> Result<(), String> {
    /// Leaves room for a database name (63 bytes) and a dot within MongoDB's limit of 255 bytes.
    const LENGTH_MAX: usize = 180;
    let legal = !text.is_empty()
        && text.len() <= LENGTH_MAX
        && !text.contains(|c: char| c == '$' || c.is_control())
        && !text.starts_with("system.")
        && !text.starts_with('.')
        && !text.ends_with('.');
    accepted(
        legal,
        "expected 1 to 180 bytes without $, not beginning with \"system.\" or \".\", and not \
         ending with \".\"",
    )
}

pub(super) fn text_of(key: ValueType, kind: &ValueKind) -> Result<String, String> {
    match (key, kind) {
        (ValueType::Flag, ValueKind::Boolean(value)) => Ok(value.to_string()),
        (ValueType::Flag, _) => Err("expected true or false, without quotes".to_owned()),
        (ValueType::Count(..), ValueKind::I64(_) | ValueKind::U64(_)) => Ok(kind.to_string()),
        (ValueType::Count(min, max), _) => Err(format!(
            "expected a whole number from {min} to {max}, without quotes"
        )),
        (ValueType::Command, ValueKind::Array(words)) => words
            .iter()
            .map(|word| match &word.kind {
                ValueKind::String(word) => Ok(word.as_str()),
                _ => Err("expected a list of strings: put each word in quotes".to_owned()),
            })
            .collect::<Result<Vec<_>, _>>()
            .map(|words| serde_json::Value::from(words).to_string()),
        (_, ValueKind::String(text)) => Ok(text.clone()),
        (_, ValueKind::Table(_) | ValueKind::Array(_)) => Err("expected one string".to_owned()),
        (_, ValueKind::Nil) => Err("expected a string; \"\" means not set".to_owned()),
        (_, ValueKind::Boolean(_)) => Err("expected a string: put it in quotes".to_owned()),
        (ValueType::Duration(min, max), _) => Err(unit_is_missing(&kind.to_string(), min, max)),
        (_, _) => Err("expected a string: put it in quotes".to_owned()),
    }
}

pub(super) fn shown_kind(kind: &ValueKind) -> String {
    match kind {
        ValueKind::String(text) => shown(text),
        ValueKind::Table(_) => "(a table)".to_owned(),
        ValueKind::Array(_) => "(a list)".to_owned(),
        ValueKind::Nil => "(nothing)".to_owned(),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const HOUR: Duration = Duration::from_secs(3600);

    fn assert_refused(kind: ValueType, values: &[&str], hint: &str) {
        for value in values {
            let expected = parse(kind, value).expect_err(value);
            assert!(expected.contains(hint), "{value}: {expected}");
        }
    }

    fn assert_accepted(kind: ValueType, values: &[&str]) {
        for value in values {
            assert!(parse(kind, value).is_ok(), "{value}");
        }
    }

    const LEAST: Duration = Duration::from_millis(50);
    const UP_TO_AN_HOUR: ValueType = ValueType::Duration(LEAST, HOUR);

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
    fn the_error_of_a_duration_names_its_range() {
        let outside = ["49ms", "0s", "3601s", "999999999years"];
        assert_refused(UP_TO_AN_HOUR, &outside, "between 50ms and 1h");
        assert_eq!(duration("0s", Duration::ZERO, HOUR), Ok(Duration::ZERO));
        // Adding these two durations would panic in the humantime parser.
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
    fn the_error_of_a_count_names_its_range() {
        let kind = ValueType::Count(1, 5);
        assert_eq!(parse(kind, "3"), Ok(3.into()));
        for wrong in ["0", "6", "-1", "three", "", "1.0"] {
            let error = parse(kind, wrong).expect_err(wrong);
            assert_eq!(error, "expected a whole number from 1 to 5");
        }
    }

    #[test]
    fn health_checks_use_plain_http() {
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
        assert_accepted(ValueType::Listen, &["", "[::1]:0"]);
        let address = |text: &str| parse(ValueType::Listen, text);
        assert_eq!(address(":9402"), Ok("0.0.0.0:9402".into()));
        assert_eq!(address("localhost:9402"), Ok("127.0.0.1:9402".into()));
        let no_port = ["9402", ":", "localhost", "127.0.0.1", "localhost:http"];
        assert_refused(ValueType::Listen, &no_port, "");
        assert_refused(ValueType::Listen, &["elsewhere:9402"], "an IP address");
        let wrong = [":99999", "127.0.0.1:99999", "[::1]:65536"];
        assert_refused(ValueType::Listen, &wrong, "expected a port from 1 to 65535");
    }
}
