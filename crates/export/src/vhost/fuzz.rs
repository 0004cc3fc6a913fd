//! Fuzz targets: guest memory and front-end messages.
//!
//! A queue completes each request once, and writes only to memory that the guest made writable. A
//! front end can be cut off at any moment.

use std::io::IoSlice;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::rc::Rc;
use std::sync::{Arc, LazyLock, Mutex, mpsc};
use std::time::Duration;

use reactor::{Clock, ParkDriver, Platform, Reactor, Remote, SystemClock};
use rustix::event::EventfdFlags;
use rustix::fs::MemfdFlags;
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags};
use vhost::vhost_user::BackendReqHandler;

use super::backend_channel::receive_channel;
use super::disk::VhostDisk;
use super::execute::DeviceOptions;
use super::memory::{GuestMemory, RegionLayout};
use super::queue::{Dispatcher, QueueSetup, VirtQueue};
use super::ring::RingAddresses;
use super::session::VhostSession;
use super::testing::{Descriptor, Driver, GUEST, Guest, INDIRECT, NEXT, USER, WRITE};
use crate::{MemoryVolume, OpenError};

/// Entries of the queue.
const SIZE: u16 = 16;
/// Bytes of the guest's memory: the queue, and the data of requests.
const LEN: usize = 16 << 10;
/// Offset of the memory that requests may use without touching the queue.
const FREE: usize = 1 << 10;

struct Machine {
    reactor: Reactor,
    guest: Guest,
    memory: GuestMemory,
}

thread_local! {
    static MACHINE: Machine = {
        let clock: Rc<dyn Clock> = Rc::new(SystemClock::new());
        let guest = Guest::new(LEN as u64);
        let layout = RegionLayout { guest: GUEST, user: USER, len: LEN as u64, offset: 0 };
        Machine {
            reactor: Reactor::new(ParkDriver::new(clock.clone()), clock),
            memory: GuestMemory::empty().with(layout, guest.file.as_fd()).unwrap(),
            guest,
        }
    };
}

::fuzz::target!(vhost_queue, |bytes| {
    let [mode, rest @ ..] = bytes else { return };
    MACHINE.with(|machine| match mode & 1 {
        0 => drop(serve(machine, *mode, &image_of(rest))),
        _ => check_requests(machine, *mode, rest),
    });
});

/// Returns the guest's memory with these bytes at its start.
fn image_of(bytes: &[u8]) -> Vec<u8> {
    let mut image = bytes.to_vec();
    image.resize(LEN, 0);
    image
}

/// Serves the available requests of a memory image. Returns the memory afterwards.
fn serve(machine: &Machine, mode: u8, image: &[u8]) -> Vec<u8> {
    machine.guest.write(GUEST, image);
    let driver = Driver::new(&machine.guest, GUEST, SIZE);
    let user = |guest| guest - GUEST + USER;
    let start = QueueSetup {
        index: 0,
        addresses: RingAddresses {
            descriptors: user(driver.table()),
            available: user(driver.available()),
            used: user(driver.used()),
            log: None,
        },
        size: SIZE,
        next: 0,
        event_index: mode & 2 != 0,
        enabled: true,
        memory: machine.memory.clone(),
        inflight: None,
        log: None,
        call: None,
        err: None,
        options: DeviceOptions { write_through: mode & 4 != 0, id: [b'x'; 20] },
        name: "fuzz".into(),
        front_end: None,
    };
    let volume = MemoryVolume::new(1 << 20, if mode & 8 == 0 { 512 } else { 4096 });
    volume.set_read_only(mode & 16 != 0);
    machine.reactor.run(async {
        let queue = VirtQueue::new(start, volume).unwrap();
        let dispatcher = Dispatcher::new(VirtQueue::execute_request);
        // A guest that keeps its index ahead could be served forever. Here its index does not
        // change.
        for _ in 0..64 {
            let worked = queue.process(&dispatcher);
            machine.reactor.yield_now().await;
            if !worked && queue.arm() {
                break;
            }
        }
        queue.stop();
        queue.process(&dispatcher);
        assert!(queue.has_stopped(), "a request was taken and not completed");
    });
    machine.guest.read(GUEST, LEN)
}

