//! Survives the removal of shared memory by a front end. A front end can shrink the file behind a
//! mapping, and an access to a missing page then raises SIGBUS, which ends a process without a
//! handler.
//!
//! Owns the process's SIGBUS handler. Always true: a fault within a guarded range replaces the
//! missing page by a private page of zeros, marks the range as lost, and resumes the faulting
//! instruction. Any other SIGBUS has its earlier effect. The handler takes no lock and allocates
//! nothing.
#![allow(unsafe_code)]

use std::io;
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};

/// A range of addresses, in a list that only grows. Later ranges reuse the entries of ended ones.
struct GuardedRange {
    /// Odd while the fields below change.
    version: AtomicU64,
    /// Address of the first byte; 0 if the entry is free.
    start: AtomicUsize,
    len: AtomicUsize,
    /// Page size of the mapping in bytes.
    page: AtomicUsize,
    /// Pages of the range have been replaced.
    lost: AtomicBool,
    next: AtomicPtr<GuardedRange>,
}

/// The first entry.
static GUARDED_RANGES: AtomicPtr<GuardedRange> = AtomicPtr::new(ptr::null_mut());
/// Held while entries are allocated and freed.
static CHANGE_LOCK: Mutex<()> = Mutex::new(());
/// A range has been lost since the process began. While this is false, the ranges need not be
/// checked.
static LOST: AtomicBool = AtomicBool::new(false);
/// The earlier action of SIGBUS.
static EARLIER_ACTION: OnceLock<libc::sigaction> = OnceLock::new();

/// A range of addresses in which faults are survived. Must be dropped before the range is unmapped.
pub(super) struct SigbusGuard {
    entry: &'static GuardedRange,
}

impl SigbusGuard {
    /// Guards a mapping of `len` bytes at `start`, with pages of `page` bytes.
    ///
    /// # Errors
    /// Fails if the handler cannot be installed.
    ///
    /// # Safety
    /// The range is a mapping of whole pages of that size. It belongs to the caller until the guard
    /// is dropped, and any of its pages may become private zeros at any time.
    pub(super) unsafe fn new(start: usize, len: usize, page: usize) -> io::Result<Self> {
        let _changing = CHANGE_LOCK.lock().unwrap_or_else(PoisonError::into_inner);
        install()?;
        let entry = take_entry();
        entry.change(start, len, page);
        entry.lost.store(false, Ordering::Relaxed);
        Ok(Self { entry })
    }

    /// Returns true if pages of the range were missing when they were accessed. Reads returned
    /// zeros there, and writes were not visible to the front end.
    pub(super) fn is_lost(&self) -> bool {
        any_lost() && self.entry.lost.load(Ordering::Acquire)
    }
}

impl Drop for SigbusGuard {
    fn drop(&mut self) {
        let _changing = CHANGE_LOCK.lock().unwrap_or_else(PoisonError::into_inner);
        self.entry.change(0, 0, 0);
    }
}

/// Returns true if any range has been lost since the process began.
pub(super) fn any_lost() -> bool {
    LOST.load(Ordering::Relaxed)
}

impl GuardedRange {
    fn change(&self, start: usize, len: usize, page: usize) {
        self.version.fetch_add(1, Ordering::AcqRel);
        self.start.store(start, Ordering::Release);
        self.len.store(len, Ordering::Release);
        self.page.store(page, Ordering::Release);
        self.version.fetch_add(1, Ordering::AcqRel);
    }

    /// Returns start and length of the page that contains `address`, if it is in this range.
    fn page_of(&self, address: usize) -> Option<(usize, usize)> {
        let version = self.version.load(Ordering::Acquire);
        let start = self.start.load(Ordering::Acquire);
        let (len, page) = (self.len.load(Ordering::Acquire), self.page.load(Ordering::Acquire));
        // A changing entry cannot be the range of the faulting thread, which keeps its range alive.
        if start == 0 || !version.is_multiple_of(2) || self.version.load(Ordering::Acquire) != version {
            return None;
        }
        let skip = address.checked_sub(start).filter(|skip| *skip < len)?;
        Some((start + skip / page * page, page))
    }
}

