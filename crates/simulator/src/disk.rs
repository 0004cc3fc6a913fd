//! A simulated drive: what it has promised to keep, what it only holds in its cache, and how it fails.
//!
//! The pristine content and the faults are kept apart: a page is what was written to it; on top of that lie unreadable
//! pages and flipped bits. At a power cut every page with unflushed writes is kept, dropped, torn between old and new at a
//! 512-byte sector, or garbled in the sectors that were being written. A write that fails leaves all of its pages, some or none; a flush
//! that fails may have kept what it was for, or lost it. The operations of a drive that hangs end when it is released, late or with an
//! error.

mod opened;

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::sync::Arc;

use engine::DriveSource;
use reactor::{Clock as _, IoError, IoErrorKind, Span};

use self::opened::Source;
use crate::random::Random;
use crate::world::World;

/// Bytes of a page: the unit in which power cuts decide.
pub const PAGE: usize = 4096;
const SECTOR: usize = 512;
/// Drive operations after which a run counts as running away.
const OPERATIONS_MAX: u64 = 2_000_000;

type Page = Box<[u8; PAGE]>;

/// A write that is not durable yet.
#[derive(Clone)]
struct Unflushed {
    /// When it was submitted, in order.
    order: u64,
    bytes: Page,
    /// The drive has said that it is done.
    completed: bool,
}

/// Ends an operation, with an error if it is told to.
type EndOfIo = Box<dyn FnOnce(bool)>;

/// How a drive misbehaves, beyond forgetting at power cuts. Chances are once in so many operations; 0 is never.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Faults {
    /// A write is acknowledged and dropped.
    pub lose_write: u64,
    /// A write lands somewhere else on the drive.
    pub misdirect_write: u64,
    /// A write or a flush fails; the drive goes on as if nothing had been.
    pub fail_write: u64,
    /// A page that is read has flipped bits from now on.
    pub rot: u64,
    /// A page that is read cannot be read from now on.
    pub read_error: u64,
    /// An operation takes very long.
    pub stall: u64,
}

/// What a drive is like.
#[derive(Clone, Copy, Debug)]
pub struct DiskOptions {
    /// Bytes.
    pub size: u64,
    /// Bytes of a sector, as it says: 512 or 4096.
    pub sector: u32,
    /// Completed writes may be lost until they are flushed.
    pub volatile_cache: bool,
    /// Nanoseconds that an operation takes, at least and at most, besides what its bytes take.
    pub latency: (u64, u64),
    /// Bytes that are read and written a second, one operation after the other; 0 for any number at once.
    pub bytes_per_second: u64,
}

/// The drive's state, kept over crashes.
struct State {
    durable: BTreeMap<u64, Page>,
    cache: BTreeMap<u64, Vec<Unflushed>>,
    unreadable: BTreeSet<u64>,
    /// Every operation fails.
    dead: bool,
}

/// A copy of the durable pages of a drive.
#[derive(Clone, PartialEq, Eq)]
pub struct Image(BTreeMap<u64, Page>);

/// A simulated drive.
pub struct Disk {
    name: String,
    options: DiskOptions,
    faults: Cell<Faults>,
    /// Nanoseconds that an operation takes now, at least and at most.
    latency: Cell<(u64, u64)>,
    /// Bytes, now.
    size: Cell<u64>,
    /// Nanoseconds after which reads that are submitted now say that the drive is gone.
    hang: Cell<Option<u64>>,
    world: Rc<World>,
    random: Random,
    order: Cell<u64>,
    /// When the bytes of what was submitted so far are through.
    free_at: Cell<u64>,
    state: RefCell<State>,
    /// The drive hangs: operations whose time has come wait for its release.
    hung: Cell<bool>,
    waiting: RefCell<Vec<EndOfIo>>,
    /// The file system under the drive is full: no space can be reserved.
    host_full: Cell<bool>,
    /// Operations that the drives of a run took together, and after how many the power is cut.
    fuse: Rc<Fuse>,
}

/// Cuts the power after a number of drive operations, lets one write or flush fail, and refuses reservations of space.
#[derive(Default)]
pub struct Fuse {
    /// Operations submitted so far.
    pub operations: Cell<u64>,
    /// Cut at this one.
    pub cut_at: Cell<Option<u64>>,
    /// Writes and flushes submitted so far.
    pub stores: Cell<u64>,
    /// This one of them fails.
    pub fail_at: Cell<Option<u64>>,
    /// Reservations of space submitted so far.
    pub reservations: Cell<u64>,
    /// From this one on they are refused: the host has no space.
    pub refuse_from: Cell<Option<u64>>,
}

