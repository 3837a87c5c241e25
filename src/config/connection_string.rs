//! The check of a connection string without network access.

use std::fmt;

use mongodb::options::ConnectionString;

/// Maximum size of a connection string. The limit bounds the cost of a wrong path (`/dev/zero`).
pub(super) const BYTES_MAX: usize = 64 * 1024;

/// Problem of a connection string, described without any part of it but the name of an option.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum UriProblem {
    /// Begins with neither of the two schemes.
    Scheme,
    /// Contains spaces or line breaks.
    Whitespace,
    /// Contains characters outside ASCII.
    NotAscii,
    /// Longer than any connection string, or not UTF-8.
    NotText,
    /// Sets an option that the driver leaves to the caller.
    Timeout,
    /// Sets the same as `mongodb.heartbeat`.
    Heartbeat,
    /// Requests a deployment that hides its members.
    LoadBalanced,
    /// Requests a login that this build does not have, but one with this cargo feature.
    Login(&'static str, &'static str),
    /// Requests a login that no build has.
    Kerberos,
    /// Has this option, which the driver's parser rejects.
    Option(String),
    /// Rejected by the driver's parser.
    Malformed,
}

impl fmt::Display for UriProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Scheme => {
                "is not a connection string: it must begin with mongodb:// or mongodb+srv://"
            }
            Self::Whitespace => {
                "is not a connection string: it has spaces or line breaks; percent-encode those that \
                 belong to it, and remove all other text"
            }
            Self::NotAscii => {
                "is not a connection string: it has characters outside ASCII; percent-encode their \
                 UTF-8 bytes"
            }
            Self::NotText => "is not a connection string: it must be UTF-8 text of at most 64 KiB",
            Self::Timeout => {
                "sets socketTimeoutMS or timeoutMS, which the driver refuses: remove it, \
                 mongodb.operation_timeout does its work"
            }
            Self::Heartbeat => {
                "sets heartbeatFrequencyMS: remove it, mongodb.heartbeat does its work"
            }
            Self::LoadBalanced => {
                "sets loadBalanced=true: behind a load balancer no change of the primary can be \
                 seen; name the members, or the mongos, without it"
            }
            Self::Login(login, feature) => {
                return write!(
                    f,
                    "requests the login {login}, which is not in this program: build one with \
                     --features {feature} (docs/mongodb.md), or use another login"
                );
            }
            Self::Kerberos => {
                "requests the login GSSAPI (Kerberos), which leasehold does not have: use another \
                 one (docs/mongodb.md)"
            }
            Self::Option(name) => {
                return write!(
                    f,
                    "has the option {name}, which the driver refuses: correct its name or value, \
                     or remove it"
                );
            }
            Self::Malformed => {
                "is refused by the driver (its text is not shown, since it may hold a password): \
                 percent-encode user name and password (each of : / ? # [ ] @ % and space), write \
                 hosts as host:port, and use only known options, each once, as option=value"
            }
        })
    }
}

/// Checks a connection string without network access.
///
/// # Errors
/// The problem, described without any part of the text.
pub fn check_uri(uri: &str) -> Result<(), UriProblem> {
    let Some(rest) = uri
        .strip_prefix("mongodb://")
        .or_else(|| uri.strip_prefix("mongodb+srv://"))
    else {
        return Err(UriProblem::Scheme);
    };
    if uri.len() > BYTES_MAX {
        return Err(UriProblem::NotText);
    }
    if uri.chars().any(|c| c.is_whitespace() || c.is_control()) {
        return Err(UriProblem::Whitespace);
    }
    // Also a protection, because the driver (3.9.1) panics with a part of the text in the message
    // if a % is followed by such a character.
    if !uri.is_ascii() {
        return Err(UriProblem::NotAscii);
    }
    let options = rest.split_once('?').map_or("", |(_, options)| options);
    let mut options = options
        .split('&')
        .filter_map(|option| option.split_once('='));
    if let Some(problem) = options.find_map(|(name, value)| refused_option(name, value)) {
        return Err(problem);
    }
    match ConnectionString::parse(uri) {
        Ok(_) => Ok(()),
        // The error is dropped, because it quotes the text.
        Err(_) => Err(rejected_option(rest).map_or(UriProblem::Malformed, UriProblem::Option)),
    }
}

/// Returns the name of an option that the driver rejects by itself, if nothing else can be meant: a
/// password that is not percent-encoded may have the same form.
fn rejected_option(rest: &str) -> Option<String> {
    let parses = |rest: &str| ConnectionString::parse(format!("mongodb://{rest}")).is_ok();
    let (hosts, options) = rest.split_once('?')?;
    if options.contains(['@', ':', '/', '%']) || !parses(hosts) {
        return None;
    }
    let mut names = options.split('&').filter_map(|option| {
        let (name, _) = option.split_once('=')?;
        let plain = name.len() <= 40 && name.bytes().all(|b| b.is_ascii_alphanumeric());
        (plain && !parses(&format!("localhost/?{option}"))).then_some(name)
    });
    names.next().map(str::to_owned)
}

