//! Executes requests on a volume.
//!
//! Always true: a request that has begun runs to its end. Must not know queues.

use reactor::Span;
use rustix::io::Errno;

use super::uapi::{UblkOperation, UblkRequest};
use crate::{Volume, VolumeError, VolumeErrorKind};

/// Executes a request with its data in `memory`. Returns the transferred bytes, or a negative error
/// number.
pub(super) async fn execute(volume: &impl Volume, request: &UblkRequest, memory: &Span) -> i32 {
    match attempt(volume, request, memory).await {
        Ok(bytes) => bytes,
        Err(errno) => -errno.raw_os_error(),
    }
}

async fn attempt(volume: &impl Volume, request: &UblkRequest, memory: &Span) -> Result<i32, Errno> {
    let UblkRequest { operation, durable, offset, length } = *request;
    let done = match operation {
        UblkOperation::Flush => volume.flush().await.map(|()| 0),
        // Kernels do not send empty requests.
        _ if length == 0 => Ok(0),
        UblkOperation::Read | UblkOperation::Write => {
            // The kernel keeps requests within the buffer size; this checks it.
            let fits = usize::try_from(length).ok().filter(|bytes| *bytes <= memory.len());
            let bytes = fits.ok_or(Errno::INVAL)?;
            let (moved, span) = (i32::try_from(bytes).map_err(|_| Errno::INVAL)?, memory.slice(0..bytes));
            match operation {
                UblkOperation::Read => volume.read(offset, &span).await,
                _ => volume.write(offset, &span).await,
            }
            .map(|()| moved)
        }
        UblkOperation::Discard => volume.discard(offset, length).await.map(|()| 0),
        UblkOperation::WriteZeroes => volume.write_zeroes(offset, length).await.map(|()| 0),
        UblkOperation::Other(_) => return Err(Errno::OPNOTSUPP),
    };
    let done = match done {
        Ok(moved) if durable && !matches!(operation, UblkOperation::Flush | UblkOperation::Read) => {
            volume.flush().await.map(|()| moved)
        }
        done => done,
    };
    done.map_err(|error| number(&error))
}

/// Returns the error number for the user of the device.
fn number(error: &VolumeError) -> Errno {
    tracing::debug!(%error, "a ublk request failed");
    match error.kind() {
        VolumeErrorKind::NoSpace => Errno::NOSPC,
        VolumeErrorKind::Invalid => Errno::INVAL,
        VolumeErrorKind::ReadOnly => Errno::ROFS,
        VolumeErrorKind::Io | VolumeErrorKind::Closed => Errno::IO,
    }
}
