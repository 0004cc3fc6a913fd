//! Runs a job of a suite over vhost-user: each instance uses queues of its own, one per thread,
//! like a virtual machine.
//!
//! Invariants: a load thread without work sleeps until a device interrupts it, like fio and guests,
//! so that the processors are available to the measured system; blocks written by such a load are
//! verified when they are read.

use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::os::fd::AsRawFd;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use vmm_sys_util::epoll::{ControlOperation, Epoll, EpollEvent, EventSet};

use super::VhostError;
use super::device::{Device, DeviceShape};
use super::load::{LoadSpec, Progress, Queue, QueueLoad, entries};
use crate::disk_bench::{LoadCounters, RunLength, Window, Worker};
use crate::load::{Length, Load, LoadResult, Output, Second, Slice, Target};
use crate::result::{Direction, ReadWrite};
use crate::sample::Recorder;

/// Maximum entries of a queue that devices support; an entry is a request with indirect
/// descriptors.
const ENTRIES_MAX: u32 = 1024;
/// Maximum bytes of one contiguous request that devices support.
pub(crate) const BLOCK_MAX: u64 = 1 << 20;
/// Bytes of a block with its own stamp.
const BLOCK: u64 = 4096;
const SECTOR: u64 = 512;
/// Maximum time until an interruption is noticed, in milliseconds.
const INTERRUPT_CHECK_MS: i32 = 50;

/// A disk behind a socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Disk {
    /// Size in bytes.
    pub bytes: u64,
    /// True if it is read-only.
    pub read_only: bool,
    /// The process that serves it, if known.
    pub process: Option<u32>,
}

/// Reads the properties of the disk behind a socket.
///
/// # Errors
/// If no back end listens there, or its device is not a usable disk.
pub fn disk(socket: &Path) -> Result<Disk, VhostError> {
    let shape = DeviceShape { queues: 1, entries: 4, data: 4096, indirect: true };
    let device = connect(socket, &shape)?;
    let process = device.worker.as_ref().and_then(Worker::process);
    Ok(Disk { bytes: device.capacity, read_only: device.read_only, process })
}

/// True if writes of this block size are stamped and can be verified.
pub(crate) fn can_stamp(block_bytes: u64) -> bool {
    block_bytes.is_multiple_of(BLOCK)
}

fn connect(socket: &Path, shape: &DeviceShape) -> Result<Device, VhostError> {
    let failed = |source| VhostError::BackEnd { socket: socket.display().to_string(), source };
    Device::connect(socket, shape).map_err(failed)
}

/// Runs a load on vhost-user sockets.
///
/// # Errors
/// If a device cannot be used or behaves incorrectly.
pub fn run_load(load: &Load<'_>, stop: &AtomicBool) -> Result<LoadResult, VhostError> {
    check(load)?;
    let (mut devices, queues) = devices(load)?;
    let window = Window::begin(match load.length {
        Length::Seconds { ramp, run } => {
            RunLength::Time { warm_up: Duration::from_secs_f64(ramp), length: Duration::from_secs_f64(run) }
        }
        Length::Once => RunLength::Requests(u64::MAX),
    });
    let loads: Vec<InstanceLoad> =
        queues.into_iter().map(|(place, queue)| one(load, place, queue, window)).collect();
    let counted = on_threads(loads, load.slices.len(), stop)?;
    // Dropped last: the queues share this memory.
    devices.clear();
    result(load, counted)
}

fn check(load: &Load<'_>) -> Result<(), VhostError> {
    let job = load.job;
    let invalid = |message: &str| Err(VhostError::Invalid(format!("'{}': {message}", job.name)));
    if job.block_bytes > BLOCK_MAX || !job.block_bytes.is_multiple_of(SECTOR) {
        return invalid("vhost-user requests must be whole sectors of at most 1 MiB");
    }
    if job.depth > ENTRIES_MAX {
        return invalid("the queue depth is limited to 1024");
    }
    if job.latency.is_some() {
        return invalid("the vhost-user load generator does not support latency targets");
    }
    Ok(())
}

