//! A command in execution, and its place in the order of its queue.

use super::wire::NvmeCommand;
use crate::transport::{Charge, Payload};

/// Data from the host, and the charge for its memory.
pub(super) struct RequestData {
    pub(super) payload: Payload,
    /// Released once the data is no longer needed.
    pub(super) _charge: Option<Charge>,
}

/// A command with its data.
pub(super) struct ReadyRequest {
    pub(super) command: NvmeCommand,
    pub(super) charge: Charge,
    pub(super) data: Option<RequestData>,
}
