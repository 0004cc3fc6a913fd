//! The hidden volume of a pool as the device of its object store: I/O from any thread, which blocks
//! except for long reads of bodies.
//!
//! Requests run on the reactors of the volume's shards, in turns. Always true: a buffer belongs to
//! one operation until that has completed. Short reads and writes use a buffer that their caller
//! allocates, drops and recycles; long reads use one of a list of all threads, because a connection
//! drops it elsewhere. A volume only reads the memory of a write, so bytes that others share are
//! written from where they are.
#![allow(unsafe_code)]

use std::fmt;
use std::future::Future;
use std::io;
use std::ops::Range;
use std::rc::Rc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};

use bytes::Bytes;
use engine::{AttachedVolume, ErrorKind};
use object::{BlockVolume, PIECE_BYTES, VolumeRead};
use reactor::{Buffer, Handle, Reactor, Span};
use tokio::sync::oneshot;

use super::read_buffers::ReadBuffers;
use crate::error::{Error, ErrorKind as Kind, Result};

/// The alignment of reads in bytes.
const BLOCK: u64 = 4096;
/// Shorter ranges are copied from a buffer that the caller recycles.
const READ_BUFFER_MIN: usize = 64 << 10;
/// The largest write of one operation in bytes.
const WRITE_MAX: usize = 1 << 20;

/// A volume of a pool, as the object store uses it.
pub(super) struct PoolBlocks {
    volume: engine::Volume,
    attached: Vec<Handle<AttachedVolume>>,
    next: AtomicUsize,
    buffers: ReadBuffers,
}

impl fmt::Debug for PoolBlocks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PoolBlocks").field("volume", &self.volume.name()).finish_non_exhaustive()
    }
}

impl PoolBlocks {
    /// Attaches a volume to its reactors.
    ///
    /// # Errors
    /// When the reactors are shut down.
    pub(super) async fn attach(volume: engine::Volume) -> Result<Self> {
        let mut attached = Vec::new();
        for remote in volume.reactors() {
            let volume = volume.clone();
            let register =
                move || async move { Handle::register(&Reactor::current(), Rc::new(volume.attach())) };
            attached.push(remote.call(register).await?);
        }
        if attached.is_empty() {
            return Err(Error::new(Kind::Internal, "the volume of objects has no reactors"));
        }
        Ok(Self { volume, attached, next: AtomicUsize::new(0), buffers: ReadBuffers::default() })
    }

    /// Begins an operation on the next reactor, which calls `done` with its result. A reactor that
    /// is shut down drops `done`.
    fn begin<T, F>(
        &self,
        done: impl FnOnce(io::Result<T>) + Send + 'static,
        work: impl FnOnce(Rc<AttachedVolume>) -> F + Send + 'static,
    ) where
        T: Send + 'static,
        F: Future<Output = engine::Result<T>> + 'static,
    {
        let turn = self.next.fetch_add(1, Ordering::Relaxed);
        let Some(handle) = self.attached.get(turn % self.attached.len().max(1)).cloned() else { return };
        let remote = handle.remote().clone();
        // A reactor that has shut down drops the job.
        let _ = remote.post(move || {
            let Some(volume) = handle.local() else { return };
            let work = work(volume);
            let task = async move { done(work.await.map_err(convert)) };
            Reactor::current().spawn(task).detach();
        });
    }

    fn run<T, F>(&self, work: impl FnOnce(Rc<AttachedVolume>) -> F + Send + 'static) -> io::Result<T>
    where
        T: Send + 'static,
        F: Future<Output = engine::Result<T>> + 'static,
    {
        let (sender, receiver) = channel();
        self.begin(send_to(sender), work);
        receiver.recv().map_err(|_| closed())?
    }

    /// Reads `length` bytes from `start` on, whole blocks, to the front of a buffer.
    fn read_blocks(&self, start: u64, buffer: Buffer, length: usize) -> io::Result<Buffer> {
        self.run(move |volume| async move {
            volume.read(start, &buffer.span().slice(0..length)).await?;
            Ok(buffer)
        })
    }
}

/// Returns the first byte and the length of the blocks that hold a range, and the range in them.
fn whole_blocks(offset: u64, length: usize) -> io::Result<(u64, usize, Range<usize>)> {
    let start = offset / BLOCK * BLOCK;
    let end = (offset + length as u64).next_multiple_of(BLOCK);
    let blocks = usize::try_from(end - start).map_err(io::Error::other)?;
    let skip = usize::try_from(offset - start).map_err(io::Error::other)?;
    Ok((start, blocks, skip..skip + length))
}

impl BlockVolume for PoolBlocks {
    fn size(&self) -> u64 {
        self.volume.size()
    }

    fn read(&self, offset: u64, into: &mut [u8]) -> io::Result<()> {
        let (start, length, wanted) = whole_blocks(offset, into.len())?;
        let buffer = self.read_blocks(start, Buffer::new(length), length)?;
        into.copy_from_slice(buffer.as_slice().get(wanted).ok_or_else(closed)?);
        Ok(())
    }

    fn read_bytes(&self, offset: u64, length: usize) -> io::Result<Bytes> {
        let (start, blocks, wanted) = whole_blocks(offset, length)?;
        if length < READ_BUFFER_MIN || blocks > PIECE_BYTES {
            let mut bytes = vec![0; length];
            self.read(offset, &mut bytes)?;
            return Ok(bytes.into());
        }
        let buffer = self.read_blocks(start, self.buffers.take(), blocks)?;
        Ok(self.buffers.piece(buffer, wanted))
    }

