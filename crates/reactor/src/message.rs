//! The messages that other threads send to a reactor.

use std::sync::Arc;

/// A message from another thread to a reactor.
pub(crate) enum RemoteMessage {
    Job(Box<dyn FnOnce() + Send>),
    Call(RequestMsg),
    Reply(ReplyMsg),
}

/// A request on its way to the called reactor. Dropping it fails the call.
pub(crate) struct RequestMsg(pub(crate) Option<Arc<dyn Callee>>);

/// A reply on its way to the calling reactor. Dropping it wakes the caller.
pub(crate) struct ReplyMsg(pub(crate) Arc<dyn CallEnd>);

/// The called side of a call.
pub(crate) trait Callee: CallEnd {
    /// Runs the work of the call.
    fn run(self: Arc<Self>);
}

/// A call, for messages that end it.
pub(crate) trait CallEnd: Send + Sync {
    /// Ends the call without a reply.
    fn fail(self: Arc<Self>);
    /// Wakes the caller.
    fn wake(&self);
}

impl RequestMsg {
    /// Runs the work. Called on the called reactor.
    pub(crate) fn run(mut self) {
        if let Some(call) = self.0.take() {
            call.run();
        }
    }
}

impl Drop for RequestMsg {
    fn drop(&mut self) {
        if let Some(call) = self.0.take() {
            call.fail();
        }
    }
}

impl Drop for ReplyMsg {
    fn drop(&mut self) {
        self.0.wake();
    }
}
