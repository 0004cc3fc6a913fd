//! A drive with a volatile cache and a failure latch: once a flush has failed, no later flush
//! succeeds.
//!
//! Several parts of a pool flush the same drive: each shard for its log and for its repair, and the
//! control for the superblocks. A failed flush may lose the writes of all of them, but the drive,
//! or the operating system, reports it to one caller only: the next flush succeeds, with nothing
//! left to write. So the first failure latches the drive for all callers (promise 4).
//!
//! Always true: on one reactor, no flush that completes after a failed one succeeds. Another
//! reactor sees the latch as soon as the failure was delivered to its caller. A drive that rejoins
//! the pool has a new latch. Must not know: the use of a drive.

use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use reactor::{Drive, DriveProperties, Io, IoError, IoErrorKind, IoResult, Reactor, Span, completion};

use crate::drive_source::DriveSource;

/// A drive source; all drives opened from it share the latch.
struct LatchedSource {
    source: Arc<dyn DriveSource>,
    failed: Arc<AtomicBool>,
}

struct LatchedDrive {
    drive: Rc<dyn Drive>,
    failed: Arc<AtomicBool>,
}

/// Returns `source` with a failure latch. Drives whose writes are durable at completion need none.
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

/// Sets the latch if a flush failed, and returns the result that its caller gets.
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
        // In a separate task, because a caller that flushes several drives may await this one late.
        let ends = async move { completer.complete(latch_result(&failed, flush.await)) };
        Reactor::current().spawn(ends).detach();
        io
    }

    fn discard(&self, offset: u64, length: u64) -> Io {
        self.drive.discard(offset, length)
    }

    fn reserve(&self, offset: u64, length: u64) -> Io {
        self.drive.reserve(offset, length)
    }
}

#[cfg(test)]
#[path = "latched_tests.rs"]
mod tests;