impl Disk {
    /// An empty drive.
    pub fn new(name: String, options: DiskOptions, world: Rc<World>, fuse: Rc<Fuse>, seed: u64) -> Rc<Self> {
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
            hang: Cell::new(None),
            options,
            faults: Cell::default(),
            world,
            random: Random::new(seed),
            order: Cell::new(0),
            free_at: Cell::new(0),
            state: RefCell::new(state),
            hung: Cell::new(false),
            waiting: RefCell::default(),
            host_full: Cell::new(false),
            fuse,
        })
    }

    /// The drive, for the engine.
    pub fn source(self: &Rc<Self>) -> Arc<dyn DriveSource> {
        Arc::new(Source::of(self.clone()))
    }

    /// From now on it misbehaves so.
    pub fn set_faults(&self, faults: Faults) {
        self.faults.set(faults);
    }

    /// Reads that are submitted from now on hang for so many nanoseconds, and say then that the drive is gone, whatever has become
    /// of it meanwhile.
    pub fn set_hang(&self, hang: Option<u64>) {
        self.hang.set(hang);
    }

    /// The drive has so many bytes from now on.
    pub fn set_size(&self, size: u64) {
        self.size.set(size);
    }

    /// A copy of what is durable on the drive.
    pub fn image(&self) -> Image {
        Image(self.state.borrow().durable.clone())
    }

    /// Puts a copy of a drive in this one's place.
    pub fn restore(&self, image: &Image) {
        let mut state = self.state.borrow_mut();
        state.durable = image.0.clone();
        state.cache.clear();
        state.unreadable.clear();
    }

    /// Operations take so many nanoseconds from now on, at least and at most.
    pub fn set_latency(&self, low: u64, high: u64) {
        self.latency.set((low, high));
    }

    /// Every operation fails from now on, or works again.
    pub fn set_dead(&self, dead: bool) {
        self.state.borrow_mut().dead = dead;
        if dead {
            self.release(true);
        }
    }

    /// Operations do not end any more until [`Disk::release`].
    pub fn hang(&self) {
        self.hung.set(true);
    }

    /// True until [`Disk::release`].
    pub fn is_hung(&self) -> bool {
        self.hung.get()
    }

    /// The operations that wait since [`Disk::hang`] end, each in its own time, and those that are submitted from now on end as usual. If
    /// `failing`, those that waited have no effect and end with an error.
    pub fn release(&self, failing: bool) {
        self.hung.set(false);
        for end in self.waiting.take() {
            self.world.after(self.latency(), move || end(failing));
        }
    }

    /// The file system under the drive is full from now on, or has space again: [`reactor::Drive::reserve`] says so.
    pub fn set_host_full(&self, full: bool) {
        self.host_full.set(full);
    }

    /// True while no space can be reserved.
    pub fn is_host_full(&self) -> bool {
        self.host_full.get()
    }

    /// Nothing waits any more: who asked is no more.
    fn forget_waiting(&self) {
        self.hung.set(false);
        self.waiting.take();
    }

    /// It is plugged in again after it was pulled out: what it had in its cache went with the power.
    pub fn plug_in(&self) {
        if self.is_dead() {
            self.cut_power();
            self.set_dead(false);
        }
    }

    /// True while every operation fails.
    pub fn is_dead(&self) -> bool {
        self.state.borrow().dead
    }

    /// Flips a bit of what is stored in `page`, if something is.
    pub fn flip(&self, page: u64, bit: usize) -> bool {
        let mut state = self.state.borrow_mut();
        let Some(bytes) = state.durable.get_mut(&page) else { return false };
        if let Some(byte) = bytes.get_mut(bit / 8 % PAGE) {
            *byte ^= 1 << (bit % 8);
        }
        true
    }

    /// Cannot read `page` from now on, until it is written again.
    pub fn spoil(&self, page: u64) {
        self.state.borrow_mut().unreadable.insert(page);
    }

    /// The pages that hold something.
    pub fn pages(&self) -> Vec<u64> {
        self.state.borrow().durable.keys().copied().collect()
    }

    /// The power fails: decides what becomes of every page that was not flushed.
    pub fn cut_power(&self) {
        self.forget_waiting();
        let mut state = self.state.borrow_mut();
        let cache = std::mem::take(&mut state.cache);
        for (page, writes) in cache {
            let old = state.durable.get(&page).cloned();
            if let Some(new) = self.survivor(old.as_ref(), &writes) {
                state.durable.insert(page, new);
                state.unreadable.remove(&page);
            }
        }
    }

    /// What a power cut leaves of a page; `None` for what was there before.
    fn survivor(&self, old: Option<&Page>, writes: &[Unflushed]) -> Option<Page> {
        let blank = || Box::new([0; PAGE]);
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
                if let (Some(to), Some(from)) = (torn.get_mut(range.clone()), chosen.bytes.get(range)) {
                    to.copy_from_slice(from);
                }
                Some(torn)
            }
            _ => {
                let mut garbled = base.unwrap_or_else(blank);
                for sector in garbled.chunks_mut(SECTOR) {
                    if self.random.once_in(2) {
                        self.random.fill(sector);
                    }
                }
                Some(garbled)
            }
        }
    }

    /// The process dies and the drive does not notice: everything that was submitted is done.
    pub fn settle(&self) {
        self.forget_waiting();
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
        Ok(bytes.cloned().unwrap_or_else(|| Box::new([0; PAGE])))
    }

    /// Lets a page go bad, if its turn has come.
    fn decay(&self, page: u64) {
        let faults = self.faults.get();
        if self.random.once_in(faults.rot) {
            let bit = usize::try_from(self.random.below(PAGE as u64 * 8)).unwrap_or(0);
            self.flip(page, bit);
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

    /// Nanoseconds until an operation on so many bytes that is submitted now has had its turn.
    fn transfer(&self, length: usize) -> u64 {
        let now = self.world.now().as_nanos();
        let takes = (length as u64 * 1_000_000_000).checked_div(self.options.bytes_per_second);
        let through = self.free_at.get().max(now) + takes.unwrap_or(0);
        self.free_at.set(through);
        through - now
    }

    /// Counts an operation. At the fuse's number the power fails: the world halts before the operation takes effect.
    fn begin(&self) -> bool {
        let number = self.fuse.operations.get() + 1;
        assert!(number < OPERATIONS_MAX, "the run does not come to an end");
        self.fuse.operations.set(number);
        if self.fuse.cut_at.get() == Some(number) {
            self.world.halt();
        }
        !self.world.is_halted()
    }

    /// Counts a write or a flush. True if it is to fail.
    fn fails(&self) -> bool {
        let number = self.fuse.stores.get() + 1;
        self.fuse.stores.set(number);
        self.fuse.fail_at.get() == Some(number) || self.random.once_in(self.faults.get().fail_write)
    }

    /// Counts a reservation of space. True if it is to be refused.
    fn refuses(&self) -> bool {
        let number = self.fuse.reservations.get() + 1;
        self.fuse.reservations.set(number);
        self.fuse.refuse_from.get().is_some_and(|from| number >= from) || self.host_full.get()
    }

    /// Ends an operation whose time has come, or when the drive is released.
    fn end_or_wait(&self, end: EndOfIo) {
        if self.hung.get() {
            self.waiting.borrow_mut().push(end);
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

    /// Puts a write into the cache, uncompleted; of one that fails, as much as the drive takes.
    fn submit_write(&self, offset: u64, from: &[Span], fails: bool) -> (u64, Vec<u64>) {
        let order = self.next_order();
        let mut bytes = Vec::new();
        for span in from {
            let mut piece = vec![0; span.len()];
            span.copy_to(0, &mut piece);
            bytes.extend_from_slice(&piece);
        }
        let faults = self.faults.get();
        if self.random.once_in(faults.lose_write) {
            return (order, Vec::new());
        }
        let mut page = offset / PAGE as u64;
        if self.random.once_in(faults.misdirect_write) {
            let pages = self.options.size / PAGE as u64;
            let length = (bytes.len() / PAGE) as u64;
            page = self.random.below(pages - length.min(pages - 1));
        }
        let share = if fails { self.random.below(3) } else { 0 };
        let lands = || match share {
            0 => true,
            1 => false,
            _ => self.random.once_in(2),
        };
        let mut touched = Vec::new();
        let mut state = self.state.borrow_mut();
        for (page, chunk) in (page..).zip(bytes.chunks_exact(PAGE)).filter(|_| lands()) {
            let mut copy = Box::new([0; PAGE]);
            copy.copy_from_slice(chunk);
            state.cache.entry(page).or_default().push(Unflushed { order, bytes: copy, completed: false });
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

    /// A flush has failed: what it was for is safe all the same, or is in the cache still, or is gone from there.
    fn fail_flush(&self, order: u64) {
        match self.random.below(3) {
            0 => self.complete_flush(order),
            1 => {}
            _ => {
                let mut state = self.state.borrow_mut();
                let is_due = |write: &Unflushed| write.completed && write.order <= order;
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
        // Earlier writes that are still under way are overtaken: on a drive, either may win.
        writes.drain(..=at);
        if writes.is_empty() {
            state.cache.remove(&page);
        }
        if let Some(bytes) = bytes {
            state.durable.insert(page, bytes);
        }
    }
}