/// Returns a free entry, or allocates one. The caller holds the lock.
fn take_entry() -> &'static GuardedRange {
    if let Some(free) = entries().find(|entry| entry.start.load(Ordering::Acquire) == 0) {
        return free;
    }
    let entry = Box::leak(Box::new(GuardedRange {
        version: AtomicU64::new(0),
        start: AtomicUsize::new(0),
        len: AtomicUsize::new(0),
        page: AtomicUsize::new(0),
        lost: AtomicBool::new(false),
        next: AtomicPtr::new(GUARDED_RANGES.load(Ordering::Acquire)),
    }));
    GUARDED_RANGES.store(entry, Ordering::Release);
    entry
}

fn entries() -> impl Iterator<Item = &'static GuardedRange> {
    // SAFETY: null, or an entry that was leaked and is never freed.
    let at = |entry: &AtomicPtr<GuardedRange>| unsafe { entry.load(Ordering::Acquire).as_ref() };
    std::iter::successors(at(&GUARDED_RANGES), move |entry| at(&entry.next))
}

/// Installs the handler, once for the process. The caller holds the lock.
fn install() -> io::Result<()> {
    if EARLIER_ACTION.get().is_some() {
        return Ok(());
    }
    // SAFETY: all zeros is a valid value: the default action, no flags, no signals blocked.
    let mut before: libc::sigaction = unsafe { std::mem::zeroed() };
    // SAFETY: as above.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    let handler: extern "C" fn(libc::c_int, *mut libc::siginfo_t, *mut libc::c_void) = handle;
    action.sa_sigaction = handler as usize;
    action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK | libc::SA_RESTART;
    // Must be known before the handler can run.
    // SAFETY: reads the action of SIGBUS; `before` is valid for writing.
    if unsafe { libc::sigaction(libc::SIGBUS, ptr::null(), &raw mut before) } != 0 {
        return Err(io::Error::last_os_error());
    }
    let _ = EARLIER_ACTION.set(before);
    // SAFETY: the handler is async-signal-safe; `action` is complete.
    if unsafe { libc::sigaction(libc::SIGBUS, &raw const action, ptr::null_mut()) } != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

extern "C" fn handle(signal: libc::c_int, info: *mut libc::siginfo_t, _: *mut libc::c_void) {
    // SAFETY: the kernel passes a valid structure; the address is set for faults.
    let (code, address) = unsafe { ((*info).si_code, (*info).si_addr() as usize) };
    // Positive codes come from the kernel: a fault, or a hardware memory error.
    if code > 0 && replace_page(address) {
        return;
    }
    // The earlier action takes place when the instruction is retried, or immediately if there is
    // none.
    if let Some(before) = EARLIER_ACTION.get() {
        // SAFETY: restores the action that sigaction returned.
        unsafe { libc::sigaction(signal, before, ptr::null_mut()) };
    }
    if code <= 0 {
        // SAFETY: sends the signal again to this thread, which receives it when the handler
        // returns.
        unsafe { libc::raise(signal) };
    }
}

/// Replaces a guarded page by zeros. Returns false if the address is not guarded or memory is
/// exhausted.
fn replace_page(address: usize) -> bool {
    let found = entries().find_map(|entry| entry.page_of(address).map(|page| (entry, page)));
    let Some((entry, (start, len))) = found else { return false };
    // SAFETY: errno belongs to this thread, and the interrupted code must find it unchanged.
    let errno = unsafe { libc::__errno_location() };
    // SAFETY: as above.
    let before = unsafe { *errno };
    let flags = libc::MAP_FIXED | libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
    // SAFETY: the page belongs to a guarded range, and its owner allows this; the faulting thread
    // keeps the range alive.
    let mapped = unsafe {
        libc::mmap(start as *mut libc::c_void, len, libc::PROT_READ | libc::PROT_WRITE, flags, -1, 0)
    };
    // SAFETY: as above.
    unsafe { *errno = before };
    if mapped == libc::MAP_FAILED {
        return false;
    }
    entry.lost.store(true, Ordering::Release);
    LOST.store(true, Ordering::Release);
    true
}
