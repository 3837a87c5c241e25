//! The reason why a command failed: the operation, the cause and the remedy.

use std::error::Error;
use std::fmt;
use std::iter::successors;

use leasehold_guard::prerequisites::MissingPrerequisite;

use crate::cause::cause;
use crate::exit;

/// Reason why a command failed, with its exit code.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CommandError {
    /// Exit code of the command.
    pub exit: u8,
    /// The operation that failed, or the state that is wrong.
    pub what: String,
    /// The cause, unless `what` contains it.
    pub cause: Option<String>,
    /// The remedy, unless the cause contains it.
    pub remedy: Option<String>,
}

impl CommandError {
    /// Creates an error without a cause or a remedy.
    pub fn new(exit: u8, what: impl Into<String>) -> Self {
        Self {
            exit,
            what: what.into(),
            cause: None,
            remedy: None,
        }
    }

    /// Returns a function that converts the cause of a failed `operation`, such as "start the event
    /// loop", into an error.
    pub fn failed<E: Into<Box<dyn Error + Send + Sync>>>(
        exit: u8,
        operation: &str,
    ) -> impl Fn(E) -> Self + use<E> {
        let what = format!("cannot {operation}");
        move |error| {
            let error = error.into();
            let chain = successors(Some(&*error as &(dyn Error + 'static)), |&error| {
                error.source()
            });
            let said = |error: &(dyn Error + 'static)| match error.downcast_ref() {
                Some(error) => cause(error),
                None => error.to_string(),
            };
            let causes: Vec<_> = chain.map(said).collect();
            Self::new(exit, what.as_str()).because(causes.join(": "))
        }
    }

    /// Adds the cause.
    #[must_use]
    pub fn because(mut self, cause: impl Into<String>) -> Self {
        self.cause = Some(cause.into());
        self
    }

    /// Adds the remedy.
    #[must_use]
    pub fn to_fix(mut self, remedy: impl Into<String>) -> Self {
        self.remedy = Some(remedy.into());
        self
    }

    /// Returns the error without its remedy.
    pub fn problem(&self) -> String {
        match &self.cause {
            Some(cause) => format!("{}: {cause}", self.what),
            None => self.what.clone(),
        }
    }
}

impl fmt::Display for CommandError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let problem = self.problem();
        f.write_str(&problem)?;
        match &self.remedy {
            // On the last line of a cause with several lines, the remedy would look like part of
            // the cause.
            Some(remedy) if problem.contains('\n') => write!(f, "\n  to fix: {remedy}"),
            Some(remedy) => write!(f, "; to fix: {remedy}"),
            None => Ok(()),
        }
    }
}

impl Error for CommandError {}

impl From<MissingPrerequisite> for CommandError {
    fn from(missing: MissingPrerequisite) -> Self {
        Self::new(exit::SYSTEM, missing.to_string())
    }
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::*;

    #[test]
    fn an_error_has_operation_cause_and_remedy_on_one_line() {
        let error = CommandError::failed(1, "write a")(io::Error::other("disk full"));
        assert_eq!(error.to_string(), "cannot write a: disk full");
        let error = error.to_fix("make room");
        assert_eq!(error.problem(), "cannot write a: disk full");
        let expected = "cannot write a: disk full; to fix: make room";
        assert_eq!(error.to_string(), expected);
        // Errors show the text of a system error, not its number.
        let error = CommandError::failed(1, "open a")(io::Error::from_raw_os_error(13));
        assert_eq!(error.to_string(), "cannot open a: permission denied");
    }
}
