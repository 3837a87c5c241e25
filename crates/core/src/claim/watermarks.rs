//! Rollbacks of the store: how one is recognized, and how long another claim may lead after it.

use std::time::Duration;

use crate::election::{Declared, Token};

/// The highest values that a document has shown, to this process and to earlier ones.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Watermarks {
    /// Token of the document when last seen; `None` if no document is known.
    document_token: Option<Token>,
    /// The highest token that was ever used.
    token_highest: Token,
    /// The longest valid lease duration that was declared, and at least the own one. No holder that
    /// was seen can have authority for longer.
    lease_longest: Duration,
}

/// The loss of acknowledged writes: the document is missing, or its token is lower than before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Rollback {
    /// Token that the document had.
    pub(crate) seen: Token,
    /// Token that the document has now; `None` if the document is missing.
    pub(crate) found: Option<Token>,
}

impl Watermarks {
    /// Begins with the values that an earlier process recorded.
    pub(crate) fn new(remembered: Token, lease_longest: Duration) -> Self {
        Self {
            document_token: (remembered > Token::ZERO).then_some(remembered),
            token_highest: remembered,
            lease_longest,
        }
    }

    pub(crate) fn document_token(&self) -> Option<Token> {
        self.document_token
    }

    pub(crate) fn token_highest(&self) -> Token {
        self.token_highest
    }

    pub(crate) fn lease_longest(&self) -> Duration {
        self.lease_longest
    }

    /// Records that a document with this token existed. Late replies and untrusted ones count too:
    /// if the document is found missing later, it was deleted.
    pub(crate) fn note_document(&mut self, token: Token) {
        self.note_used(token);
        self.document_token = self.document_token.max(Some(token));
    }

    pub(crate) fn note_existence(&mut self) {
        self.document_token.get_or_insert(Token::ZERO);
    }

    pub(crate) fn note_used(&mut self, token: Token) {
        self.token_highest = self.token_highest.max(token);
    }

    pub(crate) fn note_declared(&mut self, durations: impl Iterator<Item = Declared>) {
        let longest = durations.filter_map(Declared::valid).max();
        self.lease_longest = self.lease_longest.max(longest.unwrap_or_default());
    }

    /// Replaces the token of the document, by a reply that is trusted.
    pub(crate) fn set_document(&mut self, token: Option<Token>) {
        self.document_token = token;
    }

    /// Returns the rollback that a document with this token proves; `None` stands for no document.
    pub(crate) fn rollback(&self, found: Option<Token>) -> Option<Rollback> {
        let seen = self.document_token?;
        let lower = found.is_none_or(|token| token < seen);
        lower.then_some(Rollback { seen, found })
    }
}

#[cfg(all(test, not(proof)))]
impl Watermarks {
    /// Sets the highest token, even to a token that no input leads to.
    pub(crate) fn set_token_highest(&mut self, token: Token) {
        self.token_highest = token;
    }
}
