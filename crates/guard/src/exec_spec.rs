//! The command line and additional environment of CMD. They are passed in a memfd, because they can
//! be arbitrarily long, and only after the acquisition, because they contain the token.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, Read, Seek, Write};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::{OsStrExt, OsStringExt};

use rustix::fs::{MemfdFlags, memfd_create};

/// The variable with the id of the process that systemd opened sockets for. Other processes ignore
/// these sockets (sd_listen_fds(3)).
const LISTEN_PID: &str = "LISTEN_PID";

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct ExecSpec {
    pub(super) words: Vec<OsString>,
    pub(super) environment: Vec<(OsString, OsString)>,
}

impl ExecSpec {
    /// Passes on the sockets of a socket-activated service, if they were opened for this process.
    pub(super) fn pass_sockets(&mut self) {
        let own = OsString::from(std::process::id().to_string());
        if std::env::var_os(LISTEN_PID).is_some_and(|pid| pid == own) {
            self.environment.push((LISTEN_PID.into(), own));
        }
    }

    pub(super) fn accept_sockets(&mut self, own: i32) {
        let of_sockets = |(name, _): &&mut (OsString, OsString)| name == LISTEN_PID;
        for (_, pid) in self.environment.iter_mut().filter(of_sockets) {
            *pid = own.to_string().into();
        }
    }

    /// Fails if a string contains a NUL.
    pub(super) fn to_file(&self) -> io::Result<OwnedFd> {
        let mut bytes = format!("{}\0", self.words.len()).into_bytes();
        for word in &self.words {
            push(&mut bytes, &[word])?;
        }
        for (name, value) in &self.environment {
            push(&mut bytes, &[name, OsStr::new("="), value])?;
        }
        let mut file = File::from(memfd_create("leasehold-exec-spec", MemfdFlags::CLOEXEC)?);
        file.write_all(&bytes)?;
        Ok(file.into())
    }

    pub(super) fn of_file(file: OwnedFd) -> io::Result<Self> {
        let mut file = File::from(file);
        file.rewind()?;
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes)?;
        Self::decode(&bytes).ok_or_else(|| io::ErrorKind::InvalidData.into())
    }

    fn decode(bytes: &[u8]) -> Option<Self> {
        let mut texts = bytes.strip_suffix(&[0])?.split(|byte| *byte == 0);
        let count: usize = std::str::from_utf8(texts.next()?).ok()?.parse().ok()?;
        let owned = |text: &[u8]| OsString::from_vec(text.to_vec());
        let words: Vec<_> = texts.by_ref().take(count).map(owned).collect();
        let variable = |text: &[u8]| {
            let end = text.iter().position(|byte| *byte == b'=')?;
            Some((owned(&text[..end]), owned(&text[end + 1..])))
        };
        let environment = texts.map(variable).collect::<Option<_>>()?;
        (words.len() == count).then_some(Self { words, environment })
    }
}

fn push(bytes: &mut Vec<u8>, parts: &[&OsStr]) -> io::Result<()> {
    let parts = || parts.iter().map(|part| part.as_bytes());
    if parts().any(|part| part.contains(&0)) {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    parts().for_each(|part| bytes.extend_from_slice(part));
    bytes.push(0);
    Ok(())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn text(pattern: &str) -> impl Strategy<Value = OsString> + use<> {
        proptest::string::bytes_regex(pattern)
            .expect("a pattern")
            .prop_map(OsString::from_vec)
    }

    fn assert_sendable_if_decoded(bytes: &[u8]) {
        if let Some(exec_spec) = ExecSpec::decode(bytes) {
            let file = exec_spec.to_file().expect("a file in memory");
            let arrived = ExecSpec::of_file(file).expect("an unchanged exec spec");
            assert_eq!(arrived, exec_spec);
        }
    }

    #[test]
    fn the_corpus_is_an_exec_spec_or_refused() {
        let inputs = crate::corpus::inputs("wire");
        let decoded = inputs
            .iter()
            .filter(|bytes| ExecSpec::decode(bytes).is_some());
        assert!((1..inputs.len()).contains(&decoded.count()));
        inputs
            .iter()
            .for_each(|bytes| assert_sendable_if_decoded(bytes));
    }

    proptest! {
        #[test]
        fn it_arrives_as_it_was_sent(
            words in proptest::collection::vec(text("(?s-u:[^\\x00]{0,9})"), 0..5),
            environment in proptest::collection::vec(
                (text("[A-Z_]{1,9}"), text("(?s-u:[^\\x00]{0,9})")), 0..5),
        ) {
            let exec_spec = ExecSpec { words, environment };
            let file = exec_spec.to_file().expect("a file in memory");
            prop_assert_eq!(ExecSpec::of_file(file).expect("an unchanged exec spec"), exec_spec);
        }

        #[test]
        fn other_bytes_are_not_an_exec_spec_and_do_no_harm(
            bytes in proptest::collection::vec(any::<u8>(), 0..40),
        ) {
            assert_sendable_if_decoded(&bytes);
        }

        #[test]
        fn a_changed_exec_spec_is_one_or_refused(
            words in proptest::collection::vec(text("(?s-u:[^\\x00]{0,9})"), 0..5),
            count in prop_oneof![Just(String::new()), "[0-9+-]{1,20}"],
            (at, byte) in (0..60_usize, any::<u8>()),
        ) {
            let mut bytes = format!("{count}\0").into_bytes();
            for word in &words {
                push(&mut bytes, &[word, OsStr::new("=")]).expect("no NUL");
            }
            let index = at % bytes.len();
            bytes[index] = byte;
            assert_sendable_if_decoded(&bytes);
        }
    }

    #[test]
    fn no_program_gets_a_nul() {
        let words = vec!["a\0b".into()];
        let environment = Vec::new();
        let error = ExecSpec { words, environment }.to_file().err();
        assert_eq!(
            error.map(|error| error.kind()),
            Some(io::ErrorKind::InvalidInput)
        );
    }
}
