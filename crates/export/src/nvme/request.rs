//! A command in execution, and its place in the order of its queue.

use std::rc::Rc;

use super::fused::FusedPair;
use super::wire::NvmeCommand;
use crate::transport::{Charge, Payload};

/// A command that waits for its data.
pub(super) struct PendingCommand {
    pub(super) command: NvmeCommand,
    /// Released once the response has been sent.
    pub(super) charge: Charge,
    /// The pair that the command is executed with.
    pub(super) pair: Option<Rc<FusedPair>>,
}

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
