//! Lays out every help text: a summary for `-h`, the full text for `--help`, at most 80 columns
//! wide.

use std::ffi::OsString;
use std::io::stdout;

use clap::builder::Styles;
use clap::error::{ContextKind, ContextValue, Error, ErrorKind};
use clap::{Arg, Command};
use rustix::termios::tcgetwinsize;

use crate::config::nearest;

/// Keeps help readable on every terminal, in a pipe and in an email.
pub(super) const WIDTH_MAX: usize = 80;
const EXAMPLES_MAX: usize = 2;
/// Indentation of the line that explains an example.
const EXPLAINED: usize = 6;

/// The subcommands, grouped by audience. Other subcommands belong to [`SETUP`].
const GROUPS: [(&str, &[&str]); 2] = [
    (
        "Workloads and jobs",
        &["run", "guard", "lock", "status", "bury"],
    ),
    (
        "Leases and locks, for operators",
        &[
            "leases",
            "describe",
            "locks",
            "web",
            "step-down",
            "transfer",
            "pause",
            "resume",
            "cancel",
            "repair",
        ],
    ),
];
const SETUP: &str = "Setup";
/// First line of the examples of each command that connects to MongoDB.
const CONNECTION: &str =
    "  export LEASEHOLD_MONGODB__URI='mongodb://…'  # or --mongodb-uri-file FILE";
const EXAMPLES: &str = "Examples:\n";
const OF_A_LEASE: [&str; 6] = ["step-down", "pause", "resume", "cancel", "repair", "retire"];

pub(super) fn width() -> usize {
    let size = tcgetwinsize(stdout()).ok();
    let columns = size.map(|size| usize::from(size.ws_col));
    columns
        .filter(|columns| *columns > 0)
        .map_or(WIDTH_MAX, |columns| columns.min(WIDTH_MAX))
}

pub(super) fn arranged(command: Command, width: usize) -> Command {
    let command = command.term_width(width);
    let list = subcommands(&command);
    let template = format!(
        "{{about-with-newline}}\n{{usage-heading}} {{usage}}\n\n{list}{}:\n{{options}}{{after-help}}",
        heading("Options", command.get_styles())
    );
    let name = command.get_name().to_owned();
    let command = with_examples(command, &name, width).help_template(template);
    let pointer = format!(
        "Connection to MongoDB:\n{CONNECTION}\n\n\
         Options of a command: {name} COMMAND -h\nExamples and exit codes: {name} --help"
    );
    let styles = command.get_styles().clone();
    command.after_help(laid_out(&pointer, width, &styles))
}

/// Shows all text after the options in `--help`, but only the first examples in `-h`.
fn with_examples(command: Command, path: &str, width: usize) -> Command {
    let styles = command.get_styles().clone();
    let text = command.get_after_help().map(ToString::to_string);
    let text = text.unwrap_or_default();
    let connects = command.get_name() != "config"
        && command
            .get_arguments()
            .any(|it| it.get_id() == "mongodb.uri");
    let connection = if connects {
        format!("{CONNECTION}\n")
    } else {
        String::new()
    };
    let whole = match (text.contains("Examples:"), text.contains("Exit codes:")) {
        (true, true) => "All options, examples and exit codes",
        (true, false) => "All options and examples",
        (false, true) => "All options and exit codes",
        (false, false) => "All options",
    };
    let pointer = format!("{whole}: {path} --help");
    let short = match examples(&text) {
        found if found.is_empty() => pointer,
        found => format!("{EXAMPLES}{connection}{}\n\n{pointer}", found.join("\n")),
    };
    let text = text.replacen(EXAMPLES, &format!("{EXAMPLES}{connection}"), 1);
    let command = command
        .after_help(laid_out(&short, width, &styles))
        .mut_subcommands(|subcommand| {
            let path = format!("{path} {}", subcommand.get_name());
            with_examples(subcommand, &path, width)
        });
    // Set even if the text is empty, because otherwise the output of --help would refer to --help.
    command.after_long_help(laid_out(&text, width, &styles))
}

fn examples(text: &str) -> Vec<&str> {
    let lines = text.lines().skip_while(|line| *line != "Examples:").skip(1);
    let mut left = EXAMPLES_MAX;
    let first = lines.take_while(|line| match indentation(line) {
        0 => false,
        1..EXPLAINED => {
            let more = left > 0;
            left = left.saturating_sub(1);
            more
        }
        _ => true,
    });
    first.collect()
}

