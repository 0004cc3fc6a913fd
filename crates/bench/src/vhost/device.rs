//! A front end without a machine behind it: sets a vhost-user-blk device up, and gives its queues to loads.
//!
//! Owns the connection; while it lives the device serves the queues. Speaks to any back end that knows the configuration
//! space of a disk over the protocol.

use std::io;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use vhost::vhost_user::message::{VhostUserConfigFlags, VhostUserHeaderFlag, VhostUserProtocolFeatures};
use vhost::vhost_user::{Frontend, VhostUserFrontend};
use vhost::{VhostBackend, VhostUserMemoryRegionInfo, VringConfigData};
use vmm_sys_util::eventfd::{EFD_NONBLOCK, EventFd};

use super::load::{GUEST, Queue};
use super::ring::RingLayout;
use super::shared::Shared;
use super::usage::Worker;

/// Longest time without an answer to a message.
const PATIENCE: Duration = Duration::from_secs(10);
/// Bytes of the configuration space that we look at: the capacity, and what is before the block size.
const CONFIG: u32 = 24;
const SECTOR: u64 = 512;

const RO: u64 = 1 << 5;
const BLK_SIZE: u64 = 1 << 6;
const FLUSH: u64 = 1 << 9;
const MQ: u64 = 1 << 12;
const INDIRECT: u64 = 1 << 28;
const EVENT_INDEX: u64 = 1 << 29;
const PROTOCOL: u64 = 1 << 30;
const VERSION_1: u64 = 1 << 32;

/// What a device is set up for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shape {
    pub(super) queues: u16,
    /// Entries of each queue.
    pub(super) entries: u16,
    /// Bytes of data that requests of all queues may have under way.
    pub(super) data: usize,
    pub(super) indirect: bool,
}

/// A device that is set up.
pub(super) struct Device {
    /// Keeps the connection: without it the device stops.
    _frontend: Frontend,
    /// The queues that no load has at present.
    pub(super) queues: Vec<Queue>,
    pub(super) capacity: u64,
    pub(super) read_only: bool,
    pub(super) worker: Option<Worker>,
}

fn refused(message: impl Into<String>) -> io::Error {
    io::Error::new(io::ErrorKind::Unsupported, message.into())
}

fn failed(what: &'static str) -> impl Fn(vhost::Error) -> io::Error {
    move |error| io::Error::other(format!("{what}: {error}"))
}

impl Device {
    /// Connects to the back end behind a socket and sets its device up.
    ///
    /// # Errors
    /// When nothing serves there, or it is no disk that we can use.
    pub(super) fn connect(path: &Path, shape: &Shape) -> io::Result<Self> {
        let stream = UnixStream::connect(path)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        let worker = Worker::behind(&stream);
        let mut frontend = Frontend::from_stream(stream, shape.queues.into());
        let features = negotiate(&mut frontend, shape)?;
        let flags = VhostUserConfigFlags::empty();
        let (_, config) = frontend
            .get_config(0, CONFIG, flags, &[0; CONFIG as usize])
            .map_err(|error| refused(format!("its configuration cannot be read: {error}")))?;
        let sectors = config.first_chunk::<8>().map_or(0, |bytes| u64::from_le_bytes(*bytes));
        let (memory, places, data) = lay_out(shape)?;
        share(&frontend, &memory)?;
        let mut queues = Vec::new();
        for (index, (place, lines)) in places.into_iter().enumerate() {
            let (kick, call) = (EventFd::new(EFD_NONBLOCK)?, EventFd::new(EFD_NONBLOCK)?);
            let manner = (features & EVENT_INDEX != 0, shape.indirect);
            start(&mut frontend, index, &place, &memory, (&kick, &call))?;
            queues.push(Queue::new(memory.clone(), place, manner, (kick, call), (lines, data)));
        }
        // An answer to this comes after everything before it was done.
        frontend.get_features().map_err(failed("the device does not start"))?;
        Ok(Self {
            _frontend: frontend,
            queues,
            capacity: sectors.saturating_mul(SECTOR),
            read_only: features & RO != 0,
            worker,
        })
    }
}

