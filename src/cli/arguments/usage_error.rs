//! Usage errors, without arguments that could hold a password.

use std::ffi::OsString;
use std::io::Write;
use std::process::ExitCode;

use clap::error::Error;

use crate::config::{MASK, looks_secret};
use crate::exit;

/// A command line that is wrong, or that requests the help or the version.
#[derive(Debug)]
pub struct UsageError {
    pub(super) error: Error,
    pub(super) arguments: Vec<OsString>,
}

impl UsageError {
    /// Prints help to standard output, and errors to standard error.
    pub fn print(&self) -> ExitCode {
        let plain = self.error.render().to_string();
        let masked = mask(&plain, &self.arguments);
        if masked == plain {
            // clap decides on color. If printing fails, the exit code alone reports the error.
            let _ = self.error.print();
        } else {
            let _ = std::io::stderr().lock().write_all(masked.as_bytes());
        }
        ExitCode::from(self.code())
    }

    /// Returns 64 for errors, since clap's own 2 means "cannot tell" here; 0 for help and version.
    pub fn code(&self) -> u8 {
        if self.error.use_stderr() {
            exit::USAGE
        } else {
            exit::DONE
        }
    }
}

/// Masks arguments that could contain a password, because clap quotes unexpected arguments.
pub(super) fn mask(message: &str, arguments: &[OsString]) -> String {
    let mut message = message.to_owned();
    for argument in arguments {
        let argument = argument.to_string_lossy();
        let value = match argument.split_once('=') {
            Some((flag, value)) if flag.starts_with("--") => value,
            _ => &argument,
        };
        for secret in [&*argument, value] {
            if looks_secret(secret) {
                message = message.replace(secret, MASK);
            }
        }
    }
    message
}
