//! The ring itself: how it is set up, how entries go in and completions come out.
//!
//! Always true: no entry is lost, whatever room the queues have; an entry's memory is its pusher's to keep. Knows
//! nothing of operations.
#![allow(unsafe_code)]

use std::collections::VecDeque;
use std::io;
use std::os::fd::RawFd;
use std::time::Duration;

use io_uring::types::{SubmitArgs, Timespec};
use io_uring::{Builder, EnterFlags, IoUring, cqueue, opcode, squeue};
use rustix::io::Errno;
use smallvec::SmallVec;

/// Completions taken out at once.
pub(crate) type Batch = SmallVec<[Completion; 64]>;

/// The end of an entry, or one of several signs of life.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Completion {
    /// What the entry was marked with.
    pub(crate) mark: u64,
    /// A count, or a negative errno.
    pub(crate) result: i32,
    /// True if the same entry will complete again.
    pub(crate) more: bool,
}

/// Entries handed over together. A longer batch costs less time per entry, but the kernel keeps a drive waiting until
/// it has prepared all of them: reads at depth 32 from a drive that answers in bursts were a fifth slower without a
/// limit, and an eighth slower with a limit of 16.
const SUBMIT_BATCH: usize = 4;

/// How long [`Ring::enter`] stays in the kernel.
#[derive(Clone, Copy, Debug)]
pub(crate) enum EnterWait {
    /// As long as handing over takes.
    No,
    /// Until something completes.
    Forever,
    /// Until something completes or this much time has passed.
    For(Duration),
}

/// A ring used by one thread.
pub(crate) struct Ring {
    ring: IoUring,
    /// Entries that the full submission queue had no room for.
    backlog: VecDeque<squeue::Entry>,
    /// Keeps an idle wait from being counted as waiting for a drive, where the kernel can tell.
    idle_flag: EnterFlags,
}

/// Chooses what a ring is to be set up with.
pub(super) type Setup = fn(&mut Builder);

/// What a kernel may offer, best first: 6.6, 6.1, 5.19, 5.18, older.
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
    /// A ring with room for `entries` entries between two visits to the kernel.
    ///
    /// # Errors
    /// When the kernel has no io_uring, refuses it, or has one too old to sleep in.
    pub(crate) fn open(entries: u32) -> io::Result<Self> {
        Self::open_with(entries, &SETUPS)
    }

    /// As [`Ring::open`], with the first of `setups` that the kernel knows.
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

    /// Sends one empty entry around: a sandbox may allow the set-up and nothing after it.
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

    /// Queues an entry, which goes to the kernel with the next [`Ring::enter`] or when enough of them are queued.
    ///
    /// # Safety
    /// The memory that the entry names stays valid until its last completion has been taken.
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

    /// True if entries wait to be handed over.
    pub(crate) fn has_queued(&mut self) -> bool {
        !self.backlog.is_empty() || !self.ring.submission().is_empty()
    }

    /// True if completions wait in the kernel for a visit.
    pub(crate) fn has_unposted_completions(&mut self) -> bool {
        let queue = self.ring.submission();
        queue.taskrun() || queue.cq_overflow()
    }

    /// Hands over what is queued, lets the kernel post completions, and waits. `idle` says that no drive is waited for:
    /// the wait is not to be counted as one for I/O.
    pub(crate) fn enter(&mut self, wait: EnterWait, idle: bool) {
        while !self.backlog.is_empty() {
            if !self.refill() {
                break;
            }
            self.call(EnterWait::No, idle);
        }
        self.call(wait, idle);
    }

    /// Moves the backlog into the queue as far as there is room. True if any of it moved.
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
        // SAFETY: the arguments live until the call returns; the entries' memory is promised to `push`.
        let result = unsafe { self.ring.submitter().enter(queued, wanted, flags.bits(), Some(&args)) };
        if let Err(error) = result {
            check_enter_error(&error);
        }
    }

    /// Takes completions out, as many as are there and fit.
    pub(crate) fn take(&mut self, into: &mut Batch) {
        let mut queue = self.ring.completion();
        while into.len() < into.inline_size() {
            let Some(entry) = queue.next() else { return };
            let more = cqueue::more(entry.flags());
            into.push(Completion { mark: entry.user_data(), result: entry.result(), more });
        }
    }

    /// Makes an empty table of files, or says that there is none.
    pub(crate) fn register_table(&self, slots: u32) -> bool {
        self.ring.submitter().register_files_sparse(slots).is_ok()
    }

    /// Puts `fd` into the table, or -1 to empty the slot. True if that worked.
    pub(crate) fn register_file(&self, slot: u32, fd: RawFd) -> bool {
        self.ring.submitter().register_files_update(slot, &[fd]).is_ok()
    }

    /// Gives up the table of files: now, not when the kernel gets round to it.
    pub(crate) fn unregister_table(&self) {
        // Fails only if there is none.
        let _ = self.ring.submitter().unregister_files();
    }
}

/// A ring with the first of `setups` that the kernel knows.
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

/// Passes over what is no failure of a visit to the kernel.
fn check_enter_error(error: &io::Error) {
    match error.raw_os_error().map(Errno::from_raw_os_error) {
        // The time is up, a signal came, or the kernel wants completions taken out first.
        Some(Errno::TIME | Errno::INTR | Errno::AGAIN | Errno::BUSY) => {}
        _ => panic!("the kernel refused to run the ring: {error}"),
    }
}
