//! Applies one update, as reported by a change stream, to the last known document. A field name
//! with a dot counts as a path; leasehold writes no such name.

use mongodb::bson::{Bson, Document};
use mongodb::change_stream::event::UpdateDescription;

/// Applies an update to the wanted paths. Returns false if the document must be read instead.
pub(super) fn apply(
    document: &mut Document,
    update: &UpdateDescription,
    is_wanted: impl Fn(&str) -> bool,
) -> bool {
    let shortened = update.truncated_arrays.iter().flatten();
    for array in shortened.filter(|array| is_wanted(&array.field)) {
        let length = usize::try_from(array.new_size);
        match (at(document, &array.field), length) {
            (Some(Bson::Array(list)), Ok(length)) => list.truncate(length),
            _ => return false,
        }
    }
    let mut removed = update.removed_fields.iter();
    let mut updated = update.updated_fields.iter();
    removed.all(|path| !is_wanted(path) || change(document, path, None))
        && updated.all(|(path, value)| !is_wanted(path) || change(document, path, Some(value)))
}

pub(super) fn top(path: &str) -> &str {
    path.split('.').next().unwrap_or(path)
}

fn change(document: &mut Document, path: &str, value: Option<&Bson>) -> bool {
    let (parent, field) = match path.rsplit_once('.') {
        None => (document, path),
        Some((parent, field)) => match (at(document, parent), value) {
            (Some(Bson::Document(parent)), _) => (parent, field),
            (Some(Bson::Array(list)), Some(value)) => {
                match field.parse::<usize>() {
                    Ok(index) if index < list.len() => list[index] = value.clone(),
                    Ok(index) if index == list.len() => list.push(value.clone()),
                    Ok(_) | Err(_) => return false,
                }
                return true;
            }
            _ => return false,
        },
    };
    match value {
        Some(value) => drop(parent.insert(field, value.clone())),
        None => drop(parent.remove(field)),
    }
    true
}

fn at<'a>(document: &'a mut Document, path: &str) -> Option<&'a mut Bson> {
    let mut steps = path.split('.');
    let mut value = document.get_mut(steps.next()?)?;
    for step in steps {
        value = match value {
            Bson::Document(document) => document.get_mut(step)?,
            Bson::Array(list) => list.get_mut(step.parse::<usize>().ok()?)?,
            _ => return None,
        };
    }
    Some(value)
}

#[cfg(test)]
mod tests {
    use mongodb::bson::{deserialize_from_document, doc};

    use super::*;

    fn update(fields: Document) -> UpdateDescription {
        deserialize_from_document(fields).expect("an update")
    }

    #[test]
    fn paths_lead_into_documents_and_lists() {
        let mut document =
            doc! { "holders": [{ "a": 1 }], "queue": [1, 2, 3], "x": { "y": 1, "z": 2 } };
        let update = update(doc! {
            "updatedFields": { "holders.0.a": 2, "holders.1": { "a": 3 }, "x.y": 5, "new": 1, "hidden.0": 1 },
            "removedFields": ["x.z"],
            "truncatedArrays": [{ "field": "queue", "newSize": 1 }],
        });
        assert!(apply(&mut document, &update, |path| top(path) != "hidden"));
        let expected =
            doc! { "holders": [{ "a": 2 }, { "a": 3 }], "queue": [1], "x": { "y": 5 }, "new": 1 };
        assert_eq!(document, expected);
    }

    #[test]
    fn a_path_that_does_not_exist_requires_a_read() {
        for fields in [
            doc! { "updatedFields": { "holders.1": 1 }, "removedFields": [] },
            doc! { "updatedFields": { "a.b": 1 }, "removedFields": [] },
            doc! { "updatedFields": {}, "removedFields": ["a.b"] },
            doc! { "updatedFields": {}, "removedFields": [], "truncatedArrays": [{ "field": "a", "newSize": 0 }] },
        ] {
            let mut document = doc! { "holders": [], "a": 1 };
            assert!(
                !apply(&mut document, &update(fields.clone()), |_| true),
                "{fields}"
            );
        }
    }
}
