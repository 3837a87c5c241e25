//! Log lines: text on a terminal, JSON otherwise, always on stderr.

use std::io::{self, IsTerminal};

use tracing::level_filters::LevelFilter;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{Layer, Registry, reload};

/// How lines are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// Text on a terminal, JSON otherwise.
    Auto,
    /// For people.
    Text,
    /// One object a line, for machines.
    Json,
}

/// Changes the level while the daemon runs.
pub struct LevelHandle(reload::Handle<LevelFilter, Registry>);

impl LevelHandle {
    /// From now on, lines of this level and above are written.
    pub fn set(&self, level: LevelFilter) {
        // Fails only when the subscriber is gone, and then nothing is logged anyway.
        let _ = self.0.modify(|filter| *filter = level);
    }
}

/// Starts logging for the whole process; once.
pub fn start(level: LevelFilter, format: Format) -> LevelHandle {
    let (filter, handle) = reload::Layer::new(level);
    let terminal = io::stderr().is_terminal();
    let json = match format {
        Format::Auto => !terminal,
        Format::Text => false,
        Format::Json => true,
    };
    let layer = tracing_subscriber::fmt::layer()
        .with_writer(io::stderr)
        .with_target(false);
    let layer = if json {
        layer.json().flatten_event(true).boxed()
    } else {
        let color = terminal && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
        layer.with_ansi(color).boxed()
    };
    // Fails only when a logger was set before: an embedding program's own.
    let _ = Registry::default().with(filter.and_then(layer)).try_init();
    LevelHandle(handle)
}
