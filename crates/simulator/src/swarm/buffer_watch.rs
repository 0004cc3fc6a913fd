//! Watches the buffers of completed reads: the engine must not write to them after the reply,
//! regardless of the result.
//!
//! Like a client, the run reuses the memory, and checks that its own bytes stay.

use std::cell::RefCell;
use std::collections::VecDeque;

use reactor::Buffer;

/// Maximum number of watched buffers.
const WATCHED_MAX: usize = 32;
/// The byte with which the reader overwrites its buffer.
const REUSED: u8 = 0xA5;

/// The buffers of the most recent completed reads.
#[derive(Default)]
pub(crate) struct BufferWatch(RefCell<VecDeque<(String, Buffer)>>);

impl BufferWatch {
    /// Watches the buffer of `read` from its completion on. Returns an error if the oldest watched
    /// buffer was modified.
    pub(crate) fn watch(&self, read: String, buffer: Buffer) -> Result<(), String> {
        // Copied through a span, because the engine may wrongly still hold another one.
        buffer.span().copy_from(0, &vec![REUSED; buffer.len()]);
        self.0.borrow_mut().push_back((read, buffer));
        let oldest = if self.0.borrow().len() > WATCHED_MAX { self.0.borrow_mut().pop_front() } else { None };
        oldest.map_or(Ok(()), |(read, buffer)| check(&read, &buffer))
    }

    /// Returns an error if a watched buffer was modified. The buffers stay watched.
    pub(crate) fn check(&self) -> Result<(), String> {
        self.0.borrow().iter().try_for_each(|(read, buffer)| check(read, buffer))
    }
}

fn check(read: &str, buffer: &Buffer) -> Result<(), String> {
    let changed = buffer.span().peek(|bytes| bytes.iter().position(|byte| *byte != REUSED));
    match changed {
        None => Ok(()),
        Some(at) => Err(format!("{read}: byte {at} of its buffer was written after completion")),
    }
}
