use serde::de::{Deserialize, Deserializer, Error};
use signal_hook::consts;
use tracing::level_filters::LevelFilter;

use leasehold_guard::StopScope;
use leasehold_mongodb::store::mongo::WatchMode;
pub use leasehold_status::ReadyWhen;

/// A setting with a fixed set of named values.
pub trait Choice: Copy + 'static {
    /// The names of all values.
    const WORDS: &'static [&'static str];

    /// Returns the value with this name.
    fn of(word: &str) -> Option<Self>;
}

/// Implements [`Choice`] for a type. If the variants have docs, also defines the enum.
macro_rules! choice {
    ($name:ty { $($word:literal => $value:expr,)+ }) => {
        impl Choice for $name {
            const WORDS: &'static [&'static str] = &[$($word),+];

            fn of(word: &str) -> Option<Self> {
                match word {
                    $($word => Some($value),)+
                    _ => None,
                }
            }
        }
    };
    ($(#[$doc:meta])* enum $name:ident {
        $($(#[$variant_doc:meta])* $variant:ident = $word:literal,)+
    }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum $name {
            $($(#[$variant_doc])* $variant,)+
        }

        choice! { $name { $($word => Self::$variant,)+ } }
    };
}

choice! {
    /// Standbys that a healthy leader hands over to without a request.
    enum Prefer {
        /// No standby; a healthy leader keeps leading.
        None = "none",
        /// A standby with a higher priority.
        Priority = "priority",
    }
}

choice! {
    /// Set of default durations.
    enum Profile {
        /// Leadership survives the election of a new MongoDB primary at MongoDB's default settings.
        Steady = "steady",
        /// The durations of Kubernetes leader election.
        Brisk = "brisk",
        /// Leadership survives a MongoDB election if `electionTimeoutMillis` is 2000.
        Fast = "fast",
    }
}

choice! { ReadyWhen {
    "connected" => Self::Connected,
    "leader" => Self::Leader,
} }

choice! {
    /// Publication of the pod label and Events.
    enum KubernetesEnabled {
        /// Enabled if the process runs in a cluster.
        Auto = "auto",
        /// Always enabled; missing data is an error.
        On = "on",
        /// Disabled.
        Off = "off",
    }
}

choice! {
    /// Action when a supervised workload exits by itself.
    enum OnExit {
        /// The lease is released, and the daemon exits with the workload's code.
        Exit = "exit",
        /// The lease is released, and the daemon contends again after a growing delay.
        Release = "release",
    }
}

choice! {
    /// Action of a restarted daemon after its predecessor's workload has exited.
    enum OnDaemonRestart {
        /// The daemon leads again immediately.
        Lead = "lead",
        /// The daemon releases the lease, and contends again.
        Release = "release",
    }
}

/// Number of a workload's stop signal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SignalNumber(pub i32);

choice! { SignalNumber {
    "TERM" => Self(consts::SIGTERM),
    "INT" => Self(consts::SIGINT),
    "QUIT" => Self(consts::SIGQUIT),
    "HUP" => Self(consts::SIGHUP),
    "USR1" => Self(consts::SIGUSR1),
    "USR2" => Self(consts::SIGUSR2),
    "KILL" => Self(consts::SIGKILL),
} }

/// Format of log lines.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LogFormat {
    /// True for JSON, false for text. `None` selects the command's default: `run`, `bury` and `web`
    /// log JSON unless standard error is a terminal; the other commands log text.
    pub json: Option<bool>,
}

choice! { LogFormat {
    "auto" => Self { json: None },
    "text" => Self { json: Some(false) },
    "json" => Self { json: Some(true) },
} }

choice! { LevelFilter {
    "error" => Self::ERROR,
    "warn" => Self::WARN,
    "info" => Self::INFO,
    "debug" => Self::DEBUG,
    "trace" => Self::TRACE,
} }

choice! { WatchMode {
    "auto" => Self::Auto,
    "hints" => Self::Hints,
    "stream" => Self::Stream,
    "poll" => Self::Poll,
} }

choice! { StopScope {
    "group" => Self::Group,
    "main" => Self::Main,
} }

pub(super) fn choice<'de, D: Deserializer<'de>, T: Choice>(word: D) -> Result<T, D::Error> {
    let word = String::deserialize(word)?;
    T::of(&word).ok_or_else(|| D::Error::custom("unknown word"))
}
