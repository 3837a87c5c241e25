//! Compares a command's output with the output on its page.

/// Matches any text within a line. A line that contains only this text matches any number of lines.
const ANY: &str = "…";

/// Numbers with at least this many digits are times, ports or identifiers, which differ between
/// runs.
const DIGITS_OF_AN_INSTANT: usize = 4;

/// Returns the first difference between an output and its page, if any. Spaces, durations and long
/// numbers may differ, and [`ANY`] matches any text.
pub(crate) fn difference(page: &str, output: &str) -> Option<String> {
    let expected: Vec<_> = page.lines().map(shape).collect();
    let found: Vec<_> = output.lines().map(shape).collect();
    (!lines_match(&expected, &found)).then(|| format!("the page has\n{page}\nnot\n{output}"))
}

fn lines_match(expected: &[String], found: &[String]) -> bool {
    let Some((first, rest)) = expected.split_first() else {
        return found.is_empty();
    };
    if first == ANY {
        return (0..=found.len()).any(|skipped| lines_match(rest, &found[skipped..]));
    }
    match found.split_first() {
        Some((line, others)) => line_matches(first, line) && lines_match(rest, others),
        None => false,
    }
}

fn line_matches(expected: &str, found: &str) -> bool {
    let Some((start, rest)) = expected.split_once(ANY) else {
        return expected == found;
    };
    let Some(tail) = found.strip_prefix(start) else {
        return false;
    };
    let ends = tail.char_indices().map(|(at, _)| at).chain([tail.len()]);
    ends.into_iter().any(|at| line_matches(rest, &tail[at..]))
}

/// Collapses spaces, and replaces durations and long numbers with placeholders.
fn shape(line: &str) -> String {
    let mut words: Vec<String> = Vec::new();
    for word in line.split_whitespace() {
        let is_unit = UNITS.contains(&word.trim_end_matches([',', ';', ')']));
        let last = words.last_mut().filter(|last| is_unit && is_number(last));
        if let Some(last) = last {
            "TIME".clone_into(last);
            continue;
        }
        // `~` marks an age by the clock of another machine.
        words.push(
            match is_duration(word.trim_start_matches('~')) || is_date(word) {
                true => "TIME".to_owned(),
                false => without_instants(word),
            },
        );
    }
    words.join(" ")
}

const UNITS: [&str; 5] = ["ms", "s", "m", "h", "d"];

fn is_number(word: &str) -> bool {
    !word.is_empty() && word.chars().all(|c| c.is_ascii_digit() || c == '.')
}

/// Recognizes words such as `0.4s` and `3h12m`.
fn is_duration(word: &str) -> bool {
    let word = word.trim_matches(['(', ',', ';', ')']);
    let starts = word.starts_with(|c: char| c.is_ascii_digit());
    let ends = word.ends_with(['s', 'm', 'h', 'd']);
    starts
        && ends
        && word
            .chars()
            .all(|c| c.is_ascii_digit() || "hmsd.".contains(c))
}

/// Recognizes words such as `2026-01-15T08:01:30.000Z`.
fn is_date(word: &str) -> bool {
    let has_year = word.starts_with("20") && word.get(4..5) == Some("-");
    has_year && word.contains('T') && word.ends_with('Z')
}

fn without_instants(word: &str) -> String {
    let mut shaped = String::new();
    let mut digits = String::new();
    for c in word.chars().map(Some).chain([None]) {
        match c {
            Some(c) if c.is_ascii_digit() => digits.push(c),
            c => {
                let long = digits.len() >= DIGITS_OF_AN_INSTANT;
                shaped.push_str(if long { "NUMBER" } else { &digits });
                digits.clear();
                shaped.extend(c);
            }
        }
    }
    shaped
}

#[test]
fn durations_and_instants_may_differ_and_tokens_may_not() {
    let page = "2026-01-15T08:01:30.000Z (3s ago) orders held  token 7,  0.4s ago, 9.4 ms after {\"valid_for_ms\":5790}";
    let same = "2026-11-24T23:36:07.133Z (6m12s ago) orders held token 7, 3h12m ago, 12 s after {\"valid_for_ms\":612345}";
    assert_eq!(difference(page, same), None);
    assert!(difference(page, &same.replace("token 7", "token 8")).is_some());
    assert!(difference(page, "").is_some());
    assert!(difference("", "more").is_some());
}

#[test]
fn dots_stand_for_any_text_and_any_lines() {
    assert_eq!(difference("a … c\n…\nd", "a b b c\nx\ny\nd"), None);
    assert_eq!(difference("a\n…", "a"), None);
    assert!(difference("a … c\n…\nd", "a b\nd").is_some());
    assert!(difference("…\nd", "x\ny").is_some());
}
