//! Why a connection string is refused.

use super::options::LOAD_BALANCED;

/// Problem of a connection string, described without any part of it but names of options.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum UriProblem {
    /// Begins with neither of the two schemes.
    #[error("is not a connection string: it must begin with mongodb:// or mongodb+srv://")]
    Scheme,
    /// Contains spaces or line breaks.
    #[error(
        "is not a connection string: it has spaces or line breaks; percent-encode those that \
         belong to it, and remove all other text"
    )]
    Whitespace,
    /// Contains characters outside ASCII.
    #[error(
        "is not a connection string: it has characters outside ASCII; percent-encode their UTF-8 \
         bytes"
    )]
    NotAscii,
    /// Longer than any connection string, or not UTF-8.
    #[error("is not a connection string: it must be UTF-8 text of at most 64 KiB")]
    NotText,
    /// Has an option that leasehold refuses; contains its name, the reason and the remedy.
    #[error("has the option {0}: {1}")]
    Refused(&'static str, &'static str),
    /// Has an option that no driver has; contains its name, and a similar known option.
    #[error("has the unknown option {}: {}, or remove it", .0, .1.map_or_else(
        || "correct its name".to_owned(),
        |nearest| format!("write {nearest}"),
    ))]
    Unknown(String, Option<&'static str>),
    /// Has an option without a value.
    #[error("has the option {0} without a value: set it, or remove it")]
    NoValue(&'static str),
    /// Has an option with a value that is not accepted; contains the accepted values.
    #[error("has a wrong value of the option {0}: expected {1}")]
    Value(&'static str, &'static str),
    /// Has an option twice, with different values.
    #[error("has two values of the option {0}: remove one")]
    Ambiguous(&'static str),
    /// Has options that the driver rejects, for their values or their combination; contains their
    /// names, and the driver's reason.
    #[error(
        "has options that the driver refuses{}: correct the value of {}, or remove what \
         contradicts it",
        .1.as_ref().map_or(String::new(), |why| format!(" ({why})")), .0.join(", ")
    )]
    Rejected(Vec<&'static str>, Option<String>),
    /// Requests a login that needs a build with this cargo feature.
    #[error(
        "requests the login {0}, which is not in this program: build one with --features {1} \
         (docs/mongodb.md), or use another login"
    )]
    Login(&'static str, &'static str),
    /// Requests a login that no build has.
    #[error(
        "requests the login GSSAPI (Kerberos), which leasehold does not have: use another one \
         (docs/mongodb.md)"
    )]
    Kerberos,
    /// Rejected by the driver's parser.
    #[error(
        "is refused by the driver (its text is not shown, since it may hold a password): \
         percent-encode user name and password (each of : / ? # [ ] @ % and space), write hosts as \
         host:port, and options as option=value (with %40 for @)"
    )]
    Malformed,
}

impl UriProblem {
    /// The SRV record requests a load balancer.
    pub(crate) fn load_balanced() -> Self {
        Self::Refused("loadBalanced", LOAD_BALANCED)
    }
}
