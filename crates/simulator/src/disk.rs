//! A simulated drive: its durable content, its volatile cache and its failures.
//!
//! The written content is kept apart from the faults: unreadable pages are a separate set. At a
//! power cut every page with unflushed writes is kept, dropped, torn between old and new content at
//! a 512-byte sector, or garbled in the sectors that were being written. A failed write leaves all,
//! some or none of its pages. A failed flush may have persisted its writes or lost them. The
//! operations of a hung drive complete when it is released, late or with an error.

mod io;

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::sync::Arc;

use engine::DriveSource;
use reactor::{Clock as _, IoError, IoErrorKind, Span};
use smallvec::SmallVec;

use self::io::SimulatedDriveSource;
use crate::events::EventQueue;
use crate::random::Random;

/// Bytes of a page, the unit in which a power cut decides about content.
pub const PAGE: usize = 4096;
const SECTOR: usize = 512;
/// Limit of drive operations in a run. A run that reaches it does not terminate.
const OPERATIONS_MAX: u64 = 2_000_000;

/// The content of a page, shared by all images and caches that hold it.
type Page = Rc<[u8; PAGE]>;

/// A write that is not durable yet.
#[derive(Clone)]
struct UnflushedWrite {
    /// Submission order.
    order: u64,
    bytes: Page,
    /// The drive has acknowledged the write.
    completed: bool,
}

/// Returns the content of a page of a buffer. Pages of zeros, which most of a new pool has, share
/// one copy.
fn page_of(span: &Span, at: usize) -> Page {
    thread_local! {
        static ZEROS: Page = Rc::new([0; PAGE]);
    }
    let mut bytes = [0; PAGE];
    span.copy_to(at, &mut bytes);
    if bytes == [0; PAGE] { ZEROS.with(Rc::clone) } else { Rc::new(bytes) }
}

/// Completes an operation, with an error if the argument is true.
type CompletionFn = Box<dyn FnOnce(bool)>;

/// Fault rates of a drive, apart from power cuts. Each rate is one fault in that many operations; 0
/// means never.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Faults {
    /// A write is acknowledged and dropped.
    pub lose_write: u64,
    /// A write lands elsewhere on the drive.
    pub misdirect_write: u64,
    /// A write or flush fails; the drive continues to work.
    pub fail_write: u64,
    /// A page that is read has a flipped bit from then on.
    pub rot: u64,
    /// A page that is read is unreadable from then on.
    pub read_error: u64,
    /// An operation takes 1,000 times as long.
    pub stall: u64,
}

/// The fixed properties of a drive.
#[derive(Clone, Copy, Debug)]
pub struct DiskOptions {
    /// Size in bytes.
    pub size: u64,
    /// Logical sector size in bytes: 512 or 4096.
    pub sector: u32,
    /// Completed writes may be lost until they are flushed.
    pub volatile_cache: bool,
    /// Minimum and maximum latency of an operation in nanoseconds, without the transfer time.
    pub latency: (u64, u64),
    /// Bandwidth in bytes per second, for one operation after the other; 0 means unlimited.
    pub bytes_per_second: u64,
}

/// The drive's content, kept across crashes.
#[derive(Clone)]
struct State {
    durable: BTreeMap<u64, Page>,
    cache: BTreeMap<u64, SmallVec<[UnflushedWrite; 1]>>,
    unreadable: BTreeSet<u64>,
    /// Every operation fails.
    dead: bool,
}

/// A copy of the durable pages of a drive.
#[derive(Clone, PartialEq, Eq)]
pub struct DiskImage(BTreeMap<u64, Page>);

impl DiskImage {
    /// Returns the numbers of the pages with other content than in an older image.
    pub fn changed_since(&self, older: &Self) -> Vec<u64> {
        let changed = self.0.iter().filter(|(page, bytes)| older.0.get(page) != Some(bytes));
        changed.map(|(page, _)| *page).collect()
    }
}

