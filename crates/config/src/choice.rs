//! Settings with a fixed set of values.

use std::fmt;

use tracing::level_filters::LevelFilter;

use signal_hook::consts;

macro_rules! choice {
    ($(#[$doc:meta])* $name:ident { $($(#[$variant_doc:meta])* $variant:ident = $word:literal,)+ }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum $name {
            $($(#[$variant_doc])* $variant,)+
        }

        impl $name {
            /// All values, as written in the configuration.
            pub const WORDS: &'static [&'static str] = &[$($word),+];

            /// Returns the choice for a value of the configuration.
            pub fn from_word(word: &str) -> Option<Self> {
                match word {
                    $($word => Some(Self::$variant),)+
                    _ => None,
                }
            }

            /// Returns the value, as written in the configuration.
            pub const fn word(self) -> &'static str {
                match self {
                    $(Self::$variant => $word,)+
                }
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(self.word())
            }
        }
    };
}

choice! {
    /// Candidates that a leader hands over to without a request.
    Prefer {
        /// None: a healthy leader keeps leading.
        None = "none",
        /// A standby with a higher priority.
        Priority = "priority",
    }
}

choice! {
    /// Set of defaults for durations that are not configured.
    Profile {
        /// Survives the election of a new MongoDB primary at default settings.
        Steady = "steady",
        /// The durations of Kubernetes leader election.
        Brisk = "brisk",
        /// Survives the election of a new MongoDB primary with `electionTimeoutMillis` 2000.
        Fast = "fast",
    }
}

choice! {
    /// Condition for `/readyz` to return 200.
    ReadyWhen {
        /// Once the store has been reached.
        Connected = "connected",
        /// Only while this replica leads.
        Leader = "leader",
    }
}

choice! {
    /// How followers learn of changes.
    Watch {
        /// Hints if their collection exists, otherwise a change stream.
        Auto = "auto",
        /// Hints; creates their collection if it does not exist.
        Hints = "hints",
        /// A change stream.
        Stream = "stream",
        /// Polls.
        Poll = "poll",
    }
}

choice! {
    /// Publication of pod labels and Events.
    KubernetesEnabled {
        /// Enabled if the process runs in a cluster.
        Auto = "auto",
        /// Always enabled; missing data is an error.
        On = "on",
        /// Disabled.
        Off = "off",
    }
}

choice! {
    /// Signal that requests a workload to stop.
    StopSignal {
        /// SIGTERM.
        Term = "TERM",
        /// SIGINT.
        Int = "INT",
        /// SIGQUIT.
        Quit = "QUIT",
        /// SIGHUP.
        Hup = "HUP",
        /// SIGUSR1.
        Usr1 = "USR1",
        /// SIGUSR2.
        Usr2 = "USR2",
        /// SIGKILL, which leaves no time to stop.
        Kill = "KILL",
    }
}

impl StopSignal {
    /// Returns the number of the signal.
    pub const fn number(self) -> i32 {
        match self {
            Self::Term => consts::SIGTERM,
            Self::Int => consts::SIGINT,
            Self::Quit => consts::SIGQUIT,
            Self::Hup => consts::SIGHUP,
            Self::Usr1 => consts::SIGUSR1,
            Self::Usr2 => consts::SIGUSR2,
            Self::Kill => consts::SIGKILL,
        }
    }
}

choice! {
    /// Recipients of the stop signal.
    StopScope {
        /// The process group and all other descendants.
        Group = "group",
        /// The first process of the workload.
        Main = "main",
    }
}

impl From<StopScope> for leasehold_guard::StopScope {
    fn from(scope: StopScope) -> Self {
        match scope {
            StopScope::Group => Self::Group,
            StopScope::Main => Self::Main,
        }
    }
}

choice! {
    /// Action when a supervised workload exits by itself.
    OnExit {
        /// The lease is released, and the daemon exits with the workload's code.
        Exit = "exit",
        /// The lease is released, and the daemon contends again after a delay, which grows with
        /// repeated exits.
        Release = "release",
    }
}

choice! {
    /// Minimum log level.
    LogLevel {
        /// Events that require immediate attention.
        Error = "error",
        /// Events that require attention at some time.
        Warn = "warn",
        /// Changes of leadership and of the daemon's state.
        Info = "info",
        /// Individual calls.
        Debug = "debug",
        /// Everything.
        Trace = "trace",
    }
}

choice! {
    /// Format of log lines.
    LogFormat {
        /// Text on a terminal, JSON otherwise.
        Auto = "auto",
        /// For humans.
        Text = "text",
        /// For machines.
        Json = "json",
    }
}

impl From<Watch> for leasehold_mongodb::store::mongo::WatchMode {
    fn from(watch: Watch) -> Self {
        match watch {
            Watch::Auto => Self::Auto,
            Watch::Hints => Self::Hints,
            Watch::Stream => Self::Stream,
            Watch::Poll => Self::Poll,
        }
    }
}

impl LogLevel {
    /// Returns the filter that passes records of this level and of more severe ones.
    pub fn filter(self) -> LevelFilter {
        match self {
            Self::Error => LevelFilter::ERROR,
            Self::Warn => LevelFilter::WARN,
            Self::Info => LevelFilter::INFO,
            Self::Debug => LevelFilter::DEBUG,
            Self::Trace => LevelFilter::TRACE,
        }
    }
}

impl LogFormat {
    /// Returns true for JSON; `None` if it depends on the destination.
    pub fn json(self) -> Option<bool> {
        match self {
            Self::Auto => None,
            Self::Text => Some(false),
            Self::Json => Some(true),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_and_choices_agree() {
        for word in LogLevel::WORDS {
            assert_eq!(LogLevel::from_word(word).map(LogLevel::word), Some(*word));
        }
        assert_eq!(LogLevel::from_word("INFO"), None);
        assert_eq!(ReadyWhen::Leader.to_string(), "leader");
        assert_eq!(LogFormat::from_word("json"), Some(LogFormat::Json));
    }
}
