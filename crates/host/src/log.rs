//! Log lines on stderr, as text for humans or as JSON for collectors. Writing never blocks.

mod stderr;
mod text;
mod throttle;

use std::io::{self, IsTerminal};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tracing::level_filters::LevelFilter;
use tracing::subscriber::set_global_default;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::{Layer, Registry, reload};

pub use self::stderr::Stderr;
use self::text::TextFormat;
pub use self::throttle::{ErrorThrottle, millis};
use crate::terminal;

/// Returns true if a daemon logs JSON by default, which is the case without a terminal. `guard` and
/// `bury` also follow this rule, because they run in the pod or unit of a daemon. All other
/// commands log text, because humans read it, for example in a mail from cron.
pub fn is_json_by_default() -> bool {
    !io::stderr().is_terminal()
}

static WRITES_JSON: AtomicBool = AtomicBool::new(false);

/// Returns true if the log of this process has started and is JSON.
pub fn writes_json() -> bool {
    WRITES_JSON.load(Ordering::Relaxed)
}

/// The format of the log's lines.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LineFormat {
    /// One JSON object per line.
    Json,
    /// Time, level, message and fields.
    Text,
    /// This prefix, then message and fields, as in the error messages of a command.
    Plain(String),
}

impl LineFormat {
    /// Returns the format for the value of `log.format`.
    pub const fn of(json: bool) -> Self {
        match json {
            true => Self::Json,
            false => Self::Text,
        }
    }
}

/// A handle to the running log.
#[derive(Clone)]
pub struct LogHandle {
    level: reload::Handle<LevelFilter, Registry>,
    /// The destination of the lines.
    pub stderr: Arc<Stderr>,
    /// The format of the lines.
    pub format: LineFormat,
}

impl LogHandle {
    /// Sets the minimum level of later lines.
    pub fn set_level(&self, level: LevelFilter) {
        // This call fails only if the subscriber no longer exists, and then nothing is logged.
        let _ = self.level.modify(|now| *now = level);
    }
}

/// Starts logging for the whole process.
pub fn start(level: LevelFilter, format: LineFormat) -> LogHandle {
    let (filter, level_handle) = reload::Layer::new(level);
    let stderr = Arc::new(Stderr::open());
    let layer = tracing_subscriber::fmt::layer()
        .with_writer(Arc::clone(&stderr))
        .with_target(false);
    WRITES_JSON.store(format == LineFormat::Json, Ordering::Relaxed);
    let error = io::stderr();
    let layer = layer.with_ansi(terminal::color(&error));
    let terminal = error.is_terminal();
    let text = |prefix| TextFormat { terminal, prefix };
    let layer = match &format {
        LineFormat::Json => layer.json().flatten_event(true).boxed(),
        LineFormat::Text => layer.event_format(text(None)).boxed(),
        LineFormat::Plain(prefix) => layer.event_format(text(Some(prefix.clone()))).boxed(),
    };
    let subscriber = Registry::default().with(filter.and_then(layer));
    // Records of the crate `log` are not collected, because they contain build paths. This call
    // fails only if an embedding program has set a subscriber.
    let _ = set_global_default(subscriber);
    LogHandle {
        level: level_handle,
        stderr,
        format,
    }
}
