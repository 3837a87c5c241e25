//! Checks connection strings without network access. Programs with other drivers may use the same
//! string, so our driver does not receive options that it would reject or that weaken the protocol.

mod options;
#[cfg(test)]
mod tests;

use std::fmt;
use std::future::IntoFuture;

use futures_util::FutureExt;
use mongodb::error::{Error, ErrorKind};
use mongodb::options::{AuthMechanism, ClientOptions, ConnectionString, Credential, HostInfo, Tls};

pub(crate) use self::options::{APP_NAME_MAX, LOAD_BALANCED};
pub use self::options::{OPTIONS, Treatment, UriOption};

/// Maximum size in bytes, in case the string is read from a wrong path, such as `/dev/zero`.
pub const BYTES_MAX: usize = 64 * 1024;
/// Login mechanisms for an error message. Omits MONGODB-CR, which MongoDB 4.0 removed, and GSSAPI,
/// which leasehold does not support.
const MECHANISMS: &str =
    "SCRAM-SHA-256, SCRAM-SHA-1, MONGODB-X509, MONGODB-OIDC, PLAIN or MONGODB-AWS";

const NAME_SHOWN_MAX: usize = 40;

/// A connection string option that is not applied as written, or that has a risk.
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

/// A problem in a connection string. The description quotes only names of options.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum UriProblem {
    /// The string begins with neither of the two schemes.
    #[error("is not a connection string: it must begin with mongodb:// or mongodb+srv://")]
    Scheme,
    /// The string contains spaces or line breaks.
    #[error(
        "is not a connection string: it has spaces or line breaks; percent-encode them inside \
         a value, and remove all other text"
    )]
    Whitespace,
    /// The string contains non-ASCII characters.
    #[error(
        "is not a connection string: it has characters outside ASCII; percent-encode their UTF-8 \
         bytes"
    )]
    NotAscii,
    /// The text is longer than [`BYTES_MAX`], or is not UTF-8.
    #[error("is not a connection string: it must be UTF-8 text of at most 64 KiB")]
    NotText,
    /// leasehold refuses an option. Contains its name, the reason and the remedy.
    #[error("has the option {0}: {1}")]
    Refused(&'static str, &'static str),
    /// The string has an option that no driver supports. Contains its name, and the known option
    /// with the most similar name, if any.
    #[error("has the unknown option {}: {}, or remove it", .0, .1.map_or_else(
        || "correct its name".to_owned(),
        |nearest| format!("write {nearest}"),
    ))]
    Unknown(String, Option<&'static str>),
    /// The string has an option without a value.
    #[error("has the option {0} without a value: set it, or remove it")]
    NoValue(&'static str),
    /// The string has an option whose value is not accepted. Contains the accepted values.
    #[error("has a wrong value for the option {0}: expected {1}")]
    Value(&'static str, &'static str),
    /// The string has an option twice, with different values.
    #[error("has two values for the option {0}: remove one")]
    Ambiguous(&'static str),
    /// The driver rejects options or their combination. Contains their names and the reason.
    #[error(
        "has options that the driver refuses{}: correct the value of {}, or remove what \
         contradicts it",
        .1.as_ref().map_or(String::new(), |why| format!(" ({why})")), .0.join(", ")
    )]
    Rejected(Vec<&'static str>, Option<String>),
    /// The string requests a login that only a build with this cargo feature supports.
    #[error(
        "requests the login {0}, which this build does not support: build leasehold with \
         --features {1} (docs/mongodb.md), or use another login"
    )]
    Login(&'static str, &'static str),
    /// The string requests a login that leasehold never supports.
    #[error(
        "requests the login GSSAPI (Kerberos), which leasehold does not support: use another \
         login (docs/mongodb.md)"
    )]
    Kerberos,
    /// A server has a port out of range.
    #[error("has a port out of range: expected host:port with a port from 1 to 65535")]
    Port,
    /// The driver's parser rejects the string.
    #[error(
        "is refused by the driver (the connection string is not shown, because it may contain a \
         password): percent-encode user name and password (each of : / ? # [ ] @ % and space), write hosts as \
         host:port, and options as option=value (with %40 for @)"
    )]
    Malformed,
}

