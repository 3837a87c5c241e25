//! Connection strings: a check without network access, and what becomes of their options.
//!
//! One connection string serves all programs of a team. The driver gets only the options that it
//! shall apply: it would refuse options of other drivers, and some of its own would weaken the
//! protocol.

mod options;
mod problem;
#[cfg(test)]
mod tests;

use std::fmt;
use std::future::IntoFuture;

use futures_util::FutureExt;
use mongodb::error::{Error, ErrorKind};
use mongodb::options::{ClientOptions, ConnectionString};

pub(crate) use self::options::APP_NAME_MAX;
pub use self::options::{OPTIONS, Treatment, UriOption};
pub use self::problem::UriProblem;

/// Maximum size of a connection string, in bytes. The limit bounds the cost of a wrong path
/// (`/dev/zero`).
pub const BYTES_MAX: usize = 64 * 1024;

/// The mechanisms that servers since 4.0 have.
const MECHANISMS: &str =
    "SCRAM-SHA-256, SCRAM-SHA-1, MONGODB-X509, MONGODB-OIDC, PLAIN or MONGODB-AWS";

/// The longest name of an unknown option that is shown.
const NAME_SHOWN_MAX: usize = 40;

/// An option of a connection string that is not applied as written, or that has a risk.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub struct UriNotice {
    /// The name of the option.
    pub option: &'static str,
    /// The treatment of the option.
    pub treatment: Treatment,
}

impl fmt::Display for UriNotice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let option = self.option;
        match self.treatment {
            Treatment::Applied => f.write_str(option),
            Treatment::Overridden(by) => write!(f, "{option} ({by})"),
            Treatment::AppliedWithRisk(why) | Treatment::Ignored(why) | Treatment::Refused(why) => {
                write!(f, "{option}: {why}")
            }
        }
    }
}

/// A connection string whose options are known.
pub struct ConnectionUri {
    driver: String,
    notices: Vec<UriNotice>,
}

impl fmt::Debug for ConnectionUri {
    /// Without the text, which may hold a password.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ConnectionUri")
            .field("notices", &self.notices)
            .finish_non_exhaustive()
    }
}

impl ConnectionUri {
    /// Parses and checks a connection string without network access.
    ///
    /// # Errors
    /// The problem, described without any part of the text but names of options.
    pub fn parse(uri: &str) -> Result<Self, UriProblem> {
        let schemes = ["mongodb://", "mongodb+srv://"];
        let Some(scheme) = schemes.into_iter().find(|scheme| uri.starts_with(scheme)) else {
            return Err(UriProblem::Scheme);
        };
        if uri.len() > BYTES_MAX {
            return Err(UriProblem::NotText);
        }
        if uri.chars().any(|c| c.is_whitespace() || c.is_control()) {
            return Err(UriProblem::Whitespace);
        }
        // The driver (3.9.1) panics, with a part of the text in the message, if a character beyond
        // ASCII follows a %.
        if !uri.is_ascii() {
            return Err(UriProblem::NotAscii);
        }
        let rest = &uri[scheme.len()..];
        let (servers, query) = rest.split_once('?').unwrap_or((rest, ""));
        // An X.509 login may have an empty user name, which the driver refuses without its option.
        let servers = servers.strip_prefix('@').unwrap_or(servers);
        if ConnectionString::parse(format!("{scheme}{servers}")).is_err() {
            return Err(UriProblem::Malformed);
        }
        let parsed = UriOptions::parse(query).and_then(|options| {
            options.check(scheme, servers)?;
            Ok(options)
        });
        match parsed {
            Ok(options) => Ok(Self {
                driver: options.uri(scheme, servers, None),
                notices: options.notices,
            }),
            // A password with a question mark is not distinguishable from options.
            Err(_) if query.contains('@') => Err(UriProblem::Malformed),
            Err(problem) => Err(problem),
        }
    }

    /// Returns the options that are not applied as written, and those that have a risk, each once.
    pub fn notices(&self) -> &[UriNotice] {
        &self.notices
    }

    /// Returns the host whose record names the servers (`mongodb+srv`).
    pub(crate) fn record(&self) -> Option<&str> {
        let rest = self.driver.strip_prefix("mongodb+srv://")?;
        let (servers, _) = rest.split_once('?').unwrap_or((rest, ""));
        let (servers, _) = servers.split_once('/').unwrap_or((servers, ""));
        Some(servers.rsplit_once('@').map_or(servers, |(_, host)| host))
    }

    /// Returns the connection string for the driver, with the options to apply.
    pub(crate) fn driver(&self) -> &str {
        &self.driver
    }
}

/// The options of one connection string.
#[derive(Default)]
struct UriOptions<'a> {
    /// The names and values for the driver.
    applied: Vec<(&'static str, &'a str)>,
    notices: Vec<UriNotice>,
}

