//! A queue of a device on its reactor: the kernel's request descriptors, the data buffers, and the
//! commands that fetch and complete requests.
//!
//! Owns all unsafe code for a device's memory. Always true: a request is read only between the
//! command that announced it and the command that completes it. Memory with an address known to the
//! kernel stays mapped until the device has released it.
#![allow(unsafe_code)]

use std::ffi::c_void;
use std::io;
use std::os::fd::OwnedFd;
use std::ptr::NonNull;
use std::rc::Rc;
use std::sync::Arc;

use reactor::{IoError, IoErrorKind, Platform, Span};
use rustix::mm::{Advice, MapFlags, ProtFlags};

use super::uapi::{self, DeviceInfo, QUEUE_STRIDE, REQUEST_BYTES, UblkRequest};

const PAGE: usize = 4096;

/// The source of a queue's requests and the destination of their results.
pub(super) trait RequestChannel {
    /// Completes the tag's request, if there is one, and fetches the next. The result is submitted
    /// when this returns.
    ///
    /// # Errors
    /// Fails if there will be no more requests.
    fn commit_and_fetch(
        &self,
        tag: u16,
        completion: Option<i32>,
    ) -> impl Future<Output = Result<UblkRequest, DeviceGone>> + use<Self>;

    /// Returns the data buffer of a tag.
    fn memory(&self, tag: u16) -> Span;
}

/// The device has no more requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct DeviceGone;

/// A queue of a ublk device.
#[derive(Clone)]
pub(super) struct DeviceQueue {
    inner: Rc<DeviceQueueState>,
}

struct DeviceQueueState {
    platform: Rc<Platform>,
    device: Arc<OwnedFd>,
    queue: u16,
    requests: DeviceMapping,
    data: Span,
    request_bytes_max: usize,
}

/// Mapped pages, owned by this value.
struct DeviceMapping {
    start: NonNull<c_void>,
    len: usize,
}

// SAFETY: an address range that belongs to this value, which offers nothing but the address.
unsafe impl Send for DeviceMapping {}
// SAFETY: as above.
unsafe impl Sync for DeviceMapping {}

impl Drop for DeviceMapping {
    fn drop(&mut self) {
        // SAFETY: the pages belong to this mapping, and the owner of their address is dropped with
        // it.
        let _ = unsafe { rustix::mm::munmap(self.start.as_ptr(), self.len) };
    }
}

impl DeviceMapping {
    fn of_requests(device: &OwnedFd, queue: u16, depth: u16) -> io::Result<Self> {
        let len = (usize::from(depth) * REQUEST_BYTES).next_multiple_of(PAGE);
        let at = u64::from(queue) * QUEUE_STRIDE;
        // SAFETY: a new mapping at an address that the kernel chooses overlaps nothing.
        let start = unsafe {
            rustix::mm::mmap(std::ptr::null_mut(), len, ProtFlags::READ, MapFlags::SHARED, device, at)?
        };
        Self::new(start, len)
    }

    fn of_memory(len: usize) -> io::Result<Self> {
        let len = len.next_multiple_of(PAGE);
        let (prot, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE | MapFlags::NORESERVE);
        // SAFETY: as above.
        let start = unsafe { rustix::mm::mmap_anonymous(std::ptr::null_mut(), len, prot, flags)? };
        // Excludes the data from core dumps. Kernels without core dumps refuse this.
        // SAFETY: advice about the pages that were just mapped.
        let _ = unsafe { rustix::mm::madvise(start, len, Advice::LinuxDontDump) };
        Self::new(start, len)
    }

    fn new(start: *mut c_void, len: usize) -> io::Result<Self> {
        let start = NonNull::new(start)
            .ok_or_else(|| io::Error::other("the kernel mapped the range at address 0"))?;
        Ok(Self { start, len })
    }
}

impl DeviceQueue {
    /// Opens a queue of a device for this thread's reactor, which alone may use it.
    ///
    /// # Errors
    /// Fails if memory is exhausted.
    pub(super) fn open(
        platform: Rc<Platform>,
        device: Arc<OwnedFd>,
        queue: u16,
        info: &DeviceInfo,
    ) -> io::Result<Self> {
        let requests = DeviceMapping::of_requests(&device, queue, info.depth)?;
        let request_bytes_max = info.request_bytes_max as usize;
        let len = usize::from(info.depth) * request_bytes_max;
        let memory = DeviceMapping::of_memory(len)?;
        // SAFETY: initialised memory of this length, which the mapping keeps.
        let data = unsafe { Span::from_raw(memory.start.cast(), len, Arc::new(memory)) };
        let inner = DeviceQueueState { platform, device, queue, requests, data, request_bytes_max };
        Ok(Self { inner: Rc::new(inner) })
    }
}

impl DeviceQueueState {
    /// Reads the request descriptor of a tag.
    fn request(&self, tag: u16) -> UblkRequest {
        let at = usize::from(tag) * REQUEST_BYTES;
        assert!(at + REQUEST_BYTES <= self.requests.len, "tag {tag} is beyond the queue");
        let mut bytes = [0; REQUEST_BYTES];
        // SAFETY: within the mapping. The kernel wrote it before it announced the request, and does
        // not access it before the request is completed.
        unsafe {
            let from = self.requests.start.cast::<u8>().as_ptr().add(at);
            std::ptr::copy_nonoverlapping(from, bytes.as_mut_ptr(), REQUEST_BYTES);
        }
        UblkRequest::decode(&bytes)
    }
}

impl RequestChannel for DeviceQueue {
    fn commit_and_fetch(
        &self,
        tag: u16,
        completion: Option<i32>,
    ) -> impl Future<Output = Result<UblkRequest, DeviceGone>> + use<> {
        let inner = self.inner.clone();
        let memory = self.memory(tag);
        let (number, result) = match completion {
            None => (uapi::FETCH, 0),
            Some(result) => (uapi::COMMIT_AND_FETCH, result),
        };
        let uapi = uapi::io_command(inner.queue, tag, result, memory.as_ptr() as u64);
        // SAFETY: the kernel transfers up to the maximum request size to or from the address, which
        // is the length of the span.
        let io = unsafe { inner.platform.command(&inner.device, number, uapi, Some(memory)) };
        async move {
            match io.await {
                Ok(_) => Ok(inner.request(tag)),
                Err(error) => Err(gone(inner.queue, tag, error)),
            }
        }
    }

    fn memory(&self, tag: u16) -> Span {
        let start = usize::from(tag) * self.inner.request_bytes_max;
        self.inner.data.slice(start..start + self.inner.request_bytes_max)
    }
}

fn gone(queue: u16, tag: u16, error: IoError) -> DeviceGone {
    if !matches!(error.kind(), IoErrorKind::Gone | IoErrorKind::Closed) {
        tracing::error!(queue, tag, %error, "the kernel delivers no more requests");
    }
    DeviceGone
}
