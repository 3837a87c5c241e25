//! Conversions from the enums of the configuration to those of the adapters, which have their own
//! so that a key can change without them.

use tracing::level_filters::LevelFilter;

use crate::admin::ReadyWhen;
use crate::config::{self, LogFormat, LogLevel};
use crate::log::Format;

impl From<config::ReadyWhen> for ReadyWhen {
    fn from(when: config::ReadyWhen) -> Self {
        match when {
            config::ReadyWhen::Connected => Self::Connected,
            config::ReadyWhen::Leader => Self::Leader,
        }
    }
}

impl From<LogFormat> for Format {
    fn from(format: LogFormat) -> Self {
        match format {
            LogFormat::Auto => Self::Auto,
            LogFormat::Text => Self::Text,
            LogFormat::Json => Self::Json,
        }
    }
}

impl From<LogLevel> for LevelFilter {
    fn from(level: LogLevel) -> Self {
        match level {
            LogLevel::Error => Self::ERROR,
            LogLevel::Warn => Self::WARN,
            LogLevel::Info => Self::INFO,
            LogLevel::Debug => Self::DEBUG,
            LogLevel::Trace => Self::TRACE,
        }
    }
}
