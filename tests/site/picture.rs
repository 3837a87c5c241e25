//! Checks that the pictures are small, have a text alternative, and suit light and dark pages.

use std::fs;

use crate::page::root;

const BYTES_MAX: usize = 12_000;

#[test]
fn every_picture_has_a_title_text_and_colours_for_both_schemes() {
    let mut seen = 0;
    for entry in fs::read_dir(root().join("docs/images")).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_none_or(|extension| extension != "svg") {
            continue;
        }
        seen += 1;
        let text = fs::read_to_string(&path).unwrap();
        let name = path.display();
        assert!(text.len() < BYTES_MAX, "{name}: {} bytes", text.len());
        for part in [
            "<title",
            "role=\"img\"",
            "prefers-color-scheme: dark",
            "<text",
        ] {
            assert!(text.contains(part), "{name}: no {part}");
        }
        for part in ["<script", "href=", "url(", "<image"] {
            let inside = text.replace("url(#", "(#");
            assert!(!inside.contains(part), "{name}: {part}");
        }
    }
    assert!(seen >= 3, "{seen}");
}
