use std::ffi::{OsStr, OsString};
use std::fmt;

use super::schema::{KEYS, Key, nearest};

const PREFIX: &str = "LEASEHOLD_";

/// Variables that leasehold sets for commands or writes to `status.env`, and `LEASEHOLD_TRACE`.
const OTHERS: [&str; 16] = [
    "BOOT_ID",
    "HOLDER",
    "IDENTITY",
    "LEADER",
    "LEASE",
    "LEASE_TOKEN",
    "LOCK",
    "LOCKS",
    "LOCK_TOKEN",
    "ROLE",
    "SLOT",
    "STATUS_FILE",
    "TIME_NAMESPACE",
    "TOKEN",
    "TRACE",
    "VALID_UNTIL_BOOTTIME_NS",
];

/// Names that users may try as the variable for `--config`, which has no variable.
const CONFIG_FLAG: [&str; 2] = ["CONFIG", "CONFIG_FILE"];

/// A variable that looks like configuration, but has no effect.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IgnoredVariable {
    /// Name of the variable.
    pub name: String,
    /// The key that the user probably meant.
    pub meant: Option<&'static Key>,
    is_config_flag: bool,
}

impl fmt::Display for IgnoredVariable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} has no effect: ", self.name)?;
        match self.meant {
            Some(key) => write!(f, "write {}", key.variable()),
            None if self.is_config_flag => f.write_str("name the file with --config FILE"),
            None => f.write_str("no key has this variable; to list the keys: leasehold config"),
        }
    }
}

/// Returns the variables that have no effect, but contain `__` or resemble a key or its variable.
pub(super) fn ignored(environment: &[(OsString, OsString)]) -> Vec<IgnoredVariable> {
    let names = environment.iter().filter_map(|(name, _)| name.to_str());
    names.filter_map(ignored_variable).collect()
}

fn ignored_variable(name: &str) -> Option<IgnoredVariable> {
    let rest = name.strip_prefix(PREFIX)?;
    if parts(name.as_ref()).is_some() || OTHERS.contains(&rest) || is_service_link(rest) {
        return None;
    }
    let written = rest.replace("__", "_");
    let named: Vec<_> = KEYS
        .iter()
        .filter(|key| key.name.to_uppercase() == written)
        .collect();
    // Users may derive a variable from a flag, such as LEASEHOLD_LEASE_DURATION from
    // --lease-duration.
    let notations = KEYS.iter().flat_map(|key| {
        let variable = key.variable()[PREFIX.len()..].replace("__", "_");
        let flag = key.flag().replace('-', "_").to_uppercase();
        [(variable, Some(key)), (flag, Some(key))]
    });
    let config = CONFIG_FLAG.map(|name| (name.to_owned(), None));
    let notations: Vec<_> = notations.chain(config).collect();
    let near = nearest(&written, notations.iter().map(|(notation, _)| &**notation));
    let near = notations
        .iter()
        .find(|(notation, _)| near == Some(notation));
    let meant = match named[..] {
        [only] => Some(only),
        _ => near.and_then(|(_, key)| *key),
    };
    let is_likely = near.is_some() || !named.is_empty() || rest.contains("__");
    is_likely.then(|| IgnoredVariable {
        name: name.to_owned(),
        meant,
        is_config_flag: near.is_some_and(|(_, key)| key.is_none()),
    })
}

/// Returns true for Kubernetes' variables of Services, such as `LEASEHOLD_SERVICE_HOST`.
fn is_service_link(rest: &str) -> bool {
    let name = format!("_{rest}");
    let numbered = |(_, port): (&str, &str)| port.starts_with(|c: char| c.is_ascii_digit());
    name.contains("_SERVICE_HOST")
        || name.contains("_SERVICE_PORT")
        || name.rsplit_once("_PORT_").is_some_and(numbered)
        || name.ends_with("_PORT") && !name.contains("__")
}