impl<'a> UriOptions<'a> {
    fn parse(query: &'a str) -> Result<Self, UriProblem> {
        let mut options = Self::default();
        for written in query.split('&').filter(|written| !written.is_empty()) {
            let (name, value) = match written.split_once('=') {
                Some((name, value)) => (name, Some(value)),
                None => (written, None),
            };
            match (UriOption::find(name), value) {
                (Some(option), Some(value)) => options.add(option, value)?,
                (Some(option), None) => return Err(UriProblem::NoValue(option.name)),
                (None, Some(_)) if is_name(name) => {
                    let nearest = UriOption::nearest(name);
                    return Err(UriProblem::Unknown(name.to_owned(), nearest));
                }
                (None, _) => return Err(UriProblem::Malformed),
            }
        }
        Ok(options)
    }

    fn add(&mut self, option: &'static UriOption, value: &'a str) -> Result<(), UriProblem> {
        if value.is_empty() {
            if option.requires_value() {
                return Err(UriProblem::NoValue(option.name));
            }
            let treatment = Treatment::Ignored("it has no value");
            self.note(UriNotice {
                treatment,
                ..option.notice()
            });
            return Ok(());
        }
        if !option.is_harmless(value) {
            match option.treatment {
                Treatment::Applied => {}
                Treatment::Refused(why) => return Err(UriProblem::Refused(option.name, why)),
                Treatment::AppliedWithRisk(_)
                | Treatment::Overridden(_)
                | Treatment::Ignored(_) => self.note(option.notice()),
            }
        }
        let applies = matches!(
            option.treatment,
            Treatment::Applied | Treatment::AppliedWithRisk(_)
        );
        if !applies {
            return Ok(());
        }
        if option.name == "appName" {
            let escapes = value.matches('%').count();
            if value.len() - 2 * escapes.min(value.len() / 3) > APP_NAME_MAX {
                return Err(UriProblem::Value(option.name, "at most 128 bytes"));
            }
        }
        if option.name == "authMechanism" || option.name == "authMechanismProperties" {
            missing_login(value).map_or(Ok(()), Err)?;
        }
        match self.applied.iter().find(|(name, _)| *name == option.name) {
            Some((_, known)) if *known != value => Err(UriProblem::Ambiguous(option.name)),
            Some(_) => Ok(()),
            None => {
                self.applied.push((option.name, value));
                Ok(())
            }
        }
    }

    fn note(&mut self, notice: UriNotice) {
        if !self.notices.contains(&notice) {
            self.notices.push(notice);
        }
    }

    /// Returns the connection string for the driver, without one of the options.
    fn uri(&self, scheme: &str, servers: &str, without: Option<&str>) -> String {
        let applied = self.applied.iter();
        let applied = applied.filter(|(name, _)| Some(*name) != without);
        let applied: Vec<_> = applied
            .map(|(name, value)| format!("{name}={value}"))
            .collect();
        match applied.is_empty() {
            true => format!("{scheme}{servers}"),
            false => format!("{scheme}{servers}?{}", applied.join("&")),
        }
    }

    /// Checks that the driver accepts the options.
    fn check(&self, scheme: &str, servers: &str) -> Result<(), UriProblem> {
        let refused = |without| refused_by_driver(&self.uri(scheme, servers, without));
        let Some(error) = refused(None) else {
            return Ok(());
        };
        let names = || self.applied.iter().map(|(name, _)| *name);
        let causes: Vec<_> = names()
            .filter(|name| refused(Some(name)).is_none())
            .collect();
        let names = match causes.is_empty() {
            true => names().collect(),
            false => causes,
        };
        // Other messages of the driver may quote the text.
        let why = match *error.kind {
            ErrorKind::InvalidArgument { message, .. } => Some(message),
            _ => None,
        };
        let why = why.filter(|why| why.starts_with("connection string `"));
        Err(UriProblem::Rejected(names, why))
    }
}

/// Returns the error of the driver for a connection string, if the driver refuses it.
fn refused_by_driver(uri: &str) -> Option<Error> {
    if uri.starts_with("mongodb+srv://") {
        // The rest is checked when the servers are known.
        return ConnectionString::parse(uri).err();
    }
    // Waits for nothing, because there is no record of servers to resolve.
    let parsed = ClientOptions::parse(uri).into_future().now_or_never();
    parsed.and_then(Result::err)
}

/// Returns true if a text has the form of a name of an option, so that it may be shown.
fn is_name(text: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    !text.is_empty() && text.len() <= NAME_SHOWN_MAX && text.bytes().all(is_plain)
}

/// Returns the problem of a value of `authMechanism` or of its properties that requests a login that
/// is not in this build.
fn missing_login(value: &str) -> Option<UriProblem> {
    let value = value.to_ascii_lowercase();
    match value.as_str() {
        "gssapi" => return Some(UriProblem::Kerberos),
        // The driver refuses it only at the login.
        "mongodb-cr" => return Some(UriProblem::Value("authMechanism", MECHANISMS)),
        _ => {}
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
