//! A front end and a guest's driver in one, on the message layer of the `vhost` crate: it blocks, and says what it sees.

use std::fs::File;
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use vhost::vhost_user::message::{VhostUserConfigFlags, VhostUserHeaderFlag, VhostUserInflight};
use vhost::vhost_user::{Frontend, VhostUserFrontend};
use vhost::{VhostBackend, VhostUserMemoryRegionInfo, VringConfigData};
use vmm_sys_util::epoll::{ControlOperation, Epoll, EpollEvent, EventSet};
use vmm_sys_util::eventfd::{EFD_NONBLOCK, EventFd};

use crate::testing::{Descriptor, Driver, GUEST, Guest, INDIRECT, NEXT, USER, WRITE, header};

/// Longer than anything takes, on any machine.
const PATIENCE: Duration = Duration::from_secs(60);
/// Bytes of the guest's memory; it takes only what is used.
pub(crate) const MEMORY: u64 = 256 << 20;
/// Bytes of a queue's structures, and of its requests' headers, statuses and tables.
const QUEUE_BYTES: u64 = 1 << 20;
/// Bytes of data that a request may have.
pub(crate) const DATA_MAX: u64 = 1 << 20;
/// Descriptors of a request.
const CHAIN: u16 = 4;
/// Entries of a request's indirect table.
const TABLE: u64 = 256;

pub(crate) const READ: u32 = 0;
pub(crate) const WRITE_OUT: u32 = 1;
pub(crate) const FLUSH: u32 = 4;
pub(crate) const GET_ID: u32 = 8;
pub(crate) const DISCARD: u32 = 11;
pub(crate) const WRITE_ZEROES: u32 = 13;

pub(crate) const OK: u8 = 0;
pub(crate) const IO_ERROR: u8 = 1;
pub(crate) const UNSUPPORTED: u8 = 2;
/// What stands where the device writes a status.
pub(crate) const NO_STATUS: u8 = 0xEE;

pub(crate) const RO: u64 = 1 << 5;
pub(crate) const F_FLUSH: u64 = 1 << 9;
pub(crate) const LOG_ALL: u64 = 1 << 26;
pub(crate) const EVENT_INDEX: u64 = 1 << 29;
pub(crate) const PROTOCOL: u64 = 1 << 30;

/// How a front end sets a device up.
#[derive(Clone)]
pub(crate) struct Manner {
    pub(crate) queues: usize,
    pub(crate) size: u16,
    /// Features that are not accepted although they are offered.
    pub(crate) without: u64,
    pub(crate) inflight: bool,
}

impl Default for Manner {
    fn default() -> Self {
        Self { queues: 1, size: 64, without: LOG_ALL, inflight: false }
    }
}

/// A device that is set up.
pub(crate) struct FrontEnd {
    pub(crate) frontend: Frontend,
    pub(crate) guest: Guest,
    pub(crate) features: u64,
    pub(crate) queues: Vec<Queue>,
    pub(crate) inflight: Option<(VhostUserInflight, File)>,
}

/// What a guest asks for.
#[derive(Clone, Debug)]
pub(crate) struct Io {
    pub(crate) kind: u32,
    pub(crate) sector: u64,
    /// What the device is to read behind the header.
    pub(crate) out: Vec<u8>,
    /// Bytes that the device is to write before the status.
    pub(crate) into: u32,
    /// The lengths of the pieces that the data lies in; all of it in one if there are none.
    pub(crate) pieces: Vec<u32>,
}

impl Io {
    pub(crate) fn read(sector: u64, len: u32) -> Self {
        Self { kind: READ, sector, out: Vec::new(), into: len, pieces: Vec::new() }
    }

    pub(crate) fn write(sector: u64, data: &[u8]) -> Self {
        Self { kind: WRITE_OUT, sector, out: data.to_vec(), into: 0, pieces: Vec::new() }
    }

    pub(crate) fn flush() -> Self {
        Self { kind: FLUSH, ..Self::read(0, 0) }
    }

    /// A discard or a zeroing of ranges: sector, sectors, flags.
    pub(crate) fn ranges(kind: u32, ranges: &[(u64, u32, u32)]) -> Self {
        let bytes = ranges.iter().flat_map(|(sector, sectors, flags)| {
            [&sector.to_le_bytes()[..], &sectors.to_le_bytes(), &flags.to_le_bytes()].concat()
        });
        Self { kind, out: bytes.collect(), ..Self::read(0, 0) }
    }

