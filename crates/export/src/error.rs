//! Reasons why a volume cannot be exported, or an export cannot be stopped.

/// The reason why a volume cannot be exported, for control flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ExportErrorKind {
    /// The options are invalid.
    Invalid,
    /// The name or place is taken.
    Exists,
    /// Another process serves there, or the export is in use.
    Busy,
    /// The system does not permit it, or lacks it.
    Denied,
    /// The system reported an error.
    Io,
    /// The daemon is shutting down.
    ShuttingDown,
    /// A bug.
    Internal,
}

/// A volume that cannot be exported, or an export that cannot be stopped.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct ExportError {
    kind: ExportErrorKind,
    message: String,
    hint: Option<String>,
}

impl ExportError {
    /// An error with a message that names the export, file or device.
    pub fn new(kind: ExportErrorKind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into(), hint: None }
    }

    /// The same error with advice on how to resolve it.
    #[must_use]
    pub fn hint(self, hint: impl Into<String>) -> Self {
        Self { hint: Some(hint.into()), ..self }
    }

    /// The kind, for control flow.
    pub fn kind(&self) -> ExportErrorKind {
        self.kind
    }

    /// Advice on how to resolve it, if any is known.
    pub fn hint_text(&self) -> Option<&str> {
        self.hint.as_deref()
    }
}

impl From<reactor::ReactorGone> for ExportError {
    fn from(_: reactor::ReactorGone) -> Self {
        Self::new(ExportErrorKind::ShuttingDown, "the daemon is shutting down")
    }
}