/// A simulated drive.
pub struct Disk {
    name: String,
    options: DiskOptions,
    faults: Cell<Faults>,
    /// Current minimum and maximum latency in nanoseconds.
    latency: Cell<(u64, u64)>,
    /// Current size in bytes.
    size: Cell<u64>,
    /// Delay in nanoseconds after which newly submitted reads fail with `Gone`.
    read_timeout: Cell<Option<u64>>,
    events: Rc<EventQueue>,
    random: Random,
    order: Cell<u64>,
    /// Time at which all transfers submitted so far are complete.
    transfers_end: Cell<u64>,
    state: RefCell<State>,
    /// The drive hangs: due operations are held until its release.
    hung: Cell<bool>,
    held: RefCell<Vec<CompletionFn>>,
    /// The file system under the drive is full: reservations of space fail.
    host_full: Cell<bool>,
    /// Counts the operations of all drives of a run, and triggers its faults.
    trigger: Rc<FaultTrigger>,
}

/// Counts drive operations and triggers faults by count: cuts the power, fails one write or flush,
/// and refuses reservations of space.
#[derive(Default)]
pub struct FaultTrigger {
    /// Operations submitted so far.
    pub operations: Cell<u64>,
    /// Number of the operation at which the power is cut.
    pub cut_at: Cell<Option<u64>>,
    /// Writes and flushes submitted so far.
    pub stores: Cell<u64>,
    /// Number of the write or flush that fails.
    pub fail_at: Cell<Option<u64>>,
    /// Reservations of space submitted so far.
    pub reservations: Cell<u64>,
    /// Number of the first reservation that is refused, with all later ones: the host has no space.
    pub refuse_from: Cell<Option<u64>>,
}

impl Disk {
    /// Creates an empty drive.
    pub fn new(
        name: String,
        options: DiskOptions,
        events: Rc<EventQueue>,
        trigger: Rc<FaultTrigger>,
        seed: u64,
    ) -> Rc<Self> {
        let state = State {
            durable: BTreeMap::new(),
            cache: BTreeMap::new(),
            unreadable: BTreeSet::new(),
            dead: false,
        };
        Rc::new(Self {
            name,
            latency: Cell::new(options.latency),
            size: Cell::new(options.size),
            read_timeout: Cell::new(None),
            options,
            faults: Cell::default(),
            events,
            random: Random::new(seed),
            order: Cell::new(0),
            transfers_end: Cell::new(0),
            state: RefCell::new(state),
            hung: Cell::new(false),
            held: RefCell::default(),
            host_full: Cell::new(false),
            trigger,
        })
    }

    /// Creates a drive with the same content, latency and faults, at the time of `events`. No
    /// operation may be in flight.
    pub(crate) fn copy(&self, events: Rc<EventQueue>, trigger: Rc<FaultTrigger>, seed: u64) -> Rc<Self> {
        assert!(!self.hung.get() && self.held.borrow().is_empty(), "a hung drive cannot be copied");
        Rc::new(Self {
            name: self.name.clone(),
            options: self.options,
            faults: self.faults.clone(),
            latency: self.latency.clone(),
            size: self.size.clone(),
            read_timeout: self.read_timeout.clone(),
            events,
            random: Random::new(seed),
            order: self.order.clone(),
            transfers_end: self.transfers_end.clone(),
            state: self.state.clone(),
            hung: Cell::new(false),
            held: RefCell::default(),
            host_full: self.host_full.clone(),
            trigger,
        })
    }

    /// Returns the drive as a source for the engine.
    pub fn source(self: &Rc<Self>) -> Arc<dyn DriveSource> {
        Arc::new(SimulatedDriveSource::new(self.clone()))
    }

    /// Sets the fault rates.
    pub fn set_faults(&self, faults: Faults) {
        self.faults.set(faults);
    }

    /// Makes newly submitted reads fail with `Gone` after this many nanoseconds, even if the drive
    /// has recovered by then. `None` turns this off.
    pub fn set_read_timeout(&self, timeout: Option<u64>) {
        self.read_timeout.set(timeout);
    }

    /// Changes the size in bytes.
    pub fn set_size(&self, size: u64) {
        self.size.set(size);
    }

    /// Returns a copy of the durable content.
    pub fn image(&self) -> DiskImage {
        DiskImage(self.state.borrow().durable.clone())
    }