/// Returns true if a port is 0 or exceeds 65535, unless the digits may belong to a password that is
/// not percent-encoded.
fn has_wrong_port(servers: &str) -> bool {
    let (authority, database) = servers.split_once('/').unwrap_or((servers, ""));
    let (_, hosts) = authority.rsplit_once('@').unwrap_or(("", authority));
    let wrong = |port: &str| {
        let is_number = !port.is_empty() && port.bytes().all(|byte| byte.is_ascii_digit());
        is_number && port.parse::<u16>().map_or(true, |port| port == 0)
    };
    let mut ports = hosts.split(',').filter_map(|host| host.rsplit_once(':'));
    !database.contains('@') && ports.any(|(_, port)| wrong(port))
}

/// A valid connection string.
pub struct ConnectionUri {
    driver: ConnectionString,
    notices: Vec<UriNotice>,
}

impl fmt::Debug for ConnectionUri {
    /// Omits the text, which may contain a password.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ConnectionUri")
            .field("notices", &self.notices)
            .finish_non_exhaustive()
    }
}

impl ConnectionUri {
    pub(crate) fn for_driver(&self) -> ConnectionString {
        self.driver.clone()
    }

    /// Parses and checks a connection string without network access.
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
        // If a non-ASCII character follows a `%`, the driver (3.9.1) panics, and the panic message
        // contains a part of the string.
        if !uri.is_ascii() {
            return Err(UriProblem::NotAscii);
        }
        let rest = &uri[scheme.len()..];
        let (servers, query) = rest.split_once('?').unwrap_or((rest, ""));
        // An X.509 login may have an empty user name. The driver accepts this only with
        // authMechanism, which this check leaves out.
        let servers = servers.strip_prefix('@').unwrap_or(servers);
        if ConnectionString::parse(format!("{scheme}{servers}")).is_err() {
            return Err(match has_wrong_port(servers) {
                true => UriProblem::Port,
                false => UriProblem::Malformed,
            });
        }
        let parsed = UriOptions::parse(query).and_then(|options| {
            let driver = options.driver(scheme, servers)?;
            let notices = options.notices;
            Ok(Self { driver, notices })
        });
        // An `@` in the options usually means that the password contains a question mark.
        parsed.map_err(|problem| match query.contains('@') {
            true => UriProblem::Malformed,
            false => problem,
        })
    }

    /// Returns the options that are not applied as written or have a risk, each once.
    pub fn notices(&self) -> &[UriNotice] {
        &self.notices
    }

    /// Describes the servers, the replica set, the login and the encryption. Omits the password.
    pub fn describe(&self) -> String {
        let servers = match &self.driver.host_info {
            HostInfo::DnsRecord(name) => format!("servers from the SRV record of {name}"),
            HostInfo::HostIdentifiers(hosts) if hosts.len() != 1 => {
                format!("{} servers", hosts.len())
            }
            _ => "1 server".to_owned(),
        };
        let set = match &self.driver.replica_set {
            Some(set) => format!("replica set {set:?}"),
            None => "no replica set".to_owned(),
        };
        let login = match &self.driver.credential {
            Some(login) if login.mechanism == Some(AuthMechanism::MongoDbX509) => {
                "X.509 login".to_owned()
            }
            Some(Credential {
                username: Some(user),
                ..
            }) => format!("user {user:?}"),
            _ => "no user".to_owned(),
        };
        // An SRV record turns TLS on, unless the string turns it off.
        let tls = match &self.driver.tls {
            Some(Tls::Enabled(_)) => "TLS",
            None if self.record().is_some() => "TLS",
            _ => "no TLS",
        };
        format!("{servers}, {set}, {login}, {tls}")
    }

    /// Returns the servers as `host:port,host:port`, or the name of the SRV record.
    pub fn hosts(&self) -> String {
        match &self.driver.host_info {
            HostInfo::DnsRecord(name) => name.clone(),
            HostInfo::HostIdentifiers(hosts) => {
                let hosts = hosts.iter().map(ToString::to_string);
                hosts.collect::<Vec<_>>().join(",")
            }
            _ => "MongoDB".to_owned(),
        }
    }

    /// True for a connection to one server only, whatever the server's type.
    pub fn is_direct(&self) -> bool {
        self.driver.direct_connection == Some(true)
    }

    pub(crate) fn record(&self) -> Option<&str> {
        match &self.driver.host_info {
            HostInfo::DnsRecord(name) => Some(name),
            _ => None,
        }
    }
}

