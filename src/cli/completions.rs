//! `leasehold completions`: completion scripts for shells.

use clap::builder::PossibleValuesParser;
use clap::{Arg, Args, Command, ValueHint};
use clap_complete::Shell;

use super::{CommandError, answer, command};
use crate::config::{KEYS, Key, ValueType};

/// Arguments of `leasehold completions`.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  leasehold completions bash > /etc/bash_completion.d/leasehold"
)]
pub struct CompletionsArgs {
    /// The shell
    shell: Shell,
}

/// First line of clap's bash script, after which [`BASH_COMMAND`] is inserted.
const BASH_BEGIN: &str = "_leasehold() {\n";
/// Completes the words after `--` as a separate command and its arguments.
///
/// Completes the lease names of this host where a lease is expected, only keys after `config`, and
/// file names only where a path is expected.
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
    local of_lease=" status check describe step-down transfer pause resume cancel repair "
    if [[ "$current" != -* && "$COMP_CWORD $of_lease" == "2 "*" ${COMP_WORDS[1]} "* ||
        "${COMP_WORDS[1]} ${COMP_WORDS[COMP_CWORD - 1]}" == "status --lease" ]]; then
        COMPREPLY=($(for root in /run "$XDG_RUNTIME_DIR"; do
            (cd "$root/leasehold" 2> /dev/null && compgen -d -X '.*' -- "$current")
        done))
        [[ ${#COMPREPLY[@]} -eq 0 ]] || return 0
    fi
    [[ "${COMP_WORDS[1]}" == install ]] || compopt +o bashdefault +o default 2> /dev/null
"#;

/// Prints the completion script of a shell.
pub fn run(args: &CompletionsArgs) -> Result<(), CommandError> {
    answer(&script(args.shell))
}

/// Returns the completion script of a shell.
pub fn script(shell: Shell) -> Vec<u8> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut with_words(command()), "leasehold", &mut script);
    if shell == Shell::Bash {
        let text = String::from_utf8_lossy(&script);
        let keys: Vec<_> = KEYS.iter().map(Key::path).collect();
        let command = BASH_COMMAND.replace("{KEYS}", &keys.join(" "));
        let with_command = format!("{BASH_BEGIN}{command}");
        script = text.replacen(BASH_BEGIN, &with_command, 1).into_bytes();
    }
    script
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
