//! A vhost-user front end without a virtual machine: sets up a vhost-user-blk device and provides
//! its queues to loads.
//!
//! Owns the connection, whose lifetime bounds the service of the queues. Works with any back end
//! that provides a disk's configuration space over the protocol.

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
use super::shared::SharedMemory;
use crate::disk_bench::Worker;

/// Maximum time to wait for a reply to a message.
const REPLY_TIMEOUT: Duration = Duration::from_secs(10);
/// Bytes of the configuration space to read: the capacity and the fields before the block size.
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

/// The parameters of a device.
#[derive(Clone, Copy, Debug)]
pub(super) struct DeviceShape {
    pub(super) queues: u16,
    /// Entries per queue.
    pub(super) entries: u16,
    /// Maximum bytes of data in flight on all queues.
    pub(super) data: usize,
    pub(super) indirect: bool,
}

/// A device that is set up.
pub(super) struct Device {
    /// Keeps the connection open: the device stops without it.
    _frontend: Frontend,
    /// Queues that are not used by a load.
    pub(super) queues: Vec<Queue>,
    pub(super) capacity: u64,
    pub(super) read_only: bool,
    pub(super) worker: Option<Worker>,
}

fn unsupported(message: impl Into<String>) -> io::Error {
    io::Error::new(io::ErrorKind::Unsupported, message.into())
}

fn failed(action: &'static str) -> impl Fn(vhost::Error) -> io::Error {
    move |error| io::Error::other(format!("{action}: {error}"))
}

impl Device {
    /// Connects to a back end and sets its device up.
    ///
    /// # Errors
    /// If no back end listens there, or its device is not a usable disk.
    pub(super) fn connect(path: &Path, shape: &DeviceShape) -> io::Result<Self> {
        let stream = UnixStream::connect(path)?;
        stream.set_read_timeout(Some(REPLY_TIMEOUT))?;
        let worker = Worker::behind(&stream);
        let mut frontend = Frontend::from_stream(stream, shape.queues.into());
        let features = negotiate(&mut frontend, shape)?;
        let flags = VhostUserConfigFlags::empty();
        let (_, config) = frontend
            .get_config(0, CONFIG, flags, &[0; CONFIG as usize])
            .map_err(|error| unsupported(format!("cannot read the device configuration: {error}")))?;
        let sectors = config.first_chunk::<8>().map_or(0, |bytes| u64::from_le_bytes(*bytes));
        let (memory, places, data) = allocate_memory(shape)?;
        share(&frontend, &memory)?;
        let mut queues = Vec::new();
        for (index, (place, lines)) in places.into_iter().enumerate() {
            let (kick, call) = (EventFd::new(EFD_NONBLOCK)?, EventFd::new(EFD_NONBLOCK)?);
            let ring_options = (features & EVENT_INDEX != 0, shape.indirect);
            start(&mut frontend, index, &place, &memory, (&kick, &call))?;
            queues.push(Queue::new(memory.clone(), place, ring_options, (kick, call), (lines, data)));
        }
        // The reply follows the completion of all earlier messages.
        frontend.get_features().map_err(failed("cannot start the device"))?;
        Ok(Self {
            _frontend: frontend,
            queues,
            capacity: sectors.saturating_mul(SECTOR),
            read_only: features & RO != 0,
            worker,
        })
    }
}

fn negotiate(frontend: &mut Frontend, shape: &DeviceShape) -> io::Result<u64> {
    frontend.set_owner().map_err(failed("the peer does not speak vhost-user"))?;
    let offered = frontend.get_features().map_err(failed("cannot read the device features"))?;
    let needed = PROTOCOL | VERSION_1 | if shape.indirect { INDIRECT } else { 0 };
    if offered & needed != needed {
        return Err(unsupported(format!(
            "the device offers features {offered:#x}; {needed:#x} are required"
        )));
    }
    let features = offered & (needed | RO | BLK_SIZE | FLUSH | MQ | EVENT_INDEX);
    let known = frontend.get_protocol_features().map_err(failed("cannot read the protocol features"))?;
    let protocol = known
        & (VhostUserProtocolFeatures::MQ
            | VhostUserProtocolFeatures::CONFIG
            | VhostUserProtocolFeatures::REPLY_ACK);
    if !protocol.contains(VhostUserProtocolFeatures::CONFIG) {
        return Err(unsupported("the device does not provide its configuration space"));
    }
    frontend.set_protocol_features(protocol).map_err(failed("cannot set the features"))?;
    if protocol.contains(VhostUserProtocolFeatures::REPLY_ACK) {
        frontend.set_hdr_flags(VhostUserHeaderFlag::NEED_REPLY);
    }
    let queues = match protocol.contains(VhostUserProtocolFeatures::MQ) {
        true => frontend.get_queue_num().map_err(failed("cannot read the number of queues"))?,
        false => 1,
    };
    if queues < shape.queues.into() {
        return Err(unsupported(format!("the device has {queues} queues; {} are required", shape.queues)));
    }
    frontend.set_features(features).map_err(failed("cannot set the features"))?;
    Ok(features)
}

type Places = Vec<(RingLayout, usize)>;

/// Allocates the memory of queues, headers and data. Returns it with the position of each queue and
/// its headers, and of the data.
fn allocate_memory(shape: &DeviceShape) -> io::Result<(Arc<SharedMemory>, Places, usize)> {
    let mut at = 0;
    let mut places = Vec::new();
    for _ in 0..shape.queues {
        let (place, end) = RingLayout::from(at, shape.entries);
        let lines = end.next_multiple_of(4096);
        at = lines + Queue::line_bytes(shape.entries);
        places.push((place, lines));
    }
    let data = at.next_multiple_of(2 << 20);
    let memory = SharedMemory::new((data + shape.data).next_multiple_of(2 << 20))?;
    fill(&memory, data);
    Ok((memory, places, data))
}

/// Fills the data with incompressible bytes without zero blocks.
fn fill(memory: &SharedMemory, from: usize) {
    let mut word = 0x9E37_79B9_7F4A_7C15_u64;
    for at in (from..memory.len()).step_by(8) {
        // xorshift64 (Marsaglia, 2003).
        word ^= word << 13;
        word ^= word >> 7;
        word ^= word << 17;
        memory.write(at, word.to_le_bytes());
    }
}

fn share(frontend: &Frontend, memory: &SharedMemory) -> io::Result<()> {
    let region = VhostUserMemoryRegionInfo {
        guest_phys_addr: GUEST,
        memory_size: memory.len() as u64,
        userspace_addr: memory.address(),
        mmap_offset: 0,
        mmap_handle: memory.descriptor(),
    };
    frontend.set_mem_table(&[region]).map(drop).map_err(failed("cannot share memory with the device"))
}

fn start(
    frontend: &mut Frontend,
    index: usize,
    place: &RingLayout,
    memory: &SharedMemory,
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
    steps().map_err(failed("cannot start a queue"))
}
