//! The report as Markdown, without charts: their figures are in the tables.

use super::{Block, Document, Table};

/// Renders the document.
pub(super) fn text(document: &Document) -> String {
    let mut text = format!("# {}\n\n{}\n", escape(&document.title), escape(&document.subtitle));
    for section in &document.sections {
        let blocks: Vec<&Block> =
            section.blocks.iter().filter(|block| !matches!(block, Block::Chart(_))).collect();
        if blocks.is_empty() {
            continue;
        }
        text.push_str(&format!("\n## {}\n", escape(&section.title)));
        for block in blocks {
            text.push('\n');
            match block {
                Block::Text(words) => text.push_str(&format!("{}\n", escape(words))),
                Block::Heading(words) => text.push_str(&format!("### {}\n", escape(words))),
                Block::List(lines) => {
                    lines.iter().for_each(|line| text.push_str(&format!("- {}\n", escape(line))));
                }
                Block::Code(lines) => lines.lines().for_each(|line| text.push_str(&format!("    {line}\n"))),
                Block::Table(of) => text.push_str(&table(of)),
                Block::Chart(_) => {}
            }
        }
    }
    text
}

fn table(table: &Table) -> String {
    let line = |cells: &[String]| {
        let cells: Vec<String> = cells.iter().map(|cell| escape(cell)).collect();
        format!("| {} |\n", cells.join(" | "))
    };
    let rule = |number: usize| if number > 0 && table.figures { "--:" } else { "---" };
    let rules: Vec<&str> = (0..table.columns.len()).map(rule).collect();
    let mut text = format!("{}| {} |\n", line(&table.columns), rules.join(" | "));
    table.rows.iter().for_each(|row| text.push_str(&line(row)));
    text
}

/// Escapes text for Markdown, on one line.
fn escape(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '\n' | '\r' => safe.push(' '),
            '|' | '*' | '_' | '`' | '<' | '[' | '\\' | '#' => {
                safe.push('\\');
                safe.push(character);
            }
            character => safe.push(character),
        }
    }
    safe
}
