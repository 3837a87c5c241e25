//! Limits for YAML files. The crate `config` copies the target of each alias, so that a file of some
//! hundred bytes could expand to gigabytes.

use yaml_rust2::parser::{Event, Parser};

/// Maximum number of keys and values, more than ten times the number of keys.
const NODES_MAX: usize = 2000;
/// Maximum nesting, because the loader is recursive.
const DEPTH_MAX: usize = 40;

/// Rejects aliases, and too many or too deeply nested values. Invalid YAML is left to the loader,
/// which reports the position.
pub(super) fn check(text: &str) -> Result<(), String> {
    let mut parser = Parser::new_from_str(text);
    let (mut nodes, mut depth) = (0, 0_usize);
    while let Ok((event, mark)) = parser.next_token() {
        match event {
            Event::StreamEnd => break,
            Event::Alias(_) => {
                let line = mark.line();
                return Err(format!(
                    "it has an alias in line {line} (*name): aliases are not accepted, write out \
                     the value that it names"
                ));
            }
            Event::Scalar(..) => nodes += 1,
            Event::SequenceStart(..) | Event::MappingStart(..) => {
                nodes += 1;
                depth += 1;
            }
            Event::SequenceEnd | Event::MappingEnd => depth = depth.saturating_sub(1),
            _ => {}
        }
        if depth > DEPTH_MAX {
            let line = mark.line();
            return Err(format!(
                "it has more than {DEPTH_MAX} levels in line {line}"
            ));
        }
        if nodes > NODES_MAX {
            return Err(format!("it has more than {NODES_MAX} keys and values"));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn aliases_are_refused_and_anchors_alone_are_not() {
        assert_eq!(check("lease: &a\n  name: b\n"), Ok(()));
        let refused = check("a: &a [x]\nb: *a\n").expect_err("an alias");
        assert!(refused.contains("line 2"), "{refused}");
        // Rejected even if a later line cannot be parsed.
        assert!(check("a: &a [x]\nb: *a\nc: [\n").is_err());
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