fn negotiate(frontend: &mut Frontend, shape: &Shape) -> io::Result<u64> {
    frontend.set_owner().map_err(failed("it does not speak vhost-user"))?;
    let offered = frontend.get_features().map_err(failed("it does not say what it offers"))?;
    let needed = PROTOCOL | VERSION_1 | if shape.indirect { INDIRECT } else { 0 };
    if offered & needed != needed {
        return Err(refused(format!("it offers features {offered:#x}, and {needed:#x} are needed")));
    }
    let features = offered & (needed | RO | BLK_SIZE | FLUSH | MQ | EVENT_INDEX);
    let known = frontend.get_protocol_features().map_err(failed("it does not say what it knows"))?;
    let protocol = known
        & (VhostUserProtocolFeatures::MQ
            | VhostUserProtocolFeatures::CONFIG
            | VhostUserProtocolFeatures::REPLY_ACK);
    if !protocol.contains(VhostUserProtocolFeatures::CONFIG) {
        return Err(refused("it does not give the configuration of a disk"));
    }
    frontend.set_protocol_features(protocol).map_err(failed("it does not take what it offers"))?;
    if protocol.contains(VhostUserProtocolFeatures::REPLY_ACK) {
        frontend.set_hdr_flags(VhostUserHeaderFlag::NEED_REPLY);
    }
    let queues = match protocol.contains(VhostUserProtocolFeatures::MQ) {
        true => frontend.get_queue_num().map_err(failed("it does not say how many queues it has"))?,
        false => 1,
    };
    if queues < shape.queues.into() {
        return Err(refused(format!("it has {queues} queues, and {} are wanted", shape.queues)));
    }
    frontend.set_features(features).map_err(failed("it does not take what it offers"))?;
    Ok(features)
}

type Places = Vec<(RingLayout, usize)>;

/// Memory for queues, headers and data: where each queue and its headers lie, and where the data does.
fn lay_out(shape: &Shape) -> io::Result<(Arc<Shared>, Places, usize)> {
    let mut at = 0;
    let mut places = Vec::new();
    for _ in 0..shape.queues {
        let (place, end) = RingLayout::from(at, shape.entries);
        let lines = end.next_multiple_of(4096);
        at = lines + Queue::line_bytes(shape.entries);
        places.push((place, lines));
    }
    let data = at.next_multiple_of(2 << 20);
    let memory = Shared::new((data + shape.data).next_multiple_of(2 << 20))?;
    fill(&memory, data);
    Ok((memory, places, data))
}

/// Fills the data with what cannot be made smaller, and holds no block of zeros.
fn fill(memory: &Shared, from: usize) {
    let mut word = 0x9E37_79B9_7F4A_7C15_u64;
    for at in (from..memory.len()).step_by(8) {
        // xorshift64 (Marsaglia, 2003).
        word ^= word << 13;
        word ^= word >> 7;
        word ^= word << 17;
        memory.write(at, word.to_le_bytes());
    }
}

fn share(frontend: &Frontend, memory: &Shared) -> io::Result<()> {
    let region = VhostUserMemoryRegionInfo {
        guest_phys_addr: GUEST,
        memory_size: memory.len() as u64,
        userspace_addr: memory.address(),
        mmap_offset: 0,
        mmap_handle: memory.descriptor(),
    };
    frontend.set_mem_table(&[region]).map(drop).map_err(failed("it does not take our memory"))
}

fn start(
    frontend: &mut Frontend,
    index: usize,
    place: &RingLayout,
    memory: &Shared,
    (kick, call): (&EventFd, &EventFd),
) -> io::Result<()> {
    let user = |at: usize| memory.address() + at as u64;
    let config = VringConfigData {
        queue_max_size: place.entries,
        queue_size: place.entries,
        flags: 0,
        desc_table_addr: user(place.table),
        used_ring_addr: user(place.used),
        avail_ring_addr: user(place.available),
        log_addr: None,
    };
    let mut steps = || {
        frontend.set_vring_num(index, place.entries)?;
        frontend.set_vring_base(index, 0)?;
        frontend.set_vring_addr(index, &config)?;
        frontend.set_vring_call(index, call)?;
        frontend.set_vring_kick(index, kick)?;
        frontend.set_vring_enable(index, true)
    };
    steps().map_err(failed("it does not start a queue"))
}
