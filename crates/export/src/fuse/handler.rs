//! The requests of the kernel: received on a thread of their own, executed on the file's reactor.
//!
//! Always true: each request is answered exactly once; the requests in flight are within the
//! limits. Must not know where the file is mounted, how a volume stores data.

use std::cell::Cell;
use std::future::Future;
use std::io;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use fuser::{
    BsdFileFlags, Errno, FileAttr, FileHandle, FileType, Filesystem, FopenFlags, INodeNo, InitFlags,
    IoctlFlags, KernelConfig, LockOwner, OpenFlags, ReplyAttr, ReplyData, ReplyEmpty, ReplyIoctl, ReplyLseek,
    ReplyOpen, ReplyStatfs, ReplyWrite, ReplyXattr, Request, TimeOrNow, WriteFlags,
};
use reactor::{Buffer, Handle, Reactor};
use rustix::fs::{FallocateFlags, OFlags};

use super::file::{SeekTarget, VolumeFile};
use super::limits::{ATTRIBUTES_SECONDS, BACKGROUND_MAX, REQUEST_BYTES_MAX};
use super::open_count::OpenCount;
use super::request_limiter::RequestLimiter;
use crate::poll_then_spawn::poll_then_spawn;
use crate::{Volume, VolumeError, VolumeErrorKind};

/// The only file.
pub(super) const FILE: INodeNo = INodeNo::ROOT;
/// Bytes of the kernel's unit of space.
const UNIT: u64 = 512;
/// Preferred size of reads and writes in bytes.
const PREFERRED: u32 = 4096;
/// `SEEK_DATA` and `SEEK_HOLE` of lseek(2).
const SEEK_DATA: i32 = 3;
const SEEK_HOLE: i32 = 4;

/// The handler of one mount.
pub(super) struct FuseHandler<V: Volume + 'static> {
    pub(super) file: Handle<VolumeFile<V>>,
    pub(super) credit: Arc<RequestLimiter>,
    pub(super) opens: Arc<OpenCount>,
    pub(super) read_only: bool,
    /// All timestamps of the file.
    pub(super) since: SystemTime,
}

impl<V: Volume + 'static> FuseHandler<V> {
    /// Executes a request on the file's reactor. If it cannot be executed, its reply is dropped,
    /// which answers with an error.
    fn begin<F: Future<Output = ()> + 'static>(
        &self,
        bytes: usize,
        work: impl FnOnce(Rc<VolumeFile<V>>) -> F + Send + 'static,
    ) {
        mark_thread();
        let (charge, handle) = (self.credit.take(bytes), self.file.clone());
        let job = move || {
            let Some(file) = handle.local() else { return };
            let work = work(file);
            poll_then_spawn(&Reactor::current(), async move {
                work.await;
                drop(charge);
            });
        };
        // A reactor that has shut down drops the job.
        let _ = self.file.remote().post(job);
    }

    fn attributes(&self) -> impl FnOnce(u64) -> FileAttr + Send + use<V> {
        let (since, perm) = (self.since, if self.read_only { 0o400 } else { 0o600 });
        move |size| FileAttr {
            ino: FILE,
            size,
            blocks: size / UNIT,
            atime: since,
            mtime: since,
            ctime: since,
            crtime: since,
            kind: FileType::RegularFile,
            perm,
            nlink: 1,
            uid: rustix::process::geteuid().as_raw(),
            gid: rustix::process::getegid().as_raw(),
            rdev: 0,
            blksize: PREFERRED,
            flags: 0,
        }
    }

    fn reply_attributes(&self, reply: ReplyAttr) {
        let attributes = self.attributes();
        self.begin(0, |file| async move {
            reply.attr(&Duration::from_secs(ATTRIBUTES_SECONDS), &attributes(file.size()));
        });
    }
}

