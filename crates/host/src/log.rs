//! Log lines on stderr: text on a terminal, JSON otherwise. Writing never blocks.

mod stderr;
mod throttle;

use std::io::{self, IsTerminal};
use std::sync::Arc;

use tracing::level_filters::LevelFilter;
use tracing::subscriber::set_global_default;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::{Layer, Registry, reload};

pub use self::stderr::Stderr;
pub use self::throttle::{ErrorThrottle, millis, shown};

/// A handle on the running log.
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

    /// Returns the destination of the lines, for messages that are not log lines.
    pub fn stderr(&self) -> Arc<Stderr> {
        Arc::clone(&self.stderr)
    }

    /// Sets the minimum level of the lines that are written from now on.
    pub fn set_level(&self, level: LevelFilter) {
        // Fails only if the subscriber no longer exists, and then nothing is logged anyway.
        let _ = self.level.modify(|now| *now = level);
    }

    /// Registers a callback for lines that are dropped because standard error is not read fast
    /// enough. The callback first receives the number of lines dropped so far.
    pub fn on_loss(&self, count: impl Fn(u64) + Send + Sync + 'static) {
        self.stderr.on_loss(count);
    }
}

/// Starts logging for the whole process. Call it only once. If `json` is `None`, lines are text on a
/// terminal and JSON otherwise.
pub fn start(level: LevelFilter, json: Option<bool>) -> LogHandle {
    let (filter, level_handle) = reload::Layer::new(level);
    let terminal = io::stderr().is_terminal();
    let json = json.unwrap_or(!terminal);
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
    let subscriber = Registry::default().with(filter.and_then(layer));
    // Records of the crate `log` are not collected: they contain paths of the build.
    // Fails only if a subscriber was set before, by a program that embeds this one.
    let _ = set_global_default(subscriber);
    LogHandle {
        level: level_handle,
        stderr,
        json,
    }
}
