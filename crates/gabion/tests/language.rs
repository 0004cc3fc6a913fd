//! Tests of the language of comments and documents, for the rules that need no judgement.
//! CONTRIBUTING.md has the other rules.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "all of this is tests")]

mod project;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use project::{files, sources};

/// Maximum columns of a comment line.
const COMMENT_COLUMNS: usize = 100;
/// Maximum columns of a Markdown line outside of code blocks and tables.
const MARKDOWN_COLUMNS: usize = 100;
/// Pages that `./run reference` generates, with one line per paragraph.
const GENERATED_PAGES: [&str; 3] = ["docs/api.md", "docs/cli.md", "docs/configuration.md"];
/// Words of headless clauses.
const RARE_WORDS: [&str; 4] = ["what", "who", "one that", "those that"];
/// Maximum number of these words per 1,000 words: their share in redb's comments.
const RARE_WORDS_PER_1000: f64 = 1.1;
/// Words that do not open a sentence, except a question.
const HEADLESS: [&str; 12] = [
    "What",
    "Who",
    "Whoever",
    "Whose",
    "Whatever",
    "Whether",
    "Why",
    "Where",
    "Which",
    "Those",
    "How",
    "As much as",
];
/// Files other than sources whose comments are checked, by the end of their names, with the marks
/// of their comments.
const OTHER_FILES: [(&str, &[&str]); 6] = [
    ("run", &["#"]),
    (".toml", &["#"]),
    (".sh", &["#"]),
    (".service", &["#"]),
    (".tsx", &["//"]),
    (".ts", &["//"]),
];

/// A paragraph of comments or Markdown, with its place.
struct Paragraph {
    place: String,
    text: String,
}

/// Collects lines into paragraphs.
#[derive(Default)]
struct Paragraphs {
    done: Vec<Paragraph>,
    place: String,
    text: String,
}

impl Paragraphs {
    fn add(&mut self, place: &str, line: &str) {
        if self.text.is_empty() {
            place.clone_into(&mut self.place);
        } else {
            self.text.push(' ');
        }
        self.text.push_str(line);
    }

    fn end(&mut self) {
        if !self.text.is_empty() {
            let (place, text) = (std::mem::take(&mut self.place), std::mem::take(&mut self.text));
            self.done.push(Paragraph { place, text });
        }
    }
}

/// Returns all files with comments, and the marks of their comments.
fn commented_files() -> Vec<(PathBuf, String, &'static [&'static str])> {
    let mut all: Vec<_> = sources().map(|(path, text)| (path, text, &["///", "//!", "//"][..])).collect();
    for (path, text) in files() {
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let is_script = path.starts_with("deploy") && text.starts_with("#!");
        let marks = OTHER_FILES.into_iter().find(|(end, _)| match end.starts_with('.') {
            true => name.ends_with(end),
            false => name == *end,
        });
        match marks {
            Some((_, marks)) => all.push((path, text, marks)),
            None if is_script => all.push((path, text, &["#"])),
            None => {}
        }
    }
    all
}

/// Returns the comments of all files without code blocks. A heading ends a paragraph.
fn comments() -> Vec<Paragraph> {
    let mut paragraphs = Paragraphs::default();
    for (path, text, marks) in commented_files() {
        let mut in_code = false;
        for (number, line) in (1..).zip(text.lines().map(str::trim)) {
            let comment = marks.iter().find_map(|mark| line.strip_prefix(mark)).map(str::trim);
            let is_fence = comment.is_some_and(|comment| comment.starts_with("```"));
            in_code = comment.is_some() && in_code != is_fence;
            match comment {
                Some(comment)
                    if !in_code && !is_fence && !comment.is_empty() && !comment.starts_with("# ") =>
                {
                    if comment.starts_with("- ") {
                        paragraphs.end();
                    }
                    let place = format!("{}:{number}", path.display());
                    paragraphs.add(&place, comment.trim_start_matches("- "));
                }
                _ => paragraphs.end(),
            }
        }
        paragraphs.end();
    }
    assert!(paragraphs.done.len() > 5000, "only {} comments", paragraphs.done.len());
    paragraphs.done
}

