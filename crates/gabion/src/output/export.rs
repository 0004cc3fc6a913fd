//! Formatting of exports.

use api::types::{Export, ExportState};

use super::table::table;

/// Formats exports as a table.
pub(crate) fn exports(exports: &[Export]) -> String {
    if exports.is_empty() {
        return "no exports; 'gabion export create POOL/VOLUME --nbd' creates one (also --vhost-user, --fuse, --ublk)"
            .into();
    }
    let row = |export: &Export| {
        let state = match (export.state, &export.reason) {
            (ExportState::Active, _) => "active".to_owned(),
            (ExportState::Waiting, Some(reason)) => format!("waiting: {reason}"),
            (ExportState::Waiting, None) => "waiting".to_owned(),
        };
        vec![
            format!("{}/{}", export.pool, export.volume),
            export.id.clone(),
            access(export),
            export.connections.to_string(),
            state,
            export.uris.join(" "),
        ]
    };
    table(&["VOLUME", "ID", "ACCESS", ">CLIENTS", "STATE", "URI"], exports.iter().map(row))
}

fn access(export: &Export) -> String {
    let access = if export.read_only { "read-only" } else { "read-write" };
    if export.shared { format!("{access}, shared") } else { access.to_owned() }
}
