//! Log lines: text on a terminal, JSON otherwise, always on stderr, which is
//! never waited for.

mod stderr;
mod throttle;

use std::io::{self, IsTerminal};
use std::sync::Arc;

use tracing::level_filters::LevelFilter;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{Layer, Registry, reload};

use self::stderr::Stderr;
pub(crate) use self::throttle::{ErrorThrottle, shown};

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

/// A log that was started.
#[derive(Clone)]
pub struct LogHandle {
    level: reload::Handle<LevelFilter, Registry>,
    stderr: Arc<Stderr>,
    json: bool,
}

impl LogHandle {
    /// True if lines are written as JSON.
    pub fn is_json(&self) -> bool {
        self.json
    }

    /// From now on, lines of this level and above are written.
    pub fn set_level(&self, level: LevelFilter) {
        // Fails only when the subscriber is gone, and then nothing is logged anyway.
        let _ = self.level.modify(|filter| *filter = level);
    }

    /// From now on `count` is told of lines that were dropped because nobody
    /// read standard error; first, of those dropped so far.
    pub fn on_loss(&self, count: impl Fn(u64) + Send + Sync + 'static) {
        self.stderr.on_loss(count);
    }
}

/// Starts logging for the whole process; once.
pub fn start(level: LevelFilter, format: Format) -> LogHandle {
    let (filter, level_handle) = reload::Layer::new(level);
    let terminal = io::stderr().is_terminal();
    let json = match format {
        Format::Auto => !terminal,
        Format::Text => false,
        Format::Json => true,
    };
    let stderr = Arc::new(Stderr::open());
    let layer = tracing_subscriber::fmt::layer()
        .with_writer(Arc::clone(&stderr))
        .with_target(false);
    let layer = if json {
        layer.json().flatten_event(true).boxed()
    } else {
        let color = terminal && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
        layer.with_ansi(color).boxed()
    };
    // Fails only when a logger was set before: an embedding program's own.
    let _ = Registry::default().with(filter.and_then(layer)).try_init();
    LogHandle {
        level: level_handle,
        stderr,
        json,
    }
}
