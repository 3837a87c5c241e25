//! Why a connection string is refused.

use std::fmt;

use super::options::LOAD_BALANCED;

/// Problem of a connection string, described without any part of it but names of options.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum UriProblem {
    /// Begins with neither of the two schemes.
    Scheme,
    /// Contains spaces or line breaks.
    Whitespace,
    /// Contains characters outside ASCII.
    NotAscii,
    /// Longer than any connection string, or not UTF-8.
    NotText,
    /// Has an option that leasehold refuses; contains its name, the reason and the remedy.
    Refused(&'static str, &'static str),
    /// Has an option that no driver has; contains its name, and a similar known option.
    Unknown(String, Option<&'static str>),
    /// Has an option without a value.
    NoValue(&'static str),
    /// Has an option with a value that is not accepted; contains the accepted values.
    Value(&'static str, &'static str),
    /// Has an option twice, with different values.
    Ambiguous(&'static str),
    /// Has options that the driver rejects, for their values or their combination.
    Rejected(Vec<&'static str>),
    /// Requests a login that needs a build with this cargo feature.
    Login(&'static str, &'static str),
    /// Requests a login that no build has.
    Kerberos,
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
            Self::Refused(name, why) => return write!(f, "has the option {name}: {why}"),
            Self::Unknown(name, nearest) => {
                write!(f, "has the unknown option {name}: ")?;
                return match nearest {
                    Some(nearest) => write!(f, "write {nearest}, or remove it"),
                    None => write!(f, "correct its name, or remove it"),
                };
            }
            Self::NoValue(name) => {
                return write!(f, "has the option {name} without a value: set it, or remove it");
            }
            Self::Value(name, expected) => {
                return write!(f, "has a wrong value of the option {name}: expected {expected}");
            }
            Self::Ambiguous(name) => {
                return write!(f, "has two values of the option {name}: remove one");
            }
            Self::Rejected(names) => {
                let names = names.join(", ");
                return write!(
                    f,
                    "has options that the driver refuses: correct the value of {names}, or remove \
                     what contradicts it"
                );
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
            Self::Malformed => {
                "is refused by the driver (its text is not shown, since it may hold a password): \
                 percent-encode user name and password (each of : / ? # [ ] @ % and space), write \
                 hosts as host:port, and options as option=value (with %40 for @)"
            }
        })
    }
}

impl UriProblem {
    /// The SRV record requests a load balancer.
    pub(crate) fn load_balanced() -> Self {
        Self::Refused("loadBalanced", LOAD_BALANCED)
    }
}

impl std::error::Error for UriProblem {}
