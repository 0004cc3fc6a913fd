//! A blocking front end and guest driver on the message layer of the `vhost` crate.

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

/// Longer than any step takes, on any machine.
const TIMEOUT: Duration = Duration::from_secs(60);
/// Bytes of the guest's memory, which is sparse.
pub(crate) const MEMORY: u64 = 256 << 20;
/// Bytes of a queue's structures, and of its requests' headers, statuses and tables.
const QUEUE_BYTES: u64 = 1 << 20;
/// Most bytes of data of one request.
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
/// The initial value of the byte to which the device writes the status.
pub(crate) const NO_STATUS: u8 = 0xEE;

pub(crate) const RO: u64 = 1 << 5;
pub(crate) const F_FLUSH: u64 = 1 << 9;
pub(crate) const LOG_ALL: u64 = 1 << 26;
pub(crate) const EVENT_INDEX: u64 = 1 << 29;
pub(crate) const PROTOCOL: u64 = 1 << 30;

/// The parameters with which a front end configures a device.
#[derive(Clone)]
pub(crate) struct DeviceSetup {
    pub(crate) queues: usize,
    pub(crate) size: u16,
    /// Offered features that the front end does not accept.
    pub(crate) masked: u64,
    pub(crate) inflight: bool,
}

impl Default for DeviceSetup {
    fn default() -> Self {
        Self { queues: 1, size: 64, masked: LOG_ALL, inflight: false }
    }
}

/// A front end and the device that it has configured.
pub(crate) struct FrontEnd {
    pub(crate) frontend: Frontend,
    pub(crate) guest: Guest,
    pub(crate) features: u64,
    pub(crate) queues: Vec<Queue>,
    pub(crate) inflight: Option<(VhostUserInflight, File)>,
}

/// A request of a guest.
#[derive(Clone, Debug)]
pub(crate) struct Io {
    pub(crate) kind: u32,
    pub(crate) sector: u64,
    /// The bytes that the device reads, after the header.
    pub(crate) out: Vec<u8>,
    /// Number of bytes that the device writes, before the status.
    pub(crate) read_len: u32,
    /// The lengths of the data segments; empty for one segment with all data.
    pub(crate) segments: Vec<u32>,
}

impl Io {
    pub(crate) fn read(sector: u64, len: u32) -> Self {
        Self { kind: READ, sector, out: Vec::new(), read_len: len, segments: Vec::new() }
    }

    pub(crate) fn write(sector: u64, data: &[u8]) -> Self {
        Self { kind: WRITE_OUT, sector, out: data.to_vec(), read_len: 0, segments: Vec::new() }
    }

    pub(crate) fn flush() -> Self {
        Self { kind: FLUSH, ..Self::read(0, 0) }
    }

    /// Returns a discard or write-zeroes request for ranges of first sector, sectors and flags.
    pub(crate) fn ranges(kind: u32, ranges: &[(u64, u32, u32)]) -> Self {
        let bytes = ranges.iter().flat_map(|(sector, sectors, flags)| {
            [&sector.to_le_bytes()[..], &sectors.to_le_bytes(), &flags.to_le_bytes()].concat()
        });
        Self { kind, out: bytes.collect(), ..Self::read(0, 0) }
    }

    pub(crate) fn in_segments(self, segments: &[u32]) -> Self {
        Self { segments: segments.to_vec(), ..self }
    }
}

/// A completed request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct UsedRequest {
    pub(crate) slot: u16,
    /// The number of written bytes that the device reports.
    pub(crate) len: u32,
    pub(crate) status: u8,
    pub(crate) data: Vec<u8>,
}

/// A queue, and the guest memory of its requests.
pub(crate) struct Queue {
    pub(crate) driver: Driver,
    pub(crate) kick: EventFd,
    pub(crate) call: EventFd,
    pub(crate) err: EventFd,
    event_index: bool,
    /// Guest address of the data buffers.
    data: u64,
    free: Vec<u16>,
    /// Bytes to read back for the request in flight in each slot.
    read_lens: Vec<u32>,
    /// The available index at the last notification.
    notified: u16,
    /// Number of notifications that the device requested.
    pub(crate) kicks: u64,
}

pub(crate) fn event() -> EventFd {
    EventFd::new(EFD_NONBLOCK).unwrap()
}

/// Connects to a back end, with a timeout for reads.
pub(crate) fn connect(path: &Path) -> UnixStream {
    let stream = UnixStream::connect(path).unwrap();
    stream.set_read_timeout(Some(TIMEOUT)).unwrap();
    stream
}