fn indentation(line: &str) -> usize {
    line.len() - line.trim_start().len()
}

/// Wraps lines, and indents continuation lines, which clap would not do.
fn laid_out(text: &str, width: usize, styles: &Styles) -> String {
    let mut lines = Vec::new();
    for line in text.lines() {
        let (indent, hanging) = match indentation(line) {
            0 => (0, 0),
            indent @ 1..EXPLAINED => (indent, EXPLAINED),
            _ => (EXPLAINED, EXPLAINED),
        };
        match line.strip_suffix(':') {
            Some(title) if indent == 0 => lines.push(format!("{}:", heading(title, styles))),
            _ => wrap(line.trim_start(), width, (indent, hanging), &mut lines),
        }
    }
    lines.join("\n")
}

fn wrap(text: &str, width: usize, (first, hanging): (usize, usize), lines: &mut Vec<String>) {
    let mut line = " ".repeat(first);
    let mut empty = true;
    // Repeated spaces separate columns and are kept.
    for word in text.split(' ') {
        let length = line.chars().count() + word.chars().count() + usize::from(!empty);
        if length > width && !empty {
            lines.push(line.trim_end().to_owned());
            line = " ".repeat(hanging);
        } else if !empty {
            line.push(' ');
        }
        line.push_str(word);
        empty = false;
    }
    lines.push(line.trim_end().to_owned());
}

fn heading(title: &str, styles: &Styles) -> String {
    let style = styles.get_header();
    format!("{style}{title}{style:#}")
}

fn subcommands(command: &Command) -> String {
    let mut list = String::new();
    let visible = || {
        command
            .get_subcommands()
            .filter(|found| !found.is_hide_set())
    };
    let width = visible()
        .map(|found| found.get_name().len())
        .max()
        .unwrap_or(0);
    let styles = command.get_styles();
    let mut group = |title: &str, members: &mut dyn Iterator<Item = &Command>| {
        list += &format!("{}:\n", heading(title, styles));
        let literal = styles.get_literal();
        for member in members {
            let about = member
                .get_about()
                .map(ToString::to_string)
                .unwrap_or_default();
            let name = member.get_name();
            let padding = width - name.len() + 2;
            list += &format!("  {literal}{name}{literal:#}{:padding$}{about}\n", "");
        }
        list.push('\n');
    };
    for (title, names) in GROUPS {
        group(
            title,
            &mut names
                .iter()
                .filter_map(|name| command.find_subcommand(name)),
        );
    }
    let grouped = |name: &str| GROUPS.iter().any(|(_, names)| names.contains(&name));
    group(
        SETUP,
        &mut visible().filter(|found| !grouped(found.get_name())),
    );
    list
}

/// Returns the subcommand that these words name.
fn innermost<'a>(root: &'a Command, words: &[&str]) -> &'a Command {
    let words = words.iter().take_while(|word| **word != "--");
    let step = |command: &'a Command, word: &&str| command.find_subcommand(word).unwrap_or(command);
    words.fold(root, step)
}

/// Flags that name a lease or lock in some commands.
pub(super) const NAMING: [&str; 3] = ["--name", "--lease", "--lock"];

/// Returns a tip that shows how to name the lease or lock of this command; `None` if the command
/// takes neither.
fn naming(command: &Command, unexpected: &str) -> Option<String> {
    let shown = command.get_arguments().filter(|it| !it.is_hide_set());
    let flags: Vec<_> = shown.filter_map(Arg::get_long).collect();
    let kind = ["lease", "lock"]
        .into_iter()
        .find(|kind| flags.contains(kind))?;
    let name = command.get_positionals().any(|it| it.get_id() == "name");
    let name = if name { "NAME or " } else { "" };
    let takes = format!("{} takes a {kind}: {name}--{kind} NAME", command.get_name());
    let who = if kind == "lock" {
        "holder"
    } else {
        "candidate"
    };
    Some(
        match unexpected == "--name" && flags.contains(&"identity") {
            true => format!("{takes}; to name the {who}: --identity NAME"),
            false => takes,
        },
    )
}