    /// Replaces the content by a copy of another drive.
    pub fn restore(&self, image: &DiskImage) {
        let mut state = self.state.borrow_mut();
        state.durable = image.0.clone();
        state.cache.clear();
        state.unreadable.clear();
    }

    /// Sets the minimum and maximum latency of operations, in nanoseconds.
    pub fn set_latency(&self, low: u64, high: u64) {
        self.latency.set((low, high));
    }

    /// Makes every operation fail, or work again.
    pub fn set_dead(&self, dead: bool) {
        self.state.borrow_mut().dead = dead;
        if dead {
            self.release(true);
        }
    }

    /// Holds all operations until [`Disk::release`].
    pub fn hang(&self) {
        self.hung.set(true);
    }

    /// Returns true until [`Disk::release`].
    pub fn is_hung(&self) -> bool {
        self.hung.get()
    }

    /// Completes the operations held since [`Disk::hang`], each after its own latency; new
    /// operations complete as usual. If `failing`, the held operations have no effect and end with
    /// an error.
    pub fn release(&self, failing: bool) {
        self.hung.set(false);
        for end in self.held.take() {
            self.events.schedule(self.latency(), move || end(failing));
        }
    }

    /// Sets whether the file system under the drive is full, so that [`reactor::Drive::reserve`]
    /// fails.
    pub fn set_host_full(&self, full: bool) {
        self.host_full.set(full);
    }

    /// Returns true while no space can be reserved.
    pub fn is_host_full(&self) -> bool {
        self.host_full.get()
    }

    /// Drops the held operations, because the process that submitted them has ended.
    fn drop_held(&self) {
        self.hung.set(false);
        self.held.take();
    }

    /// Plugs the drive in again after it was pulled out. The power loss emptied its cache.
    pub fn plug_in(&self) {
        if self.is_dead() {
            self.cut_power();
            self.set_dead(false);
        }
    }

    /// Returns true while every operation fails.
    pub fn is_dead(&self) -> bool {
        self.state.borrow().dead
    }

    /// Flips a bit of `page`. Returns false if the page was never written.
    pub fn flip_bit(&self, page: u64, bit: usize) -> bool {
        let mut state = self.state.borrow_mut();
        let Some(bytes) = state.durable.get_mut(&page) else { return false };
        if let Some(byte) = Rc::make_mut(bytes).get_mut(bit / 8 % PAGE) {
            *byte ^= 1 << (bit % 8);
        }
        true
    }

    /// Makes `page` unreadable until it is written again.
    pub fn mark_unreadable(&self, page: u64) {
        self.state.borrow_mut().unreadable.insert(page);
    }

    /// Returns the numbers of the written pages.
    pub fn pages(&self) -> Vec<u64> {
        self.state.borrow().durable.keys().copied().collect()
    }

    /// Returns the numbers of the pages with completed writes that are not durable yet.
    pub fn unflushed_pages(&self) -> Vec<u64> {
        let state = self.state.borrow();
        let unflushed = state.cache.iter().filter(|(_, writes)| writes.iter().any(|write| write.completed));
        unflushed.map(|(page, _)| *page).collect()
    }

    /// Applies a power failure: decides for every unflushed page which content survives.
    pub fn cut_power(&self) {
        self.drop_held();
        let mut state = self.state.borrow_mut();
        let cache = std::mem::take(&mut state.cache);
        for (page, writes) in cache {
            let old = state.durable.get(&page).cloned();
            if let Some(new) = self.page_after_power_cut(old.as_ref(), &writes) {
                state.durable.insert(page, new);
                state.unreadable.remove(&page);
            }
        }
    }

