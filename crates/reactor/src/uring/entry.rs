//! Translates operations into submission entries.
//!
//! Invariant: an entry names only memory that the operation's spans or its [`Scratch`] keep. Does
//! not know when entries are submitted.

use std::os::fd::{AsFd, AsRawFd};

use io_uring::squeue::{Entry, Flags};
use io_uring::types::{Fd, FsyncFlags};
use io_uring::{opcode, types};
use rustix::fs::FallocateFlags;
use rustix::net::{RecvFlags, SendFlags, SocketFlags};

use crate::iovec::{Iovec, SpanCursor};
use crate::operation::{Allocate, Allocation, Direction, Operation, SocketTransfer, Transfer};
use crate::target::Target;

/// `BLOCK_URING_CMD_DISCARD`: `_IO(0x12, 0)`.
const DISCARD_COMMAND: u32 = 0x1200;

/// The list that an entry points to, at a fixed address while it is in flight.
pub(super) type Scratch = Option<Box<GatherList>>;

/// The iovecs of a scatter-gather operation, and the message header for sockets.
pub(super) struct GatherList {
    runs: Box<[Iovec]>,
    header: MsgHeader,
}

/// The kernel's `struct user_msghdr`.
#[repr(C)]
struct MsgHeader {
    name: *mut u8,
    name_len: i32,
    runs: *const Iovec,
    runs_len: usize,
    control: *mut u8,
    control_len: usize,
    flags: u32,
}

impl GatherList {
    fn new(cursor: &SpanCursor) -> Box<Self> {
        let runs: Box<[Iovec]> = cursor.iovecs().as_slice().into();
        let header = MsgHeader {
            name: std::ptr::null_mut(),
            name_len: 0,
            runs: runs.as_ptr(),
            runs_len: runs.len(),
            control: std::ptr::null_mut(),
            control_len: 0,
            flags: 0,
        };
        Box::new(Self { runs, header })
    }
}

/// Returns the entry of an operation. `scratch` must stay in place until the entry completes.
pub(super) fn entry(target: &Target, operation: &Operation, scratch: &mut Scratch) -> Entry {
    let slot = match target {
        Target::File(bound) => bound.slot.as_ref(),
        Target::Descriptor(_) => None,
    };
    match slot {
        Some(slot) => build(Fd(slot.index as i32), operation, scratch).flags(Flags::FIXED_FILE),
        None => build(Fd(target.as_fd().as_raw_fd()), operation, scratch),
    }
}

fn build(fd: Fd, operation: &Operation, scratch: &mut Scratch) -> Entry {
    match operation {
        Operation::Transfer(transfer) => build_transfer(fd, transfer, scratch),
        Operation::SocketTransfer(transfer) => build_socket_transfer(fd, transfer, scratch),
        Operation::Sync => opcode::Fsync::new(fd).flags(FsyncFlags::DATASYNC).build(),
        Operation::Allocate(allocate) => build_allocate(fd, allocate),
        Operation::Accept(_) => {
            let flags = SocketFlags::CLOEXEC.bits() as i32;
            opcode::Accept::new(fd, std::ptr::null_mut(), std::ptr::null_mut()).flags(flags).build()
        }
        Operation::Poll(events) => opcode::PollAdd::new(fd, events.bits().into()).build(),
        Operation::Command(command) => opcode::UringCmd16::new(fd, command.number).cmd(command.words).build(),
    }
}

fn build_transfer(fd: Fd, transfer: &Transfer, scratch: &mut Scratch) -> Entry {
    let position = transfer.position();
    if let Some((start, len)) = transfer.cursor.single() {
        return match transfer.direction {
            Direction::In => opcode::Read::new(fd, start, len).offset(position).build(),
            Direction::Out => opcode::Write::new(fd, start, len).offset(position).build(),
        };
    }
    let list = scratch.insert(GatherList::new(&transfer.cursor));
    let (runs, len) = (list.runs.as_ptr().cast(), list.runs.len() as u32);
    match transfer.direction {
        Direction::In => opcode::Readv::new(fd, runs, len).offset(position).build(),
        Direction::Out => opcode::Writev::new(fd, runs, len).offset(position).build(),
    }
}

fn build_socket_transfer(fd: Fd, transfer: &SocketTransfer, scratch: &mut Scratch) -> Entry {
    let receive = if transfer.whole { RecvFlags::WAITALL } else { RecvFlags::empty() }.bits();
    // io_uring treats MSG_WAITALL on a send like on a receive: complete only when all bytes are
    // moved.
    let send = SendFlags::NOSIGNAL.bits() | receive;
    if let Some((start, len)) = transfer.cursor.single() {
        return match transfer.direction {
            Direction::In => opcode::Recv::new(fd, start, len).flags(receive as i32).build(),
            Direction::Out => opcode::Send::new(fd, start, len).flags(send as i32).build(),
        };
    }
    let list = scratch.insert(GatherList::new(&transfer.cursor));
    let header: *mut MsgHeader = &mut list.header;
    match transfer.direction {
        Direction::In => opcode::RecvMsg::new(fd, header.cast()).flags(receive).build(),
        Direction::Out => opcode::SendMsg::new(fd, header.cast()).flags(send).build(),
    }
}

fn build_allocate(fd: Fd, allocate: &Allocate) -> Entry {
    let mode = match allocate.action {
        Allocation::Discard => return build_discard(fd, allocate),
        Allocation::Reserve => FallocateFlags::KEEP_SIZE,
        Allocation::Punch => FallocateFlags::KEEP_SIZE | FallocateFlags::PUNCH_HOLE,
    };
    let mode = mode.bits() as i32;
    opcode::Fallocate::new(fd, allocate.length).offset(allocate.offset).mode(mode).build()
}

fn build_discard(fd: Fd, allocate: &Allocate) -> Entry {
    let mut command = [0; 16];
    #[allow(clippy::host_endian_bytes, reason = "the kernel reads a number of this machine")]
    let length = allocate.length.to_ne_bytes();
    command.as_mut_slice().split_at_mut(length.len()).0.copy_from_slice(&length);
    opcode::UringCmd16::new(fd, DISCARD_COMMAND).cmd(command).addr(Some(allocate.offset)).build()
}

/// Returns the entry that cancels another one.
pub(super) fn cancel(mark: u64) -> Entry {
    opcode::AsyncCancel::new(mark).build()
}

/// Returns the multishot entry that completes whenever `fd` becomes readable.
pub(super) fn watch(fd: &impl AsFd) -> Entry {
    let events = rustix::event::PollFlags::IN.bits().into();
    opcode::PollAdd::new(types::Fd(fd.as_fd().as_raw_fd()), events).multi(true).build()
}
