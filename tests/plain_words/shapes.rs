//! Finds sentence constructions that readers have to read twice.

/// Words after which the clause "as it is" counts as complete. Other words continue the clause, as
/// in "as it is written".
const CLAUSE_ENDS: &[&str] = &[
    "after",
    "afterwards",
    "and",
    "at",
    "before",
    "by",
    "for",
    "here",
    "if",
    "in",
    "now",
    "on",
    "once",
    "or",
    "then",
    "there",
    "until",
    "when",
    "while",
];

/// Words that follow "the same" if its noun is missing.
const AFTER_A_PRONOUN: &[&str] = &[
    "and", "as", "at", "before", "but", "by", "except", "for", "from", "if", "in", "is", "of",
    "on", "one", "ones", "or", "over", "to", "until", "when", "where", "while", "with", "without",
];

/// Pronouns that replace the subject of a sentence, as in "One that is idle…".
const PRONOUNS: &[&str] = &["one", "ones", "that", "those", "these"];

/// Returns the words of a sentence in lower case, each with true if a clause ends after it.
pub(super) fn spoken(sentence: &str) -> Vec<(String, bool)> {
    let bare = |c: char| !c.is_alphanumeric() && !"'{}".contains(c);
    let words = sentence.split_whitespace().map(|word| {
        let text = word.trim_matches(bare).to_lowercase();
        (text, word.ends_with(['.', ',', ';', ':', ')', '?', '!']))
    });
    words.filter(|(text, _)| !text.is_empty()).collect()
}

/// Returns the hard constructions of a sentence, with plain replacements. `first` is true for the
/// first sentence of a paragraph, where a pronoun cannot refer to an earlier noun.
pub(super) fn shapes(sentence: &str, first: bool) -> Vec<(&'static str, &'static str)> {
    let spoken = spoken(sentence);
    let word = |at: usize| spoken.get(at).map_or("", |(text, _)| text.as_str());
    let ends = |at: usize| at + 1 >= spoken.len() || spoken[at].1;
    let mut odd = Vec::new();
    let subject = PRONOUNS.contains(&word(0));
    let one_of_them = word(0) == "one" && word(1) == "of" && !["a", "an"].contains(&word(2));
    if subject && ["that", "which", "who", "of"].contains(&word(1)) && !one_of_them {
        odd.push(("One that", "the noun"));
    }
    if word(0) == "by" && word(1) == "this" {
        odd.push(("By this", "a verb that states the effect"));
    }
    let conditional = [
        "if", "when", "while", "until", "unless", "as", "because", "since", "once",
    ];
    let early = ["it", "its", "they", "their", "them"];
    let capital = sentence.trim_start().starts_with(char::is_uppercase);
    if first && capital && conditional.contains(&word(0)) && early.contains(&word(1)) {
        odd.push(("\"it\" before its noun", "the noun"));
    }
    for at in 0..spoken.len() {
        let next = word(at + 1);
        match word(at) {
            "the" if ["send", "sending"].contains(&next) => {
                odd.push(("the send", "when it is sent"))
            }
            "the" if next == "same" && ends(at + 1) => odd.push(("the same", "the noun")),
            "the" if next == "same" && AFTER_A_PRONOUN.contains(&word(at + 2)) => {
                odd.push(("the same", "the noun"));
            }
            "of" | "by" | "under" | "with" | "for" | "from" | "until" if next == "which" => {
                let parts = ["each", "some", "all", "many", "most", "one", "none", "both"];
                let partitive = at > 0 && parts.contains(&word(at - 1));
                if at > 0 && !ends(at) && !(partitive && word(at) == "of") {
                    odd.push(("of which, by which", "a separate clause"));
                }
            }
            "of" if next == "whom" => odd.push(("of whom", "a separate clause")),
            "as" if ["it", "they"].contains(&next) => {
                let verb = ["is", "are", "was", "were"].contains(&word(at + 2));
                let measure = ["soon", "far", "long", "well", "often"];
                let measured = at > 0 && measure.contains(&word(at - 1));
                let clause = ends(at + 2) || CLAUSE_ENDS.contains(&word(at + 3));
                if verb && clause && !measured {
                    odd.push(("as it is", "unchanged, present"));
                }
            }
            "that" | "those" if next == "of" && !ends(at) => odd.push(("that of", "the noun")),
            "such" if ["a", "an"].contains(&next) => odd.push(("such a", "this, the noun")),
            "one" | "ones" if at > 0 && ["that", "which", "who"].contains(&next) && !ends(at) => {
                odd.push(("one that", "the noun"));
            }
            "anew" => odd.push(("anew", "again")),
            "an" if next == "own" => odd.push(("an own", "its own")),
            "at" if next == "present" => odd.push(("at present", "now, or nothing")),
            "waited"
                if at > 0
                    && ["for", "out"].contains(&next)
                    && ["be", "is", "are", "was", "were", "been"].contains(&word(at - 1)) =>
            {
                odd.push(("is waited for", "an active verb"));
            }
            "no" if ["is", "are"].contains(&word(at + 2)) => {
                let state = ["left", "to"].contains(&word(at + 3));
                if state {
                    odd.push(("no … is left", "an affirmative phrase"));
                }
            }
            _ => {}
        }
    }
    odd
}

/// Splits a paragraph into sentences. Marks the first sentence with true.
pub(super) fn sentences(paragraph: &str) -> impl Iterator<Item = (bool, &str)> {
    let sentences = paragraph.split(". ").flat_map(|part| part.split(": "));
    sentences
        .enumerate()
        .map(|(at, sentence)| (at == 0, sentence))
}
