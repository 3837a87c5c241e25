//! Recordings of a collection's changes. A recorded change includes the document before and after
//! the change, as in a change stream with pre- and post-images.
//!
//! A recording is a file of [`Line`]s in JSON. The testbed (`leasehold_testbed::Changes`) writes
//! recordings, and the check of transitions reads them.

use bson::{Bson, Document};
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Version of the format.
pub const SCHEMA: u32 = 1;

/// One line of a recording.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Line {
    /// The recording begins, and contains every later change unless a later line reports a loss.
    Begun(Begun),
    /// A document changed.
    Change(Change),
    /// The test is about to edit a document by hand, which explains one later change of the
    /// document.
    Edit(Edit),
    /// The latest declared edit of this document changed nothing, so it explains no change.
    Withdrawn {
        /// The document: `<database>.<collection>/<name>`.
        document: String,
    },
    /// Changes are missing for this reason, so the recording proves nothing.
    Lost(String),
    /// The recording ends, and contains every earlier change.
    Drained {
        /// Number of changes in the recording.
        changes: u64,
    },
}

/// The beginning of a recording.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Begun {
    /// Version of the format: [`SCHEMA`].
    pub schema: u32,
    /// The collection: `<database>.<collection>`.
    pub collection: String,
}

/// A change of one document.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Change {
    /// The document: `<database>.<collection>/<name>`.
    pub document: String,
    /// The operation type of the event.
    pub operation: String,
    /// Time of the change in the deployment's order: seconds and increment.
    pub at: (u32, u32),
    /// The document before the change, as canonical extended JSON; `None` if the document did not
    /// exist.
    pub before: Option<Value>,
    /// The document after the change, like `before`.
    pub after: Option<Value>,
}

/// A declared edit.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Edit {
    /// The document: `<database>.<collection>/<name>`.
    pub document: String,
    /// The purpose; informational.
    pub why: String,
}

/// Converts a document to canonical extended JSON.
pub fn to_json(document: Document) -> Value {
    Bson::Document(document).into_canonical_extjson()
}

#[derive(Debug)]
pub(crate) struct Recorded {
    pub(crate) line: usize,
    pub(crate) document: String,
    pub(crate) operation: String,
    pub(crate) before: Option<Document>,
    pub(crate) after: Option<Document>,
    /// Number of edits of the document that were declared before the change.
    pub(crate) declared: usize,
}

#[derive(Debug)]
pub(crate) struct Recording {
    /// Name of the collection as `<database>.<collection>`.
    pub(crate) collection: String,
    pub(crate) changes: Vec<Recorded>,
    /// The document of each declared edit so far, and the number of changes before the declaration.
    edits: Vec<(String, usize)>,
    lost: Option<String>,
    drained: Option<u64>,
}

impl Recording {
    pub(crate) fn begin(text: &str) -> Result<Self, String> {
        match parse(text)? {
            Line::Begun(Begun { schema, collection }) if schema == SCHEMA => Ok(Self {
                collection,
                changes: Vec::new(),
                edits: Vec::new(),
                lost: None,
                drained: None,
            }),
            Line::Begun(Begun { schema, .. }) => {
                Err(format!("schema {schema} of changes instead of {SCHEMA}"))
            }
            _ => Err("a recording of changes has no beginning".to_owned()),
        }
    }

    pub(crate) fn line(&mut self, line: usize, text: &str) -> Result<(), String> {
        match parse(text)? {
            Line::Begun(_) => return Err("a recording of changes begins twice".to_owned()),
            Line::Change(change) => {
                let Change {
                    document,
                    operation,
                    at: _,
                    before,
                    after,
                } = change;
                let declared = self.declared(&document);
                self.changes.push(Recorded {
                    line,
                    operation,
                    before: before.map(from_json).transpose()?,
                    after: after.map(from_json).transpose()?,
                    declared,
                    document,
                });
            }
            Line::Edit(Edit { document, .. }) => self.edits.push((document, self.changes.len())),
            Line::Withdrawn { document } => self.withdraw(&document)?,
            Line::Lost(why) => self.lost = Some(why),
            Line::Drained { changes } => self.drained = Some(changes),
        }
        Ok(())
    }

