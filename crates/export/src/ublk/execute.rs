//! How requests are carried out on a volume.
//!
//! Always true: a request that was begun is finished. Must not know queues.

use reactor::Span;
use rustix::io::Errno;

use super::words::{Operation, Request};
use crate::{Volume, VolumeError, VolumeErrorKind};

/// Carries out a request whose data goes through `memory`. Gives the bytes that were moved, or an error's number, negative.
pub(super) async fn execute(volume: &impl Volume, request: &Request, memory: &Span) -> i32 {
    match attempt(volume, request, memory).await {
        Ok(bytes) => bytes,
        Err(errno) => -errno.raw_os_error(),
    }
}

async fn attempt(volume: &impl Volume, request: &Request, memory: &Span) -> Result<i32, Errno> {
    let Request { operation, durable, offset, length } = *request;
    let done = match operation {
        Operation::Flush => volume.flush().await.map(|()| 0),
        // Nothing is asked for: kernels do not.
        _ if length == 0 => Ok(0),
        Operation::Read | Operation::Write => {
            // What moves fits into the memory that the kernel was given: it has promised.
            let fits = usize::try_from(length).ok().filter(|bytes| *bytes <= memory.len());
            let bytes = fits.ok_or(Errno::INVAL)?;
            let (moved, span) = (i32::try_from(bytes).map_err(|_| Errno::INVAL)?, memory.slice(0..bytes));
            match operation {
                Operation::Read => volume.read(offset, &span).await,
                _ => volume.write(offset, &span).await,
            }
            .map(|()| moved)
        }
        Operation::Discard => volume.discard(offset, length).await.map(|()| 0),
        Operation::WriteZeroes => volume.write_zeroes(offset, length).await.map(|()| 0),
        Operation::Other(_) => return Err(Errno::OPNOTSUPP),
    };
    let done = match done {
        Ok(moved) if durable && !matches!(operation, Operation::Flush | Operation::Read) => {
            volume.flush().await.map(|()| moved)
        }
        done => done,
    };
    done.map_err(|error| number(&error))
}

/// What whoever uses the device is told.
fn number(error: &VolumeError) -> Errno {
    tracing::debug!(%error, "a request failed");
    match error.kind() {
        VolumeErrorKind::NoSpace => Errno::NOSPC,
        VolumeErrorKind::Invalid => Errno::INVAL,
        VolumeErrorKind::ReadOnly => Errno::ROFS,
        VolumeErrorKind::Io | VolumeErrorKind::Closed => Errno::IO,
    }
}
