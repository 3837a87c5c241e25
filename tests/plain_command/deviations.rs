//! Lists the differences between leasehold and the plain command. docs/supervision.md gives the
//! reasons.

use crate::table::Row;
use crate::tool::Tool::{self, Hook, Lock, Run};

#[derive(Debug)]
pub(crate) struct Deviation {
    /// The situation. An empty name matches every situation.
    pub(crate) situation: &'static str,
    /// The property. A final `*` matches any text.
    pub(crate) property: &'static str,
    pub(crate) tools: &'static [Tool],
    /// The value. A final `*` matches any text.
    pub(crate) value: &'static str,
    /// First cell of the row in docs/supervision.md that explains the difference.
    pub(crate) row: &'static str,
}

impl Deviation {
    pub(crate) fn explains(&self, row: &Row, tool: Tool, value: &str) -> bool {
        (self.situation.is_empty() || self.situation == row.situation)
            && matches(self.property, &row.property)
            && self.tools.contains(&tool)
            && matches(self.value, value)
    }
}

fn matches(pattern: &str, text: &str) -> bool {
    match pattern.strip_suffix('*') {
        Some(beginning) => text.starts_with(beginning),
        None => text == pattern,
    }
}

const fn deviation(
    situation: &'static str,
    property: &'static str,
    tools: &'static [Tool],
    value: &'static str,
    row: &'static str,
) -> Deviation {
    Deviation {
        situation,
        property,
        tools,
        value,
        row,
    }
}

const CLOSED: &str = "standard input, output or error closed";
const NULL: &str = "/dev/null *";

pub(crate) const INHERITED: &[Deviation] = &[
    deviation(
        "",
        "process group",
        &[Run, Lock, Hook],
        "own",
        "process group",
    ),
    deviation("", "session", &[Run, Lock, Hook], "another", "session"),
    deviation(
        "SIGPIPE ignored",
        "ignored signals",
        &[Run, Lock, Hook],
        "",
        "SIGPIPE ignored at the start",
    ),
    deviation(
        "SIGCHLD ignored",
        "ignored signals",
        &[Run, Lock, Hook],
        "",
        "SIGCHLD ignored at the start",
    ),
    deviation(
        "standard input closed",
        "descriptor 0",
        &[Run, Lock],
        NULL,
        CLOSED,
    ),
    deviation(
        "standard output closed",
        "descriptor 1",
        &[Run, Lock],
        NULL,
        CLOSED,
    ),
    deviation(
        "standard error closed",
        "descriptor 2",
        &[Run, Lock, Hook],
        NULL,
        CLOSED,
    ),
    deviation(
        "all three closed",
        "descriptor 0",
        &[Run, Lock, Hook],
        NULL,
        CLOSED,
    ),
    deviation(
        "all three closed",
        "descriptor 1",
        &[Run, Lock, Hook],
        NULL,
        CLOSED,
    ),
    deviation(
        "all three closed",
        "descriptor 2",
        &[Run, Lock, Hook],
        NULL,
        CLOSED,
    ),
    deviation(
        "",
        "variable LEASEHOLD_*",
        &[Run, Lock, Hook],
        "*",
        "environment",
    ),
    deviation(
        "environment of a service",
        "variable NOTIFY_SOCKET",
        &[Run, Lock, Hook],
        "none",
        "environment",
    ),
    deviation(
        "environment of a service",
        "variable WATCHDOG_USEC",
        &[Run, Lock, Hook],
        "none",
        "environment",
    ),
    deviation(
        "environment of a service",
        "number of variables",
        &[Run, Lock, Hook],
        "*",
        "environment",
    ),
    deviation("", "descriptor 0", &[Hook], NULL, "hooks"),
    deviation("", "descriptor 1", &[Hook], "*", "hooks"),
];

pub(crate) const ATTRIBUTES: &[Deviation] = &[
    deviation(
        "",
        "parent-death signal",
        &[Run, Lock],
        "9",
        "parent-death signal",
    ),
    deviation(
        "signals blocked",
        "blocked signals",
        &[Run, Lock],
        "0",
        "signals blocked at the start",
    ),
];

const DEATH: &str = "death by a signal";

pub(crate) const ENDS: &[Deviation] = &[
    deviation("ended by TERM", "end", &[Run, Lock], "exit code 143", DEATH),
    deviation("ended by KILL", "end", &[Run, Lock], "exit code 137", DEATH),
    deviation("ended by PIPE", "end", &[Run, Lock], "exit code 141", DEATH),
    deviation("ended by SEGV", "end", &[Run, Lock], "exit code 139", DEATH),
    deviation("ended by HUP", "end", &[Run], "exit code 129", DEATH),
    deviation("ended by INT", "end", &[Run], "exit code 130", DEATH),
    deviation("ended by QUIT", "end", &[Run], "exit code 131", DEATH),
    deviation(
        "exceeds the size of a file",
        "end",
        &[Run, Lock],
        "exit code 153",
        DEATH,
    ),
    deviation(
        "a process that stays",
        "output",
        &[Run, Lock],
        "\"76\\nit was stopped\\n\"",
        "processes that the command leaves behind",
    ),
];

const STOPS: &str =
    "SIGINT, SIGQUIT, SIGHUP, or another signal that ends a process by default, to `leasehold`";

/// The command receives SIGTERM from these tools, whatever signal was sent.
const fn stop(situation: &'static str, tools: &'static [Tool]) -> Deviation {
    deviation(situation, "received", tools, "TERM", STOPS)
}

pub(crate) const SIGNALS: &[Deviation] = &[
    deviation(
        "",
        "end",
        &[Run],
        "exit code 0",
        "exit code after a graceful stop",
    ),
    stop("INT to the process", &[Run, Lock]),
    stop("QUIT to the process", &[Run, Lock]),
    stop("HUP to the process", &[Lock]),
    stop("ALRM to the process", &[Run, Lock]),
    stop("PWR to the process", &[Run, Lock]),
    stop("PROF to the process", &[Run, Lock]),
    stop("IO to the process", &[Run, Lock]),
    stop("XCPU to the process", &[Run, Lock]),
    stop("RTMIN+3 to the process", &[Run, Lock]),
    stop("RTMAX to the process", &[Run, Lock]),
];

pub(crate) const TERMINAL: &[Deviation] = &[deviation(
    "it sends itself SIGINT",
    "*",
    &[Run, Lock],
    "*",
    "the command in the foreground of a terminal kills itself with SIGINT or SIGQUIT",
)];
