//! Records of requests for the audit log.
//!
//! Invariants: of a body only the fields in [`SHOWN`] are recorded, none of which is a secret; a
//! request that starts an operation has a second record with the result of the operation.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use api::types::{AuditRecord, Identity, OperationState};
use axum::http::Method;
use axum::response::Response;
use serde_json::Value;

use super::sender::Sender;
use crate::services::Services;
use crate::unix_time::unix_time;

/// Fields of bodies that are recorded.
const SHOWN: [&str; 35] = [
    "name",
    "pool",
    "volume",
    "path",
    "file",
    "drives",
    "scheme",
    "level",
    "shards",
    "wipe",
    "size",
    "thick",
    "sector",
    "shrink",
    "format",
    "replace",
    "force",
    "forget",
    "degraded",
    "accept_stale",
    "protocol",
    "read_only",
    "shared",
    "owner",
    "bandwidth",
    "iops",
    "weight",
    "paused",
    "rate_limit",
    "every",
    "listen",
    "role",
    "expires_in",
    "quota",
    "user",
];
/// Longest text of a body in a record, in characters.
const DETAIL_MAX: usize = 1000;
/// Interval at which the end of an operation is looked for.
const OPERATION_WAIT: Duration = Duration::from_secs(3600);

/// The recorded fields of the body of a request, which the extractor of the body sets.
#[derive(Clone, Debug, Default)]
pub(super) struct AuditNote(Arc<Mutex<Option<String>>>);

impl AuditNote {
    /// Takes the fields of a body. A body that is no JSON object has none.
    pub(super) fn set(&self, body: &[u8]) {
        if let Ok(Value::Object(fields)) = serde_json::from_slice(body) {
            let shown = SHOWN.iter().filter_map(|name| Some(format!("{name}={}", text(fields.get(*name)?)?)));
            let detail = shown.collect::<Vec<_>>().join(" ");
            let detail: String = detail.chars().take(DETAIL_MAX).collect();
            *self.0.lock().unwrap_or_else(PoisonError::into_inner) = (!detail.is_empty()).then_some(detail);
        }
    }

    fn get(&self) -> Option<String> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// Returns a value in one line; `None` for an absent one and for objects.
fn text(value: &Value) -> Option<String> {
    match value {
        Value::Null | Value::Object(_) => None,
        Value::Array(values) if values.is_empty() => None,
        Value::String(text) => Some(crate::request::shown(text)),
        Value::Array(values) => Some(values.iter().filter_map(text).collect::<Vec<_>>().join(",")),
        other => Some(other.to_string()),
    }
}

/// The number of the operation that a request started, as an extension of the response.
#[derive(Clone, Copy, Debug)]
pub(super) struct StartedOperation(pub(super) u64);

/// A request for the audit log.
pub(super) struct AuditedRequest {
    pub(super) method: Method,
    pub(super) path: String,
    pub(super) sender: Sender,
    pub(super) note: AuditNote,
}

impl AuditedRequest {
    /// Records the request with its response. Records the end of an operation that it started.
    pub(super) fn record(self, services: &Arc<Services>, identity: Identity, response: &Response) {
        let operation = response.extensions().get::<StartedOperation>().map(|started| started.0);
        let record = AuditRecord {
            time: unix_time(),
            client: identity.name,
            address: self.sender.address().map(|address| address.to_string()),
            role: Some(identity.role),
            method: self.method.to_string(),
            path: crate::request::shown(&self.path),
            status: response.status().as_u16(),
            detail: self.note.get(),
            operation,
            result: None,
        };
        services.access.record(&record);
        if let Some(operation) = operation {
            tokio::spawn(record_end(services.clone(), record, operation));
        }
    }
}

/// Waits for the end of an operation and records its result.
async fn record_end(services: Arc<Services>, started: AuditRecord, operation: u64) {
    let result = loop {
        let Ok(operation) = services.operations.wait(operation, u64::MAX, OPERATION_WAIT).await else {
            return;
        };
        let state = match operation.state {
            OperationState::Running => continue,
            OperationState::Succeeded => "succeeded",
            OperationState::Failed => "failed",
            OperationState::Cancelled => "cancelled",
        };
        break operation.error.map_or(state.to_owned(), |error| format!("{state}: {error}"));
    };
    services.access.record(&AuditRecord { time: unix_time(), result: Some(result), ..started });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_named_fields_are_recorded() {
        let note = |body: &str| {
            let note = AuditNote::default();
            note.set(body.as_bytes());
            note.get()
        };
        assert_eq!(
            note(r#"{"name":"fast","drives":["/dev/a","/dev/b"],"wipe":true,"files":{"x":1},"level":null}"#),
            Some("name=fast drives=/dev/a,/dev/b wipe=true".into())
        );
        assert_eq!(note(r#"{"token":"gabion_0_secret"}"#), None);
        assert_eq!(note(r#"{"name":"a\nb"}"#), Some("name=a\\nb".into()));
        assert_eq!((note(""), note("[1]"), note("{")), (None, None, None));
        assert_eq!(note(&format!(r#"{{"name":"{}"}}"#, "x".repeat(5000))).unwrap().len(), 260);
    }
}