/// Suggests the command that the user probably needs, in an error about a subcommand or a missing
/// name.
pub(super) fn with_tip(mut error: Error, arguments: &[OsString]) -> Error {
    let words: Vec<_> = arguments
        .iter()
        .skip(1)
        .filter_map(|it| it.to_str())
        .collect();
    let given = |word: &str| words.contains(&word);
    let is_list = (given("leases") || given("locks"))
        && !["retire", "break", "prune"].iter().any(|word| given(word));
    let unknown = match error.get(ContextKind::InvalidSubcommand) {
        Some(ContextValue::String(unknown)) => unknown.clone(),
        _ => "NAME".to_owned(),
    };
    let root = super::command();
    let parent = |name: &str| {
        root.get_subcommands()
            .find(|it| it.find_subcommand(name).is_some())
    };
    let names = root.get_subcommands().map(Command::get_name);
    let inner = innermost(&root, &words);
    let has_flag = |flag: &str| inner.get_arguments().any(|it| it.get_long() == Some(flag));
    let member = nearest(&unknown, inner.get_subcommands().map(Command::get_name));
    let waits = ["step-down", "transfer", "pause", "resume"]
        .iter()
        .any(|word| given(word));
    let unexpected = match error.get(ContextKind::InvalidArg) {
        Some(ContextValue::String(unexpected)) => &**unexpected,
        _ => "",
    };
    let tip = match error.kind() {
        ErrorKind::UnknownArgument if given("transfer") && !unexpected.starts_with('-') => {
            format!("to name the candidate: --to {unexpected}")
        }
        ErrorKind::UnknownArgument if unexpected == "--wait" && waits => {
            "to limit the wait: --timeout DURATION".to_owned()
        }
        ErrorKind::UnknownArgument if NAMING.contains(&unexpected) && !is_list => {
            match naming(inner, unexpected) {
                Some(tip) => tip,
                None => return error,
            }
        }
        ErrorKind::MissingRequiredArgument
            if given("break") && given("--yes") && !given("--force") =>
        {
            "--yes belongs to --force, which also removes holders that are not expired".to_owned()
        }
        ErrorKind::InvalidSubcommand if is_list && ["list", "ls", "get"].contains(&&*unknown) => {
            "the list needs no subcommand".to_owned()
        }
        ErrorKind::InvalidSubcommand if is_list && member.is_some() => {
            format!("a similar command exists: '{}'", member.unwrap_or_default())
        }
        ErrorKind::InvalidSubcommand if is_list && has_flag(&unknown) => {
            format!("an option has this name: '--{unknown}'")
        }
        ErrorKind::InvalidSubcommand | ErrorKind::UnknownArgument if is_list => {
            format!("to show one of them: leasehold describe {unknown}")
        }
        ErrorKind::InvalidSubcommand if ["list", "ls", "get"].contains(&&*unknown) => {
            "to list leases or locks: leasehold leases, leasehold locks".to_owned()
        }
        ErrorKind::InvalidSubcommand if unknown == "unlock" => {
            "a lock is released when its command ends; after a crash: leasehold locks break NAME"
                .to_owned()
        }
        ErrorKind::InvalidSubcommand => match (parent(&unknown), nearest(&unknown, names)) {
            (Some(parent), _) => format!("leasehold {} {unknown}", parent.get_name()),
            (None, Some(near)) => format!("a similar command exists: '{near}'"),
            (None, None) => return error,
        },
        ErrorKind::MissingRequiredArgument if given("transfer") => {
            "leasehold describe NAME --candidates lists the candidates".to_owned()
        }
        ErrorKind::MissingRequiredArgument if given("prune") => "such as --unused-for 30d".to_owned(),
        ErrorKind::MissingRequiredArgument if given("repair") => {
            "the token must exceed every token used so far: leasehold repair NAME --token-at-least 5000".to_owned()
        }
        ErrorKind::MissingRequiredArgument if given("describe") => {
            "leasehold leases and leasehold locks list the names".to_owned()
        }
        ErrorKind::MissingRequiredArgument if given("locks") => {
            "leasehold locks lists the locks".to_owned()
        }
        ErrorKind::MissingRequiredArgument if OF_A_LEASE.iter().any(|word| given(word)) => {
            "leasehold leases lists the leases".to_owned()
        }
        _ => return error,
    };
    error.remove(ContextKind::SuggestedSubcommand);
    // The usage line contains the removed suggestion too, so it is rendered again.
    if error.remove(ContextKind::SuggestedArg).is_some() {
        let mut built = super::command();
        built.build();
        let usage = innermost(&built, &words).clone().render_usage();
        error.insert(ContextKind::Usage, ContextValue::StyledStr(usage));
    }
    let tips = ContextValue::StyledStrs(vec![tip.into()]);
    error.insert(ContextKind::Suggested, tips);
    error
}
