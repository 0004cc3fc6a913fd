//! Text tables without borders; numbers are right-aligned.

use comfy_table::{CellAlignment, ContentArrangement, Table, presets};

/// Formats a table. Columns whose header starts with `>` hold numbers.
pub(super) fn table(columns: &[&str], rows: impl IntoIterator<Item = Vec<String>>) -> String {
    let mut table = Table::new();
    table.load_style(presets::NOTHING).set_content_arrangement(ContentArrangement::Disabled);
    table.set_header(columns.iter().map(|column| column.trim_start_matches('>')));
    table.add_rows(rows);
    for (index, title) in columns.iter().enumerate() {
        let Some(column) = table.column_mut(index) else { continue };
        column.set_padding((0, 2));
        if title.starts_with('>') {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    table.lines().map(|line| format!("{}\n", line.trim_end())).collect()
}
