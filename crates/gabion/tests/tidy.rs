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
fn no_file_exceeds_512_kib() {
    let size = |path: &std::path::Path| root().join(path).metadata().map_or(0, |file| file.len());
    let large: Vec<_> = project::paths().into_iter().filter(|path| size(path) > 512 << 10).collect();
    assert!(large.is_empty(), "binaries and archives do not belong into the history: {large:?}");
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

/// The crates whose broken invariants must stop the daemon.
const ASSERTED: [&str; 3] = ["crates/engine/src", "crates/format/src", "crates/codec/src"];

/// Returns the sources of the asserted crates, up to their unit tests.
fn asserted_sources() -> impl Iterator<Item = (std::path::PathBuf, String)> {
    let is_test = |path: &std::path::Path| {
        let name = path.file_name().unwrap().to_string_lossy();
        name == "tests.rs" || name.ends_with("_tests.rs")
    };
    let of_ours = |path: &std::path::Path| ASSERTED.iter().any(|folder| path.starts_with(folder));
    let of_product = |text: &str| text.split("\n#[cfg(test)]\nmod tests {").next().unwrap().to_owned();
    let ours = sources().filter(move |(path, _)| of_ours(path) && !is_test(path));
    ours.map(move |(path, text)| (path, of_product(&text)))
}

/// Conversions and defaults that turn a broken invariant into a harmless value. `invariant.rs` of
/// the engine and `checked.rs` of the format have what to use: a panic with the invariant's number.
/// `map_or` names a value for a case that is valid.
fn hides_a_broken_invariant(line: &str) -> bool {
    let hidden = ["unwrap_or(0)", "unwrap_or(&[])", "unwrap_or_default()", "unwrap_or(MapEntry::"];
    let saturates = line.split("unwrap_or(").skip(1).any(|rest| {
        rest.split(')').next().is_some_and(|value| value.ends_with("::MAX") || value.ends_with("_MAX"))
    });
    let converts = line.contains("try_from(") && line.contains(").unwrap_or(");
    !line.starts_with("//") && (saturates || converts || hidden.iter().any(|pattern| line.contains(pattern)))
}

#[test]
fn no_broken_invariant_becomes_a_harmless_value() {
    let mut hidden = Vec::new();
    for (path, text) in asserted_sources() {
        let lines = (1..).zip(text.lines().map(str::trim)).filter(|(_, line)| hides_a_broken_invariant(line));
        hidden.extend(lines.map(|(number, line)| format!("{}:{number}: {line}", path.display())));
    }
    assert!(hidden.is_empty(), "use the helpers of invariant.rs or checked.rs: {hidden:#?}");
    for line in ["count.unwrap_or(0);", "u32::try_from(n).unwrap_or(u32::MAX)", "x.unwrap_or(SPARES_MAX)"] {
        assert!(hides_a_broken_invariant(line), "{line}");
    }
    assert!(!hides_a_broken_invariant("known.map_or(0, |count| *count)"));
}

#[test]
fn the_asserted_crates_have_10_asserts_in_1000_lines() {
    let asserts = ["assert!(", "assert_eq!(", "assert_ne!(", "panic!("];
    let helpers = ["part(", "element(", "narrow(", "narrow::<", "present(", "code_of("];
    let calls = |line: &str, name: &&str| {
        let of_a_word = |c: char| c.is_alphanumeric() || c == '_';
        line.match_indices(*name).filter(|(at, _)| !line[..*at].ends_with(of_a_word)).count()
    };
    for folder in ASSERTED {
        let (mut lines, mut found) = (0, 0);
        for (_, text) in asserted_sources().filter(|(path, _)| path.starts_with(folder)) {
            lines += text.lines().count();
            let code =
                text.lines().map(str::trim).filter(|line| !line.starts_with("//") && !line.contains("fn "));
            found += code
                .map(|line| asserts.iter().chain(&helpers).map(|name| calls(line, name)).sum::<usize>())
                .sum::<usize>();
        }
        assert!(lines > 1000, "{folder}: {lines} lines");
        assert!(1000 * found >= 10 * lines, "{folder}: {found} asserts in {lines} lines");
    }
}
