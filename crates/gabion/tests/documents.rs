//! Tests of the documents against the code: names in documents exist, and required entries are
//! present.
//!
//! The tests of docs/format.md are next to the code that it describes.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "all of this is tests")]

mod project;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;

use project::{files, read, root, sources};

/// Returns the paths of all Markdown files.
fn pages() -> Vec<String> {
    let is_page = |path: &Path| path.extension().is_some_and(|extension| extension == "md");
    let pages = files().into_iter().filter(|(path, _)| is_page(path));
    let pages: Vec<String> = pages.map(|(path, _)| path.display().to_string()).collect();
    assert!(pages.len() > 20, "only {} pages", pages.len());
    pages
}

/// Returns the text of a page without code blocks.
fn prose(text: &str) -> String {
    let mut inside = false;
    let line = |line: &str| {
        let is_fence = line.starts_with("```");
        inside ^= is_fence;
        if inside || is_fence || line.starts_with("    ") { String::new() } else { line.to_owned() }
    };
    text.lines().map(line).collect::<Vec<_>>().join("\n")
}

/// Returns the texts in single backquotes.
fn quoted(text: &str) -> Vec<String> {
    prose(text).split('`').skip(1).step_by(2).map(str::to_owned).collect()
}

/// Returns all identifiers of the sources.
fn words() -> BTreeSet<String> {
    let is_separator = |c: char| !(c.is_alphanumeric() || c == '_');
    let mut words = BTreeSet::new();
    for (_, text) in sources() {
        words.extend(text.split(is_separator).map(str::to_owned));
    }
    words
}

/// Returns true for the path of a project file. Names with angle brackets are placeholders, and
/// absolute paths are files of a host.
fn is_path(text: &str) -> bool {
    let plain = |c: char| c.is_ascii_alphanumeric() || "/._-".contains(c);
    let file = [".rs", ".md", ".toml", ".json"].iter().any(|extension| text.ends_with(extension));
    !text.starts_with('/')
        && text.chars().all(plain)
        && (file || text.starts_with("crates/") || text.starts_with("docs/"))
}

#[test]
fn reference_pages_are_current() {
    for page in ["cli", "configuration", "api"] {
        let printed = Command::new(env!("CARGO_BIN_EXE_gabion")).args(["reference", page]).output().unwrap();
        assert!(printed.status.success());
        let printed = String::from_utf8(printed.stdout).unwrap();
        assert!(
            read(&format!("docs/{page}.md")) == printed,
            "docs/{page}.md is outdated: run './run reference'"
        );
    }
}

#[test]
fn files_named_in_documents_exist() {
    let names: Vec<PathBuf> = files().into_iter().map(|(path, _)| path).collect();
    let exists = |name: &str| {
        let name = name.trim_end_matches('/');
        names.iter().any(|path| path.ends_with(name) || path.starts_with(name))
    };
    // The program writes files whose names are in its sources.
    let sources: Vec<String> = sources().map(|(_, text)| text).collect();
    let is_written = |name: &str| {
        let quoted = format!("\"{name}\"");
        !name.contains('/') && sources.iter().any(|text| text.contains(&quoted))
    };
    let is_missing = |text: &String| is_path(text) && !exists(text) && !is_written(text);
    let mut missing = Vec::new();
    for page in pages() {
        let named = quoted(&read(&page)).into_iter().filter(is_missing);
        missing.extend(named.map(|name| format!("{page}: {name}")));
    }
    assert!(missing.is_empty(), "{missing:#?}");
}

/// Checks `Type::item` and `function()`: each part must be an identifier in the sources, a function
/// as a function.
#[test]
fn items_named_in_documents_exist() {
    let (words, functions) = (words(), functions());
    let mut missing = Vec::new();
    for page in pages() {
        for text in quoted(&read(&page)) {
            let called = text.strip_suffix("()");
            let name = called.unwrap_or(&text);
            let plain = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == ':';
            if !name.chars().all(plain) || !(called.is_some() || name.contains("::")) {
                continue;
            }
            let last = name.rsplit("::").next().unwrap_or(name);
            let known = name.split("::").all(|word| words.contains(word));
            if !known || called.is_some() && !functions.contains(last) {
                missing.push(format!("{page}: {text}"));
            }
        }
    }
    assert!(missing.is_empty(), "{missing:#?}");
}