/// Serves requests with descriptors of 8 bytes each, for memory after the queue, and checks the
/// written memory.
fn check_requests(machine: &Machine, mode: u8, bytes: &[u8]) {
    let (table, rest) = bytes.split_at(bytes.len().min(8 * usize::from(SIZE)));
    let mut image = vec![0; LEN];
    // The used ring belongs to the device.
    let mut writable = vec![false; LEN];
    let driver = Driver::new(&machine.guest, GUEST, SIZE);
    let at = |address: u64| (address - GUEST) as usize;
    let used = at(driver.used());
    writable[used..used + 4 + 8 * usize::from(SIZE) + 2].fill(true);
    for (index, chunk) in table.chunks_exact(8).enumerate() {
        let descriptor = descriptor_of(chunk);
        image[index * 16..][..16].copy_from_slice(&descriptor.bytes());
        mark_writable(&mut writable, &descriptor);
    }
    let count = usize::from(mode >> 5) + 1;
    let (heads, data) = rest.split_at(rest.len().min(count));
    for (slot, head) in heads.iter().enumerate() {
        image[at(driver.available()) + 4 + 2 * slot] = head & 15;
    }
    image[at(driver.available()) + 2] = heads.len() as u8;
    let data = &data[..data.len().min(LEN - FREE)];
    image[FREE..FREE + data.len()].copy_from_slice(data);
    // An indirect table is read from memory that requests may write to. Their writes cannot be
    // checked then.
    let indirect = (0..usize::from(SIZE)).any(|index| image[index * 16 + 12] & INDIRECT as u8 != 0);
    let after = serve(machine, mode, &image);

    let ended = u16::from_le_bytes([after[used + 2], after[used + 3]]);
    assert!(usize::from(ended) <= heads.len());
    let mut pending: Vec<u8> = heads.iter().map(|head| head & 15).collect();
    for entry in after[used + 4..].chunks_exact(8).take(usize::from(ended)) {
        let place = pending.iter().position(|head| [*head, 0, 0, 0] == entry[..4]);
        pending.swap_remove(place.expect("a request was completed that was not pending, or twice"));
    }
    if !indirect {
        let bytes = after.iter().zip(&image).zip(&writable);
        let wild = bytes.enumerate().find(|(_, ((after, before), writable))| after != before && !**writable);
        assert!(wild.is_none(), "changed memory that was not writable: {wild:?}");
    }
}

/// Decodes a descriptor, usually for memory after the queue.
fn descriptor_of(bytes: &[u8]) -> Descriptor {
    let address = u64::from(u16::from_le_bytes([bytes[0], bytes[1]]) % (LEN - FREE) as u16) + FREE as u64;
    let len = u32::from(u16::from_le_bytes([bytes[2], bytes[3]])) << (bytes[4] & 1);
    let indirect = if bytes[4] & 0xF0 == 0x10 { INDIRECT } else { 0 };
    let flags = (u16::from(bytes[5]) & (NEXT | WRITE)) | indirect;
    Descriptor { address: GUEST + address, len, flags, next: u16::from(bytes[6]) % (SIZE + 1) }
}

fn mark_writable(writable: &mut [bool], descriptor: &Descriptor) {
    if descriptor.flags & WRITE != 0 {
        let start = (descriptor.address - GUEST) as usize;
        writable[start..LEN.min(start + descriptor.len as usize)].fill(true);
    }
}

/// A volume on its own reactor thread, which lives as long as the process.
struct FuzzDisk {
    remotes: Vec<Remote>,
}

thread_local! {
    static PLATFORM: std::cell::RefCell<Option<Rc<Platform>>> = const { std::cell::RefCell::new(None) };
}

static DISK: LazyLock<Arc<FuzzDisk>> = LazyLock::new(|| {
    let (sender, receiver) = mpsc::channel();
    std::thread::spawn(move || {
        let clock: Rc<dyn Clock> = Rc::new(SystemClock::new());
        let platform = Platform::new(reactor::Backend::Auto, clock.clone()).unwrap();
        PLATFORM.set(Some(platform.clone()));
        let reactor = Reactor::new(platform, clock);
        reactor.run(async {
            sender.send(reactor.remote()).unwrap();
            std::future::pending::<()>().await;
        });
    });
    Arc::new(FuzzDisk { remotes: vec![receiver.recv().unwrap()] })
});

impl VhostDisk for FuzzDisk {
    type Volume = MemoryVolume;

    fn name(&self) -> String {
        "fuzz".into()
    }

    fn serial(&self) -> String {
        "serial".into()
    }

    fn size(&self) -> u64 {
        1 << 20
    }

    fn sector(&self) -> u32 {
        512
    }

    fn read_only(&self) -> bool {
        false
    }

