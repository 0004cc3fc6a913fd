//! A back end of the vhost benchmark, its disks, and the loads on them.

use std::path::Path;
use std::sync::mpsc;
use std::time::{Duration, Instant};

use reactor::{Reactor, Remote};

use super::calls::QueueCalls;
use super::device::{Device, DeviceShape};
use super::embedded::{DiskSocket, VhostPool};
use super::load::{LoadSpec, Progress, QueueLoad, entries};
use super::{VhostError, VhostOptions};
use crate::disk_bench::{FILL_DEPTH, MeasuredDisk, REQUEST_MAX, Round, RunLength, Window, Worker, pin};
use crate::suite::Job;

/// Queue depth at the peak load.
pub(super) const PEAK_DEPTH: u32 = 64;
/// Time without a completion after which the load sleeps until an interrupt.
const IDLE_POLL: Duration = Duration::from_micros(50);

/// A back end and its load.
pub(super) struct BackEnd {
    pub(super) name: String,
    disks: Vec<LoadedDisk>,
    worker: Option<Worker>,
    core: Option<usize>,
    stamped: bool,
    size: u64,
    /// Dropped after the connection.
    embedded: Option<VhostPool>,
}

/// A disk, and the reactors that run its load, in turn; a thread of its own if there are none.
struct LoadedDisk {
    device: Device,
    reactors: Vec<Remote>,
}

/// Returns device parameters that suffice for every job.
fn shape(options: &VhostOptions) -> DeviceShape {
    let jobs = &options.disk.jobs;
    let bytes = |job: &Job| job.block_bytes * u64::from(job.depth) * u64::from(job.threads);
    let most = jobs.iter().map(bytes).max().unwrap_or(0).max(REQUEST_MAX * u64::from(FILL_DEPTH));
    let depth = jobs.iter().map(|job| job.depth).max().unwrap_or(1).max(PEAK_DEPTH);
    let queues = jobs.iter().map(|job| job.threads).max().unwrap_or(1);
    DeviceShape {
        queues: u16::try_from(queues).unwrap_or(1),
        entries: u16::try_from(entries(depth, options.indirect)).unwrap_or(4),
        data: usize::try_from(most).unwrap_or(0),
        indirect: options.indirect,
    }
}

impl BackEnd {
    /// Connects to the back end that serves `socket`.
    pub(super) fn behind(socket: &Path, options: &VhostOptions) -> Result<Self, VhostError> {
        let name = socket.display().to_string();
        let device = connect(socket, &name, options)?;
        if device.read_only && options.disk.overwrite {
            return Err(VhostError::Invalid(format!("{name} is read-only")));
        }
        Ok(Self {
            worker: device.worker.clone(),
            disks: vec![LoadedDisk { device, reactors: Vec::new() }],
            name,
            core: options.disk.core,
            stamped: options.disk.overwrite,
            size: options.disk.size,
            embedded: None,
        })
    }

    /// Starts a pool in this process.
    pub(super) fn embedded(options: &VhostOptions) -> Result<Self, VhostError> {
        let shape = options.disk.pool_shape(options.disks, options.shards);
        let embedded = VhostPool::start(&shape)?;
        let drives = &options.disk.drives;
        let name = match options.disks {
            1 => drives.to_string(),
            many => format!("{many} disks on {drives}"),
        };
        let target = |place: &DiskSocket| {
            let reactors = if options.on_reactors { place.reactors.clone() } else { Vec::new() };
            Ok(LoadedDisk { device: connect(&place.socket, &name, options)?, reactors })
        };
        let disks = embedded.disks.iter().map(target).collect::<Result<_, VhostError>>()?;
        Ok(Self {
            name,
            disks,
            worker: embedded.pool.as_ref().map(|pool| pool.worker.clone()),
            core: options.disk.core,
            stamped: true,
            size: options.disk.size,
            embedded: Some(embedded),
        })
    }

    /// Runs a job once, at this many requests per second or as fast as possible.
    pub(super) fn measure_at(
        &mut self,
        job: &Job,
        rate: Option<f64>,
        length: RunLength,
    ) -> Result<Round, VhostError> {
        let window = Window::begin(length);
        let queues = f64::from(job.threads) * self.disks.len() as f64;
        let size = self.disks.iter().map(|disk| disk.device.capacity).fold(self.size, u64::min);
        let work = |disk: u32, queue: u32| LoadSpec {
            block_bytes: u32::try_from(job.block_bytes).unwrap_or(0),
            read_percent: job.read_percent,
            random: job.random,
            depth: u16::try_from(job.depth).unwrap_or(1),
            queue,
            seed: disk * job.threads + queue,
            from: 0,
            size,
            first: size / job.block_bytes / u64::from(job.threads) * u64::from(queue),
            written: self.stamped,
            verified: self.stamped,
            gap: rate.map(|rate| 1e9 * queues / rate),
            limit: length.limit(),
        };
        let mut loads = Vec::new();
        for (number, disk) in (0..).zip(&mut self.disks) {
            let mut reactors = disk.reactors.iter().cycle();
            for (index, queue) in (0..).zip(disk.device.queues.drain(..job.threads as usize)) {
                loads.push((QueueLoad::new(queue, work(number, index), window), reactors.next().cloned()));
            }
        }
        let running = RunningLoads::start(loads, self.core)?;
        let cores = match length {
            RunLength::Time { .. } => self.cores_within(&window),
            RunLength::Requests(_) => None,
        };
        let loads = running.wait()?;
        let mut counted = Vec::new();
        let mut loads = loads.into_iter();
        for disk in &mut self.disks {
            let (queues, counts): (Vec<_>, Vec<_>) =
                loads.by_ref().take(job.threads as usize).map(|load| (load.queue, load.counted)).unzip();
            disk.device.queues.splice(0..0, queues);
            counted.extend(counts);
        }
        let (failed, stuck) =
            (counted.iter().map(|load| load.failed).sum::<u64>(), counted.iter().any(|load| load.stuck));
        let wrong =
            |problem: String| VhostError::Wrong { system: self.name.clone(), job: job.name.clone(), problem };
        if stuck {
            return Err(wrong("a request did not complete within a minute".into()));
        }
        if failed > 0 {
            return Err(wrong(format!("{failed} requests failed")));
        }
        Ok(Round::of(counted, job.block_bytes, cores))
    }

