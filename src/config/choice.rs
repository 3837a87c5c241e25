//! Settings that are one of a few words.

use std::fmt;

use signal_hook::consts;

macro_rules! choice {
    ($(#[$doc:meta])* $name:ident { $($(#[$variant_doc:meta])* $variant:ident = $word:literal,)+ }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum $name {
            $($(#[$variant_doc])* $variant,)+
        }

        impl $name {
            /// The words, as they are written in the configuration.
            pub const WORDS: &'static [&'static str] = &[$($word),+];

            /// From its word.
            pub fn from_word(word: &str) -> Option<Self> {
                match word {
                    $($word => Some(Self::$variant),)+
                    _ => None,
                }
            }

            /// Its word.
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
    /// When `/readyz` answers 200.
    ReadyWhen {
        /// Once the store has been reached.
        Connected = "connected",
        /// Only while this replica leads.
        Leader = "leader",
    }
}

choice! {
    /// Whether pod labels and Events are published.
    KubernetesEnabled {
        /// Where the process finds itself in a cluster.
        Auto = "auto",
        /// Always: what is missing is a mistake.
        On = "on",
        /// Never.
        Off = "off",
    }
}

choice! {
    /// The signal that asks a workload to end.
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
        /// SIGKILL: no time to end at all.
        Kill = "KILL",
    }
}

impl StopSignal {
    /// The number that the kernel knows it by.
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
    /// What follows when a supervised workload ends by itself.
    OnExit {
        /// The lease is released and the daemon exits with the workload's code.
        Exit = "exit",
        /// The lease is released and the daemon stays a candidate, after a while.
        Release = "release",
    }
}

choice! {
    /// The least important level that is logged.
    LogLevel {
        /// What needs somebody at once.
        Error = "error",
        /// What needs somebody some time.
        Warn = "warn",
        /// Changes of leadership and of the daemon's state.
        Info = "info",
        /// Single calls.
        Debug = "debug",
        /// Everything.
        Trace = "trace",
    }
}

choice! {
    /// What log lines look like.
    LogFormat {
        /// Text on a terminal, JSON otherwise.
        Auto = "auto",
        /// For people.
        Text = "text",
        /// For machines.
        Json = "json",
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
