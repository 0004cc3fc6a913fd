//! Shell patterns over file paths, as `glob(7)` has them: `*`, `?` and `[...]`.
//!
//! Always true: no wildcard matches a `/`.

/// A set of characters of a pattern.
#[derive(Clone, Debug, PartialEq, Eq)]
struct CharClass {
    negated: bool,
    ranges: Vec<(char, char)>,
}

impl CharClass {
    fn contains(&self, c: char) -> bool {
        c != '/' && self.ranges.iter().any(|(first, last)| (*first..=*last).contains(&c)) != self.negated
    }
}

/// An element of a pattern.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Element {
    Literal(char),
    AnyChar,
    AnyString,
    Class(CharClass),
}

/// A parsed pattern.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Glob {
    elements: Vec<Element>,
}

impl Glob {
    /// Parses a pattern. Every text is a pattern: `[` without `]` is an ordinary character.
    pub(crate) fn new(text: &str) -> Self {
        let chars: Vec<char> = text.chars().collect();
        let mut elements = Vec::new();
        let mut rest = chars.as_slice();
        while let Some((first, after)) = rest.split_first() {
            rest = after;
            let element = match first {
                '*' => Element::AnyString,
                '?' => Element::AnyChar,
                '[' => match class(after) {
                    Some((class, behind)) => {
                        rest = behind;
                        Element::Class(class)
                    }
                    None => Element::Literal('['),
                },
                other => Element::Literal(*other),
            };
            elements.push(element);
        }
        Self { elements }
    }

    /// Returns true if the pattern matches all of `text`.
    pub(crate) fn matches(&self, text: &str) -> bool {
        let text: Vec<char> = text.chars().collect();
        matches_from(&self.elements, &text)
    }
}

/// Parses a class after its `[`. Returns it with the rest of the pattern.
fn class(after: &[char]) -> Option<(CharClass, &[char])> {
    let (negated, body) = match after.split_first() {
        Some(('!' | '^', body)) => (true, body),
        _ => (false, after),
    };
    // A `]` that opens the class is a member of it.
    let end = body.iter().skip(1).position(|c| *c == ']')? + 1;
    let (mut members, behind) = (body.get(..end)?, body.get(end + 1..)?);
    let mut ranges = Vec::new();
    while let Some((first, more)) = members.split_first() {
        match more {
            ['-', last, behind @ ..] => {
                ranges.push((*first, *last));
                members = behind;
            }
            _ => {
                ranges.push((*first, *first));
                members = more;
            }
        }
    }
    Some((CharClass { negated, ranges }, behind))
}

/// Matches with one restart position, the last `*`: linear for each `*` before it.
fn matches_from(elements: &[Element], text: &[char]) -> bool {
    let (mut pattern, mut input) = (elements, text);
    let mut restart: Option<(&[Element], &[char])> = None;
    loop {
        match (pattern.split_first(), input.split_first()) {
            (None, None) => return true,
            (Some((Element::AnyString, behind)), _) => {
                restart = Some((behind, input));
                pattern = behind;
                continue;
            }
            (Some((element, behind)), Some((c, after))) if matches_one(element, *c) => {
                (pattern, input) = (behind, after);
                continue;
            }
            _ => {}
        }
        match restart {
            Some((behind, [c, after @ ..])) if *c != '/' => {
                restart = Some((behind, after));
                (pattern, input) = (behind, after);
            }
            _ => return false,
        }
    }
}

fn matches_one(element: &Element, c: char) -> bool {
    match element {
        Element::Literal(literal) => *literal == c,
        Element::AnyChar => c != '/',
        Element::Class(class) => class.contains(c),
        Element::AnyString => false,
    }
}

#[cfg(test)]
#[path = "glob_tests.rs"]
mod tests;
