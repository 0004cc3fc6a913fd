//! Tables of tokens, contexts and the audit log.

use api::types::{AuditRecord, Token};

use super::table::table;
use super::time::utc;
use crate::contexts::{ContextFile, NamedContext};

/// Formats tokens as a table.
pub(crate) fn tokens(tokens: &[Token]) -> String {
    if tokens.is_empty() {
        return "no tokens; 'gabion token create NAME --role viewer' creates one".into();
    }
    let row = |token: &Token| {
        let Token { id, name, role, created, expires, last_used } = token.clone();
        let expires = expires.map_or("never".to_owned(), utc);
        let last_used = last_used.map_or("-".to_owned(), utc);
        vec![id, name, role.to_string(), utc(created), expires, last_used]
    };
    table(&["ID", "NAME", "ROLE", "CREATED", "EXPIRES", "LAST USED"], tokens.iter().map(row))
}

/// Formats records of the audit log as a table.
pub(crate) fn audit(records: &[AuditRecord]) -> String {
    if records.is_empty() {
        return "no requests have changed anything".into();
    }
    let row = |record: &AuditRecord| {
        let AuditRecord { time, client, address, role, method, path, status, detail, operation, result } =
            record.clone();
        let role = role.map_or("-".to_owned(), |role| role.to_string());
        let address = address.unwrap_or_else(|| "-".to_owned());
        let operation = operation.map(|number| format!("operation {number}"));
        let detail: Vec<String> = [detail, operation, result].into_iter().flatten().collect();
        vec![utc(time), client, role, address, method, path, status.to_string(), detail.join(" ")]
    };
    let head = ["TIME", "CLIENT", "ROLE", "ADDRESS", "METHOD", "PATH", ">STATUS", "DETAIL"];
    table(&head, records.iter().map(row))
}

/// Formats contexts as a table; the current one has a star.
pub(crate) fn contexts(file: &ContextFile) -> String {
    let is_current = |name: &str| if file.current.as_deref() == Some(name) { "*" } else { "" }.to_owned();
    let local = if file.current.is_none() { "*" } else { "" }.to_owned();
    let local = vec![local, "local".into(), "the daemon of this host".into(), "-".into()];
    let row = |(name, context): (&String, &NamedContext)| {
        let token = context.token_file.clone().unwrap_or_else(|| "-".to_owned());
        vec![is_current(name), name.clone(), context.server.clone(), token]
    };
    let rows = std::iter::once(local).chain(file.contexts.iter().map(row));
    table(&["", "NAME", "SERVER", "TOKEN FILE"], rows)
}