fn refused_option(name: &str, value: &str) -> Option<UriProblem> {
    match name.to_lowercase().as_str() {
        "sockettimeoutms" | "timeoutms" => Some(UriProblem::Timeout),
        "heartbeatfrequencyms" => Some(UriProblem::Heartbeat),
        "loadbalanced" if value == "true" => Some(UriProblem::LoadBalanced),
        "authmechanism" | "authmechanismproperties" => missing_login(value),
        _ => None,
    }
}

/// Returns the login that a value of `authMechanism` or of its properties requests, if it is not in
/// this build.
fn missing_login(value: &str) -> Option<UriProblem> {
    let value = value.to_lowercase();
    if value == "gssapi" {
        return Some(UriProblem::Kerberos);
    }
    let logins = [
        (
            "mongodb-aws",
            "MONGODB-AWS",
            "aws-auth",
            cfg!(feature = "aws-auth"),
        ),
        (
            "environment:azure",
            "MONGODB-OIDC of Azure",
            "azure-oidc",
            cfg!(feature = "azure-oidc"),
        ),
        (
            "environment:gcp",
            "MONGODB-OIDC of Google Cloud",
            "gcp-oidc",
            cfg!(feature = "gcp-oidc"),
        ),
    ];
    let mut missing = logins.into_iter().filter(|(.., built)| !built);
    let (_, login, feature, _) = missing.find(|(word, ..)| value.contains(word))?;
    Some(UriProblem::Login(login, feature))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn problems_of_connection_strings_are_distinguished() {
        use UriProblem::*;
        let option = |name: &str| Option(name.to_owned());
        for (uri, expected) in [
            ("mongodb://h", Ok(())),
            (
                "mongodb://u:p%40ss@a:27017,b:27018/?replicaSet=rs0&tls=true",
                Ok(()),
            ),
            ("mongodb+srv://cluster.example.net/", Ok(())),
            ("", Err(Scheme)),
            ("http://h", Err(Scheme)),
            ("MONGODB://h", Err(Scheme)),
            ("mongodb://h \n", Err(Whitespace)),
            ("mongodb://u:%ü@h", Err(NotAscii)),
            ("mongodb://h/?socketTimeoutMS=1", Err(Timeout)),
            (
                "mongodb://h/?tls=true&heartbeatFrequencyMS=1",
                Err(Heartbeat),
            ),
            ("mongodb://h/?loadBalanced=true", Err(LoadBalanced)),
            ("mongodb://h/?loadBalanced=false", Ok(())),
            ("mongodb://h/?w=1&TIMEOUTms=1", Err(Timeout)),
            ("mongodb://u:p/ss@h", Err(Malformed)),
            ("mongodb://u:p@ss@h", Err(Malformed)),
            ("mongodb://h/?nonsense=1", Err(option("nonsense"))),
            ("mongodb://h/?w=1&tls=maybe", Err(option("tls"))),
            ("mongodb://u:1234?x&hunter=2@h", Err(Malformed)),
            ("mongodb://u:p?hunter=2@h/?tls=maybe", Err(Malformed)),
            ("mongodb://h:99999", Err(Malformed)),
        ] {
            assert_eq!(check_uri(uri), expected, "{uri}");
        }
    }

    #[test]
    fn a_login_that_is_not_built_is_named_with_its_feature() {
        let login = |value: &str| check_uri(&format!("mongodb://h/?authMechanism={value}"));
        let oidc = |properties: &str| {
            login(&format!(
                "MONGODB-OIDC&authMechanismProperties={properties}"
            ))
        };
        let expected = |built, login, feature| match built {
            true => Ok(()),
            false => Err(UriProblem::Login(login, feature)),
        };
        for (found, expected) in [
            (
                login("MONGODB-AWS"),
                expected(cfg!(feature = "aws-auth"), "MONGODB-AWS", "aws-auth"),
            ),
            (
                oidc("ENVIRONMENT:azure,TOKEN_RESOURCE:x"),
                expected(
                    cfg!(feature = "azure-oidc"),
                    "MONGODB-OIDC of Azure",
                    "azure-oidc",
                ),
            ),
            (
                oidc("TOKEN_RESOURCE:x,ENVIRONMENT:gcp"),
                expected(
                    cfg!(feature = "gcp-oidc"),
                    "MONGODB-OIDC of Google Cloud",
                    "gcp-oidc",
                ),
            ),
            (oidc("ENVIRONMENT:k8s"), Ok(())),
            (login("GSSAPI"), Err(UriProblem::Kerberos)),
        ] {
            assert_eq!(found, expected);
        }
        let said = UriProblem::Login("MONGODB-AWS", "aws-auth").to_string();
        assert!(
            said.contains("build one with --features aws-auth"),
            "{said}"
        );
    }
}