    pub(crate) fn in_pieces(self, pieces: &[u32]) -> Self {
        Self { pieces: pieces.to_vec(), ..self }
    }
}

/// What became of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Answer {
    pub(crate) slot: u16,
    /// Bytes that the device says to have written.
    pub(crate) len: u32,
    pub(crate) status: u8,
    pub(crate) data: Vec<u8>,
}

/// A queue and the memory of its requests.
pub(crate) struct Queue {
    pub(crate) driver: Driver,
    pub(crate) kick: EventFd,
    pub(crate) call: EventFd,
    pub(crate) err: EventFd,
    event_index: bool,
    /// Where data lies.
    data: u64,
    free: Vec<u16>,
    /// What is under way, by slot: bytes to be read back.
    into: Vec<u32>,
    /// The available index when the device was last told of it.
    told: u16,
    /// Notifications that the device wanted.
    pub(crate) kicks: u64,
}

pub(crate) fn event() -> EventFd {
    EventFd::new(EFD_NONBLOCK).unwrap()
}

/// A connection that gives up some time.
pub(crate) fn connect(path: &Path) -> UnixStream {
    let stream = UnixStream::connect(path).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream
}

impl FrontEnd {
    /// A device that serves requests.
    pub(crate) fn new(path: &Path, manner: &Manner) -> Self {
        let mut front = Self::negotiated(connect(path), Guest::new(MEMORY), manner);
        front.share_memory();
        front.set_up_inflight(manner);
        for index in 0..manner.queues {
            front.start_queue(index, 0);
        }
        front
    }

    /// A device that features were agreed on with, and nothing else.
    pub(crate) fn negotiated(stream: UnixStream, guest: Guest, manner: &Manner) -> Self {
        let mut frontend = Frontend::from_stream(stream, manner.queues as u64);
        frontend.set_owner().unwrap();
        let features = frontend.get_features().unwrap() & !manner.without;
        if features & PROTOCOL != 0 {
            let offered = frontend.get_protocol_features().unwrap();
            frontend.set_protocol_features(offered).unwrap();
            frontend.set_hdr_flags(VhostUserHeaderFlag::NEED_REPLY);
            assert!(frontend.get_queue_num().unwrap() >= manner.queues as u64);
        }
        frontend.set_features(features).unwrap();
        let queue = |index| Queue::new(&guest, index, manner.size, features & EVENT_INDEX != 0);
        let queues = (0..manner.queues).map(queue).collect();
        Self { frontend, guest, features, queues, inflight: None }
    }

    /// The same guest with another back end, as after a crash of the first: everything is set up anew, but for what the
    /// queues and the inflight region say.
    pub(crate) fn reconnect(self, path: &Path, manner: &Manner) -> Self {
        let Self { frontend, guest, queues, inflight, .. } = self;
        drop(frontend);
        let mut front = Self::negotiated(connect(path), guest, manner);
        front.queues = queues;
        front.share_memory();
        if let Some((layout, file)) = inflight {
            front.frontend.set_inflight_fd(&layout, file.as_raw_fd()).unwrap();
            front.inflight = Some((layout, file));
        }
        for index in 0..manner.queues {
            // What a front end knows is what the guest has seen; the back end knows better.
            let base = front.queues[index].driver.guest.read_16(front.queues[index].driver.used() + 2);
            front.start_queue(index, base);
        }
        front
    }

    /// The whole of the guest's memory as one region.
    pub(crate) fn region(&self) -> VhostUserMemoryRegionInfo {
        VhostUserMemoryRegionInfo {
            guest_phys_addr: GUEST,
            memory_size: MEMORY,
            userspace_addr: USER,
            mmap_offset: 0,
            mmap_handle: self.guest.file.as_raw_fd(),
        }
    }

    pub(crate) fn share_memory(&mut self) {
        self.frontend.set_mem_table(&[self.region()]).unwrap();
    }

    pub(crate) fn set_up_inflight(&mut self, manner: &Manner) {
        if manner.inflight {
            let wanted = VhostUserInflight::new(0, 0, manner.queues as u16, manner.size);
            let (layout, file) = self.frontend.get_inflight_fd(&wanted).unwrap();
            self.frontend.set_inflight_fd(&layout, file.as_raw_fd()).unwrap();
            self.inflight = Some((layout, file));
        }
    }