    fn begin_read(&self, offset: u64, length: usize) -> Option<VolumeRead> {
        let (start, blocks, wanted) = whole_blocks(offset, length).ok()?;
        if length < READ_BUFFER_MIN || blocks > PIECE_BYTES {
            return None;
        }
        let (sender, receiver) = oneshot::channel();
        let (buffer, buffers) = (self.buffers.take(), self.buffers.clone());
        // The client may have disconnected.
        let done = |result| drop(sender.send(result));
        self.begin(done, move |volume| async move {
            volume.read(start, &buffer.span().slice(0..blocks)).await?;
            Ok(buffers.piece(buffer, wanted))
        });
        Some(Box::pin(async move { receiver.await.map_err(|_| closed())? }))
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        let buffer = Buffer::copy_of(data);
        let buffer = self.run(move |volume| write(volume, offset, buffer))?;
        drop(buffer);
        Ok(())
    }

    fn write_bytes(&self, offset: u64, data: Bytes) -> io::Result<()> {
        let span = span_of(data);
        self.run(move |volume| async move { volume.write(offset, &span).await })
    }

    fn write_many(&self, writes: Vec<(u64, Vec<u8>)>) -> io::Result<()> {
        let (sender, receiver) = channel();
        let mut begun = 0;
        for (offset, data) in writes {
            let data = Bytes::from(data);
            for start in (0..data.len()).step_by(WRITE_MAX) {
                let end = data.len().min(start + WRITE_MAX);
                let (at, span) = (offset + start as u64, span_of(data.slice(start..end)));
                self.begin(send_to(sender.clone()), move |volume| async move {
                    volume.write(at, &span).await?;
                    Ok(span)
                });
                begun += 1;
            }
        }
        drop(sender);
        wait_for_all(&receiver, begun)
    }

    fn flush(&self) -> io::Result<()> {
        self.run(|volume| async move { volume.flush().await })
    }

    fn discard(&self, offset: u64, length: u64) -> io::Result<()> {
        self.run(move |volume| async move { volume.discard(offset, length).await })
    }
}

impl Drop for PoolBlocks {
    fn drop(&mut self) {
        for handle in self.attached.drain(..) {
            let remote = handle.remote().clone();
            // A reactor that has shut down has dropped its objects.
            let _ = remote.post(move || handle.unregister());
        }
    }
}

/// Returns a function that sends a result to a receiver, which waits for all results.
fn send_to<T>(sender: Sender<io::Result<T>>) -> impl FnOnce(io::Result<T>) {
    move |result| drop(sender.send(result))
}

/// Returns a handle to bytes that are written.
fn span_of(data: Bytes) -> Span {
    // SAFETY: bytes are immutable and stay in place. The engine reads the payload of a write, once,
    // and never changes it.
    unsafe { Span::for_reading(data) }
}

/// Writes a buffer and returns it.
async fn write(volume: Rc<AttachedVolume>, offset: u64, buffer: Buffer) -> engine::Result<Buffer> {
    volume.write(offset, &buffer.span()).await?;
    Ok(buffer)
}

/// Waits for the results of `begun` operations, also after an error: none may be in flight when
/// this returns.
///
/// # Errors
/// The first error; when an operation was dropped without a result, so that it may not have run.
fn wait_for_all<T>(results: &Receiver<io::Result<T>>, begun: usize) -> io::Result<()> {
    let results: Vec<io::Result<T>> = results.iter().collect();
    let ended = results.len();
    results.into_iter().collect::<io::Result<Vec<T>>>()?;
    if ended == begun { Ok(()) } else { Err(closed()) }
}

fn closed() -> io::Error {
    io::Error::other("the pool was closed")
}

fn convert(error: engine::Error) -> io::Error {
    let kind = match error.kind() {
        ErrorKind::NoSpace => io::ErrorKind::StorageFull,
        _ => io::ErrorKind::Other,
    };
    io::Error::new(kind, error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_read_as_whole_blocks() {
        assert_eq!(whole_blocks(0, 4096).unwrap(), (0, 4096, 0..4096));
        assert_eq!(whole_blocks(4095, 2).unwrap(), (0, 8192, 4095..4097));
        assert_eq!(whole_blocks(8192 + 1, 1 << 20).unwrap(), (8192, (1 << 20) + 4096, 1..(1 << 20) + 1));
    }

    #[test]
    fn a_write_without_a_result_is_an_error() {
        let wait = |results: Vec<io::Result<()>>, begun| {
            let (sender, receiver) = channel();
            results.into_iter().for_each(|result| sender.send(result).unwrap());
            drop(sender);
            wait_for_all(&receiver, begun)
        };
        wait(vec![Ok(()), Ok(())], 2).unwrap();
        assert!(wait(vec![Ok(())], 2).is_err(), "the sender of one write was dropped");
        assert!(wait(vec![], 1).is_err());
        let full = wait(vec![Err(io::ErrorKind::StorageFull.into()), Ok(())], 2).unwrap_err();
        assert_eq!(full.kind(), io::ErrorKind::StorageFull);
    }
}
