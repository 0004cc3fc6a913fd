//! A pool in this process, on its own threads: the default target of the benchmarks of disks.
//!
//! Uses the same engine as the daemon. Does not know the frontends that serve its volumes, nor the
//! load.

use std::rc::Rc;
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;
use std::time::Duration;

use engine::{AttachedVolume, DriveSource, NewVolume, Pool};
use export::{Extent, VolumeError, VolumeErrorKind};
use futures_channel::oneshot;
use reactor::{Backend, Clock, Handle, Platform, Reactor, Remote, Span, SystemClock};

use super::Worker;
use crate::bench_error::BenchError;
use crate::drives::{Drives, OpenDrives};
use crate::{local_platform, memory_pool};

/// A failure of the pool in this process, or of one of its threads.
#[derive(Debug, thiserror::Error)]
pub enum EmbeddedError {
    /// The drives could not be opened.
    #[error("{0}")]
    Drives(#[from] BenchError),
    /// The engine failed.
    #[error("{0}")]
    Engine(#[from] engine::Error),
    /// No I/O backend is available.
    #[error("{0}")]
    Platform(reactor::PlatformError),
    /// A thread cannot run on the core.
    #[error("cannot run on core {core}: {source}")]
    Pin {
        /// Number of the core.
        core: usize,
        /// The system's error.
        source: std::io::Error,
    },
    /// A thread ended prematurely.
    #[error("a thread ended prematurely")]
    Ended,
    /// A frontend did not start.
    #[error("{0}")]
    Frontend(#[from] export::ExportError),
    /// A system call failed.
    #[error("{0}")]
    System(#[from] std::io::Error),
}

/// The parameters of the pool.
#[derive(Clone, Debug)]
pub(crate) struct PoolShape {
    /// One reactor per core in this list; an unpinned reactor for `None`.
    pub(crate) cores: Vec<Option<usize>>,
    /// The drives, and the bytes of each unless paths are given.
    pub(crate) drives: Drives,
    pub(crate) drive_bytes: u64,
    pub(crate) volume_bytes: u64,
    /// Number of volumes, and of shards per volume; `None` for all shards.
    pub(crate) disks: u32,
    pub(crate) shards: Option<u16>,
    /// Polling time of an idle reactor before it sleeps.
    pub(crate) poll: Duration,
    /// The I/O backend in which the reactors sleep; the memory drives need none.
    pub(crate) io: Backend,
}

/// The pool; see the module documentation. Dropping it stops the pool.
pub(crate) struct EmbeddedPool {
    threads: Vec<(oneshot::Sender<()>, JoinHandle<()>)>,
    remotes: Vec<Remote>,
    pub(crate) worker: Worker,
    pub(crate) volumes: Vec<engine::Volume>,
    pool: Option<Handle<Pool>>,
    /// Dropped after the threads have ended.
    open_drives: Option<OpenDrives>,
}

impl EmbeddedPool {
    /// Creates the pool and its volumes.
    ///
    /// # Errors
    /// If memory cannot be allocated, or no I/O backend is available.
    pub(crate) fn start(shape: &PoolShape) -> Result<Self, EmbeddedError> {
        let open = shape.drives.open(usize::from(memory_pool::scheme().width()), shape.drive_bytes)?;
        let mut embedded = Self {
            threads: Vec::new(),
            remotes: Vec::new(),
            worker: Worker::threads(&[]),
            volumes: Vec::new(),
            pool: None,
            open_drives: None,
        };
        let mut ids = Vec::new();
        for (index, core) in shape.cores.iter().enumerate() {
            ids.push(embedded.start_reactor(index, *core, shape.poll, shape.io)?);
        }
        embedded.worker = Worker::threads(&ids);
        let (drives, reactors, shape) = (open.drives.clone(), embedded.remotes.clone(), shape.clone());
        // On the first reactor, because the objects of the pool belong to it.
        let created = embedded.run(move || async move { create_here(&drives, reactors, &shape).await })?;
        let (pool, volumes) = created?;
        (embedded.pool, embedded.volumes) = (Some(pool), volumes);
        embedded.open_drives = Some(open);
        Ok(embedded)
    }

    /// Returns the reactors.
    pub(crate) fn remotes(&self) -> &[Remote] {
        &self.remotes
    }

    /// Runs a task on the first reactor, and returns its output.
    pub(crate) fn run<T, F>(&self, task: impl FnOnce() -> F + Send + 'static) -> Result<T, EmbeddedError>
    where
        T: Send + 'static,
        F: Future<Output = T> + 'static,
    {
        run_on(self.remotes.first().ok_or(EmbeddedError::Ended)?, task)
    }

    /// Starts a thread with a reactor and returns the thread's id.
    fn start_reactor(
        &mut self,
        index: usize,
        core: Option<usize>,
        poll: Duration,
        io: Backend,
    ) -> Result<i32, EmbeddedError> {
        let (stop, stopped) = oneshot::channel();
        let (sender, receiver) = mpsc::channel();
        let run = move || match start_here(core, poll, io) {
            Ok(reactor) => {
                let id = rustix::thread::gettid().as_raw_nonzero().get();
                // The receiver waits until this value arrives.
                let _ = sender.send(Ok((reactor.remote(), id)));
                let _ = reactor.run(stopped);
                reactor.shut_down();
                local_platform::set(None);
            }
            Err(error) => {
                let _ = sender.send(Err(error));
            }
        };
        let handle = std::thread::Builder::new().name(format!("reactor-{index}")).spawn(run)?;
        self.threads.push((stop, handle));
        let (remote, id) = receiver.recv().map_err(|_| EmbeddedError::Ended)??;
        self.remotes.push(remote);
        Ok(id)
    }

    /// Fails the first drive of the pool.
    ///
    /// # Errors
    /// If the pool refuses it, or has ended.
    pub(crate) fn fail_drive(&self) -> Result<(), EmbeddedError> {
        let pool = self.pool.clone().ok_or(EmbeddedError::Ended)?;
        let remote = pool.remote().clone();
        run_on(&remote, move || async move {
            let pool = pool.local().ok_or(EmbeddedError::Ended)?;
            Ok(pool.fail_drive(0).await?)
        })?
    }
}

impl Drop for EmbeddedPool {
    fn drop(&mut self) {
        for (stop, handle) in self.threads.drain(..) {
            let _ = stop.send(());
            // A panic has already been reported.
            let _ = handle.join();
        }
    }
}

/// Runs a task on another reactor, and returns its output.
fn run_on<T, F>(remote: &Remote, task: impl FnOnce() -> F + Send + 'static) -> Result<T, EmbeddedError>
where
    T: Send + 'static,
    F: Future<Output = T> + 'static,
{
    let (sender, receiver) = mpsc::channel();
    let begin = move || {
        let task = task();
        let send = async move {
            // The receiver waits until this value arrives.
            let _ = sender.send(task.await);
        };
        Reactor::current().spawn(send).detach();
    };
    remote.post(begin).map_err(|_| EmbeddedError::Ended)?;
    receiver.recv().map_err(|_| EmbeddedError::Ended)
}

fn start_here(core: Option<usize>, poll: Duration, io: Backend) -> Result<Reactor, EmbeddedError> {
    if let Some(core) = core {
        pin(core)?;
    }
    let clock: Rc<dyn Clock> = Rc::new(SystemClock::new());
    let platform = Platform::new(io, clock.clone()).map_err(EmbeddedError::Platform)?;
    let reactor = Reactor::new(platform.clone(), clock);
    reactor.set_poll_before_sleep(poll);
    local_platform::set(Some(platform));
    Ok(reactor)
}

async fn create_here(
    drives: &[Arc<dyn DriveSource>],
    reactors: Vec<Remote>,
    shape: &PoolShape,
) -> Result<(Handle<Pool>, Vec<engine::Volume>), EmbeddedError> {
    let zone = (shape.drive_bytes >= 1 << 30).then_some(memory_pool::ZONE);
    let pool = memory_pool::pool_on(drives, memory_pool::scheme(), zone, reactors).await?;
    let mut volumes = Vec::new();
    for number in 0..shape.disks {
        let name = format!("disk{number}");
        let wanted =
            NewVolume { size: shape.volume_bytes, sector: 4096, thick: false, shards: shape.shards, now: 0 };
        pool.create_volume_with(&name, wanted).await?;
        volumes.push(pool.open_volume(&name).await?);
    }
    Ok((Handle::register(&Reactor::current(), Rc::new(pool)), volumes))
}

/// Pins this thread to one core.
pub(crate) fn pin(core: usize) -> Result<(), EmbeddedError> {
    let failed = |source: rustix::io::Errno| EmbeddedError::Pin { core, source: source.into() };
    if core >= rustix::thread::CpuSet::MAX_CPU {
        return Err(failed(rustix::io::Errno::INVAL));
    }
    let mut set = rustix::thread::CpuSet::new();
    set.set(core);
    rustix::thread::sched_setaffinity(None, &set).map_err(failed)
}

/// A volume of the engine as a volume of the export crate.
pub(crate) struct ServedVolume {
    volume: AttachedVolume,
}

impl ServedVolume {
    /// Attaches a volume to this thread's reactor.
    pub(crate) fn attach(volume: &engine::Volume) -> Self {
        Self { volume: volume.attach() }
    }
}

fn failed(error: engine::Error) -> VolumeError {
    VolumeError::new(VolumeErrorKind::Io, error.to_string())
}

impl export::Volume for ServedVolume {
    fn size(&self) -> u64 {
        self.volume.size()
    }

    fn sector(&self) -> u32 {
        self.volume.sector()
    }

    fn read_only(&self) -> bool {
        false
    }

    fn prefetch_hint(&self, offset: u64) {
        self.volume.prefetch_entry(offset);
    }

    async fn read(&self, offset: u64, into: &Span) -> Result<(), VolumeError> {
        self.volume.read(offset, into).await.map_err(failed)
    }

    async fn write(&self, offset: u64, data: &Span) -> Result<(), VolumeError> {
        self.volume.write(offset, data).await.map_err(failed)
    }

    async fn flush(&self) -> Result<(), VolumeError> {
        self.volume.flush().await.map_err(failed)
    }

    async fn discard(&self, offset: u64, length: u64) -> Result<(), VolumeError> {
        self.volume.discard(offset, length).await.map_err(failed)
    }

    async fn write_zeroes(&self, offset: u64, length: u64) -> Result<(), VolumeError> {
        self.volume.write_zeroes(offset, length).await.map_err(failed)
    }

    async fn extents(&self, offset: u64, length: u64) -> Result<Vec<Extent>, VolumeError> {
        let found = self.volume.extents(offset, length).await.map_err(failed)?;
        Ok(found.into_iter().map(|extent| Extent { length: extent.length, data: extent.data }).collect())
    }
}