impl FrontEnd {
    /// Connects to a back end and starts all queues.
    pub(crate) fn new(path: &Path, setup: &DeviceSetup) -> Self {
        let mut front = Self::negotiated(connect(path), Guest::new(MEMORY), setup);
        front.share_memory();
        front.set_up_inflight(setup);
        for index in 0..setup.queues {
            front.start_queue(index, 0);
        }
        front
    }

    /// Negotiates features over a connection. Memory and queues are not configured.
    pub(crate) fn negotiated(stream: UnixStream, guest: Guest, setup: &DeviceSetup) -> Self {
        let mut frontend = Frontend::from_stream(stream, setup.queues as u64);
        frontend.set_owner().unwrap();
        let features = frontend.get_features().unwrap() & !setup.masked;
        if features & PROTOCOL != 0 {
            let offered = frontend.get_protocol_features().unwrap();
            frontend.set_protocol_features(offered).unwrap();
            frontend.set_hdr_flags(VhostUserHeaderFlag::NEED_REPLY);
            assert!(frontend.get_queue_num().unwrap() >= setup.queues as u64);
        }
        frontend.set_features(features).unwrap();
        let queue = |index| Queue::new(&guest, index, setup.size, features & EVENT_INDEX != 0);
        let queues = (0..setup.queues).map(queue).collect();
        Self { frontend, guest, features, queues, inflight: None }
    }

    /// Connects the same guest to another back end, as after a crash of the first. The contents of
    /// the queues and the inflight region are kept; the rest is configured again.
    pub(crate) fn reconnect(self, path: &Path, setup: &DeviceSetup) -> Self {
        let Self { frontend, guest, queues, inflight, .. } = self;
        drop(frontend);
        let mut front = Self::negotiated(connect(path), guest, setup);
        front.queues = queues;
        front.share_memory();
        if let Some((layout, file)) = inflight {
            front.frontend.set_inflight_fd(&layout, file.as_raw_fd()).unwrap();
            front.inflight = Some((layout, file));
        }
        for index in 0..setup.queues {
            // The front end knows only the used index; the back end finds the requests in flight.
            let base = front.queues[index].driver.guest.read_16(front.queues[index].driver.used() + 2);
            front.start_queue(index, base);
        }
        front
    }

    /// Returns the guest's whole memory as one region.
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

    pub(crate) fn set_up_inflight(&mut self, setup: &DeviceSetup) {
        if setup.inflight {
            let wanted = VhostUserInflight::new(0, 0, setup.queues as u16, setup.size);
            let (layout, file) = self.frontend.get_inflight_fd(&wanted).unwrap();
            self.frontend.set_inflight_fd(&layout, file.as_raw_fd()).unwrap();
            self.inflight = Some((layout, file));
        }
    }

