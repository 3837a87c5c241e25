//! Where leasehold differs from the plain command. The reasons are in docs/supervision.md.

use crate::table::Row;
use crate::tool::Tool::{self, Hook, Lock, Run};

/// A difference with a reason.
#[derive(Debug)]
pub(crate) struct Deviation {
    /// The situation; empty for all.
    pub(crate) situation: &'static str,
    /// The property, or the beginning of the names of several.
    pub(crate) property: &'static str,
    pub(crate) tools: &'static [Tool],
    /// The first cell of the documented row.
    pub(crate) row: &'static str,
}

impl Deviation {
    pub(crate) fn explains(&self, row: &Row, tool: Tool) -> bool {
        (self.situation.is_empty() || self.situation == row.situation)
            && row.property.starts_with(self.property)
            && self.tools.contains(&tool)
    }
}

const fn deviation(
    situation: &'static str,
    property: &'static str,
    tools: &'static [Tool],
    row: &'static str,
) -> Deviation {
    Deviation {
        situation,
        property,
        tools,
        row,
    }
}

const CLOSED: &str = "standard input, output or error closed";

/// Deviations in the state that a command inherits.
pub(crate) const INHERITED: &[Deviation] = &[
    deviation("", "process group", &[Run, Lock, Hook], "process group"),
    deviation("", "session", &[Run, Lock, Hook], "session"),
    deviation(
        "SIGPIPE ignored",
        "ignored signals",
        &[Run, Lock, Hook],
        "SIGPIPE ignored at the start",
    ),
    deviation(
        "standard input closed",
        "descriptor 0",
        &[Run, Lock],
        CLOSED,
    ),
    deviation(
        "standard output closed",
        "descriptor 1",
        &[Run, Lock],
        CLOSED,
    ),
    deviation(
        "standard error closed",
        "descriptor 2",
        &[Run, Lock, Hook],
        CLOSED,
    ),
    deviation("all three closed", "descriptor", &[Run, Lock, Hook], CLOSED),
    deviation("", "variable LEASEHOLD_", &[Run, Lock, Hook], "environment"),
    deviation(
        "environment of a service",
        "variable NOTIFY_SOCKET",
        &[Run, Lock, Hook],
        "environment",
    ),
    deviation(
        "environment of a service",
        "variable WATCHDOG_USEC",
        &[Run, Lock, Hook],
        "environment",
    ),
    deviation(
        "environment of a service",
        "number of variables",
        &[Run, Lock, Hook],
        "environment",
    ),
    deviation("", "descriptor 0", &[Hook], "hooks"),
    deviation("", "descriptor 1", &[Hook], "hooks"),
];

/// Deviations in attributes of the process.
pub(crate) const ATTRIBUTES: &[Deviation] = &[
    deviation(
        "",
        "parent-death signal",
        &[Run, Lock],
        "parent-death signal",
    ),
    deviation(
        "signals blocked",
        "blocked signals",
        &[Run, Lock],
        "signals blocked at the start",
    ),
];

/// Deviations in the end that the parent sees.
pub(crate) const ENDS: &[Deviation] = &[
    deviation("ended by TERM", "end", &[Run, Lock], "death by a signal"),
    deviation("ended by KILL", "end", &[Run, Lock], "death by a signal"),
    deviation("ended by PIPE", "end", &[Run, Lock], "death by a signal"),
    deviation("ended by SEGV", "end", &[Run, Lock], "death by a signal"),
    deviation("ended by HUP", "end", &[Run], "death by a signal"),
    deviation("ended by INT", "end", &[Run], "death by a signal"),
    deviation("ended by QUIT", "end", &[Run], "death by a signal"),
    deviation(
        "exceeds the size of a file",
        "end",
        &[Run, Lock],
        "death by a signal",
    ),
    deviation(
        "a process that stays",
        "output",
        &[Run, Lock],
        "processes that the command leaves behind",
    ),
];

/// Deviations in the effect of a signal from elsewhere.
pub(crate) const SIGNALS: &[Deviation] = &[
    deviation("", "end", &[Run], "exit code after a graceful stop"),
    deviation(
        "",
        "received",
        &[Run, Lock],
        "SIGINT, SIGQUIT or SIGHUP to `leasehold`",
    ),
];

/// Deviations on a terminal.
pub(crate) const TERMINAL: &[Deviation] = &[deviation(
    "it sends itself SIGINT",
    "",
    &[Run, Lock],
    "the command in the foreground of a terminal ends itself by SIGINT or SIGQUIT",
)];