#[derive(Default)]
struct UriOptions<'a> {
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
            self.note(option.name, Treatment::Ignored("it has no value"));
            return Ok(());
        }
        match option.treatment {
            _ if option.is_harmless(value) => {}
            Treatment::Applied => {}
            Treatment::Refused(why) => return Err(UriProblem::Refused(option.name, why)),
            treatment => self.note(option.name, treatment),
        }
        let (Treatment::Applied | Treatment::AppliedWithRisk(_)) = option.treatment else {
            return Ok(());
        };
        if option.name == "appName" {
            let escapes = value.matches('%').count();
            if value.len() - 2 * escapes.min(value.len() / 3) > APP_NAME_MAX {
                return Err(UriProblem::Value(option.name, "at most 128 bytes"));
            }
        }
        if option.name == "authMechanism" || option.name == "authMechanismProperties" {
            check_login(value)?;
        }
        match self.applied.iter().find(|(name, _)| *name == option.name) {
            Some((_, known)) if *known != value => return Err(UriProblem::Ambiguous(option.name)),
            Some(_) => {}
            None => self.applied.push((option.name, value)),
        }
        Ok(())
    }

    fn note(&mut self, option: &'static str, treatment: Treatment) {
        let notice = UriNotice { option, treatment };
        if !self.notices.contains(&notice) {
            self.notices.push(notice);
        }
    }

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

    fn driver(&self, scheme: &str, servers: &str) -> Result<ConnectionString, UriProblem> {
        let parsed = |without| parsed(&self.uri(scheme, servers, without));
        parsed(None).map_err(|error| {
            let names = || self.applied.iter().map(|(name, _)| *name);
            let causes = names().filter(|name| parsed(Some(name)).is_ok());
            let mut causes: Vec<_> = causes.collect();
            if causes.is_empty() {
                causes.extend(names());
            }
            // The driver's other messages may quote the connection string.
            let why = match *error.kind {
                ErrorKind::InvalidArgument { message, .. } => Some(message),
                _ => None,
            };
            let why = why.filter(|why| why.starts_with("connection string `"));
            UriProblem::Rejected(causes, why)
        })
    }
}

fn parsed(uri: &str) -> Result<ConnectionString, Error> {
    let parsed = ConnectionString::parse(uri)?;
    // An SRV record may add options, which are checked once its servers are known.
    if let HostInfo::HostIdentifiers(_) = parsed.host_info {
        // This future is ready immediately, because the driver has no name to look up.
        let options = ClientOptions::parse(parsed.clone()).into_future();
        options.now_or_never().transpose()?;
    }
    Ok(parsed)
}

/// True if a string looks like the name of an option, and may therefore be shown.
fn is_name(text: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    !text.is_empty() && text.len() <= NAME_SHOWN_MAX && text.bytes().all(is_plain)
}

fn check_login(value: &str) -> Result<(), UriProblem> {
    let value = value.to_ascii_lowercase();
    match value.as_str() {
        "gssapi" => return Err(UriProblem::Kerberos),
        // The driver refuses this mechanism only when it logs in.
        "mongodb-cr" => return Err(UriProblem::Value("authMechanism", MECHANISMS)),
        _ => {}
    }
    let (login, feature) = if value.contains("mongodb-aws") && !cfg!(feature = "aws-auth") {
        ("MONGODB-AWS", "aws-auth")
    } else if value.contains("environment:azure") && !cfg!(feature = "azure-oidc") {
        ("MONGODB-OIDC for Azure", "azure-oidc")
    } else if value.contains("environment:gcp") && !cfg!(feature = "gcp-oidc") {
        ("MONGODB-OIDC for Google Cloud", "gcp-oidc")
    } else {
        return Ok(());
    };
    Err(UriProblem::Login(login, feature))
}