    /// Where a queue lies, as it is told to the back end.
    pub(crate) fn place(&self, index: usize) -> VringConfigData {
        let driver = &self.queues[index].driver;
        let user = |guest: u64| guest - GUEST + USER;
        VringConfigData {
            queue_max_size: driver.size,
            queue_size: driver.size,
            flags: 0,
            desc_table_addr: user(driver.table()),
            used_ring_addr: user(driver.used()),
            avail_ring_addr: user(driver.available()),
            log_addr: None,
        }
    }

    pub(crate) fn start_queue(&mut self, index: usize, base: u16) {
        self.try_start_queue(index, base).unwrap();
    }

    /// # Errors
    /// What the back end does not take.
    pub(crate) fn try_start_queue(&mut self, index: usize, base: u16) -> vhost::Result<()> {
        let place = self.place(index);
        let queue = &self.queues[index];
        self.frontend.set_vring_num(index, queue.driver.size)?;
        self.frontend.set_vring_base(index, base)?;
        self.frontend.set_vring_addr(index, &place)?;
        self.frontend.set_vring_call(index, &queue.call)?;
        self.frontend.set_vring_err(index, &queue.err)?;
        self.frontend.set_vring_kick(index, &queue.kick)?;
        if self.features & PROTOCOL != 0 {
            self.frontend.set_vring_enable(index, true)?;
        }
        Ok(())
    }

    /// Stops a queue, clears its memory and starts it again, as a guest's driver does that gives it up.
    pub(crate) fn restart_queue(&mut self, index: usize) {
        self.frontend.get_vring_base(index).unwrap();
        let driver = &self.queues[index].driver;
        driver.guest.write(driver.base, &vec![0; QUEUE_BYTES as usize]);
        self.queues[index] = Queue::new(&self.guest, index, driver.size, self.features & EVENT_INDEX != 0);
        self.start_queue(index, 0);
    }

    /// True once the back end has closed the connection.
    pub(crate) fn is_cut_off(&self) -> bool {
        is_ready(self.frontend.as_raw_fd(), PATIENCE) && self.frontend.get_features().is_err()
    }

    /// Does one request on a queue that has no other.
    #[track_caller]
    pub(crate) fn run_on(&mut self, queue: usize, io: &Io) -> Answer {
        let queue = &mut self.queues[queue];
        let slot = queue.submit(io);
        queue.kick();
        let answer = queue.wait();
        assert_eq!(answer.slot, slot, "the only request there is");
        answer
    }

    /// Does one request on the first queue, which must end well.
    #[track_caller]
    pub(crate) fn run(&mut self, io: &Io) -> Vec<u8> {
        let answer = self.run_on(0, io);
        assert_eq!(answer.status, OK, "{io:?}");
        answer.data
    }

    #[track_caller]
    pub(crate) fn write(&mut self, sector: u64, data: &[u8]) {
        self.run(&Io::write(sector, data));
    }

    #[track_caller]
    pub(crate) fn read(&mut self, sector: u64, len: u32) -> Vec<u8> {
        self.run(&Io::read(sector, len))
    }

    /// Bytes of the configuration space.
    pub(crate) fn config(&mut self, len: u32) -> Vec<u8> {
        let flags = VhostUserConfigFlags::empty();
        self.frontend.get_config(0, len, flags, &vec![0; len as usize]).unwrap().1
    }

    /// Bytes of the device, as its configuration says.
    pub(crate) fn capacity(&mut self) -> u64 {
        u64::from_le_bytes(self.config(60)[..8].try_into().unwrap()) * 512
    }
}

impl Queue {
    pub(crate) fn new(guest: &Guest, index: usize, size: u16, event_index: bool) -> Self {
        let base = GUEST + index as u64 * QUEUE_BYTES;
        let slots = size / CHAIN;
        let data = GUEST + MEMORY / 2 + index as u64 * 16 * DATA_MAX;
        Self {
            driver: Driver::new(guest, base, size),
            kick: event(),
            call: event(),
            err: event(),
            event_index,
            data,
            free: (0..slots).rev().collect(),
            into: vec![0; usize::from(slots)],
            told: 0,
            kicks: 0,
        }
    }

    fn header_of(&self, slot: u16) -> u64 {
        self.driver.base + QUEUE_BYTES / 4 + u64::from(slot) * 16
    }

    pub(crate) fn status_of(&self, slot: u16) -> u64 {
        self.driver.base + QUEUE_BYTES * 3 / 8 + u64::from(slot)
    }

    fn table_of(&self, slot: u16) -> u64 {
        self.driver.base + QUEUE_BYTES / 2 + u64::from(slot) * TABLE * 16
    }