impl<V: Volume + 'static> Filesystem for FuseHandler<V> {
    fn init(&mut self, _: &Request, config: &mut KernelConfig) -> io::Result<()> {
        // An error suggests the nearest supported value, which is good enough.
        let _ = config.set_max_write(REQUEST_BYTES_MAX);
        let _ = config.set_max_background(BACKGROUND_MAX);
        let wanted = InitFlags::FUSE_ASYNC_DIO & config.capabilities();
        config.add_capabilities(wanted).map_err(|_| io::Error::from(io::ErrorKind::Unsupported))
    }

    fn getattr(&self, _: &Request, _: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        self.reply_attributes(reply);
    }

    fn setattr(
        &self,
        _: &Request,
        _: INodeNo,
        mode: Option<u32>,
        uid: Option<u32>,
        gid: Option<u32>,
        size: Option<u64>,
        _: Option<TimeOrNow>,
        _: Option<TimeOrNow>,
        _: Option<SystemTime>,
        _: Option<FileHandle>,
        _: Option<SystemTime>,
        _: Option<SystemTime>,
        _: Option<SystemTime>,
        _: Option<BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        // The size is that of the volume. Timestamps are ignored.
        if mode.is_some() || uid.is_some() || gid.is_some() || size.is_some() {
            return reply.error(Errno::EPERM);
        }
        self.reply_attributes(reply);
    }

    fn open(&self, _: &Request, _: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        if !self.opens.add() {
            return reply.error(Errno::ENODEV);
        }
        // The kernel caches nothing: completed writes are visible to other users of the volume.
        let flags = FopenFlags::FOPEN_DIRECT_IO
            | FopenFlags::FOPEN_NOFLUSH
            | FopenFlags::FOPEN_PARALLEL_DIRECT_WRITES;
        reply.opened(FileHandle(0), flags);
    }

    fn release(
        &self,
        _: &Request,
        _: INodeNo,
        _: FileHandle,
        _: OpenFlags,
        _: Option<LockOwner>,
        _: bool,
        reply: ReplyEmpty,
    ) {
        self.opens.remove();
        reply.ok();
    }

    fn flush(&self, _: &Request, _: INodeNo, _: FileHandle, _: LockOwner, reply: ReplyEmpty) {
        // A close gives no guarantee.
        reply.ok();
    }

    fn read(
        &self,
        _: &Request,
        _: INodeNo,
        _: FileHandle,
        offset: u64,
        size: u32,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        self.begin(size as usize, move |file| async move {
            match file.read(offset, size).await {
                Ok(content) => reply.data(content.bytes()),
                Err(error) => reply.error(number(&error)),
            }
        });
    }

    fn write(
        &self,
        _: &Request,
        _: INodeNo,
        _: FileHandle,
        offset: u64,
        data: &[u8],
        _: WriteFlags,
        flags: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        let data = Buffer::copy_of(data);
        let durable = OFlags::from_bits_retain(flags.0.cast_unsigned()).contains(OFlags::DSYNC);
        self.begin(data.len(), move |file| async move {
            let done = match file.write(offset, &data.span()).await {
                Ok(written) if durable => file.flush().await.map(|()| written),
                done => done,
            };
            match done {
                Ok(written) => reply.written(u32::try_from(written).unwrap_or(u32::MAX)),
                Err(error) => reply.error(number(&error)),
            }
        });
    }

    fn fsync(&self, _: &Request, _: INodeNo, _: FileHandle, _: bool, reply: ReplyEmpty) {
        self.begin(0, |file| async move { answer(file.flush().await, reply) });
    }

    fn fallocate(
        &self,
        _: &Request,
        _: INodeNo,
        _: FileHandle,
        offset: u64,
        length: u64,
        mode: i32,
        reply: ReplyEmpty,
    ) {
        let mode = FallocateFlags::from_bits_retain(mode.cast_unsigned());
        let zeroed = mode.intersects(FallocateFlags::PUNCH_HOLE | FallocateFlags::ZERO_RANGE);
        let known = FallocateFlags::PUNCH_HOLE | FallocateFlags::ZERO_RANGE | FallocateFlags::KEEP_SIZE;
        if !zeroed || !known.contains(mode) {
            // Volumes are thin: space cannot be guaranteed.
            return reply.error(Errno::EOPNOTSUPP);
        }
        let keeps_size = mode.contains(FallocateFlags::KEEP_SIZE);
        self.begin(0, move |file| async move {
            if !keeps_size && offset.saturating_add(length) > file.size() {
                return reply.error(Errno::ENOSPC);
            }
            answer(file.zero(offset, length).await, reply);
        });
    }

    fn ioctl(
        &self,
        _: &Request,
        _: INodeNo,
        _: FileHandle,
        _: IoctlFlags,
        cmd: u32,
        _: &[u8],
        _: u32,
        reply: ReplyIoctl,
    ) {
        tracing::debug!("ioctl {cmd:#x} is not supported");
        reply.error(Errno::ENOTTY);
    }

    fn lseek(&self, _: &Request, _: INodeNo, _: FileHandle, offset: i64, whence: i32, reply: ReplyLseek) {
        let sought = match whence {
            SEEK_DATA => SeekTarget::Data,
            SEEK_HOLE => SeekTarget::Hole,
            _ => return reply.error(Errno::EINVAL),
        };
        let Ok(offset) = u64::try_from(offset) else { return reply.error(Errno::ENXIO) };
        self.begin(0, move |file| async move {
            match file.seek(offset, sought).await {
                Ok(Some(found)) => reply.offset(found.cast_signed()),
                Ok(None) => reply.error(Errno::ENXIO),
                Err(error) => reply.error(number(&error)),
            }
        });
    }

    fn statfs(&self, _: &Request, _: INodeNo, reply: ReplyStatfs) {
        self.begin(0, |file| async move {
            let blocks = file.size() / u64::from(PREFERRED);
            reply.statfs(blocks, 0, 0, 1, 0, PREFERRED, 0, PREFERRED);
        });
    }

    fn getxattr(&self, _: &Request, _: INodeNo, _: &std::ffi::OsStr, _: u32, reply: ReplyXattr) {
        // The kernel does not ask again.
        reply.error(Errno::ENOSYS);
    }

    fn listxattr(&self, _: &Request, _: INodeNo, _: u32, reply: ReplyXattr) {
        reply.error(Errno::ENOSYS);
    }
}

/// Marks this thread as part of the kernel's writeback path (PR_SET_IO_FLUSHER): its own
/// allocations must not wait for writeback to this file. Needs a privilege that processes which may
/// mount usually have.
fn mark_thread() {
    thread_local! {
        static MARKED: Cell<bool> = const { Cell::new(false) };
    }
    if !MARKED.replace(true) {
        let _ = rustix::process::configure_io_flusher_behavior(true);
    }
}

fn answer(done: Result<(), VolumeError>, reply: ReplyEmpty) {
    match done {
        Ok(()) => reply.ok(),
        Err(error) => reply.error(number(&error)),
    }
}

/// Returns the error number for the user of the file.
fn number(error: &VolumeError) -> Errno {
    tracing::debug!(%error, "request failed");
    match error.kind() {
        VolumeErrorKind::NoSpace => Errno::ENOSPC,
        VolumeErrorKind::Invalid => Errno::EINVAL,
        VolumeErrorKind::ReadOnly => Errno::EROFS,
        VolumeErrorKind::Io | VolumeErrorKind::Closed => Errno::EIO,
    }
}