    /// Returns the processors that the back end uses within the window.
    pub(super) fn cores_within(&self, window: &Window) -> Option<f64> {
        self.worker.as_ref()?.cores_within(window)
    }
}

impl MeasuredDisk for BackEnd {
    type Error = VhostError;

    fn name(&self) -> &str {
        &self.name
    }

    fn is_stamped(&self) -> bool {
        self.stamped
    }

    fn measure(&mut self, job: &Job, length: RunLength) -> Result<Round, VhostError> {
        self.measure_at(job, None, length)
    }

    fn fail_drive(&self) -> Result<(), VhostError> {
        let pool = self.embedded.as_ref().and_then(|served| served.pool.as_ref());
        Ok(pool.ok_or(VhostError::Ended)?.fail_drive()?)
    }
}

fn connect(socket: &Path, name: &str, options: &VhostOptions) -> Result<Device, VhostError> {
    let failed = |source| VhostError::BackEnd { socket: name.into(), source };
    let device = Device::connect(socket, &shape(options)).map_err(failed)?;
    if device.capacity < options.disk.size {
        let message = format!("the disk has {} bytes; {} are required", device.capacity, options.disk.size);
        return Err(failed(std::io::Error::other(message)));
    }
    Ok(device)
}

/// A load that has ended, with its index, or the failure of its thread.
type EndedLoad = std::io::Result<(usize, QueueLoad)>;

/// Loads in progress.
struct RunningLoads {
    ended: mpsc::Receiver<EndedLoad>,
    count: usize,
}

impl RunningLoads {
    /// Starts loads: each on its reactor, those without one together on a thread.
    fn start(loads: Vec<(QueueLoad, Option<Remote>)>, core: Option<usize>) -> Result<Self, VhostError> {
        let (sender, ended) = mpsc::channel();
        let count = loads.len();
        let mut alone = Vec::new();
        for (index, (mut load, remote)) in loads.into_iter().enumerate() {
            let Some(remote) = remote else {
                alone.push((index, load));
                continue;
            };
            let sender = sender.clone();
            let begin = move || {
                let task = async move {
                    let reactor = Reactor::current();
                    while load.poll() != Progress::Done {
                        reactor.yield_now().await;
                    }
                    // Fails only if the program ends.
                    let _ = sender.send(Ok((index, load)));
                };
                Reactor::current().spawn(task).detach();
            };
            remote.post(begin).map_err(|_| VhostError::Ended)?;
        }
        if !alone.is_empty() {
            let (pinned, is_pinned) = mpsc::channel();
            let calls = QueueCalls::of(&alone)?;
            let run = move || {
                let result = core.map_or(Ok(()), pin);
                let go = result.is_ok();
                // The starter waits for both.
                let _ = pinned.send(result);
                if go && let Err(error) = drive(alone, &calls, &sender) {
                    // Fails only if the program ends.
                    let _ = sender.send(Err(error));
                }
            };
            std::thread::Builder::new().name("load".into()).spawn(run)?;
            is_pinned.recv().map_err(|_| VhostError::Ended)??;
        }
        Ok(Self { ended, count })
    }

    fn wait(self) -> Result<Vec<QueueLoad>, VhostError> {
        let mut loads = self.ended.iter().take(self.count).collect::<Result<Vec<_>, _>>()?;
        if loads.len() < self.count {
            return Err(VhostError::Ended);
        }
        loads.sort_by_key(|(index, _)| *index);
        Ok(loads.into_iter().map(|(_, load)| load).collect())
    }
}

/// Runs loads on this thread until all have ended. Polls the queues, and sleeps after
/// [`IDLE_POLL`] without a completion, as a guest does: the back end may need the core.
fn drive(
    mut loads: Vec<(usize, QueueLoad)>,
    calls: &QueueCalls,
    ended: &mpsc::Sender<EndedLoad>,
) -> std::io::Result<()> {
    let mut idle_since: Option<Instant> = None;
    while !loads.is_empty() {
        let mut busy = false;
        let mut index = 0;
        while let Some((_, load)) = loads.get_mut(index) {
            match load.poll() {
                Progress::Done => {
                    // Fails only if the program ends.
                    let _ = ended.send(Ok(loads.remove(index)));
                    continue;
                }
                Progress::Busy => busy = true,
                Progress::Idle => {}
            }
            index += 1;
        }
        if busy {
            idle_since = None;
        } else if idle_since.get_or_insert_with(Instant::now).elapsed() < IDLE_POLL {
            std::hint::spin_loop();
        } else {
            idle_since = None;
            calls.wait(&mut loads)?;
        }
    }
    Ok(())
}