/// Returns the lines of all Markdown files outside of code blocks, with their places; an empty line
/// for each code line.
fn markdown_lines() -> Vec<(String, String)> {
    let mut lines = Vec::new();
    let is_markdown = |path: &Path| path.extension().is_some_and(|extension| extension == "md");
    for (path, text) in files().into_iter().filter(|(path, _)| is_markdown(path)) {
        let mut in_code = false;
        for (number, line) in (1..).zip(text.lines()) {
            let is_fence = line.trim_start().starts_with("```");
            in_code ^= is_fence;
            let is_text = !in_code && !is_fence && !line.starts_with("    ");
            let text = if is_text { line.to_owned() } else { String::new() };
            lines.push((format!("{}:{number}", path.display()), text));
        }
        lines.push((path.display().to_string(), String::new()));
    }
    assert!(lines.len() > 3000, "only {} lines of Markdown", lines.len());
    lines
}

/// Returns the paragraphs, list items, headings and table cells of all Markdown files.
fn markdown() -> Vec<Paragraph> {
    let mut paragraphs = Paragraphs::default();
    for (place, line) in markdown_lines() {
        let line = line.trim();
        if line.is_empty() || line.starts_with(['-', '*', '#', '|', '>']) {
            paragraphs.end();
        }
        for cell in
            line.trim_start_matches(['-', '*', '#', '>', ' ']).split('|').filter(|cell| !cell.is_empty())
        {
            if line.starts_with('|') {
                paragraphs.end();
            }
            paragraphs.add(&place, cell.trim());
        }
    }
    paragraphs.end();
    paragraphs.done
}

/// Returns true if a sentence of the paragraph opens with a headless clause.
fn has_headless_sentence(text: &str) -> bool {
    let starts = text.match_indices(['.', '?', '!', ':']).map(|(at, _)| at + 1);
    std::iter::once(0).chain(starts).any(|start| {
        let sentence = text.get(start..).unwrap_or_default();
        if start > 0 && !sentence.starts_with(' ') {
            return false;
        }
        let sentence = sentence.trim_start();
        let end = sentence.find(['.', '?']).unwrap_or(sentence.len());
        let is_question = sentence.get(end..).is_some_and(|rest| rest.starts_with('?'));
        let opens = |word: &str| sentence.strip_prefix(word).is_some_and(|rest| rest.starts_with([' ', ',']));
        !is_question && HEADLESS.into_iter().any(opens)
    })
}

fn headless(paragraphs: &[Paragraph]) -> Vec<String> {
    let is_headless = |paragraph: &&Paragraph| has_headless_sentence(&paragraph.text);
    paragraphs.iter().filter(is_headless).map(|each| format!("{}: {}", each.place, each.text)).collect()
}

/// Counts the rare words per 1,000 words.
fn rare_words_per_1000(paragraphs: &[Paragraph]) -> f64 {
    let (mut rare, mut all) = (0_u32, 0_u32);
    for paragraph in paragraphs {
        let separators = |c: char| !(c.is_alphanumeric() || c == '\'' || c == '_');
        let words: Vec<String> =
            paragraph.text.split(separators).filter(|word| !word.is_empty()).map(str::to_lowercase).collect();
        all += u32::try_from(words.len()).unwrap();
        for phrase in RARE_WORDS {
            let phrase: Vec<&str> = phrase.split(' ').collect();
            let matches = words.windows(phrase.len()).filter(|window| window.iter().eq(phrase.iter()));
            rare += u32::try_from(matches.count()).unwrap();
        }
    }
    f64::from(rare) * 1000.0 / f64::from(all)
}