    /// Returns the content of a page after a power cut; `None` leaves the old content.
    fn page_after_power_cut(&self, old: Option<&Page>, writes: &[UnflushedWrite]) -> Option<Page> {
        let blank = || Rc::new([0; PAGE]);
        // Completed writes of a drive without a volatile cache are durable.
        let floor = writes.iter().rposition(|write| write.completed && !self.options.volatile_cache);
        let kept = floor.and_then(|at| writes.get(at)).map(|write| write.bytes.clone());
        let from = floor.map_or(0, |at| at + 1);
        let rest = writes.get(from..).unwrap_or(&[]);
        let base = kept.clone().or_else(|| old.cloned());
        if rest.is_empty() {
            return kept;
        }
        let chosen = self.random.choose(rest);
        match self.random.below(8) {
            0..=2 => Some(chosen.bytes.clone()),
            3..=4 => kept,
            5..=6 => {
                let mut torn = base.unwrap_or_else(blank);
                let border = usize::try_from(self.random.between(1, 7)).unwrap_or(1) * SECTOR;
                let front = self.random.once_in(2);
                let range = if front { 0..border } else { border..PAGE };
                let to = Rc::make_mut(&mut torn).get_mut(range.clone());
                if let (Some(to), Some(from)) = (to, chosen.bytes.get(range)) {
                    to.copy_from_slice(from);
                }
                Some(torn)
            }
            _ => {
                let mut garbled = base.unwrap_or_else(blank);
                for sector in Rc::make_mut(&mut garbled).chunks_mut(SECTOR) {
                    if self.random.once_in(2) {
                        self.random.fill(sector);
                    }
                }
                Some(garbled)
            }
        }
    }

    /// Applies a process kill: the drive keeps its power and its completed writes.
    pub fn kill_process(&self) {
        self.drop_held();
        let mut state = self.state.borrow_mut();
        for writes in state.cache.values_mut() {
            // Operations in flight may or may not have reached the drive.
            writes.retain(|write| write.completed || self.random.once_in(2));
            writes.iter_mut().for_each(|write| write.completed = true);
        }
        state.cache.retain(|_, writes| !writes.is_empty());
    }

    pub(crate) fn read_page(&self, page: u64) -> Result<Page, IoError> {
        let state = self.state.borrow();
        if state.unreadable.contains(&page) {
            return Err(IoError::new(IoErrorKind::Medium));
        }
        let cached = state.cache.get(&page).and_then(|writes| writes.iter().rfind(|write| write.completed));
        let bytes = cached.map(|write| &write.bytes).or_else(|| state.durable.get(&page));
        Ok(bytes.cloned().unwrap_or_else(|| Rc::new([0; PAGE])))
    }

    /// Applies the read faults to a page: bit flips and read errors.
    fn apply_read_faults(&self, page: u64) {
        let faults = self.faults.get();
        if self.random.once_in(faults.rot) {
            let bit = usize::try_from(self.random.below(PAGE as u64 * 8)).unwrap_or(0);
            self.flip_bit(page, bit);
        }
        if self.random.once_in(faults.read_error) {
            self.state.borrow_mut().unreadable.insert(page);
        }
    }

    fn latency(&self) -> u64 {
        let (low, high) = self.latency.get();
        let factor = if self.random.once_in(self.faults.get().stall) { 1000 } else { 1 };
        self.random.between(low, high) * factor
    }

    /// Returns the nanoseconds until the transfer of an operation submitted now is complete.
    fn transfer(&self, length: usize) -> u64 {
        let now = self.events.now().as_nanos();
        let duration = (length as u64 * 1_000_000_000).checked_div(self.options.bytes_per_second);
        let end = self.transfers_end.get().max(now) + duration.unwrap_or(0);
        self.transfers_end.set(end);
        end - now
    }

    /// Counts an operation. Returns false if the power is off. At the trigger's number the power
    /// fails before the operation takes effect.
    fn count_operation(&self) -> bool {
        let number = self.trigger.operations.get() + 1;
        assert!(number < OPERATIONS_MAX, "the run does not terminate");
        self.trigger.operations.set(number);
        if self.trigger.cut_at.get() == Some(number) {
            self.events.halt();
        }
        !self.events.is_halted()
    }

    /// Counts a write or flush. Returns true if it must fail.
    fn count_store(&self) -> bool {
        let number = self.trigger.stores.get() + 1;
        self.trigger.stores.set(number);
        self.trigger.fail_at.get() == Some(number) || self.random.once_in(self.faults.get().fail_write)
    }

    /// Counts a reservation of space. Returns true if it must be refused.
    fn count_reservation(&self) -> bool {
        let number = self.trigger.reservations.get() + 1;
        self.trigger.reservations.set(number);
        self.trigger.refuse_from.get().is_some_and(|from| number >= from) || self.host_full.get()
    }

