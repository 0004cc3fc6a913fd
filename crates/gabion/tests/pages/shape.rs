//! The shape of an output: its text without numbers, units, times and ids.

/// Units that follow a number.
const UNITS: [&str; 14] =
    ["B", "KiB", "MiB", "GiB", "TiB", "B/s", "KiB/s", "MiB/s", "GiB/s", "ns", "us", "ms", "s", "min"];

/// Returns true if an output has the shape of the printed one. A printed line `...` stands for any
/// lines.
pub(crate) fn matches(printed: &str, output: &str) -> bool {
    let lines =
        |text: &str| -> Vec<String> { text.lines().map(normalise).filter(|line| !line.is_empty()).collect() };
    same_lines(&lines(printed), &lines(output))
}

fn same_lines(printed: &[String], output: &[String]) -> bool {
    match (printed.split_first(), output.split_first()) {
        (None, None) => true,
        (Some((first, rest)), _) if first == "..." => {
            (0..=output.len()).any(|skipped| same_lines(rest, &output[skipped..]))
        }
        (Some((first, rest)), Some((line, lines))) => first == line && same_lines(rest, lines),
        _ => false,
    }
}

fn normalise(line: &str) -> String {
    let mut words: Vec<String> = Vec::new();
    for word in line.split_whitespace() {
        let word = shape(word);
        let follows_number = words.last().is_some_and(|last| last.ends_with('#'));
        let unit = word.trim_end_matches([',', ';', ')', ':']);
        if follows_number && UNITS.contains(&unit) {
            let end = &word[unit.len()..];
            words.push(format!("unit{end}"));
        } else {
            words.push(word);
        }
    }
    // A duration below the resolution is printed as an upper bound.
    words.join(" ").replace("less than # unit", "# unit")
}

/// Replaces hexadecimal ids by `ID`, random keys of 20 or more characters by `KEY`, and numbers by
/// `#`.
fn shape(word: &str) -> String {
    if word.len() >= 20 && word.chars().all(|c| c.is_ascii_uppercase() || c.is_ascii_digit()) {
        return "KEY".into();
    }
    let is_part = |c: char| c.is_ascii_hexdigit() || c == '-' || c == ':';
    let inner = word.trim_matches(|c| !is_part(c));
    if inner.len() >= 12 && inner.chars().all(is_part) && inner.contains(|c: char| c.is_ascii_digit()) {
        return word.replace(inner, "ID");
    }
    let mut shape = String::new();
    for c in word.chars() {
        let is_number = shape.ends_with('#');
        match c {
            '0'..='9' if is_number => {}
            '0'..='9' => shape.push('#'),
            '.' if is_number => {}
            c => shape.push(c),
        }
    }
    shape
}

#[test]
fn numbers_units_and_ids_may_differ() {
    assert!(matches("1.31 GiB in 4 ms, 2 drives", "37 MiB  in 2.5 s, 12 drives"));
    assert!(matches("read in less than 1 s, nothing damaged", "read in 1.0 s, nothing damaged"));
    assert!(matches("id 800f5421-023b-db81-54cf-bb9f75f304d8", "id 5159987f-2cae-d489-f80f-b7fb47298d0b"));
    assert!(matches("key 6CQAXJ9FHM4KVW2TUEBN", "key PYC7Z3MEK5VQ8RJ9TB4N"));
    assert!(matches("a\n...\nz", "a\nb\nc\nz"));
    assert!(!matches("pool 'try' created", "pool 'try' opened"));
    assert!(!matches("a", "a\nb"));
    assert!(!matches("a 5", "a"));
}
