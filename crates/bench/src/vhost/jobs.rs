//! A suite's load over vhost-user: each instance on queues of its own, as many as it has threads, as a machine would have.
//!
//! Always true: a thread of the load without anything to do sleeps until a device interrupts it, as fio and guests do, so that the
//! processors are left to what is measured. Whatever blocks were written by such a load are looked at when they are read. Must
//! not know: what a suite is, what is behind a socket.

use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::os::fd::AsRawFd;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use vmm_sys_util::epoll::{ControlOperation, Epoll, EpollEvent, EventSet};

use super::VhostError;
use super::device::{Device, Shape};
use super::load::{Counted, Load as QueueLoad, Queue, Turn, Window, Work, entries};
use super::usage::Worker;
use crate::load::{Length, Load, LoadResult, Output, Second, Slice, Target};
use crate::result::{Direction, ReadWrite};
use crate::sample::Recorder;

/// Entries of a queue, which are requests with descriptors of their own, that devices take at most.
const ENTRIES_MAX: u32 = 1024;
/// Bytes of one request at most: what devices take in one piece.
pub(crate) const BLOCK_MAX: u64 = 1 << 20;
/// What carries a number of its own.
const BLOCK: u64 = 4096;
const SECTOR: u64 = 512;
/// A user who wants it to end waits no longer than this.
const NAP_MS: i32 = 50;
/// "Until it is done": no load lasts longer.
const FOR_EVER: Duration = Duration::from_secs(7 * 86_400);

/// A disk behind a socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Disk {
    /// Its bytes.
    pub bytes: u64,
    /// It cannot be written.
    pub read_only: bool,
    /// The process that serves it, if that is known.
    pub process: Option<u32>,
}

/// Looks at the disk behind a socket.
///
/// # Errors
/// When nothing serves there, or it is no disk that can be used.
pub fn disk(socket: &Path) -> Result<Disk, VhostError> {
    let shape = Shape { queues: 1, entries: 4, data: 4096, indirect: true };
    let device = connect(socket, &shape)?;
    let process = device.worker.as_ref().and_then(Worker::process);
    Ok(Disk { bytes: device.capacity, read_only: device.read_only, process })
}

/// True if what a job writes can be told from anything else when it is read.
pub(crate) fn marks(block_bytes: u64) -> bool {
    block_bytes.is_multiple_of(BLOCK)
}

fn connect(socket: &Path, shape: &Shape) -> Result<Device, VhostError> {
    let failed = |source| VhostError::BackEnd { socket: socket.display().to_string(), source };
    Device::connect(socket, shape).map_err(failed)
}

/// Runs a load; all its places are sockets.
///
/// # Errors
/// When a device cannot be used, or answers wrongly.
pub fn run_load(load: &Load<'_>, stop: &AtomicBool) -> Result<LoadResult, VhostError> {
    check(load)?;
    let (mut devices, queues) = devices(load)?;
    let window = match load.length {
        Length::Seconds { ramp, run } => Window {
            start: Instant::now(),
            warm_up: Duration::from_secs_f64(ramp),
            length: Duration::from_secs_f64(run),
        },
        Length::Once => Window { start: Instant::now(), warm_up: Duration::ZERO, length: FOR_EVER },
    };
    let loads: Vec<One> = queues.into_iter().map(|(place, queue)| one(load, place, queue, window)).collect();
    let counted = on_threads(loads, load.slices.len(), stop)?;
    // Only now may the memory go that they share.
    devices.clear();
    result(load, counted)
}

fn check(load: &Load<'_>) -> Result<(), VhostError> {
    let job = load.job;
    let invalid = |message: &str| Err(VhostError::Invalid(format!("'{}': {message}", job.name)));
    if job.block_bytes > BLOCK_MAX || !job.block_bytes.is_multiple_of(SECTOR) {
        return invalid("requests over vhost-user are at most 1 MiB, in whole sectors");
    }
    if job.depth > ENTRIES_MAX {
        return invalid("a queue takes at most 1024 requests at a time");
    }
    if job.latency.is_some() {
        return invalid("the load over vhost-user cannot keep a latency");
    }
    Ok(())
}

