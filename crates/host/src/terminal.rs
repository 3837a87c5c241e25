//! Decides if output and log lines have colors, and if a job may use its terminal.

use std::ffi::OsStr;
use std::io::IsTerminal;
use std::os::fd::AsFd;

use rustix::termios::tcgetpgrp;

use leasehold_guard::groups::own_group;

/// Returns true if a read of this terminal, or a change of its settings, would stop this process
/// because its job is in the background.
pub fn in_background(terminal: impl AsFd) -> bool {
    // `tcgetpgrp` fails if this terminal does not control, and thus never stops, this process.
    tcgetpgrp(terminal).is_ok_and(|foreground| foreground.as_raw_nonzero().get() != own_group())
}

/// Returns true on a terminal with colors, unless NO_COLOR is set, as clap does for help texts.
pub fn color(stream: &impl IsTerminal) -> bool {
    let (no_color, term) = (std::env::var_os("NO_COLOR"), std::env::var_os("TERM"));
    stream.is_terminal() && are_wanted(no_color.as_deref(), term.as_deref())
}

fn are_wanted(no_color: Option<&OsStr>, term: Option<&OsStr>) -> bool {
    no_color.is_none_or(OsStr::is_empty) && term.is_some_and(|term| term != "dumb")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn colors_need_a_capable_terminal_without_no_color() {
        let wanted = |no_color: Option<&str>, term: Option<&str>| {
            are_wanted(no_color.map(OsStr::new), term.map(OsStr::new))
        };
        assert!(wanted(None, Some("xterm-256color")));
        assert!(wanted(Some(""), Some("linux")));
        assert!(!wanted(Some("1"), Some("xterm")));
        assert!(!wanted(None, Some("dumb")));
        assert!(!wanted(None, None));
    }
}
