//! Fused operations: a compare and a write that are executed as one atomic command.
//!
//! The two commands follow each other in their queue, but their data may arrive in any order.
//!
//! Always true: the commands of a pair are executed together, or neither is; a command that is
//! fused with none is aborted. Must not know volumes.

use std::cell::RefCell;
use std::rc::Rc;

use super::opcodes::opcode;
use super::request::ReadyRequest;
use super::wire::{Fuse, NvmeCommand, NvmeStatus};

/// A compare and the write that follows it, as far as their data has arrived.
#[derive(Default)]
pub(super) struct FusedPair {
    state: RefCell<PairState>,
}

#[derive(Default)]
struct PairState {
    compare: Option<ReadyRequest>,
    write: Option<ReadyRequest>,
    /// The status of a pair that failed before it was complete.
    failed: Option<NvmeStatus>,
}

/// The next step after the data of a fused command has arrived.
pub(super) enum FusedStep {
    /// The data of the other command is missing.
    Wait,
    /// Both commands are complete: compare, then write.
    Execute(ReadyRequest, ReadyRequest),
    /// The pair has failed; the command is aborted with this status.
    Abort(ReadyRequest, NvmeStatus),
}

impl FusedPair {
    /// Adds a command whose data is complete.
    pub(super) fn put(&self, request: ReadyRequest) -> FusedStep {
        let mut state = self.state.borrow_mut();
        if let Some(status) = state.failed {
            return FusedStep::Abort(request, status);
        }
        match request.command.fuse() {
            Fuse::First => state.compare = Some(request),
            _ => state.write = Some(request),
        }
        match (state.compare.take(), state.write.take()) {
            (Some(compare), Some(write)) => FusedStep::Execute(compare, write),
            (compare, write) => {
                (state.compare, state.write) = (compare, write);
                FusedStep::Wait
            }
        }
    }

    /// Aborts the pair: a command that arrives later gets `status`. Returns the command that has
    /// arrived.
    pub(super) fn fail(&self, status: NvmeStatus) -> Option<ReadyRequest> {
        let mut state = self.state.borrow_mut();
        state.failed = Some(status);
        state.compare.take().or(state.write.take())
    }
}

/// The fused command of a queue whose partner has not been received.
#[derive(Default)]
pub(super) struct FusedOrder {
    first: RefCell<Option<Rc<FusedPair>>>,
}

/// The place of a received command among fused commands.
pub(super) struct FusedPlace {
    /// The pair of the command; none for a command that is not fused.
    pub(super) pair: Result<Option<Rc<FusedPair>>, NvmeStatus>,
    /// An earlier command that has lost its partner.
    pub(super) orphan: Option<Rc<FusedPair>>,
}

impl FusedOrder {
    /// Assigns a command, in the order of its queue.
    pub(super) fn place(&self, command: &NvmeCommand) -> FusedPlace {
        let first = self.first.take();
        match (command.fuse(), first) {
            (Fuse::None, orphan) => FusedPlace { pair: Ok(None), orphan },
            (Fuse::First, orphan) => {
                let pair = Rc::new(FusedPair::default());
                if command.opcode() != opcode::COMPARE {
                    return FusedPlace { pair: Err(NvmeStatus::INVALID_FIELD), orphan };
                }
                self.first.replace(Some(pair.clone()));
                FusedPlace { pair: Ok(Some(pair)), orphan }
            }
            (Fuse::Second, Some(pair)) if command.opcode() == opcode::WRITE => {
                FusedPlace { pair: Ok(Some(pair)), orphan: None }
            }
            (Fuse::Second, orphan) => FusedPlace { pair: Err(NvmeStatus::MISSING_FUSED), orphan },
            (Fuse::Reserved, orphan) => FusedPlace { pair: Err(NvmeStatus::INVALID_FIELD), orphan },
        }
    }

    /// Forgets a command whose partner will not arrive.
    pub(super) fn clear(&self) {
        let forgotten = self.first.take();
        drop(forgotten);
    }
}
