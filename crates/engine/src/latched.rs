//! A drive with a volatile cache, as all of a pool's users share it: once a flush of it has failed, none succeeds any more.
//!
//! Several flush the same drive: each shard for its log and for its repair, and the control for the superblocks. What a failed flush was
//! for may be lost, whoever wrote it, and the drive, or the system above it, tells one caller only: the next flush succeeds, with nothing
//! left to write. So whoever is told latches the drive for all of them (promise 4).
//!
//! Always true: of flushes on one reactor none that ends after a failed one succeeds. Another reactor sees the latch as soon as the
//! failure has reached the one that asked. A drive that joins anew is another one here. Must not know: what drives are for.

use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use reactor::{
    Drive, DriveProperties, Io, IoError, IoErrorKind, IoResult, Reactor, Span, Window, Writable, completion,
};

use crate::pool::DriveSource;

/// A source of which all openings share the latch.
struct LatchedSource {
    source: Arc<dyn DriveSource>,
    failed: Arc<AtomicBool>,
}

struct LatchedDrive {
    drive: Rc<dyn Drive>,
    failed: Arc<AtomicBool>,
}

/// The drive for the users of one pool. Where writes are durable once they are completed, there is nothing to latch.
pub(crate) fn latched(source: Arc<dyn DriveSource>) -> Arc<dyn DriveSource> {
    Arc::new(LatchedSource { source, failed: Arc::default() })
}

impl DriveSource for LatchedSource {
    fn open(&self) -> Rc<dyn Drive> {
        let drive = self.source.open();
        if !drive.properties().volatile_cache {
            return drive;
        }
        Rc::new(LatchedDrive { drive, failed: self.failed.clone() })
    }

    fn path(&self) -> String {
        self.source.path()
    }
}

/// What a flush has come to that ended with `result`.
fn latch_result(failed: &AtomicBool, result: IoResult) -> IoResult {
    if result.is_err() {
        failed.store(true, Ordering::Release);
    }
    if result.is_ok() && failed.load(Ordering::Acquire) {
        return Err(IoError::new(IoErrorKind::Medium));
    }
    result
}

impl Drive for LatchedDrive {
    fn properties(&self) -> DriveProperties {
        self.drive.properties()
    }

    fn read(&self, offset: u64, into: &[Span]) -> Io {
        self.drive.read(offset, into)
    }

    fn write(&self, offset: u64, from: &[Span]) -> Io {
        self.drive.write(offset, from)
    }

    fn flush(&self) -> Io {
        let flush = self.drive.flush();
        let failed = self.failed.clone();
        let (completer, io) = completion();
        // A task of its own: whoever flushes several drives looks at this one's answer when its turn comes.
        let ends = async move { completer.complete(latch_result(&failed, flush.await)) };
        Reactor::current().spawn(ends).detach();
        io
    }

    fn discard(&self, offset: u64, length: u64) -> Io {
        self.drive.discard(offset, length)
    }

    fn expect_read(&self, offset: u64, length: usize) {
        self.drive.expect_read(offset, length);
    }

    fn window(&self, offset: u64, length: usize) -> Option<Window<'_>> {
        self.drive.window(offset, length)
    }

    fn writable(&self, offset: u64, length: usize) -> Option<Writable<'_>> {
        self.drive.writable(offset, length)
    }

    fn reserve(&self, offset: u64, length: u64) -> Io {
        self.drive.reserve(offset, length)
    }
}

#[cfg(test)]
#[path = "latched_tests.rs"]
mod tests;
