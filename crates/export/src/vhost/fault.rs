//! Survives that a front end takes memory away which it shares, by shrinking the file behind a mapping: touching what is
//! no longer there raises SIGBUS, which ends a process that does not handle it.
//!
//! Owns the process's handler of SIGBUS. Always true: a fault within a guarded range puts private pages of zeros in the
//! place of the missing ones, marks the range as lost, and goes on where it happened; any other SIGBUS does what it did
//! before. The handler takes no lock and allocates nothing.
#![allow(unsafe_code)]

use std::io;
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};

/// A range of addresses, in a list that only grows: ranges that end leave their entry to later ones.
struct Entry {
    /// Odd while the fields below change.
    version: AtomicU64,
    /// Address of the first byte; 0 if the entry is free.
    start: AtomicUsize,
    len: AtomicUsize,
    /// Bytes of a page of the mapping.
    page: AtomicUsize,
    /// Pages of it have been replaced.
    lost: AtomicBool,
    next: AtomicPtr<Entry>,
}

/// The first entry.
static ENTRIES: AtomicPtr<Entry> = AtomicPtr::new(ptr::null_mut());
/// Held while entries are taken and given back.
static CHANGES: Mutex<()> = Mutex::new(());
/// A range has been lost since the process began: as long as none has, nobody looks any further.
static LOST: AtomicBool = AtomicBool::new(false);
/// What SIGBUS did before.
static BEFORE: OnceLock<libc::sigaction> = OnceLock::new();

/// A range of addresses in which faults are survived, until this is dropped: before the range is unmapped.
pub(super) struct Guard {
    entry: &'static Entry,
}

impl Guard {
    /// Guards a mapping of `len` bytes at `start`, of pages of `page` bytes.
    ///
    /// # Errors
    /// When the handler cannot be installed.
    ///
    /// # Safety
    /// The range is a mapping of whole pages of that size, which belongs to the caller until this is dropped, and in which
    /// any page may become private zeros at any time.
    pub(super) unsafe fn new(start: usize, len: usize, page: usize) -> io::Result<Self> {
        let _changing = CHANGES.lock().unwrap_or_else(PoisonError::into_inner);
        install()?;
        let entry = take_entry();
        entry.change(start, len, page);
        entry.lost.store(false, Ordering::Relaxed);
        Ok(Self { entry })
    }

    /// True if pages of the range were missing when they were touched. What was read there was zeros, and what was written
    /// there nobody has seen.
    pub(super) fn is_lost(&self) -> bool {
        has_happened() && self.entry.lost.load(Ordering::Acquire)
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        let _changing = CHANGES.lock().unwrap_or_else(PoisonError::into_inner);
        self.entry.change(0, 0, 0);
    }
}

/// True if any range has been lost since the process began.
pub(super) fn has_happened() -> bool {
    LOST.load(Ordering::Relaxed)
}

impl Entry {
    fn change(&self, start: usize, len: usize, page: usize) {
        self.version.fetch_add(1, Ordering::AcqRel);
        self.start.store(start, Ordering::Release);
        self.len.store(len, Ordering::Release);
        self.page.store(page, Ordering::Release);
        self.version.fetch_add(1, Ordering::AcqRel);
    }

    /// The page of `address`, if it lies in this range: start and length.
    fn page_of(&self, address: usize) -> Option<(usize, usize)> {
        let version = self.version.load(Ordering::Acquire);
        let start = self.start.load(Ordering::Acquire);
        let (len, page) = (self.len.load(Ordering::Acquire), self.page.load(Ordering::Acquire));
        // One that changes is not the one that a thread is in, which holds its range.
        if start == 0 || !version.is_multiple_of(2) || self.version.load(Ordering::Acquire) != version {
            return None;
        }
        let skip = address.checked_sub(start).filter(|skip| *skip < len)?;
        Some((start + skip / page * page, page))
    }
}

/// A free entry, or a new one. The caller holds the lock.
fn take_entry() -> &'static Entry {
    if let Some(free) = entries().find(|entry| entry.start.load(Ordering::Acquire) == 0) {
        return free;
    }
    let entry = Box::leak(Box::new(Entry {
        version: AtomicU64::new(0),
        start: AtomicUsize::new(0),
        len: AtomicUsize::new(0),
        page: AtomicUsize::new(0),
        lost: AtomicBool::new(false),
        next: AtomicPtr::new(ENTRIES.load(Ordering::Acquire)),
    }));
    ENTRIES.store(entry, Ordering::Release);
    entry
}

fn entries() -> impl Iterator<Item = &'static Entry> {
    // SAFETY: null, or an entry that was leaked and is never freed.
    let at = |entry: &AtomicPtr<Entry>| unsafe { entry.load(Ordering::Acquire).as_ref() };
    std::iter::successors(at(&ENTRIES), move |entry| at(&entry.next))
}

/// Installs the handler, once for the process. The caller holds the lock.
fn install() -> io::Result<()> {
    if BEFORE.get().is_some() {
        return Ok(());
    }
    // SAFETY: all zeros is a valid value: the default action, no flags, no signals blocked.
    let mut before: libc::sigaction = unsafe { std::mem::zeroed() };
    // SAFETY: as above.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    let handler: extern "C" fn(libc::c_int, *mut libc::siginfo_t, *mut libc::c_void) = handle;
    action.sa_sigaction = handler as usize;
    action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK | libc::SA_RESTART;
    // Known before the handler can run.
    // SAFETY: asks what SIGBUS does; `before` is valid for writing.
    if unsafe { libc::sigaction(libc::SIGBUS, ptr::null(), &raw mut before) } != 0 {
        return Err(io::Error::last_os_error());
    }
    let _ = BEFORE.set(before);
    // SAFETY: the handler only does what a handler may; `action` is complete.
    if unsafe { libc::sigaction(libc::SIGBUS, &raw const action, ptr::null_mut()) } != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

extern "C" fn handle(signal: libc::c_int, info: *mut libc::siginfo_t, _: *mut libc::c_void) {
    // SAFETY: the kernel passes a valid structure; the address is set for faults.
    let (code, address) = unsafe { ((*info).si_code, (*info).si_addr() as usize) };
    // Positive codes are the kernel's: a fault, or memory whose hardware failed.
    if code > 0 && replace_page(address) {
        return;
    }
    // Whatever it did before happens when the instruction is tried again, or at once if there is none.
    if let Some(before) = BEFORE.get() {
        // SAFETY: gives back what sigaction gave us.
        unsafe { libc::sigaction(signal, before, ptr::null_mut()) };
    }
    if code <= 0 {
        // SAFETY: sends the signal again, to this thread; it comes when the handler returns.
        unsafe { libc::raise(signal) };
    }
}

/// Puts zeros in the place of a guarded page. False if the address is not guarded, or there is no memory.
fn replace_page(address: usize) -> bool {
    let found = entries().find_map(|entry| entry.page_of(address).map(|page| (entry, page)));
    let Some((entry, (start, len))) = found else { return false };
    // SAFETY: errno is this thread's; what was interrupted must find it as it was.
    let errno = unsafe { libc::__errno_location() };
    // SAFETY: as above.
    let before = unsafe { *errno };
    let flags = libc::MAP_FIXED | libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
    // SAFETY: the page belongs to a guarded range, whose owner allows this; the thread that touched it holds the range.
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
