//! Tests of shell patterns.

use proptest::prelude::*;

use super::Glob;

#[test]
fn wildcards_match_within_a_path_component() {
    for (pattern, text, expected) in [
        ("role-mon/cluster/mon*.sls", "role-mon/cluster/mon1.sls", true),
        ("role-mon/cluster/mon*.sls", "role-mon/cluster/osd1.sls", false),
        ("role-mon/cluster/mon*.sls", "role-mon/cluster/mon/x.sls", false),
        ("a?c", "abc", true),
        ("a?c", "a/c", false),
        ("osd[135]", "osd3", true),
        ("osd[135]", "osd4", false),
        ("osd[!1-3]", "osd4", true),
        ("osd[!1-3]", "osd2", false),
        ("osd[]x]", "osd]", true),
        ("osd[1", "osd[1", true),
        ("*a*b*c", "xxaxxbxxc", true),
        ("*a*b*c", "xxaxxbxx", false),
        ("", "", true),
        ("*", "", true),
        ("", "x", false),
    ] {
        assert_eq!(Glob::new(pattern).matches(text), expected, "{pattern} {text}");
    }
}

/// The oracle: exponential, from the definition.
fn matches_by_definition(pattern: &[u8], text: &[u8]) -> bool {
    match pattern.split_first() {
        None => text.is_empty(),
        Some((b'*', behind)) => (0..=text.len())
            .take_while(|end| !text[..*end].contains(&b'/'))
            .any(|end| matches_by_definition(behind, &text[end..])),
        Some((b'?', behind)) => {
            text.first().is_some_and(|c| *c != b'/') && matches_by_definition(behind, &text[1..])
        }
        Some((literal, behind)) => text.first() == Some(literal) && matches_by_definition(behind, &text[1..]),
    }
}

proptest! {
    #[test]
    fn matching_equals_the_definition(pattern in "[ab/*?]{0,8}", text in "[ab/]{0,8}") {
        let expected = matches_by_definition(pattern.as_bytes(), text.as_bytes());
        prop_assert_eq!(Glob::new(&pattern).matches(&text), expected);
    }

    #[test]
    fn any_text_is_a_pattern(pattern in ".{0,20}", text in ".{0,20}") {
        Glob::new(&pattern).matches(&text);
    }

    #[test]
    fn a_text_without_wildcards_matches_itself_only(text in "[a-z./-]{0,12}", other in "[a-z./-]{0,12}") {
        prop_assert_eq!(Glob::new(&text).matches(&other), text == other);
    }
}
