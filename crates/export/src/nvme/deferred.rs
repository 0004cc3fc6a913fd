//! The commands of a queue that the volume defers, as for a rate limit: they can be aborted until
//! they begin.
//!
//! Always true: a command is reported as aborted only if it has not begun.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};

use crate::Stop;

/// The commands of a queue that wait for their beginning, by id.
#[derive(Default)]
pub(super) struct DeferredCommands {
    all: RefCell<BTreeMap<u16, Rc<AbortState>>>,
}

#[derive(Default)]
struct AbortState {
    /// Raised to abort the command.
    requested: Stop,
    is_aborted: Cell<bool>,
    /// Raised when the command has begun or was aborted.
    decided: Stop,
}

/// A command that waits: a future that completes when the command is to be aborted. It is dropped
/// when the command begins.
pub(super) struct AbortRequest {
    commands: Rc<DeferredCommands>,
    id: u16,
    state: Rc<AbortState>,
    requested: Pin<Box<dyn Future<Output = ()>>>,
}

impl DeferredCommands {
    /// Adds a command.
    pub(super) fn add(self: &Rc<Self>, id: u16) -> AbortRequest {
        let state = Rc::new(AbortState::default());
        self.all.borrow_mut().insert(id, state.clone());
        let requested = Box::pin(state.requested.raised());
        AbortRequest { commands: self.clone(), id, state, requested }
    }

    /// Aborts a command if it has not begun. Returns whether it was aborted; its response is
    /// queued then.
    pub(super) async fn abort(&self, id: u16) -> bool {
        let Some(state) = self.all.borrow().get(&id).cloned() else { return false };
        state.requested.raise();
        state.decided.raised().await;
        state.is_aborted.get()
    }
}

impl Future for AbortRequest {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let requested = self.requested.as_mut().poll(context);
        self.state.is_aborted.set(requested.is_ready());
        requested
    }
}

impl Drop for AbortRequest {
    fn drop(&mut self) {
        let mut all = self.commands.all.borrow_mut();
        // Another command may have the id, against the rules of the queue.
        if all.get(&self.id).is_some_and(|state| Rc::ptr_eq(state, &self.state)) {
            all.remove(&self.id);
        }
        self.state.decided.raise();
    }
}