    /// Returns the number of declared edits of all documents.
    pub(crate) fn all_declared(&self) -> usize {
        self.edits.len()
    }

    fn declared(&self, document: &str) -> usize {
        self.edits
            .iter()
            .filter(|(edit, _)| edit == document)
            .count()
    }

    fn withdraw(&mut self, document: &str) -> Result<(), String> {
        let latest = self.edits.iter().rposition(|(edit, _)| edit == document);
        let latest = latest.ok_or("a withdrawn edit was not declared")?;
        let (_, changes) = self.edits.remove(latest);
        for change in &mut self.changes[changes..] {
            change.declared -= usize::from(change.document == document);
        }
        Ok(())
    }

    /// Returns the reason why an incomplete recording proves nothing, or `None` if it is complete.
    pub(crate) fn gap(&self) -> Option<String> {
        match (&self.lost, self.drained) {
            (Some(why), _) => Some(why.clone()),
            (None, None) => Some("the recording was not drained".to_owned()),
            (None, Some(_)) => None,
        }
    }

    /// Returns the number of changes that the recorder counted, if the file contains a different
    /// number.
    pub(crate) fn miscounted(&self) -> Option<u64> {
        let read = u64::try_from(self.changes.len()).ok();
        self.drained.filter(|counted| Some(*counted) != read)
    }
}

fn parse(text: &str) -> Result<Line, String> {
    serde_json::from_str(text).map_err(|error| format!("not a line of a recording: {error}"))
}

fn from_json(value: Value) -> Result<Document, String> {
    match Bson::try_from(value) {
        Ok(Bson::Document(document)) => Ok(document),
        Ok(_) => Err("a recorded document is not a document".to_owned()),
        Err(error) => Err(format!("a recorded document is not BSON: {error}")),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use crate::{Checker, Transitions, Violation};

    fn check(lines: &[serde_json::Value]) -> Result<Transitions, Vec<Violation>> {
        let begun = json!({ "begun": { "schema": 1, "collection": "leasehold.leases" } });
        let changes = lines.iter().filter(|line| line.get("change").is_some());
        let drained = json!({ "drained": { "changes": changes.count() } });
        let lines = std::iter::once(&begun).chain(lines).chain([&drained]);
        let text: String = lines.map(|line| format!("{line}\n")).collect();
        let mut checker = Checker::default();
        checker.changes(text.as_bytes()).unwrap();
        checker.finish().map(|checked| checked.transitions)
    }

    #[test]
    fn a_withdrawn_edit_explains_no_change() {
        let document = "leasehold.leases/orders";
        let edit = json!({ "edit": { "document": document, "why": "a test" } });
        let withdrawn = json!({ "withdrawn": { "document": document } });
        let change = |before: i32, after: i32| {
            let stored = |token| json!({ "_id": "orders", "token": { "$numberInt": token } });
            json!({ "change": {
                "document": document, "operation": "update", "at": [1, 1],
                "before": stored(before.to_string()), "after": stored(after.to_string()),
            } })
        };
        let (first, second) = (change(7, 8), change(8, 9));
        let lines = |lines: &[&serde_json::Value]| {
            check(&lines.iter().copied().cloned().collect::<Vec<_>>())
        };
        let counts = lines(&[&edit, &first, &edit]).unwrap();
        assert_eq!((counts.edits, counts.unused), (1, 1));
        // The stream may report a change of another program before the answer of the edit.
        for tampered in [
            lines(&[&edit, &withdrawn, &first]),
            lines(&[&edit, &first, &withdrawn]),
            lines(&[&edit, &first, &edit, &second, &withdrawn]),
        ] {
            assert_eq!(tampered.unwrap_err().len(), 1);
        }
        // The stream may report a declared edit after the declaration of the next edit.
        let counts = lines(&[&edit, &edit, &withdrawn, &first]).unwrap();
        assert_eq!((counts.edits, counts.unused), (1, 0));
    }
}
