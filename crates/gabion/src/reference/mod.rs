//! The reference pages in `docs/`: commands, settings and API, generated from the same tables as
//! the help texts, the settings of the daemon and the OpenAPI document.
//!
//! `./run reference` writes the pages; a test compares the stored pages with the generated ones.

mod api;
mod commands;
mod settings;

use crate::cli::ReferencePage;

/// Returns the Markdown text of a page.
pub(crate) fn page(page: ReferencePage) -> String {
    match page {
        ReferencePage::Cli => commands::page(),
        ReferencePage::Configuration => settings::page(),
        ReferencePage::Api => api::page(&::api::openapi::json()),
    }
}

/// Returns `text` as the content of a table cell: one line, without column separators.
fn cell(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ").replace('|', "\\|").replace('<', "\\<")
}

/// Returns a table with `header`, or nothing if there are no rows.
fn table<const COLUMNS: usize>(header: [&str; COLUMNS], rows: &[[String; COLUMNS]]) -> String {
    if rows.is_empty() {
        return String::new();
    }
    let mut text = format!("| {} |\n|{}\n", header.join(" | "), "---|".repeat(COLUMNS));
    for row in rows {
        text.push_str(&format!("| {} |\n", row.join(" | ")));
    }
    text + "\n"
}

/// Returns paragraphs of one line each. Indented lines become code blocks.
fn paragraphs(text: &str) -> String {
    let mut out = String::new();
    for block in text.trim().split("\n\n").filter(|block| !block.is_empty()) {
        if block.lines().all(|line| line.starts_with("    ")) {
            let code: Vec<&str> = block.lines().map(|line| line.get(4..).unwrap_or_default()).collect();
            out.push_str(&format!("```\n{}\n```\n\n", code.join("\n")));
        } else {
            out.push_str(&format!("{}\n\n", block.split_whitespace().collect::<Vec<_>>().join(" ")));
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_hold_one_line_per_row() {
        let text = table(["a", "b"], &[[cell("x|y\nz"), cell("<v>")]]);
        assert_eq!(text, "| a | b |\n|---|---|\n| x\\|y z | \\<v> |\n\n");
        assert_eq!(table(["a"], &[]), "");
    }

    #[test]
    fn indented_paragraphs_become_code() {
        assert_eq!(paragraphs("one\ntwo\n\n    [a]\n    b = 1"), "one two\n\n```\n[a]\nb = 1\n```\n\n");
    }
}