    pub(crate) fn data_of(&self, slot: u16) -> u64 {
        self.data + u64::from(slot % 16) * DATA_MAX
    }

    /// Makes a request available; the device is not told. Gives the slot that it has.
    pub(crate) fn submit(&mut self, io: &Io) -> u16 {
        let slot = self.free.pop().expect("a free slot");
        let guest = self.driver.guest.clone();
        guest.write(self.header_of(slot), &header(io.kind, io.sector));
        guest.write(self.status_of(slot), &[NO_STATUS]);
        let len = io.out.len() as u32 + io.into;
        assert!(u64::from(len) <= DATA_MAX);
        if !io.out.is_empty() {
            guest.write(self.data_of(slot), &io.out);
        }
        let pieces = if io.pieces.is_empty() && len > 0 { vec![len] } else { io.pieces.clone() };
        let mut parts = vec![(self.header_of(slot), 16, false)];
        let mut at = self.data_of(slot);
        for piece in pieces {
            parts.push((at, piece, io.into > 0));
            at += u64::from(piece);
        }
        parts.push((self.status_of(slot), 1, true));
        self.describe(slot, &parts);
        self.into[usize::from(slot)] = io.into;
        self.driver.add(slot * CHAIN);
        slot
    }

    /// Writes a chain's descriptors: in the queue's table if there is room, in one of its own otherwise.
    fn describe(&self, slot: u16, parts: &[(u64, u32, bool)]) {
        if parts.len() <= usize::from(CHAIN) {
            return self.driver.chain(slot * CHAIN, parts);
        }
        for (index, (address, len, writable)) in parts.iter().enumerate() {
            let more = if index + 1 < parts.len() { NEXT } else { 0 };
            let flags = more | if *writable { WRITE } else { 0 };
            let descriptor = Descriptor { address: *address, len: *len, flags, next: index as u16 + 1 };
            self.driver.guest.write(self.table_of(slot) + index as u64 * 16, &descriptor.bytes());
        }
        let (address, len) = (self.table_of(slot), parts.len() as u32 * 16);
        self.driver.set(slot * CHAIN, Descriptor { address, len, flags: INDIRECT, next: 0 });
    }

    /// Tells the device of what was made available, if it wants to be told.
    pub(crate) fn kick(&mut self) {
        let (before, now) = (self.told, self.driver.added);
        self.told = now;
        let wanted = match self.event_index {
            true => {
                let event = self.driver.wanted_kick();
                now.wrapping_sub(event).wrapping_sub(1) < now.wrapping_sub(before)
            }
            false => self.driver.guest.read_16(self.driver.used()) & 1 == 0,
        };
        if wanted {
            self.kicks += 1;
            self.kick.write(1).unwrap();
        }
    }

    /// Waits for the next request to end.
    #[track_caller]
    pub(crate) fn wait(&mut self) -> Answer {
        loop {
            if let Some(answer) = self.look() {
                return answer;
            }
            self.driver.want_interrupt(self.driver.seen);
            if let Some(answer) = self.look() {
                return answer;
            }
            assert!(self.is_interrupted(PATIENCE), "the guest is interrupted");
        }
    }

    /// Waits for an interrupt. False if there was none in time.
    pub(crate) fn is_interrupted(&self, patience: Duration) -> bool {
        is_raised(&self.call, patience)
    }

    /// A request that has ended, if there is one.
    pub(crate) fn look(&mut self) -> Option<Answer> {
        let (head, len) = self.driver.take_ended()?;
        let slot = head / CHAIN;
        let into = self.into[usize::from(slot)];
        let guest = &self.driver.guest;
        let status = guest.read(self.status_of(slot), 1)[0];
        let data = guest.read(self.data_of(slot), into as usize);
        self.free.push(slot);
        Some(Answer { slot, len, status, data })
    }
}

/// Waits for an event, and takes it. False if there was none in time.
pub(crate) fn is_raised(event: &EventFd, patience: Duration) -> bool {
    is_ready(event.as_raw_fd(), patience) && event.read().is_ok()
}

fn is_ready(descriptor: RawFd, patience: Duration) -> bool {
    let epoll = Epoll::new().unwrap();
    epoll.ctl(ControlOperation::Add, descriptor, EpollEvent::new(EventSet::IN, 0)).unwrap();
    epoll.wait(patience.as_millis() as i32, &mut [EpollEvent::default()]).unwrap() == 1
}
