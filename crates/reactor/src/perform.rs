//! Runs an operation as a system call on the calling thread.
//!
//! Invariant: socket calls do not block; file calls may. Does not know threads and queues.
#![allow(unsafe_code)]

use std::os::fd::{AsFd, BorrowedFd, IntoRawFd};

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::fs::FallocateFlags;
use rustix::io::Errno;
use rustix::ioctl::{Setter, opcode};
use rustix::net::{
    RecvAncillaryBuffer, RecvFlags, SendAncillaryBuffer, SendFlags, SocketFlags, accept_with, recvmsg,
    sendmsg,
};

use crate::iovec::{as_mut_slices, as_slices};
use crate::operation::{Allocate, Allocation, Direction, Operation, SocketTransfer, Transfer};

/// `BLKDISCARD`.
const DISCARD: rustix::ioctl::Opcode = opcode::none(0x12, 119);

/// Runs as much of the operation as one system call does.
pub(crate) fn perform(fd: BorrowedFd<'_>, operation: &Operation) -> Result<usize, Errno> {
    match operation {
        Operation::Transfer(transfer) => perform_transfer(fd, transfer),
        Operation::Sync => rustix::fs::fdatasync(fd).map(|()| 0),
        Operation::Allocate(allocate) => perform_allocate(fd, allocate).map(|()| 0),
        Operation::SocketTransfer(transfer) => perform_socket_transfer(fd, transfer),
        Operation::Accept(_) => {
            let connection = accept_with(fd, SocketFlags::CLOEXEC)?;
            Ok(connection.into_raw_fd() as usize)
        }
        Operation::Poll(events) => perform_poll(fd, *events),
        Operation::Command(_) => Err(Errno::OPNOTSUPP),
    }
}

fn perform_transfer(fd: BorrowedFd<'_>, transfer: &Transfer) -> Result<usize, Errno> {
    let mut iovecs = transfer.cursor.iovecs();
    let position = transfer.position();
    match transfer.direction {
        Direction::In => rustix::io::preadv(fd, as_mut_slices(&mut iovecs), position),
        Direction::Out => rustix::io::pwritev(fd, as_slices(&iovecs), position),
    }
}

fn perform_allocate(fd: BorrowedFd<'_>, allocate: &Allocate) -> Result<(), Errno> {
    let mode = match allocate.action {
        Allocation::Discard => return discard(fd, allocate.offset, allocate.length),
        Allocation::Reserve => FallocateFlags::KEEP_SIZE,
        Allocation::Punch => FallocateFlags::KEEP_SIZE | FallocateFlags::PUNCH_HOLE,
    };
    rustix::fs::fallocate(fd, mode, allocate.offset, allocate.length)
}

fn discard(fd: BorrowedFd<'_>, offset: u64, length: u64) -> Result<(), Errno> {
    // SAFETY: BLKDISCARD takes a pointer to two 64-bit numbers, offset and length in bytes, and
    // only reads them.
    unsafe { rustix::ioctl::ioctl(fd, Setter::<DISCARD, [u64; 2]>::new([offset, length])) }
}

fn perform_socket_transfer(fd: BorrowedFd<'_>, transfer: &SocketTransfer) -> Result<usize, Errno> {
    let mut iovecs = transfer.cursor.iovecs();
    match transfer.direction {
        Direction::In => {
            let mut control = RecvAncillaryBuffer::default();
            Ok(recvmsg(fd, as_mut_slices(&mut iovecs), &mut control, RecvFlags::DONTWAIT)?.bytes)
        }
        Direction::Out => {
            let mut control = SendAncillaryBuffer::default();
            sendmsg(fd, as_slices(&iovecs), &mut control, SendFlags::DONTWAIT | SendFlags::NOSIGNAL)
        }
    }
}

fn perform_poll(fd: BorrowedFd<'_>, events: PollFlags) -> Result<usize, Errno> {
    let fd = fd.as_fd();
    let mut fds = [PollFd::new(&fd, events)];
    let no_wait = Timespec { tv_sec: 0, tv_nsec: 0 };
    match rustix::event::poll(&mut fds, Some(&no_wait))? {
        0 => Err(Errno::AGAIN),
        ready => Ok(ready),
    }
}