#[test]
fn comment_lines_are_short() {
    let mut long = Vec::new();
    for (path, text, marks) in commented_files() {
        let is_comment = |line: &str| marks.iter().any(|mark| line.trim().starts_with(mark));
        let is_long = |line: &str| is_comment(line) && line.chars().count() > COMMENT_COLUMNS;
        let lines = (1..).zip(text.lines()).filter(|(_, line)| is_long(line));
        long.extend(lines.map(|(number, _)| format!("{}:{number}", path.display())));
    }
    assert!(long.is_empty(), "comment lines of more than {COMMENT_COLUMNS} columns: {long:#?}");
}

/// Returns true if a Markdown line must be wrapped. Rows of tables and images cannot be.
fn is_too_wide(line: &str) -> bool {
    !line.trim_start().starts_with(['|', '!']) && line.chars().count() > MARKDOWN_COLUMNS
}

#[test]
fn markdown_lines_are_short() {
    assert!(is_too_wide(&"word ".repeat(21)));
    assert!(is_too_wide(&format!("- {}", "item ".repeat(20))));
    assert!(!is_too_wide(&format!("| {} |", "cell ".repeat(21))));
    let is_generated = |place: &str| GENERATED_PAGES.iter().any(|page| place.starts_with(page));
    let lines = markdown_lines().into_iter().filter(|(place, _)| !is_generated(place));
    let long: Vec<String> = lines.filter(|(_, line)| is_too_wide(line)).map(|(place, _)| place).collect();
    assert!(long.is_empty(), "Markdown lines of more than {MARKDOWN_COLUMNS} columns: {long:#?}");
}

#[test]
fn no_sentence_opens_with_a_headless_clause() {
    assert!(has_headless_sentence("Moves blocks. What lives is moved."));
    assert!(has_headless_sentence("Those that fail are retried."));
    assert!(!has_headless_sentence("What is a segment? A row of zones."));
    let mut found = headless(&comments());
    found.extend(headless(&markdown()));
    assert!(found.is_empty(), "{} sentences: {found:#?}", found.len());
}

#[test]
fn no_comment_only_refers_to_its_module() {
    let refers = |paragraph: &Paragraph| paragraph.text.trim_end_matches('.') == "See the module";
    let found: Vec<_> = comments().into_iter().filter(refers).map(|paragraph| paragraph.place).collect();
    assert!(found.is_empty(), "comments that describe nothing: {found:#?}");
}

#[test]
fn words_of_headless_clauses_are_rare() {
    for (kind, paragraphs) in [("comments", comments()), ("documents", markdown())] {
        let share = rare_words_per_1000(&paragraphs);
        assert!(share < RARE_WORDS_PER_1000, "{kind}: {share:.2} of {RARE_WORDS:?} per 1,000 words");
    }
}

#[test]
fn type_names_are_unique_within_a_crate() {
    let mut places: BTreeMap<(String, String), Vec<String>> = BTreeMap::new();
    for (path, text) in sources() {
        let path = path.display().to_string();
        let Some(package) = path.strip_prefix("crates/").and_then(|rest| rest.split_once("/src/")) else {
            continue;
        };
        for line in text.lines().map(str::trim_start) {
            let item = line
                .split_once("pub(")
                .and_then(|(_, rest)| rest.split_once(") "))
                .map_or(line, |(_, rest)| rest);
            let item = item.trim_start_matches("pub ").trim_start_matches("unsafe ");
            let kinds = ["struct ", "enum ", "trait ", "union "];
            let Some(name) = kinds.iter().find_map(|kind| item.strip_prefix(kind)) else { continue };
            let name: String = name.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect();
            if name.is_empty() {
                // A macro that defines types.
                continue;
            }
            places.entry((package.0.to_owned(), name)).or_default().push(path.clone());
        }
    }
    assert!(places.len() > 900, "only {} types", places.len());
    places.retain(|_, paths| paths.len() > 1);
    assert!(places.is_empty(), "names of several types of a crate: {places:#?}");
}
