//! The report as one HTML page with inline style and charts, without scripts or external resources.

use super::{Block, Document, ReportError, Table, charts};

const STYLE: &str = include_str!("page.css");

/// Renders the page.
pub(super) fn page(document: &Document) -> Result<String, ReportError> {
    let mut body = String::new();
    let mut contents = String::new();
    for (number, section) in (1..).zip(&document.sections) {
        contents.push_str(&format!("<li><a href=\"#s{number}\">{}</a></li>", escape(&section.title)));
        body.push_str(&format!("<section id=\"s{number}\"><h2>{}</h2>\n", escape(&section.title)));
        for block in &section.blocks {
            body.push_str(&of_block(block)?);
            body.push('\n');
        }
        body.push_str("</section>\n");
    }
    let (title, subtitle) = (escape(&document.title), escape(&document.subtitle));
    Ok(format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta name=\"color-scheme\" content=\"light dark\">\n<title>{title}</title>\n<style>\n{STYLE}</style>\n</head>\n\
         <body>\n<header><h1>{title}</h1><p>{subtitle}</p></header>\n<nav><ul>{contents}</ul></nav>\n<main>\n{body}</main>\n\
         </body>\n</html>\n"
    ))
}

fn of_block(block: &Block) -> Result<String, ReportError> {
    Ok(match block {
        Block::Text(text) => format!("<p>{}</p>", escape(text)),
        Block::Heading(text) => format!("<h3>{}</h3>", escape(text)),
        Block::List(lines) => {
            let lines: Vec<String> = lines.iter().map(|line| format!("<li>{}</li>", escape(line))).collect();
            format!("<ul>{}</ul>", lines.join(""))
        }
        Block::Code(lines) => format!("<pre tabindex=\"0\">{}</pre>", escape(lines)),
        Block::Table(of) => table(of),
        Block::Chart(chart) => format!(
            "<figure><figcaption>{}</figcaption><div class=\"wide light\" tabindex=\"0\">{}</div><div class=\"wide dark\" tabindex=\"0\">{}</div></figure>",
            escape(&chart.title),
            charts::svg(chart, false)?,
            charts::svg(chart, true)?
        ),
    })
}

fn table(table: &Table) -> String {
    let cells = |cells: &[String], tag: &str| {
        // A number stays on one line with its unit; a break is allowed between two numbers.
        let together = |text: String| match (table.figures, tag) {
            (true, "td") => {
                text.split(" / ").map(|part| part.replace(' ', "&nbsp;")).collect::<Vec<_>>().join(" / ")
            }
            _ => text,
        };
        let cell = |(number, cell): (usize, &String)| {
            let text = if number == 0 { escape(cell) } else { together(escape(cell)) };
            format!("<{tag}>{text}</{tag}>")
        };
        format!("<tr>{}</tr>", cells.iter().enumerate().map(cell).collect::<String>())
    };
    let head = if table.columns.iter().all(String::is_empty) {
        String::new()
    } else {
        format!("<thead>{}</thead>", cells(&table.columns, "th"))
    };
    let rows: String = table.rows.iter().map(|row| cells(row, "td")).collect();
    let class = if table.figures { " class=\"figures\"" } else { "" };
    format!("<div class=\"wide\" tabindex=\"0\"><table{class}>{head}<tbody>{rows}</tbody></table></div>")
}

/// Escapes text for HTML.
fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}