/// Returns the section and the key of a variable. Two underscores separate them. One underscore
/// would be ambiguous, because Kubernetes injects variables such as `LEASEHOLD_HTTP_PORT` for a
/// Service leasehold-http.
pub(super) fn parts(name: &OsStr) -> Option<(String, String)> {
    let name = name.to_string_lossy();
    let (section, key) = name.strip_prefix(PREFIX)?.split_once("__")?;
    let named = |section: &str| {
        let mut sections = KEYS.iter().map(|key| key.section);
        let known = sections.find(|known| known.to_uppercase() == section);
        known.map(str::to_owned)
    };
    // A nested section takes precedence over a key, as in LEASEHOLD_WORKLOAD__HEALTH__URL.
    if let Some((inner, key)) = key.split_once("__")
        && let Some(section) = named(&format!("{section}.{inner}"))
    {
        return Some((section, key.to_owned()));
    }
    Some((named(section)?, key.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(name: &str) -> Option<String> {
        let ignored = ignored_variable(name).map(|ignored| ignored.to_string());
        ignored.map(|text| text.replace(&format!("{name} has no effect: "), ""))
    }

    #[test]
    fn the_probable_key_of_a_misspelt_variable_is_named() {
        for (name, meant) in [
            ("LEASEHOLD_MONGODB_URI", "LEASEHOLD_MONGODB__URI"),
            ("LEASEHOLD_MONGDB__URI", "LEASEHOLD_MONGODB__URI"),
            (
                "LEASEHOLD_LEASE_DURATION",
                "LEASEHOLD_LEASE__LEASE_DURATION",
            ),
            (
                "LEASEHOLD_LEAS__DURATION",
                "LEASEHOLD_LEASE__LEASE_DURATION",
            ),
            ("LEASEHOLD_LEASE_DURATON", "LEASEHOLD_LEASE__LEASE_DURATION"),
            (
                "LEASEHOLD_WORKLOAD_HEALTH__URL",
                "LEASEHOLD_WORKLOAD__HEALTH__URL",
            ),
            ("LEASEHOLD_URI", "LEASEHOLD_MONGODB__URI"),
            ("LEASEHOLD_DATABASE", "LEASEHOLD_MONGODB__DATABASE"),
        ] {
            assert_eq!(shown(name), Some(format!("write {meant}")), "{name}");
        }
        let several = shown("LEASEHOLD_TIMEOUT").expect("warned about");
        assert!(several.starts_with("no key has this variable"), "{several}");
        let config = Some("name the file with --config FILE".to_owned());
        assert_eq!(shown("LEASEHOLD_CONFIG"), config);
        assert_eq!(shown("LEASEHOLD_CONFIG_FILE"), config);
        let unknown = shown("LEASEHOLD_GADGETS__TIMEOUT").expect("warned about");
        assert!(unknown.starts_with("no key has this variable"), "{unknown}");
    }

    #[test]
    fn other_known_variables_cause_no_warning() {
        for name in OTHERS {
            assert_eq!(shown(&format!("LEASEHOLD_{name}")), None, "{name}");
        }
        for name in [
            "LEASEHOLD_SERVICE_HOST",
            "LEASEHOLD_SERVICE_PORT",
            "LEASEHOLD_SERVICE_PORT_HTTP",
            "LEASEHOLD_PORT",
            "LEASEHOLD_PORT_9402_TCP",
            "LEASEHOLD_PORT_9402_TCP_ADDR",
            "LEASEHOLD_HTTP_PORT",
            "LEASEHOLD_HTTP_SERVICE_HOST",
            "LEASEHOLD_LOG_PORT_80_TCP_PROTO",
            "LEASEHOLD_VERSION",
            "LEASEHOLD_STATUS_FILE_REPORTS",
            "LEASEHOLD_LEASE__NAME",
            "LEASEHOLDS__NAME",
            "PATH",
        ] {
            assert_eq!(shown(name), None, "{name}");
        }
    }
}
