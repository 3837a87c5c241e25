//! Reports each invalid request once.
//!
//! This module does not decide whether a request is applied.

use mongodb::bson::Document;

use super::document;

#[derive(Debug, Default)]
pub(super) struct IgnoredRequest {
    /// The request as text, because a NaN does not even equal itself.
    reported: Option<String>,
}

impl IgnoredRequest {
    /// Returns why the request in a lease document is ignored, or `None` if it is valid or was
    /// reported already. A request that a script repeats counts as one.
    pub(super) fn check(&mut self, lease: &Document) -> Option<&'static str> {
        let why = document::request(lease).err()?;
        let request = Some(format!("{:?}", lease.get("request")));
        if self.reported == request {
            return None;
        }
        self.reported = request;
        Some(why)
    }
}

#[cfg(test)]
mod tests {
    use mongodb::bson::{Bson, doc};

    use super::*;

    #[test]
    fn an_invalid_request_is_reported_once() {
        let mut ignored = IgnoredRequest::default();
        for (request, why) in [
            (Bson::Double(f64::NAN), "not a document"),
            (Bson::Document(doc! { "kind": "step_down" }), "token"),
            (
                Bson::Document(doc! { "kind": "step_down", "token": 7.0 }),
                "token",
            ),
            (
                Bson::Document(doc! { "kind": "stepdown", "token": 7 }),
                "kind",
            ),
            (
                Bson::Document(doc! { "kind": "transfer", "token": 7 }),
                "to",
            ),
        ] {
            let lease = doc! { "request": request };
            let said = ignored.check(&lease);
            assert!(
                said.is_some_and(|said| said.contains(why)),
                "{lease}: {said:?}"
            );
            assert_eq!(ignored.check(&lease), None, "{lease}");
            // The acquisition that follows clears it, and a script sets it again.
            assert_eq!(ignored.check(&doc! { "request": null }), None);
            assert_eq!(ignored.check(&lease), None, "{lease}");
        }
    }

    #[test]
    fn a_valid_request_is_not_reported() {
        let mut ignored = IgnoredRequest::default();
        for request in [
            doc! { "kind": "step_down", "token": 7 },
            doc! { "kind": "transfer", "token": 7_i64, "to": "b", "newer": 1 },
        ] {
            assert_eq!(ignored.check(&doc! { "request": request }), None);
        }
        assert_eq!(ignored.check(&doc! {}), None);
    }
}
