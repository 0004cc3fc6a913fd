//! Formatting of operations.

use api::types::{Operation, OperationState};

use super::table::table;
use super::time::format_duration;

/// Formats operations as a table.
pub(crate) fn operations(operations: &[Operation]) -> String {
    if operations.is_empty() {
        return "no operations since the start of the daemon".into();
    }
    let row = |operation: &Operation| {
        vec![
            operation.id.to_string(),
            operation.kind.to_string(),
            operation.target.clone(),
            format_duration(operation.seconds),
            state(operation),
        ]
    };
    table(&[">N", "OPERATION", "TARGET", ">TIME", "STATE"], operations.iter().map(row))
}

/// Formats an operation that has ended.
pub(crate) fn operation(operation: &Operation) -> String {
    let Operation { kind, target, .. } = operation;
    format!("{kind} {target}: {}, {}", state(operation), format_duration(operation.seconds))
}

fn state(operation: &Operation) -> String {
    let percent = match (operation.done, operation.total) {
        (Some(done), Some(total)) if total > 0 => {
            format!(", {} %", u128::from(done) * 100 / u128::from(total))
        }
        _ => String::new(),
    };
    match (operation.state, &operation.error) {
        (OperationState::Running, _) => format!("{}{percent}", operation.step),
        (OperationState::Succeeded, _) => "succeeded".into(),
        (OperationState::Cancelled, _) => "cancelled".into(),
        (OperationState::Failed, Some(error)) => format!("failed: {error}"),
        (OperationState::Failed, None) => "failed".into(),
    }
}