    /// Returns the addresses of a queue for the back end.
    pub(crate) fn vring_config(&self, index: usize) -> VringConfigData {
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
    /// The message that the back end refuses.
    pub(crate) fn try_start_queue(&mut self, index: usize, base: u16) -> vhost::Result<()> {
        let config = self.vring_config(index);
        let queue = &self.queues[index];
        self.frontend.set_vring_num(index, queue.driver.size)?;
        self.frontend.set_vring_base(index, base)?;
        self.frontend.set_vring_addr(index, &config)?;
        self.frontend.set_vring_call(index, &queue.call)?;
        self.frontend.set_vring_err(index, &queue.err)?;
        self.frontend.set_vring_kick(index, &queue.kick)?;
        if self.features & PROTOCOL != 0 {
            self.frontend.set_vring_enable(index, true)?;
        }
        Ok(())
    }

    /// Stops a queue, clears its memory and starts it again, as a guest's driver does to recover.
    pub(crate) fn restart_queue(&mut self, index: usize) {
        self.frontend.get_vring_base(index).unwrap();
        let driver = &self.queues[index].driver;
        driver.guest.write(driver.base, &vec![0; QUEUE_BYTES as usize]);
        self.queues[index] = Queue::new(&self.guest, index, driver.size, self.features & EVENT_INDEX != 0);
        self.start_queue(index, 0);
    }

    /// Waits until the back end has closed the connection. False if it has not in time.
    pub(crate) fn is_disconnected(&self) -> bool {
        is_ready(self.frontend.as_raw_fd(), TIMEOUT) && self.frontend.get_features().is_err()
    }

    /// Runs one request on an idle queue.
    #[track_caller]
    pub(crate) fn run_on(&mut self, queue: usize, io: &Io) -> UsedRequest {
        let queue = &mut self.queues[queue];
        let slot = queue.submit(io);
        queue.kick();
        let used = queue.wait();
        assert_eq!(used.slot, slot, "the only request in flight");
        used
    }

    /// Runs one request on the first queue, which must succeed. Returns the data read.
    #[track_caller]
    pub(crate) fn run(&mut self, io: &Io) -> Vec<u8> {
        let used = self.run_on(0, io);
        assert_eq!(used.status, OK, "{io:?}");
        used.data
    }

    #[track_caller]
    pub(crate) fn write(&mut self, sector: u64, data: &[u8]) {
        self.run(&Io::write(sector, data));
    }

    #[track_caller]
    pub(crate) fn read(&mut self, sector: u64, len: u32) -> Vec<u8> {
        self.run(&Io::read(sector, len))
    }

    /// Returns the first `len` bytes of the configuration space.
    pub(crate) fn config(&mut self, len: u32) -> Vec<u8> {
        let flags = VhostUserConfigFlags::empty();
        self.frontend.get_config(0, len, flags, &vec![0; len as usize]).unwrap().1
    }

    /// Returns the capacity in the device's configuration, in bytes.
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
            read_lens: vec![0; usize::from(slots)],
            notified: 0,
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

    /// Makes a request available without a notification. Returns its slot.
    pub(crate) fn submit(&mut self, io: &Io) -> u16 {
        let slot = self.free.pop().expect("a free slot");
        let guest = self.driver.guest.clone();
        guest.write(self.header_of(slot), &header(io.kind, io.sector));
        guest.write(self.status_of(slot), &[NO_STATUS]);
        let len = io.out.len() as u32 + io.read_len;
        assert!(u64::from(len) <= DATA_MAX);
        if !io.out.is_empty() {
            guest.write(self.data_of(slot), &io.out);
        }
        let segments = if io.segments.is_empty() && len > 0 { vec![len] } else { io.segments.clone() };
        let mut parts = vec![(self.header_of(slot), 16, false)];
        let mut at = self.data_of(slot);
        for segment in segments {
            parts.push((at, segment, io.read_len > 0));
            at += u64::from(segment);
        }
        parts.push((self.status_of(slot), 1, true));
        self.describe(slot, &parts);
        self.read_lens[usize::from(slot)] = io.read_len;
        self.driver.add(slot * CHAIN);
        slot
    }

    /// Writes a chain's descriptors to the queue's table if there is room, otherwise to an indirect
    /// table.
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

    /// Notifies the device of the available requests, if it has requested notifications.
    pub(crate) fn kick(&mut self) {
        let (before, now) = (self.notified, self.driver.added);
        self.notified = now;
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

    /// Waits for the next completed request.
    #[track_caller]
    pub(crate) fn wait(&mut self) -> UsedRequest {
        loop {
            if let Some(used) = self.poll_used() {
                return used;
            }
            self.driver.want_interrupt(self.driver.seen);
            if let Some(used) = self.poll_used() {
                return used;
            }
            assert!(
                self.is_interrupted(TIMEOUT),
                "no interrupt although a request has completed or will complete"
            );
        }
    }

    /// Waits for an interrupt. False if there was none in time.
    pub(crate) fn is_interrupted(&self, timeout: Duration) -> bool {
        is_raised(&self.call, timeout)
    }

    /// Returns the next completed request, if there is one.
    pub(crate) fn poll_used(&mut self) -> Option<UsedRequest> {
        let (head, len) = self.driver.take_ended()?;
        let slot = head / CHAIN;
        let read_len = self.read_lens[usize::from(slot)];
        let guest = &self.driver.guest;
        let status = guest.read(self.status_of(slot), 1)[0];
        let data = guest.read(self.data_of(slot), read_len as usize);
        self.free.push(slot);
        Some(UsedRequest { slot, len, status, data })
    }
}

/// Waits for an event and clears it. False if there was none in time.
pub(crate) fn is_raised(event: &EventFd, timeout: Duration) -> bool {
    is_ready(event.as_raw_fd(), timeout) && event.read().is_ok()
}

fn is_ready(descriptor: RawFd, timeout: Duration) -> bool {
    let epoll = Epoll::new().unwrap();
    epoll.ctl(ControlOperation::Add, descriptor, EpollEvent::new(EventSet::IN, 0)).unwrap();
    epoll.wait(timeout.as_millis() as i32, &mut [EpollEvent::default()]).unwrap() == 1
}
