//! The ring: its setup, submission and completion.
//!
//! Invariants: no entry is lost when a queue is full; the caller of `push` keeps the entry's
//! memory. Does not know operations.
#![allow(unsafe_code)]

use std::collections::VecDeque;
use std::io;
use std::os::fd::RawFd;
use std::time::Duration;

use io_uring::types::{SubmitArgs, Timespec};
use io_uring::{Builder, EnterFlags, IoUring, cqueue, opcode, squeue};
use rustix::io::Errno;
use smallvec::SmallVec;

/// Completions reaped together.
pub(crate) type Batch = SmallVec<[Completion; 64]>;

/// A completion of an entry, possibly one of several.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Completion {
    /// The entry's `user_data`.
    pub(crate) mark: u64,
    /// A count, or a negative errno.
    pub(crate) result: i32,
    /// True if the same entry will complete again.
    pub(crate) more: bool,
}

/// Entries submitted together. A longer batch costs less time per entry, but the kernel delays the
/// drive until it has prepared all of them: reads at depth 32 from a drive that completes in bursts
/// were a fifth slower without a limit, and an eighth slower with a limit of 16.
const SUBMIT_BATCH: usize = 4;

/// The time limit of a wait in [`Ring::enter`].
#[derive(Clone, Copy, Debug)]
pub(crate) enum EnterWait {
    /// Do not wait.
    No,
    /// Wait until something completes.
    Forever,
    /// Wait until something completes or this much time has passed.
    For(Duration),
}

/// A ring used by one thread.
pub(crate) struct Ring {
    ring: IoUring,
    /// Entries that did not fit into the submission queue.
    backlog: VecDeque<squeue::Entry>,
    /// Excludes an idle wait from I/O wait time, on kernels that support it.
    idle_flag: EnterFlags,
}

/// Configures the setup flags of a ring.
pub(super) type Setup = fn(&mut Builder);

/// Setups by kernel version, best first: 6.6, 6.1, 5.19, 5.18, older.
pub(super) const SETUPS: [Setup; 5] = [
    |builder| {
        builder.setup_no_sqarray().setup_single_issuer().setup_defer_taskrun();
        builder.setup_taskrun_flag().setup_submit_all();
    },
    |builder| {
        builder.setup_single_issuer().setup_defer_taskrun().setup_taskrun_flag().setup_submit_all();
    },
    |builder| {
        builder.setup_coop_taskrun().setup_taskrun_flag().setup_submit_all();
    },
    |builder| {
        builder.setup_submit_all();
    },
    |_| {},
];

impl Ring {
    /// Returns a ring with a submission queue of `entries` entries.
    ///
    /// # Errors
    /// If the kernel lacks io_uring, refuses it, or is too old for timed waits.
    pub(crate) fn open(entries: u32) -> io::Result<Self> {
        Self::open_with(entries, &SETUPS)
    }

    /// Like [`Ring::open`], with the first of `setups` that the kernel supports.
    pub(super) fn open_with(entries: u32, setups: &[Setup]) -> io::Result<Self> {
        let ring = build(entries, setups)?;
        if !ring.params().is_feature_nodrop() || !ring.params().is_feature_ext_arg() {
            return Err(Errno::NOSYS.into());
        }
        let idle_flag = match ring.params().is_feature_no_iowait() {
            true => EnterFlags::NO_IOWAIT,
            false => EnterFlags::empty(),
        };
        let mut ring = Self { ring, backlog: VecDeque::new(), idle_flag };
        ring.probe()?;
        Ok(ring)
    }

    /// Submits one no-op: a sandbox may permit the setup and refuse the rest.
    fn probe(&mut self) -> io::Result<()> {
        // SAFETY: a no-op names no memory.
        unsafe { self.push(opcode::Nop::new().build()) };
        while let Err(error) = self.ring.submit_and_wait(1) {
            if error.kind() != io::ErrorKind::Interrupted {
                return Err(error);
            }
        }
        match self.ring.completion().next() {
            Some(_) => Ok(()),
            None => Err(Errno::NOSYS.into()),
        }
    }

    /// Queues an entry, which is submitted with the next [`Ring::enter`] or when enough entries are
    /// queued.
    ///
    /// # Safety
    /// The memory that the entry names stays valid until its last completion has been reaped.
    pub(crate) unsafe fn push(&mut self, entry: squeue::Entry) {
        if self.backlog.is_empty() {
            // SAFETY: the caller's promise.
            let pushed = unsafe { self.ring.submission().push(&entry) }.is_ok();
            if !pushed || self.ring.submission().len() >= SUBMIT_BATCH {
                self.enter(EnterWait::No, false);
            }
            if pushed {
                return;
            }
            // SAFETY: the caller's promise.
            if unsafe { self.ring.submission().push(&entry) }.is_ok() {
                return;
            }
        }
        self.backlog.push_back(entry);
    }

