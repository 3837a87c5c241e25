//! `leasehold completions`: completion scripts for shells.

use clap::builder::PossibleValuesParser;
use clap::{Arg, Args, Command};
use clap_complete::Shell;

use super::{CommandError, answer, command};
use crate::config::{KEYS, ValueType};

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
/// Completes the words after `--` as a command with its own arguments.
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
        let with_command = format!("{BASH_BEGIN}{BASH_COMMAND}");
        script = text.replacen(BASH_BEGIN, &with_command, 1).into_bytes();
    }
    script
}

/// Adds the accepted values of each key. The program itself parses any text, so that it can report
/// all invalid values together.
fn with_words(command: Command) -> Command {
    let with_words = |argument: Arg| {
        let mut keys = KEYS.iter();
        let key = keys.find(|key| argument.get_id() == key.path().as_str());
        match key.map(|key| key.kind) {
            Some(ValueType::OneOf(words)) => {
                argument.value_parser(PossibleValuesParser::new(words))
            }
            _ => argument,
        }
    };
    command.mut_subcommands(|subcommand| subcommand.mut_args(with_words))
}
