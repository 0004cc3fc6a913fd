//! Memory of reads that were answered: nobody writes into it any more, whatever the answer was.
//!
//! As a client would, the run uses it for something else, and looks whether that stays.

use std::cell::RefCell;
use std::collections::VecDeque;

use reactor::Buffer;

/// Buffers that are watched at a time.
const WATCHED_MAX: usize = 32;
/// What the reader uses the memory for.
const REUSED: u8 = 0xA5;

/// See the module.
#[derive(Default)]
pub(crate) struct AnsweredReads(RefCell<VecDeque<(String, Buffer)>>);

impl AnsweredReads {
    /// Watches the memory of `read` from its answer on. Gives what is wrong with memory that was watched before.
    pub(crate) fn watch(&self, read: String, buffer: Buffer) -> Result<(), String> {
        // Through a span: an operation may still hold another one, which is what this is about.
        buffer.span().copy_from(0, &vec![REUSED; buffer.len()]);
        self.0.borrow_mut().push_back((read, buffer));
        let oldest = if self.0.borrow().len() > WATCHED_MAX { self.0.borrow_mut().pop_front() } else { None };
        oldest.map_or(Ok(()), |(read, buffer)| check(&read, &buffer))
    }

    /// Gives what is wrong with the memory that is watched, and watches on.
    pub(crate) fn check(&self) -> Result<(), String> {
        self.0.borrow().iter().try_for_each(|(read, buffer)| check(read, buffer))
    }
}

fn check(read: &str, buffer: &Buffer) -> Result<(), String> {
    let changed = buffer.span().peek(|bytes| bytes.iter().position(|byte| *byte != REUSED));
    match changed {
        None => Ok(()),
        Some(at) => Err(format!("{read}: byte {at} of its memory was written after the answer")),
    }
}