    /// True if entries are queued for submission.
    pub(crate) fn has_queued(&mut self) -> bool {
        !self.backlog.is_empty() || !self.ring.submission().is_empty()
    }

    /// True if the kernel has completions to post on the next enter.
    pub(crate) fn has_unposted_completions(&mut self) -> bool {
        let queue = self.ring.submission();
        queue.taskrun() || queue.cq_overflow()
    }

    /// Submits queued entries, lets the kernel post completions, and waits. `idle` means that no
    /// drive operation is in flight: the wait does not count as I/O wait.
    pub(crate) fn enter(&mut self, wait: EnterWait, idle: bool) {
        while !self.backlog.is_empty() {
            if !self.refill() {
                break;
            }
            self.call(EnterWait::No, idle);
        }
        self.call(wait, idle);
    }

    /// Moves entries from the backlog to the queue while there is room. True if any moved.
    fn refill(&mut self) -> bool {
        let mut moved = false;
        while let Some(entry) = self.backlog.front() {
            // SAFETY: promised to `push`, which put it here.
            if unsafe { self.ring.submission().push(entry) }.is_err() {
                return moved;
            }
            self.backlog.pop_front();
            moved = true;
        }
        moved
    }

    fn call(&mut self, wait: EnterWait, idle: bool) {
        let queued = self.ring.submission().len() as u32;
        let timeout;
        let (args, wanted) = match wait {
            EnterWait::No => (SubmitArgs::new(), 0),
            EnterWait::Forever => (SubmitArgs::new(), 1),
            EnterWait::For(length) => {
                timeout = Timespec::from(length);
                (SubmitArgs::new().timespec(&timeout), 1)
            }
        };
        let mut flags = EnterFlags::GETEVENTS | EnterFlags::EXT_ARG;
        if idle && wanted > 0 {
            flags |= self.idle_flag;
        }
        // SAFETY: the arguments live until the call returns; the entries' memory is promised to
        // `push`.
        let result = unsafe { self.ring.submitter().enter(queued, wanted, flags.bits(), Some(&args)) };
        if let Err(error) = result {
            check_enter_error(&error);
        }
    }

    /// Reaps completions, as many as are available and fit.
    pub(crate) fn take(&mut self, into: &mut Batch) {
        let mut queue = self.ring.completion();
        while into.len() < into.inline_size() {
            let Some(entry) = queue.next() else { return };
            let more = cqueue::more(entry.flags());
            into.push(Completion { mark: entry.user_data(), result: entry.result(), more });
        }
    }

    /// Registers an empty file table. False if the kernel refuses.
    pub(crate) fn register_table(&self, slots: u32) -> bool {
        self.ring.submitter().register_files_sparse(slots).is_ok()
    }

    /// Registers `fd` in the table, or clears the slot with -1. True on success.
    pub(crate) fn register_file(&self, slot: u32, fd: RawFd) -> bool {
        self.ring.submitter().register_files_update(slot, &[fd]).is_ok()
    }

    /// Unregisters the file table now, not when the kernel drops the ring.
    pub(crate) fn unregister_table(&self) {
        // Fails only if there is no table.
        let _ = self.ring.submitter().unregister_files();
    }
}

/// Builds a ring with the first of `setups` that the kernel supports.
fn build(entries: u32, setups: &[Setup]) -> io::Result<IoUring> {
    let mut refusal = Errno::NOSYS.into();
    for setup in setups {
        let mut builder = IoUring::builder();
        builder.dontfork().setup_clamp().setup_cqsize(entries.saturating_mul(4));
        setup(&mut builder);
        match builder.build(entries) {
            Err(error) if error.raw_os_error() == Some(Errno::INVAL.raw_os_error()) => refusal = error,
            result => return result,
        }
    }
    Err(refusal)
}

/// Ignores errors of an enter that are not failures.
fn check_enter_error(error: &io::Error) {
    match error.raw_os_error().map(Errno::from_raw_os_error) {
        // A timeout, a signal, or the kernel wants completions reaped first.
        Some(Errno::TIME | Errno::INTR | Errno::AGAIN | Errno::BUSY) => {}
        _ => panic!("io_uring_enter failed: {error}"),
    }
}