/// Returns the names of all functions.
fn functions() -> BTreeSet<String> {
    let mut functions = BTreeSet::new();
    for (_, text) in sources() {
        let named = text.split("fn ").skip(1);
        let name =
            |rest: &str| rest.split(|c: char| !(c.is_alphanumeric() || c == '_')).next().map(str::to_owned);
        functions.extend(named.filter_map(name));
    }
    functions
}

#[test]
fn links_in_documents_resolve() {
    let mut dead = Vec::new();
    for page in pages() {
        let text = read(&page);
        let prose = prose(&text);
        let targets = prose.split("](").skip(1).filter_map(|rest| rest.split(')').next());
        for target in targets.filter(|target| !target.starts_with("http")) {
            let (path, anchor) = target.split_once('#').unwrap_or((target, ""));
            let file = if path.is_empty() { root().join(&page) } else { directory_of(&page).join(path) };
            let there = std::fs::metadata(&file).is_ok();
            if !there || !anchor.is_empty() && !anchors(&file).contains(anchor) {
                dead.push(format!("{page}: {target}"));
            }
        }
    }
    assert!(dead.is_empty(), "{dead:#?}");
}

fn directory_of(page: &str) -> PathBuf {
    root().join(page).parent().map(Path::to_path_buf).unwrap()
}

/// Returns the anchors of the headings of a page.
fn anchors(file: &Path) -> BTreeSet<String> {
    let text = std::fs::read_to_string(file).unwrap();
    let headings = text.lines().filter(|line| line.starts_with('#'));
    let kept = |c: char| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_');
    let anchor = |heading: &str| {
        let heading = heading.trim_start_matches('#').trim().to_lowercase();
        heading.chars().filter(|c| kept(*c)).collect::<String>().replace(' ', "-")
    };
    headings.map(anchor).collect()
}

/// Returns the number of cells of a table row. A `|` within a cell must be escaped, also in code.
fn cells(row: &str) -> usize {
    row.trim().trim_matches('|').replace("\\|", "").split('|').count()
}

