//! A command that waits for its data, and the pair that it belongs to.

use std::rc::Rc;

use super::fused::FusedPair;
use super::wire::NvmeCommand;
use crate::transport::Charge;

/// A command that waits for its data.
pub(super) struct PendingCommand {
    pub(super) command: NvmeCommand,
    /// Released once the response has been sent.
    pub(super) charge: Charge,
    /// The pair that the command is executed with.
    pub(super) pair: Option<Rc<FusedPair>>,
}
