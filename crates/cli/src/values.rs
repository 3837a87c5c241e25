//! Values of flags, and flags that several commands share.

use std::fmt::Display;
use std::str::FromStr;
use std::time::Duration;

use clap::{Args, ValueEnum};

use leasehold_config::duration;
use leasehold_core::election::{Identity, NameError, ResourceName};

/// Minimum of `--timeout`. With a shorter timeout, MongoDB would seem unreachable.
const TIMEOUT_MIN: Duration = Duration::from_millis(100);
/// Maximum of `--timeout`: a workload may take a day to end.
const TIMEOUT_MAX: Duration = Duration::from_secs(24 * 3600);

/// The flag `--output`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Args)]
#[group(skip)]
pub struct Output {
    /// Output format: text or json
    #[arg(
        short,
        long,
        value_name = "FORM",
        default_value = "text",
        hide_possible_values = true
    )]
    output: Format,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
#[allow(missing_docs, reason = "the name of a format needs no explanation")]
enum Format {
    Text,
    Json,
}

impl Output {
    /// The default.
    pub const TEXT: Self = Self {
        output: Format::Text,
    };

    /// True for JSON, false for text.
    pub fn json(self) -> bool {
        self.output == Format::Json
    }
}

/// Returns a parser for a duration between two bounds.
pub fn between(
    min: Duration,
    max: Duration,
) -> impl Fn(&str) -> Result<Duration, String> + Clone + Send + Sync + 'static {
    move |text| duration(text, min, max)
}

/// Returns a parser for a whole number between two bounds.
pub fn whole<T: FromStr + PartialOrd + Display + Copy + Send + Sync + 'static>(
    min: T,
    max: T,
) -> impl Fn(&str) -> Result<T, String> + Clone + Send + Sync + 'static {
    move |text| {
        let number = text.parse().ok();
        let number = number.filter(|number| (min..=max).contains(number));
        number.ok_or_else(|| format!("expected a whole number from {min} to {max}"))
    }
}

/// Parses `--timeout` of a command that waits for MongoDB.
pub fn timeout(text: &str) -> Result<Duration, String> {
    duration(text, TIMEOUT_MIN, TIMEOUT_MAX)
}

/// Parses the name of a lease or a lock.
pub fn name(text: &str) -> Result<ResourceName, String> {
    ResourceName::new(text).map_err(expected)
}

/// Parses the name of a candidate or a person.
pub fn identity(text: &str) -> Result<Identity, String> {
    Identity::new(text).map_err(expected)
}

/// Describes the accepted names. clap quotes the rejected name.
pub fn expected(error: NameError) -> String {
    format!("expected {}", error.expected)
}
