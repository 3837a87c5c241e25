//! Writes the package files that are generated from the definition of the command line:
//!
//! ```text
//! leasehold-packaging DIRECTORY
//! ```
//!
//! creates `DIRECTORY/man/*.1` and `DIRECTORY/completions/`. This is a separate program, so that
//! the shipped program does not contain the code that generates these files.

#![forbid(unsafe_code)]
#![allow(
    clippy::print_stderr,
    reason = "standard error is where this program reports failures"
)]

use std::ffi::OsString;
use std::path::Path;
use std::process::ExitCode;
use std::{env, fs, io};

use clap_complete::Shell;
use clap_mangen::Man;
use leasehold::cli;

/// Each shell, with the path at which it expects its completion script.
const COMPLETIONS: [(Shell, &str); 3] = [
    (Shell::Bash, "leasehold.bash"),
    (Shell::Zsh, "_leasehold"),
    (Shell::Fish, "leasehold.fish"),
];

fn main() -> ExitCode {
    let arguments: Vec<OsString> = env::args_os().skip(1).collect();
    let [directory] = arguments.as_slice() else {
        eprintln!("usage: leasehold-packaging DIRECTORY");
        return ExitCode::from(64);
    };
    match write(Path::new(directory)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!(
                "cannot write below {}: {error}",
                Path::new(directory).display()
            );
            ExitCode::FAILURE
        }
    }
}

fn write(directory: &Path) -> io::Result<()> {
    let man = directory.join("man");
    fs::create_dir_all(&man)?;
    for (name, text) in pages()? {
        fs::write(man.join(name), text)?;
    }
    let completions = directory.join("completions");
    fs::create_dir_all(&completions)?;
    for (shell, name) in COMPLETIONS {
        fs::write(completions.join(name), cli::completions::script(shell))?;
    }
    Ok(())
}

/// Returns the pages of the command and of all its subcommands, with their file names.
fn pages() -> io::Result<Vec<(String, Vec<u8>)>> {
    // Uses the version without the revision, so that a page changes only if its text changes.
    let mut command = cli::command().version(env!("CARGO_PKG_VERSION"));
    command = command.disable_help_subcommand(true);
    command.build();
    let mut pages = Vec::new();
    let mut remaining = vec![command];
    while let Some(command) = remaining.pop() {
        remaining.extend(
            command
                .get_subcommands()
                .filter(|c| !c.is_hide_set())
                .cloned(),
        );
        let man = Man::new(command.version(env!("CARGO_PKG_VERSION")));
        let mut text = Vec::new();
        man.render(&mut text)?;
        pages.push((man.get_filename(), text));
    }
    Ok(pages)
}

#[cfg(test)]
mod tests {
    #[test]
    fn every_subcommand_has_a_page_that_names_its_flags() {
        let pages = super::pages().expect("pages");
        let page = |name: &str| {
            let found = pages.iter().find(|(file, _)| file == name);
            let (_, text) = found.unwrap_or_else(|| panic!("no {name}"));
            String::from_utf8(text.clone())
                .expect("UTF-8")
                .replace('\\', "")
        };
        assert!(page("leasehold.1").contains("leasehold-run"));
        assert!(page("leasehold-run.1").contains("--lease-renew-deadline"));
        assert!(page("leasehold-lock.1").contains("--wait"));
        for command in leasehold::cli::command().get_subcommands() {
            page(&format!("leasehold-{}.1", command.get_name()));
        }
    }
}