    fn reactors(&self) -> &[Remote] {
        &self.remotes
    }

    fn queues(&self) -> u16 {
        2
    }

    fn poll(&self) -> Duration {
        Duration::ZERO
    }

    fn coalesce_delay(&self) -> Duration {
        Duration::ZERO
    }

    fn platform(&self) -> Rc<Platform> {
        PLATFORM.with_borrow(|platform| platform.clone().unwrap())
    }

    async fn open(&self) -> Result<MemoryVolume, OpenError> {
        Ok(MemoryVolume::new(1 << 20, 512))
    }
}

::fuzz::target!(vhost_messages, |bytes| {
    let (ours, theirs) = UnixStream::pair().unwrap();
    let files = Files::new();
    let mut rest = bytes;
    // As many messages as fit into the socket's buffer, with their replies.
    for _ in 0..64 {
        let Some((message, behind)) = message_of(rest) else { break };
        rest = behind;
        if !files.send(&theirs, &message) {
            break;
        }
    }
    theirs.shutdown(std::net::Shutdown::Write).unwrap();
    let front_end = Arc::new(ours.try_clone().unwrap());
    let session = Arc::new(Mutex::new(VhostSession::new(DISK.clone(), front_end)));
    let mut handler = BackendReqHandler::from_stream(ours.try_clone().unwrap(), session.clone());
    let acknowledges = || session.lock().unwrap().acknowledges;
    loop {
        match receive_channel(&ours, acknowledges(), drop) {
            Ok(true) => continue,
            Ok(false) if handler.handle_request().is_ok() => {}
            _ => break,
        }
    }
});

/// A message and the descriptors sent with it.
struct FuzzMessage {
    bytes: Vec<u8>,
    files: u8,
}

/// Decodes the first message: request, flags, files, and the number of words, each given by a byte
/// and an exponent. Or raw bytes. Requests and sizes are mostly valid ones.
fn message_of(bytes: &[u8]) -> Option<(FuzzMessage, &[u8])> {
    let [request, flags, files, words, rest @ ..] = bytes else { return None };
    let count = usize::from(*words & 63);
    if *words & 64 != 0 {
        let (raw, rest) = rest.split_at(rest.len().min(count));
        return Some((FuzzMessage { bytes: raw.to_vec(), files: *files }, rest));
    }
    let (body, rest) = rest.split_at(rest.len().min(2 * count));
    let word = |word: &[u8]| {
        let [low, shift] = word else { return 0 };
        let base = match shift >> 6 {
            0 => 0,
            1 => GUEST,
            2 => USER,
            _ => 1 << 32,
        };
        base.wrapping_add(u64::from(*low) << (shift & 63))
    };
    let body: Vec<u8> = body.chunks(2).flat_map(|pair| word(pair).to_le_bytes()).collect();
    let size = body.len() as u32;
    let size = if *words & 128 == 0 { size } else { size.wrapping_add(u32::from(*flags)) };
    let front = [u32::from(*request), u32::from(*flags & 0x0F) | 1, size];
    let front: Vec<u8> = front.into_iter().flat_map(u32::to_le_bytes).collect();
    Some((FuzzMessage { bytes: [front, body].concat(), files: *files }, rest))
}

/// The descriptors that a front end sends: memory and events.
struct Files {
    memory: std::os::fd::OwnedFd,
    event: std::os::fd::OwnedFd,
}

impl Files {
    fn new() -> Self {
        let memory = rustix::fs::memfd_create("guest", MemfdFlags::CLOEXEC).unwrap();
        rustix::fs::ftruncate(&memory, 1 << 20).unwrap();
        Self { memory, event: rustix::event::eventfd(0, EventfdFlags::NONBLOCK).unwrap() }
    }

    /// Sends a message. Returns false if the other end is gone.
    fn send(&self, stream: &UnixStream, message: &FuzzMessage) -> bool {
        let file = |bit: u8| if message.files & bit == 0 { self.event.as_fd() } else { self.memory.as_fd() };
        let files: Vec<BorrowedFd<'_>> = (0..message.files & 3).map(|at| file(4 << at)).collect();
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(4))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        assert!(files.is_empty() || control.push(SendAncillaryMessage::ScmRights(&files)));
        let pieces = [IoSlice::new(&message.bytes)];
        let sent =
            rustix::net::sendmsg(stream, &pieces, &mut control, SendFlags::NOSIGNAL | SendFlags::DONTWAIT);
        sent.is_ok()
    }
}
