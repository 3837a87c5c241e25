//! `leasehold completions`: completion scripts for shells.

use clap::builder::PossibleValuesParser;
use clap::{Arg, Args, Command, ValueHint};
use clap_complete::Shell;

use super::{CommandError, answer, command};
use crate::config::{KEYS, Key, ValueType};

const HELP: &str = "\
The scripts for bash, zsh and fish complete the names of the leases whose daemons have run on this host, and of the locks \
that this user's jobs have used on this host since it booted. They do not connect to MongoDB, so they complete no other names.

Examples:
  leasehold completions bash > /etc/bash_completion.d/leasehold
  leasehold completions zsh > \"${fpath[1]}/_leasehold\"
  leasehold completions fish > ~/.config/fish/completions/leasehold.fish

Exit codes: 0 done, 64 usage.";

/// Arguments of `leasehold completions`.
#[derive(Debug, Args)]
#[command(after_help = HELP)]
pub struct CompletionsArgs {
    /// The shell
    shell: Shell,
}

/// First line of clap's bash script, after which [`BASH_COMMAND`] is inserted.
const BASH_BEGIN: &str = "_leasehold() {\n";
/// Completes the words after `--` as a separate command and its arguments.
///
/// Where a lease or lock is expected, completes the names that this host knows. After `config`,
/// completes only keys. Completes file names only where a path is expected.
const BASH_COMMAND: &str = r#"    local word
    for ((word = 1; word < COMP_CWORD; word++)); do
        if [[ "${COMP_WORDS[word]}" == -- ]]; then
            if declare -F _command_offset > /dev/null; then
                _command_offset $((word + 1))
            else
                COMPREPLY=($(compgen -c -f -- "${COMP_WORDS[COMP_CWORD]}"))
            fi
            return 0
        fi
    done
    local current="${COMP_WORDS[COMP_CWORD]}"
    if [[ "$current" != -* && "$COMP_CWORD ${COMP_WORDS[1]}" == "2 config" ]]; then
        COMPREPLY=($(compgen -W "{KEYS}" -- "$current"))
        return 0
    fi
    local of_lease=" {COMMANDS} " kinds="" root
    local before="${COMP_WORDS[*]:1:COMP_CWORD-1}"
    case "$before" in
        *" --lease") kinds=lease ;;
        *" --lock") kinds=lock ;;
        describe) kinds="lease lock" ;;
        lock | "locks break") kinds=lock ;;
        *) [[ "$before" != "leases retire" && "$of_lease" != *" $before "* ]] || kinds=lease ;;
    esac
    if [[ -n "$kinds" && "$current" != -* ]]; then
        COMPREPLY=($(for root in {/run,"$XDG_RUNTIME_DIR"}/leasehold; do
            [[ "$kinds" != *lease* ]] || (cd "$root" && compgen -d -X '.*' -- "$current")
            [[ "$kinds" != *lock* ]] || (cd "$root/.locks" && compgen -f -- "$current")
        done 2> /dev/null | sed 's/@.*//' | sort -u))
        [[ ${#COMPREPLY[@]} -eq 0 ]] || return 0
    fi
    [[ "${COMP_WORDS[1]}" == install ]] || compopt +o bashdefault +o default 2> /dev/null
"#;

/// First line after `#compdef` in clap's zsh script. [`ZSH_NAMES`] is inserted after this line.
const ZSH_BEGIN: &str = "autoload -U is-at-least\n";
const ZSH_NAMES: &str = r#"_leasehold_leases() {
    local -aU names
    names=({/run,$XDG_RUNTIME_DIR}/leasehold/*(N/:t))
    (( $#names )) && compadd -a names
}
_leasehold_locks() {
    local -aU names
    names=({/run,$XDG_RUNTIME_DIR}/leasehold/.locks/*(N.:t))
    names=(${names%%@*})
    (( $#names )) && compadd -a names
}
_leasehold_documents() {
    _leasehold_leases
    _leasehold_locks
}

"#;
/// Beginnings of clap's zsh specifications for names, each with the function that completes the
/// name. clap gives these specifications no action, so the function is appended.
const ZSH_UNCOMPLETED: [(&str, &str); 5] = [
    ("'--lease=[", "_leasehold_leases"),
    ("'--lock=[", "_leasehold_locks"),
    ("'::name -- Name of the lease:", "_leasehold_leases"),
    ("'::name -- Name of the lock:", "_leasehold_locks"),
    (
        "'::name -- Name of the lease or lock:",
        "_leasehold_documents",
    ),
];

/// Functions and lines that are appended to clap's fish script.
const FISH_NAMES: &str = r#"
function __fish_leasehold_leases
    for directory in /run/leasehold/*/ $XDG_RUNTIME_DIR/leasehold/*/
        string replace -r '.*/([^/]+)/$' '$1' -- $directory
    end | sort -u
end
function __fish_leasehold_locks
    for file in /run/leasehold/.locks/* $XDG_RUNTIME_DIR/leasehold/.locks/*
        string replace -r '.*/([^/@]+)@[^/]*$' '$1' -- $file
    end | sort -u
end

complete -c leasehold -n "__fish_leasehold_using_subcommand {COMMANDS} describe" -f -a "(__fish_leasehold_leases)"
complete -c leasehold -n "__fish_leasehold_using_subcommand leases; and __fish_seen_subcommand_from retire" -f -a "(__fish_leasehold_leases)"
complete -c leasehold -n "__fish_leasehold_using_subcommand describe" -f -a "(__fish_leasehold_locks)"
complete -c leasehold -n "__fish_leasehold_using_subcommand locks; and __fish_seen_subcommand_from break" -f -a "(__fish_leasehold_locks)"
complete -c leasehold -n "__fish_leasehold_using_subcommand lock; and not contains -- -- (commandline -opc)" -f -a "(__fish_leasehold_locks)"
complete -c leasehold -n "__fish_leasehold_using_subcommand run leases replicas config {COMMANDS} describe" -l lease -r -f -a "(__fish_leasehold_leases)"
complete -c leasehold -n "__fish_leasehold_using_subcommand lock locks describe" -l lock -r -f -a "(__fish_leasehold_locks)"
complete -c leasehold -n "__fish_leasehold_using_subcommand config" -f -a "{KEYS}"
complete -c leasehold -n "__fish_leasehold_using_subcommand run; and not contains -- -- (commandline -opc)" -f
complete -c leasehold -n "__fish_leasehold_using_subcommand locks leases replicas completions web" -f
"#;
/// Commands whose first argument is the name of a lease.
const OF_A_LEASE: &str = "status check step-down transfer pause resume cancel repair";

/// Prints the completion script of a shell.
pub fn run(args: &CompletionsArgs) -> Result<(), CommandError> {
    answer(&script(args.shell))
}

/// Returns the completion script of a shell.
pub fn script(shell: Shell) -> Vec<u8> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut with_words(command()), "leasehold", &mut script);
    let keys: Vec<_> = KEYS.iter().map(Key::path).collect();
    let filled = |text: &str| {
        let text = text.replace("{COMMANDS}", OF_A_LEASE);
        text.replace("{KEYS}", &keys.join(" "))
    };
    let mut text = String::from_utf8(script).expect("clap writes text");
    match shell {
        Shell::Bash => {
            let with_command = format!("{BASH_BEGIN}{}", filled(BASH_COMMAND));
            text = text.replacen(BASH_BEGIN, &with_command, 1);
        }
        Shell::Zsh => {
            text = text.replacen(ZSH_BEGIN, &format!("{ZSH_BEGIN}\n{ZSH_NAMES}"), 1);
            let lines = text.lines().map(|line| match line.strip_suffix("' \\") {
                Some(specification) => completed(specification) + "' \\\n",
                None => format!("{line}\n"),
            });
            text = lines.collect();
        }
        Shell::Fish => text += &filled(FISH_NAMES),
        _ => {}
    }
    text.into_bytes()
}

/// Adds the function that completes a name to a zsh specification.
fn completed(specification: &str) -> String {
    let of = |(start, _): &&(&str, &str)| specification.starts_with(start);
    let function = ZSH_UNCOMPLETED
        .iter()
        .find(of)
        .map(|(_, function)| *function);
    specification.to_owned() + function.unwrap_or_default()
}

/// Adds the accepted values of each key, and suppresses file names where no path is expected. The
/// parser itself accepts any text, so that all invalid values are reported together.
fn with_words(command: Command) -> Command {
    let name = command.get_name().to_owned();
    command
        .mut_args(|argument| with_values(&name, argument))
        .mut_subcommands(with_words)
}

fn with_values(command: &str, argument: Arg) -> Arg {
    let id = argument.get_id().as_str();
    let kind = KEYS.iter().find(|key| id == key.path());
    match kind.map(|key| key.kind) {
        Some(ValueType::OneOf(words)) => argument.value_parser(PossibleValuesParser::new(words)),
        _ if command == "config" && id == "key" => {
            let paths = KEYS.iter().map(Key::path);
            argument.value_parser(PossibleValuesParser::new(paths))
        }
        _ if id == "command" || argument.get_value_hint() != ValueHint::Unknown => argument,
        _ if argument.get_action().takes_values() => argument.value_hint(ValueHint::Other),
        _ => argument,
    }
}