/// Which queue of which instance.
#[derive(Clone, Copy)]
struct QueueIndex {
    instance: usize,
    thread: u32,
    /// The queue's number on its device.
    queue: u32,
}

/// A load of one queue.
type One = (usize, QueueLoad);
/// Instances on one socket, by their numbers.
type Sharing<'a> = BTreeMap<&'a Path, Vec<(usize, &'a Slice)>>;

/// Devices, and whose each of their queues is.
type Connected = (Vec<Device>, Vec<(QueueIndex, Queue)>);

/// Connects to each socket once, for all instances that work there.
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
        let refused = |what: String| {
            let source = std::io::Error::other(what);
            VhostError::BackEnd { socket: socket.display().to_string(), source }
        };
        let number = u16::try_from(count).map_err(|_| refused(format!("{count} queues are too many")))?;
        let shape = Shape {
            queues: number,
            entries: u16::try_from(entries(job.depth, true)).unwrap_or(u16::MAX),
            data: usize::try_from(bytes).map_err(|_| refused(format!("{bytes} bytes under way")))?,
            indirect: true,
        };
        let mut device = connect(socket, &shape)?;
        let end = instances.iter().map(|(_, slice)| slice.offset + slice.bytes).max().unwrap_or(0);
        if device.capacity < end {
            return Err(refused(format!("the disk has {} bytes, and {end} are to be used", device.capacity)));
        }
        if device.read_only && job.writes() {
            return Err(refused("the disk is read-only".into()));
        }
        let places = instances
            .iter()
            .flat_map(|(instance, _)| (0..job.threads).map(move |thread| (*instance, thread)));
        for ((queue, (instance, thread)), memory) in (0..).zip(places).zip(device.queues.drain(..)) {
            queues.push((QueueIndex { instance, thread, queue }, memory));
        }
        devices.push(device);
    }
    // Instances in turn on the threads of the load, whatever their sockets are called.
    queues.sort_by_key(|(place, _)| (place.instance, place.thread));
    Ok((devices, queues))
}

fn one(load: &Load<'_>, place: QueueIndex, queue: Queue, window: Window) -> One {
    let (job, slice) = (load.job, load.slices.get(place.instance));
    let (mut from, mut size) = slice.map_or((0, 0), |slice| (slice.offset, slice.bytes));
    if let Some((step, rest)) = slice.and_then(|slice| slice.thread_offsets(job)) {
        (from, size) = (from + step * u64::from(place.thread), rest);
    }
    let blocks = size / job.block_bytes;
    let work = Work {
        block_bytes: u32::try_from(job.block_bytes).unwrap_or(0),
        read_percent: job.read_percent,
        random: job.random,
        depth: u16::try_from(job.depth).unwrap_or(1),
        queue: place.queue,
        seed: u32::try_from(place.instance).unwrap_or(0) * job.threads + place.thread,
        from,
        size,
        first: 0,
        written: marks(job.block_bytes),
        verified: load.stamped && marks(job.block_bytes),
        gap: None,
        limit: if load.length == Length::Once { blocks } else { u64::MAX },
    };
    (place.instance, QueueLoad::new(queue, work, window))
}