    /// Completes a due operation, or holds it while the drive hangs.
    fn complete_or_hold(&self, end: CompletionFn) {
        if self.hung.get() {
            self.held.borrow_mut().push(end);
        } else {
            end(false);
        }
    }

    fn next_order(&self) -> u64 {
        self.order.set(self.order.get() + 1);
        self.order.get()
    }

    fn check(&self, offset: u64, length: u64) -> Result<(), IoError> {
        assert!(
            offset.is_multiple_of(PAGE as u64) && length.is_multiple_of(PAGE as u64),
            "unaligned operation"
        );
        if self.state.borrow().dead {
            return Err(IoError::new(IoErrorKind::Gone));
        }
        let inside = offset.checked_add(length).is_some_and(|end| end <= self.size.get());
        if inside { Ok(()) } else { Err(IoError::new(IoErrorKind::OutOfRange)) }
    }

    /// Puts a write into the cache, uncompleted. Of a failing write, only the pages that the drive
    /// stores.
    fn submit_write(&self, offset: u64, from: &[Span], fails: bool) -> (u64, Vec<u64>) {
        let order = self.next_order();
        let pages: Vec<(&Span, usize)> =
            from.iter().flat_map(|span| (0..span.len()).step_by(PAGE).map(move |at| (span, at))).collect();
        let faults = self.faults.get();
        if self.random.once_in(faults.lose_write) {
            return (order, Vec::new());
        }
        let mut first = offset / PAGE as u64;
        if self.random.once_in(faults.misdirect_write) {
            let all = self.options.size / PAGE as u64;
            first = self.random.below(all - (pages.len() as u64).min(all - 1));
        }
        let share = if fails { self.random.below(3) } else { 0 };
        let lands = || match share {
            0 => true,
            1 => false,
            _ => self.random.once_in(2),
        };
        let mut touched = Vec::new();
        let mut state = self.state.borrow_mut();
        for (page, (span, at)) in (first..).zip(pages).filter(|_| lands()) {
            let bytes = page_of(span, at);
            state.cache.entry(page).or_default().push(UnflushedWrite { order, bytes, completed: false });
            touched.push(page);
        }
        (order, touched)
    }

    fn complete_write(&self, order: u64, touched: &[u64]) {
        let mut state = self.state.borrow_mut();
        for page in touched {
            let writes = state.cache.get_mut(page).into_iter().flatten();
            writes.filter(|write| write.order == order).for_each(|write| write.completed = true);
            state.unreadable.remove(page);
        }
        if !self.options.volatile_cache {
            flush_until(&mut state, order, touched.iter().copied());
        }
    }

    fn complete_flush(&self, order: u64) {
        let mut state = self.state.borrow_mut();
        let pages: Vec<u64> = state.cache.keys().copied().collect();
        flush_until(&mut state, order, pages.into_iter());
    }

    /// Fails a flush: its writes become durable, stay in the cache, or are lost.
    fn fail_flush(&self, order: u64) {
        match self.random.below(3) {
            0 => self.complete_flush(order),
            1 => {}
            _ => {
                let mut state = self.state.borrow_mut();
                let is_due = |write: &UnflushedWrite| write.completed && write.order <= order;
                state.cache.values_mut().for_each(|writes| writes.retain(|write| !is_due(write)));
                state.cache.retain(|_, writes| !writes.is_empty());
            }
        }
    }
}

/// Makes completed writes up to `order` durable.
fn flush_until(state: &mut State, order: u64, pages: impl Iterator<Item = u64>) {
    for page in pages {
        let Some(writes) = state.cache.get_mut(&page) else { continue };
        let newest = writes.iter().rposition(|write| write.completed && write.order <= order);
        let Some(at) = newest else { continue };
        let bytes = writes.get(at).map(|write| write.bytes.clone());
        // Earlier writes still in flight are overtaken: on a drive, either may win.
        writes.drain(..=at);
        if writes.is_empty() {
            state.cache.remove(&page);
        }
        if let Some(bytes) = bytes {
            state.durable.insert(page, bytes);
        }
    }
}
