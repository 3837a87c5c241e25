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
    /// The destination of the lines.
    pub stderr: Arc<Stderr>,
    /// True if lines are written as JSON.
    pub json: bool,
}

impl LogHandle {
    /// Sets the minimum level of later lines.
    pub fn set_level(&self, level: LevelFilter) {
        // This call fails only if the subscriber no longer exists. Nothing is logged in that case.
        let _ = self.level.modify(|now| *now = level);
    }
}

/// Starts logging for the whole process, by default as text on a terminal and as JSON otherwise.
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
    // Records of the crate `log` are not collected, because they contain paths of the build. This
    // call fails only if a program that embeds leasehold has set a subscriber.
    let _ = set_global_default(subscriber);
    LogHandle {
        level: level_handle,
        stderr,
        json,
    }
}
