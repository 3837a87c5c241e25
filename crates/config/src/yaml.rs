//! Limits for YAML files. Because the crate `config` expands aliases, a tiny file could fill
//! memory.

use yaml_rust2::parser::{Event, Parser};

/// Maximum number of keys and values, more than ten times the number of configuration keys.
const NODES_MAX: usize = 2000;
/// Maximum nesting, because the loader is recursive.
const DEPTH_MAX: usize = 40;

/// Rejects invalid YAML, aliases, and too many or too deeply nested values.
pub(super) fn check(text: &str) -> Result<(), String> {
    let mut parser = Parser::new_from_str(text);
    let mut nodes = 0;
    let mut open = Vec::new();
    loop {
        let (event, mark) = parser.next_token().map_err(|error| {
            let (line, column) = (error.marker().line(), error.marker().col() + 1);
            let inside = open.last().filter(|(_, begin)| *begin != line);
            let inside =
                inside.map(|(kind, begin)| format!(", in the {kind} that begins in line {begin}"));
            let inside = inside.unwrap_or_default();
            let why = error.info();
            format!("line {line}, column {column}: this is not YAML: {why}{inside}")
        })?;
        let line = mark.line();
        nodes += 1;
        match event {
            Event::StreamEnd => return Ok(()),
            Event::Alias(_) => {
                return Err(format!(
                    "it has an alias in line {line} (*name): aliases are not accepted, write out \
                     the value that it names"
                ));
            }
            Event::SequenceStart(..) => open.push(("list", line)),
            Event::MappingStart(..) => open.push(("table", line)),
            Event::SequenceEnd | Event::MappingEnd => {
                open.pop();
                nodes -= 1;
            }
            Event::Scalar(..) => {}
            _ => nodes -= 1,
        }
        if open.len() > DEPTH_MAX {
            return Err(format!(
                "it has more than {DEPTH_MAX} levels in line {line}"
            ));
        }
        if nodes > NODES_MAX {
            return Err(format!("it has more than {NODES_MAX} keys and values"));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_aliases_are_refused() {
        assert_eq!(check("lease: &a\n  name: b\n"), Ok(()));
        let refused = check("a: &a [x]\nb: *a\n").expect_err("an alias");
        assert!(refused.contains("line 2"), "{refused}");
        // The alias is refused before the syntax error in a later line is found.
        assert!(check("a: &a [x]\nb: *a\nc: [\n").is_err());
    }

    #[test]
    fn an_error_names_its_position_and_the_start_of_the_list() {
        let refused = check("lease:\n  name: [a\nlog:\n  level: x\n").expect_err("no end");
        assert!(refused.starts_with("line 3, column "), "{refused}");
        assert!(
            refused.ends_with("in the list that begins in line 2"),
            "{refused}"
        );
        let refused = check("lease:\n  name: a: b\n").expect_err("two values");
        let expected = "line 2, column 10: this is not YAML: ";
        assert!(refused.starts_with(expected), "{refused}");
    }

    #[test]
    fn deep_values_are_refused() {
        assert!(check(&"- ".repeat(DEPTH_MAX)).is_ok());
        let shallow = "- - - a\n".repeat(DEPTH_MAX);
        assert!(check(&shallow).is_ok(), "levels end");
        for deep in ["- ", "a: [", "? "] {
            let first = if deep == "a: [" { deep } else { "" };
            let text = first.to_owned() + &deep.replace("a: ", "").repeat(DEPTH_MAX + 1);
            let refused = check(&text).expect_err(deep);
            assert!(refused.contains("40 levels in line 1"), "{refused}");
        }
    }

    #[test]
    fn many_values_are_refused() {
        assert!(check(&"a: [1, 2, 3]\n".repeat(100)).is_ok());
        assert!(check(&format!("a: [1{}]\n", ",1".repeat(NODES_MAX))).is_err());
    }
}
