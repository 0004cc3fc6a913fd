//! Project rules that no compiler checks.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "all of this is tests")]

mod project;

use project::{files, root, sources};

/// Returns the violating lines of all sources with their locations. Each line is judged together
/// with the previous one.
fn wrong_lines(is_wrong: impl Fn(&str, &str) -> bool) -> Vec<String> {
    let mut wrong = Vec::new();
    for (path, text) in sources() {
        let mut before = "";
        for (number, line) in (1..).zip(text.lines().map(str::trim)) {
            if is_wrong(before, line) {
                wrong.push(format!("{}:{number}: {line}", path.display()));
            }
            if !line.is_empty() && !line.starts_with("//") {
                before = line;
            }
        }
    }
    wrong
}

#[test]
fn every_source_starts_with_a_description() {
    let silent: Vec<_> =
        sources().filter(|(_, text)| !text.starts_with("//!")).map(|(path, _)| path).collect();
    assert!(silent.is_empty(), "files without a first line of documentation: {silent:?}");
}

#[test]
fn no_source_exceeds_1000_lines() {
    let long: Vec<_> =
        sources().filter(|(_, text)| text.lines().count() > 1000).map(|(path, _)| path).collect();
    assert!(long.is_empty(), "{long:?}");
}

#[test]
fn no_test_is_ignored() {
    let attribute = concat!("#[", "ignore");
    let off = wrong_lines(|_, line| line.starts_with(attribute));
    assert!(off.is_empty(), "{off:#?}");
}

#[test]
fn missing_test_requirements_fail_unless_skipped_by_name() {
    let excuse = concat!("does not ", "apply");
    let is_excuse = |line: &str| line.contains("print") && line.contains(excuse);
    let excused = wrong_lines(|_, line| is_excuse(line));
    assert!(excused.is_empty(), "use test_support: {excused:#?}");
    // CI skips no tests.
    for script in ["run", ".ci/run"] {
        let text = std::fs::read_to_string(root().join(script)).unwrap();
        assert!(!text.contains("GABION_SKIP"), "{script} skips tests");
    }
}

#[test]
fn no_match_result_is_discarded() {
    let start = concat!("matches", "!(");
    let ends = |line: &str| line.is_empty() || line.ends_with([';', '{', '}']);
    let forgotten =
        wrong_lines(|before, line| line.starts_with(start) && line.ends_with(");") && ends(before));
    assert!(forgotten.is_empty(), "a match as a statement checks nothing: {forgotten:#?}");
}

#[test]
fn no_file_names_the_development_machine() {
    let places = [concat!("/", "work/"), concat!("/", "root/"), concat!("/", "home/")];
    let mut found = Vec::new();
    for (path, text) in files() {
        let lines =
            (1..).zip(text.lines()).filter(|(_, line)| places.iter().any(|place| line.contains(place)));
        found.extend(lines.map(|(number, line)| format!("{}:{number}: {}", path.display(), line.trim())));
    }
    assert!(found.is_empty(), "{found:#?}");
}

#[test]
fn every_crate_inherits_the_workspace_lints() {
    let mut without = Vec::new();
    for entry in std::fs::read_dir(root().join("crates")).unwrap() {
        let manifest = entry.unwrap().path().join("Cargo.toml");
        let text = std::fs::read_to_string(&manifest).unwrap();
        if !text.contains("[lints]\nworkspace = true") {
            without.push(manifest);
        }
    }
    assert!(
        without.is_empty(),
        "nothing asks there for documented items, or forbids unsafe code: {without:?}"
    );
}