/// Drives all loads to their ends, on half of the processors: the others are for what is measured.
fn on_threads(
    loads: Vec<One>,
    instances: usize,
    stop: &AtomicBool,
) -> Result<Vec<(usize, Counted)>, VhostError> {
    let cpus = std::thread::available_parallelism().map_or(1, usize::from);
    let threads = (cpus / 2).clamp(1, instances.max(1));
    let mut parts: Vec<Vec<One>> = (0..threads).map(|_| Vec::new()).collect();
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

/// A load among those of a thread.
struct Driven {
    instance: usize,
    load: QueueLoad,
    /// Its device is to interrupt when something ends.
    armed: bool,
    done: bool,
}

/// Drives loads on this thread until all have ended.
fn drive(loads: Vec<One>, stop: &AtomicBool) -> Result<Vec<(usize, Counted)>, VhostError> {
    let calls = Epoll::new()?;
    for (number, (_, load)) in (0..).zip(&loads) {
        let event = EpollEvent::new(EventSet::IN, number);
        calls.ctl(ControlOperation::Add, load.queue.call.as_raw_fd(), event)?;
    }
    let driven = |(instance, load)| Driven { instance, load, armed: false, done: false };
    let mut loads: Vec<Driven> = loads.into_iter().map(driven).collect();
    // At first, and when nothing has come for long, each is asked.
    let mut all = true;
    while loads.iter().any(|load| !load.done) {
        if stop.load(Ordering::Relaxed) {
            return Err(VhostError::Interrupted);
        }
        let mut busy = false;
        for driven in loads.iter_mut().filter(|driven| !driven.done) {
            if all || driven.load.queue.ring.ended() > 0 {
                let turn = driven.load.turn();
                driven.armed &= turn == Turn::Idle;
                driven.done = turn == Turn::Done;
                busy |= turn == Turn::Busy;
            }
        }
        all = !busy && sleep(&mut loads, &calls)? == Slept::Whole;
    }
    Ok(loads.into_iter().map(|driven| (driven.instance, driven.load.counted)).collect())
}

/// How a nap went.
#[derive(PartialEq)]
enum Slept {
    /// Nothing has ended.
    Whole,
    /// Something has.
    Woken,
}

/// Waits until a device interrupts.
fn sleep(loads: &mut [Driven], calls: &Epoll) -> Result<Slept, VhostError> {
    let mut there = false;
    for driven in loads.iter_mut().filter(|driven| !driven.done && !driven.armed) {
        there |= driven.load.queue.ring.want_interrupt();
        driven.armed = true;
    }
    if there || loads.iter().all(|driven| driven.done) {
        return Ok(Slept::Woken);
    }
    let mut events = [EpollEvent::default(); 64];
    let count = match calls.wait(NAP_MS, &mut events) {
        Err(error) if error.kind() == ErrorKind::Interrupted => 0,
        count => count?,
    };
    for event in events.iter().take(count) {
        let number = usize::try_from(event.data()).unwrap_or(usize::MAX);
        if let Some(driven) = loads.get_mut(number) {
            driven.load.queue.ring.want_no_interrupts();
            // It has something in it, or the event would not have come.
            let _ = driven.load.queue.call.read();
            driven.armed = false;
        }
    }
    Ok(if count == 0 { Slept::Whole } else { Slept::Woken })
}

/// What each instance did, from what its queues counted.
fn result(load: &Load<'_>, counted: Vec<(usize, Counted)>) -> Result<LoadResult, VhostError> {
    let job = load.job;
    let wrong = |instance: usize, what: String| {
        let system = load.slices.get(instance).map_or(String::new(), |slice| match &slice.target {
            Target::Vhost(socket) => socket.display().to_string(),
            Target::File(_) | Target::Nbd(_) | Target::Machine { .. } => String::new(),
        });
        Err(VhostError::Wrong { system, job: job.name.clone(), what })
    };
    let mut instances: Vec<Vec<Counted>> = load.slices.iter().map(|_| Vec::new()).collect();
    for (instance, counted) in counted {
        let bad: u64 = counted.sides.iter().map(|side| side.wrong).sum();
        if counted.stuck {
            return wrong(instance, "a request was not answered for a minute".into());
        }
        if counted.failed > 0 {
            return wrong(instance, format!("{} requests failed", counted.failed));
        }
        if bad > 0 {
            return wrong(instance, format!("{bad} blocks were not what had been written"));
        }
        if let Some(place) = instances.get_mut(instance) {
            place.push(counted);
        }
    }
    let seconds = seconds(load, instances.iter().flatten());
    let both = |queues: Vec<Counted>| together(queues, job.block_bytes);
    let output = Output {
        version: format!("gabion {}, load over vhost-user", env!("CARGO_PKG_VERSION")),
        instances: instances.into_iter().map(both).collect(),
    };
    Ok(LoadResult { output, seconds, ended: None })
}

/// All queues of an instance.
fn together(queues: Vec<Counted>, block_bytes: u64) -> ReadWrite {
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

/// Operations of each whole second, all queues together.
fn seconds<'a>(load: &Load<'_>, queues: impl Iterator<Item = &'a Counted>) -> Vec<Second> {
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
    // A second that the end cuts short would look like a slow one.
    sum.into_iter().enumerate().map(second).filter(|second| second.at <= run).collect()
}

#[cfg(test)]
#[path = "jobs_tests.rs"]
mod tests;