/// A queue of an instance.
#[derive(Clone, Copy)]
struct QueueIndex {
    instance: usize,
    thread: u32,
    /// Number of the queue on its device.
    queue: u32,
}

/// A load on one queue.
type InstanceLoad = (usize, QueueLoad);
/// The instances of each socket.
type Sharing<'a> = BTreeMap<&'a Path, Vec<(usize, &'a Slice)>>;

/// The devices, and the instance of each queue.
type Connected = (Vec<Device>, Vec<(QueueIndex, Queue)>);

/// Connects to each socket once, for all instances that use it.
fn devices(load: &Load<'_>) -> Result<Connected, VhostError> {
    let job = load.job;
    let mut sharing = Sharing::new();
    for (instance, slice) in load.slices.iter().enumerate() {
        if let Target::Vhost(socket) = &slice.target {
            sharing.entry(socket.as_path()).or_default().push((instance, slice));
        }
    }
    let (mut devices, mut queues) = (Vec::new(), Vec::new());
    for (socket, instances) in sharing {
        let count = u64::from(job.threads) * instances.len() as u64;
        let bytes = count * u64::from(job.depth) * job.block_bytes;
        let unsupported = |problem: String| {
            let source = std::io::Error::other(problem);
            VhostError::BackEnd { socket: socket.display().to_string(), source }
        };
        let number =
            u16::try_from(count).map_err(|_| unsupported(format!("{count} queues exceed the limit")))?;
        let shape = DeviceShape {
            queues: number,
            entries: u16::try_from(entries(job.depth, true)).unwrap_or(u16::MAX),
            data: usize::try_from(bytes)
                .map_err(|_| unsupported(format!("{bytes} bytes in flight exceed the address space")))?,
            indirect: true,
        };
        let mut device = connect(socket, &shape)?;
        let end = instances.iter().map(|(_, slice)| slice.offset + slice.bytes).max().unwrap_or(0);
        if device.capacity < end {
            return Err(unsupported(format!("the disk has {} bytes; the load needs {end}", device.capacity)));
        }
        if device.read_only && job.writes() {
            return Err(unsupported("the disk is read-only".into()));
        }
        let places = instances
            .iter()
            .flat_map(|(instance, _)| (0..job.threads).map(move |thread| (*instance, thread)));
        for ((queue, (instance, thread)), memory) in (0..).zip(places).zip(device.queues.drain(..)) {
            queues.push((QueueIndex { instance, thread, queue }, memory));
        }
        devices.push(device);
    }
    // Distributes the instances over the load threads, independent of their sockets.
    queues.sort_by_key(|(place, _)| (place.instance, place.thread));
    Ok((devices, queues))
}

fn one(load: &Load<'_>, place: QueueIndex, queue: Queue, window: Window) -> InstanceLoad {
    let (job, slice) = (load.job, load.slices.get(place.instance));
    let (mut from, mut size) = slice.map_or((0, 0), |slice| (slice.offset, slice.bytes));
    if let Some((step, rest)) = slice.and_then(|slice| slice.thread_offsets(job)) {
        (from, size) = (from + step * u64::from(place.thread), rest);
    }
    let blocks = size / job.block_bytes;
    let work = LoadSpec {
        block_bytes: u32::try_from(job.block_bytes).unwrap_or(0),
        read_percent: job.read_percent,
        random: job.random,
        depth: u16::try_from(job.depth).unwrap_or(1),
        queue: place.queue,
        seed: u32::try_from(place.instance).unwrap_or(0) * job.threads + place.thread,
        from,
        size,
        first: 0,
        written: can_stamp(job.block_bytes),
        verified: load.stamped && can_stamp(job.block_bytes),
        gap: None,
        limit: if load.length == Length::Once { blocks } else { u64::MAX },
    };
    (place.instance, QueueLoad::new(queue, work, window))
}

/// Runs all loads to completion on half of the processors, leaving the others to the measured
/// system.
fn on_threads(
    loads: Vec<InstanceLoad>,
    instances: usize,
    stop: &AtomicBool,
) -> Result<Vec<(usize, LoadCounters)>, VhostError> {
    let cpus = std::thread::available_parallelism().map_or(1, usize::from);
    let threads = (cpus / 2).clamp(1, instances.max(1));
    let mut parts: Vec<Vec<InstanceLoad>> = (0..threads).map(|_| Vec::new()).collect();
    for (instance, load) in loads {
        if let Some(part) = parts.get_mut(instance % threads) {
            part.push((instance, load));
        }
    }
    std::thread::scope(|scope| {
        let running: Vec<_> = parts.into_iter().map(|part| scope.spawn(|| drive(part, stop))).collect();
        let mut all = Vec::new();
        for thread in running {
            all.extend(thread.join().unwrap_or(Err(VhostError::Ended))?);
        }
        Ok(all)
    })
}

/// A load of a thread.
struct ActiveLoad {
    instance: usize,
    load: QueueLoad,
    /// True if the device is to interrupt on completion.
    armed: bool,
    done: bool,
}

/// Runs loads on this thread until all have ended.
fn drive(loads: Vec<InstanceLoad>, stop: &AtomicBool) -> Result<Vec<(usize, LoadCounters)>, VhostError> {
    let calls = Epoll::new()?;
    for (number, (_, load)) in (0..).zip(&loads) {
        let event = EpollEvent::new(EventSet::IN, number);
        calls.ctl(ControlOperation::Add, load.queue.call.as_raw_fd(), event)?;
    }
    let driven = |(instance, load)| ActiveLoad { instance, load, armed: false, done: false };
    let mut loads: Vec<ActiveLoad> = loads.into_iter().map(driven).collect();
    // Every queue is polled at first, and after a long time without interrupts.
    let mut all = true;
    while loads.iter().any(|load| !load.done) {
        if stop.load(Ordering::Relaxed) {
            return Err(VhostError::Interrupted);
        }
        let mut busy = false;
        for driven in loads.iter_mut().filter(|driven| !driven.done) {
            if all || driven.load.queue.ring.ended() > 0 {
                let turn = driven.load.poll();
                driven.armed &= turn == Progress::Idle;
                driven.done = turn == Progress::Done;
                busy |= turn == Progress::Busy;
            }
        }
        all = !busy && sleep(&mut loads, &calls)? == SleepResult::Whole;
    }
    Ok(loads.into_iter().map(|driven| (driven.instance, driven.load.counted)).collect())
}

/// The result of a sleep.
#[derive(PartialEq)]
enum SleepResult {
    /// Timed out.
    Whole,
    /// Interrupted by a device.
    Woken,
}

/// Waits for an interrupt of a device.
fn sleep(loads: &mut [ActiveLoad], calls: &Epoll) -> Result<SleepResult, VhostError> {
    let mut there = false;
    for driven in loads.iter_mut().filter(|driven| !driven.done && !driven.armed) {
        there |= driven.load.queue.ring.want_interrupt();
        driven.armed = true;
    }
    if there || loads.iter().all(|driven| driven.done) {
        return Ok(SleepResult::Woken);
    }
    let mut events = [EpollEvent::default(); 64];
    let count = match calls.wait(INTERRUPT_CHECK_MS, &mut events) {
        Err(error) if error.kind() == ErrorKind::Interrupted => 0,
        count => count?,
    };
    for event in events.iter().take(count) {
        let number = usize::try_from(event.data()).unwrap_or(usize::MAX);
        if let Some(driven) = loads.get_mut(number) {
            driven.load.queue.ring.want_no_interrupts();
            // The event is readable, so this does not block.
            let _ = driven.load.queue.call.read();
            driven.armed = false;
        }
    }
    Ok(if count == 0 { SleepResult::Whole } else { SleepResult::Woken })
}

/// Returns the result of each instance from the records of its queues.
fn result(load: &Load<'_>, counted: Vec<(usize, LoadCounters)>) -> Result<LoadResult, VhostError> {
    let job = load.job;
    let wrong = |instance: usize, problem: String| {
        let system = load.slices.get(instance).map_or(String::new(), |slice| match &slice.target {
            Target::Vhost(socket) => socket.display().to_string(),
            Target::File(_)
            | Target::Nbd(_)
            | Target::Machine { .. }
            | Target::Pod { .. }
            | Target::S3(_)
            | Target::Rados(_) => String::new(),
        });
        Err(VhostError::Wrong { system, job: job.name.clone(), problem })
    };
    let mut instances: Vec<Vec<LoadCounters>> = load.slices.iter().map(|_| Vec::new()).collect();
    for (instance, counted) in counted {
        let bad: u64 = counted.sides.iter().map(|side| side.wrong).sum();
        if counted.stuck {
            return wrong(instance, "a request did not complete within a minute".into());
        }
        if counted.failed > 0 {
            return wrong(instance, format!("{} requests failed", counted.failed));
        }
        if bad > 0 {
            return wrong(instance, format!("{bad} blocks had wrong contents"));
        }
        if let Some(place) = instances.get_mut(instance) {
            place.push(counted);
        }
    }
    let seconds = seconds(load, instances.iter().flatten());
    let both = |queues: Vec<LoadCounters>| merge_queues(queues, job.block_bytes);
    let output = Output {
        version: format!("gabion {}, vhost-user load generator", env!("CARGO_PKG_VERSION")),
        instances: instances.into_iter().map(both).collect(),
    };
    Ok(LoadResult { output, seconds, ..LoadResult::default() })
}

/// Merges the records of an instance's queues.
fn merge_queues(queues: Vec<LoadCounters>, block_bytes: u64) -> ReadWrite {
    let nanos = queues.iter().map(|queue| queue.nanos).max().unwrap_or(0).max(1);
    let elapsed = Duration::from_nanos(nanos).as_secs_f64();
    let mut all = [Recorder::new(), Recorder::new()];
    for queue in queues {
        all.iter_mut().zip(&queue.sides).for_each(|(all, side)| all.add(side));
    }
    let direction = |recorder: &Recorder| {
        let side = recorder.figures(recorder.count() * block_bytes, elapsed);
        (recorder.count() > 0).then(|| Direction {
            iops: side.iops,
            bytes_per_s: side.bytes_per_s,
            ios: recorder.count(),
            mean_us: side.mean_us,
            latencies: recorder.counts(),
        })
    };
    let [read, write] = &all;
    ReadWrite { read: direction(read), write: direction(write) }
}

/// Returns the operations in each whole second, over all queues.
fn seconds<'a>(load: &Load<'_>, queues: impl Iterator<Item = &'a LoadCounters>) -> Vec<Second> {
    let Length::Seconds { run, .. } = load.length else { return Vec::new() };
    if load.log.is_none() {
        return Vec::new();
    }
    let mut sum: Vec<[u64; 2]> = Vec::new();
    for queue in queues {
        sum.resize(sum.len().max(queue.seconds.len()), [0; 2]);
        for (all, [read, write]) in sum.iter_mut().zip(&queue.seconds) {
            let [reads, writes] = all;
            (*reads, *writes) = (*reads + read, *writes + write);
        }
    }
    #[allow(clippy::cast_precision_loss)]
    let second = |(index, [read, write]): (usize, [u64; 2])| Second {
        at: (index + 1) as f64,
        read: read as f64,
        write: write as f64,
    };
    // A second that the end truncates would look slow.
    sum.into_iter().enumerate().map(second).filter(|second| second.at <= run).collect()
}

#[cfg(test)]
#[path = "jobs_tests.rs"]
mod tests;
