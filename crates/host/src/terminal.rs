//! Colors, wrapped messages and job control on a terminal.

use std::ffi::OsStr;
use std::io::IsTerminal;
use std::os::fd::AsFd;

use rustix::termios::tcgetpgrp;

use leasehold_guard::groups::own_group;

const COLUMNS: usize = 80;

/// Returns true if this process's job is in the background, so that reading this terminal or
/// changing its settings would stop the process.
pub fn in_background(terminal: impl AsFd) -> bool {
    // `tcgetpgrp` fails if this is not the process's controlling terminal. Other terminals never
    // stop the process.
    tcgetpgrp(terminal).is_ok_and(|foreground| foreground.as_raw_nonzero().get() != own_group())
}

/// Returns true on a terminal with colors, unless NO_COLOR is set. clap applies this rule to help
/// texts.
pub fn color(stream: &impl IsTerminal) -> bool {
    let (no_color, term) = (std::env::var_os("NO_COLOR"), std::env::var_os("TERM"));
    stream.is_terminal() && are_wanted(no_color.as_deref(), term.as_deref())
}

fn are_wanted(no_color: Option<&OsStr>, term: Option<&OsStr>) -> bool {
    no_color.is_none_or(OsStr::is_empty) && term.is_some_and(|term| term != "dumb")
}

/// Breaks a message between words for a terminal, and indents all lines but the first.
pub fn folded(message: &str) -> String {
    folded_to(message, COLUMNS, "\n  ")
}

/// Breaks the lines of a text between words if the stream is a terminal. Continuation lines are
/// indented further than the lines that they continue.
pub fn fitted(stream: &impl IsTerminal, text: &str) -> String {
    match stream.is_terminal() {
        true => text
            .split('\n')
            .map(continued)
            .collect::<Vec<_>>()
            .join("\n"),
        false => text.to_owned(),
    }
}

fn continued(line: &str) -> String {
    let indent = line.len() - line.trim_start_matches(' ').len() + 2;
    folded_to(line, COLUMNS, &format!("\n{:indent$}", ""))
}

/// Breaks a message into lines of at most `columns`. All lines but the first begin with `indent`.
pub fn folded_to(message: &str, columns: usize, indent: &str) -> String {
    let mut folded = String::new();
    for (line_number, line) in message.lines().enumerate() {
        let mut line = line;
        if line_number > 0 {
            folded.push_str(indent);
            line = line.trim_start();
        }
        for (number, word) in line.split(' ').enumerate() {
            let (_, last) = folded.rsplit_once('\n').unwrap_or(("", &folded));
            let length = last.chars().count() + 1 + word.chars().count();
            folded.push_str(match number {
                0 => "",
                _ if length > columns => indent,
                _ => " ",
            });
            folded.push_str(word);
        }
    }
    folded
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

    #[test]
    fn a_long_message_is_folded_between_words() {
        let long = "word ".repeat(40);
        let text = format!("leasehold: lock a: {long}end\nnext");
        let text = folded(&text);
        assert!(
            text.lines().all(|line| line.chars().count() <= COLUMNS),
            "{text}"
        );
        assert!(
            text.lines().skip(1).all(|line| line.starts_with("  ")),
            "{text}"
        );
        assert!(text.ends_with(" end\n  next"), "{text}");
        let words: Vec<_> = text.split_whitespace().collect();
        assert_eq!(words.len(), 3 + 40 + 2);
        assert_eq!(folded("held"), "held");
    }

    #[test]
    fn a_continued_line_is_indented_below_its_line() {
        let remedy = format!("  to fix: {}end", "word ".repeat(20));
        let folded = continued(&remedy);
        let (first, second) = folded.split_once('\n').expect("two lines");
        assert!(first.starts_with("  to fix: word"), "{folded}");
        assert!(second.starts_with("    word"), "{folded}");
    }
}
