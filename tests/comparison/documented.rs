//! Goal: the table in docs/locks.md names only tests that exist, and names every test that breaks a
//! hand-made lock or shows that leasehold's lock holds. Method: reads the page and the sources of
//! this suite.

use std::path::Path;

/// Tests that repeat, with another design, a failure that the page already shows.
const SHOWN_BY_ANOTHER: [&str; 5] = [
    "a_document_with_a_ttl_index_is_deleted_under_its_owner",
    "a_locked_at_time_out_passes_under_its_owner",
    "a_find_and_modify_lock_expires_under_its_owner",
    "a_counter_of_one_is_deleted_under_its_owner",
    "of_a_counter_of_one_leaves_two_owners",
];
/// Files whose tests neither break a hand-made lock nor run leasehold.
const NOT_ON_THE_PAGE: [&str; 3] = ["documented.rs", "in_calm_weather.rs", "journal.rs"];

#[test]
fn the_table_names_the_tests_of_this_suite() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let page = std::fs::read_to_string(root.join("docs/locks.md")).expect("the page can be read");
    let section = page.split("\n## Instead of a hand-made lock\n").nth(1);
    let section = section.and_then(|rest| rest.split("\n## ").next());
    let page = section.expect("the section exists");
    let (mut named, mut missing) = (0, Vec::new());
    let files = std::fs::read_dir(root.join("tests/comparison")).expect("the suite exists");
    for file in files {
        let path = file.expect("the suite can be read").path();
        let name = path.file_name().and_then(|name| name.to_str());
        if path.is_dir() || name.is_some_and(|name| NOT_ON_THE_PAGE.contains(&name)) {
            continue;
        }
        let source = std::fs::read_to_string(&path).expect("the source is UTF-8");
        for test in source.split("test]\n").skip(1) {
            let test = test
                .split('(')
                .next()
                .expect("a parenthesis follows the name");
            let test = test
                .rsplit(' ')
                .next()
                .expect("a name precedes the parenthesis");
            if page.contains(&format!("`{test}`")) {
                named += 1;
            } else if !SHOWN_BY_ANOTHER.contains(&test) {
                missing.push(test.to_owned());
            }
        }
    }
    assert!(missing.is_empty(), "not on the page: {missing:?}");
    // In this section, only test names contain more than two underscores.
    let words = page.split('`').skip(1).step_by(2);
    let tests = words.filter(|word| word.matches('_').count() > 2).count();
    assert_eq!(named, tests, "the page names a test that does not exist");
}