#[test]
fn table_rows_have_as_many_cells_as_their_header() {
    assert_eq!(cells("| `a\\|b` | c |"), 2);
    assert_eq!(cells("| `a|b` | c |"), 3);
    let mut wrong = Vec::new();
    for page in pages() {
        let mut header = None;
        for (number, line) in (1..).zip(prose(&read(&page)).lines()) {
            if !line.starts_with('|') {
                header = None;
            } else if *header.get_or_insert(cells(line)) != cells(line) {
                wrong.push(format!("{page}:{number}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// The places in the engine that name an invariant.
#[derive(Default)]
struct Named {
    /// In an assertion or error of the engine.
    assert: bool,
    /// In a finding of the verifier.
    check: bool,
}

/// Returns the invariants named in the engine: a letter and a number, as `M1`.
fn named_invariants() -> BTreeMap<String, Named> {
    let mut named = BTreeMap::<String, Named>::new();
    for (path, text) in sources().filter(|(path, _)| path.starts_with("crates/engine/src")) {
        let verifier = path.ends_with("check.rs") || path.ends_with("shard/verify.rs");
        for (at, number) in numbers(&text) {
            let entry = named.entry(number.to_owned()).or_default();
            // The helpers of `invariant.rs` receive the number alone.
            let ends_number = |rest: &str| rest.starts_with(": ") || rest.starts_with("\")");
            let in_message = text[..at].ends_with('"') && ends_number(&text[at + number.len()..]);
            entry.check |= in_message && verifier;
            entry.assert |= in_message && !verifier;
        }
    }
    named
}

fn numbers(text: &str) -> Vec<(usize, &str)> {
    let of_a_word = |c: char| c.is_alphanumeric() || c == '_';
    let mut found = Vec::new();
    for (at, letter) in text.char_indices().filter(|(_, c)| c.is_ascii_uppercase()) {
        let rest = &text[at + letter.len_utf8()..];
        let digits = rest.chars().take_while(char::is_ascii_digit).count();
        let alone = !text[..at].ends_with(of_a_word) && !rest[digits..].starts_with(of_a_word);
        if alone && (1..=2).contains(&digits) {
            found.push((at, &text[at..=at + digits]));
        }
    }
    found
}

#[test]
fn invariants_match_between_engine_and_document() {
    let page = read("docs/invariants.md");
    let mut explained = BTreeMap::new();
    for entry in page.split("\n**").skip(1) {
        let (number, rest) = entry.split_once(".**").unwrap();
        let rest = rest.split("\n\n").next().unwrap_or_default();
        let checked =
            rest.split_once("\nChecked by: ").unwrap_or_else(|| panic!("{number}: no 'Checked by' line")).1;
        assert!(rest.contains("\nKept by "), "{number}: no 'Kept by' line");
        assert!(explained.insert(number, checked).is_none(), "{number} is explained twice");
    }
    let named = named_invariants();
    let (there, here): (BTreeSet<&str>, BTreeSet<&str>) =
        (named.keys().map(String::as_str).collect(), explained.keys().copied().collect());
    assert_eq!(there, here, "invariants that the engine names, and that docs/invariants.md explains");
    for (number, checked) in explained {
        let is_checked_by = |kind: &str| checked.split([',', '.', ' ']).any(|word| word == kind);
        let named = &named[number];
        assert_eq!(
            is_checked_by("assert"),
            named.assert,
            "{number}: does an assertion message start with it?"
        );
        // `gabion check` in backquotes is a command, not the word.
        assert_eq!(
            is_checked_by("check"),
            named.check,
            "{number}: does a finding of the verifier start with it?"
        );
    }
}

#[test]
fn promises_named_in_the_engine_are_documented() {
    let page = read("docs/invariants.md");
    let promises = page.lines().filter(|line| line.starts_with(|c: char| c.is_ascii_digit())).count();
    let mut named = 0;
    for (path, text) in sources().filter(|(path, _)| path.starts_with("crates/engine/src")) {
        for rest in text.split("(promise ").skip(1) {
            let number: usize = rest.split(')').next().unwrap().parse().unwrap();
            assert!((1..=promises).contains(&number), "{}: promise {number}", path.display());
            named += 1;
        }
    }
    assert!(named > 0, "no promise is named: the pattern of this test is outdated");
}

#[test]
fn every_dependency_has_a_documented_reason() {
    let manifest: toml::Table = read("Cargo.toml").parse().unwrap();
    let dependencies = manifest["workspace"]["dependencies"].as_table().unwrap();
    let ours = |value: &toml::Value| value.get("path").is_some();
    let mut used: Vec<&str> =
        dependencies.iter().filter(|(_, value)| !ours(value)).map(|(name, _)| name.as_str()).collect();
    used.sort_unstable();
    let page = read("docs/decisions.md");
    let table = page.split("\n## Dependencies\n").nth(1).unwrap().split("\n## ").next().unwrap();
    let rows = table.lines().filter_map(|line| line.strip_prefix("| `"));
    let mut explained: Vec<&str> = rows.filter_map(|row| row.split('`').next()).collect();
    explained.sort_unstable();
    assert_eq!(
        used, explained,
        "dependencies of the workspace, and rows of docs/decisions.md \"Dependencies\""
    );
}

#[test]
fn every_crate_is_in_the_architecture_table() {
    let page = read("ARCHITECTURE.md");
    let rows = page.lines().filter_map(|line| line.strip_prefix("| `")?.split('`').next());
    let shown: BTreeSet<String> = rows.map(str::to_owned).collect();
    let rooms = std::fs::read_dir(root().join("crates")).unwrap();
    let rooms: BTreeSet<String> =
        rooms.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    assert_eq!(rooms, shown, "crates, and rows of the table in ARCHITECTURE.md");
}

#[test]
fn every_recipe_is_documented() {
    let page = read("CONTRIBUTING.md");
    let script = read("run");
    let help = script.split("\nRecipes:\n").nth(1).unwrap().split("\nTXT\n").next().unwrap();
    // Each recipe is indented by two spaces, and further lines of its description by more.
    let recipes = help.lines().filter_map(|line| line.strip_prefix("  ")?.split(' ').next());
    let recipes: Vec<&str> = recipes.filter(|recipe| !recipe.is_empty()).collect();
    assert!(recipes.len() > 15, "only {recipes:?}");
    let is_missing = |recipe: &&str| !page.contains(&format!("./run {recipe}"));
    let missing: Vec<&str> = recipes.into_iter().filter(is_missing).collect();
    assert!(missing.is_empty(), "CONTRIBUTING.md does not describe ./run {missing:?}");
}
