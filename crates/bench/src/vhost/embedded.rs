//! A pool on memory drives that serves its volumes over vhost-user on its own threads: the
//! benchmark's default target without a socket.
//!
//! Uses the same engine and export as the daemon; only the drives are in memory. Does not know the
//! load.

use std::fs::DirBuilder;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;
use std::time::Duration;

use engine::{AttachedVolume, DriveSource, NewVolume, Pool};
use export::vhost::{VhostDisk, VhostServer};
use export::{Extent, OpenError, VolumeError, VolumeErrorKind};
use futures_channel::oneshot;
use reactor::{Access, Backend, Clock, Handle, Listener, Platform, Reactor, Remote, Span, SystemClock};

use super::VhostError;
use super::usage::Worker;
use crate::drives::{Drives, OpenDrives};
use crate::{local_platform, memory_pool};

/// The parameters of the pool.
#[derive(Clone, Debug)]
pub(super) struct PoolShape {
    /// One reactor per core in this list; an unpinned reactor for `None`.
    pub(super) cores: Vec<Option<usize>>,
    /// The drives, and the bytes of each unless paths are given.
    pub(super) drives: Drives,
    pub(super) drive_bytes: u64,
    pub(super) volume_bytes: u64,
    /// Number of volumes, and of shards per volume; `None` for all shards.
    pub(super) disks: u32,
    pub(super) shards: Option<u16>,
    /// Polling time of an idle queue.
    pub(super) poll: Duration,
    /// The I/O backend in which the reactors sleep; the memory drives need none.
    pub(super) io: Backend,
}

/// The pool; see the module documentation. Dropping it stops the pool.
pub(super) struct Embedded {
    directory: PathBuf,
    threads: Vec<(oneshot::Sender<()>, JoinHandle<()>)>,
    pub(super) remotes: Vec<Remote>,
    pub(super) worker: Worker,
    pub(super) disks: Vec<DiskSocket>,
    pool: Option<Handle<Pool>>,
    /// Dropped after the threads have ended.
    open_drives: Option<OpenDrives>,
}

/// The socket of a disk, and the reactors that its queues are distributed to, in turn.
pub(super) struct DiskSocket {
    pub(super) socket: PathBuf,
    pub(super) reactors: Vec<Remote>,
}

impl Embedded {
    /// Creates the pool and starts serving.
    ///
    /// # Errors
    /// If memory cannot be allocated, or no I/O backend is available.
    pub(super) fn start(shape: &PoolShape) -> Result<Self, VhostError> {
        let open = shape.drives.open(usize::from(memory_pool::scheme().width()), shape.drive_bytes)?;
        let directory = private_directory()?;
        let mut embedded = Self {
            directory,
            threads: Vec::new(),
            remotes: Vec::new(),
            worker: Worker::threads(&[]),
            disks: Vec::new(),
            pool: None,
            open_drives: None,
        };
        let mut ids = Vec::new();
        for (index, core) in shape.cores.iter().enumerate() {
            ids.push(embedded.start_reactor(index, *core, shape.poll, shape.io)?);
        }
        embedded.worker = Worker::threads(&ids);
        let (pool, disks) = embedded.serve(open.drives.clone(), shape)?;
        (embedded.pool, embedded.disks) = (Some(pool), disks);
        embedded.open_drives = Some(open);
        Ok(embedded)
    }

    /// Starts a thread with a reactor and returns the thread's id.
    fn start_reactor(
        &mut self,
        index: usize,
        core: Option<usize>,
        poll: Duration,
        io: Backend,
    ) -> Result<i32, VhostError> {
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
        let (remote, id) = receiver.recv().map_err(|_| VhostError::Ended)??;
        self.remotes.push(remote);
        Ok(id)
    }

    fn serve(
        &self,
        drives: Vec<Arc<dyn DriveSource>>,
        shape: &PoolShape,
    ) -> Result<(Handle<Pool>, Vec<DiskSocket>), VhostError> {
        let (reactors, directory, shape) = (self.remotes.clone(), self.directory.clone(), shape.clone());
        let first = reactors.first().cloned().ok_or(VhostError::Ended)?;
        // On the first reactor, because the objects of the pool belong to it.
        run_on(&first, move || async move { serve_here(&drives, reactors, &directory, &shape).await })?
    }

    /// Fails the first drive of the pool.
    ///
    /// # Errors
    /// If the pool refuses it, or has ended.
    pub(super) fn fail_drive(&self) -> Result<(), VhostError> {
        let pool = self.pool.clone().ok_or(VhostError::Ended)?;
        let remote = pool.remote().clone();
        run_on(&remote, move || async move {
            let pool = pool.local().ok_or(VhostError::Ended)?;
            Ok(pool.fail_drive(0).await?)
        })?
    }
}

impl Drop for Embedded {
    fn drop(&mut self) {
        for (stop, handle) in self.threads.drain(..) {
            let _ = stop.send(());
            // A panic has already been reported.
            let _ = handle.join();
        }
        // A directory that remains is empty.
        let _ = std::fs::remove_dir_all(&self.directory);
    }
}

/// Runs a task on another reactor, and returns its output.
fn run_on<T, F>(remote: &Remote, task: impl FnOnce() -> F + Send + 'static) -> Result<T, VhostError>
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
    remote.post(begin).map_err(|_| VhostError::Ended)?;
    receiver.recv().map_err(|_| VhostError::Ended)
}

/// Creates a directory that only this user can access.
fn private_directory() -> std::io::Result<PathBuf> {
    let mut bytes = [0; 8];
    getrandom::fill(&mut bytes).map_err(std::io::Error::other)?;
    let name = format!("gabion-bench-{:016x}", u64::from_le_bytes(bytes));
    let directory = std::env::temp_dir().join(name);
    DirBuilder::new().mode(0o700).create(&directory)?;
    Ok(directory)
}

fn start_here(core: Option<usize>, poll: Duration, io: Backend) -> Result<Reactor, VhostError> {
    if let Some(core) = core {
        super::pin(core)?;
    }
    let clock: Rc<dyn Clock> = Rc::new(SystemClock::new());
    let platform = Platform::new(io, clock.clone()).map_err(VhostError::Platform)?;
    let reactor = Reactor::new(platform.clone(), clock);
    reactor.set_poll_before_sleep(poll);
    local_platform::set(Some(platform));
    Ok(reactor)
}

async fn serve_here(
    drives: &[Arc<dyn DriveSource>],
    reactors: Vec<Remote>,
    directory: &Path,
    shape: &PoolShape,
) -> Result<(Handle<Pool>, Vec<DiskSocket>), VhostError> {
    let zone = (shape.drive_bytes >= 1 << 30).then_some(memory_pool::ZONE);
    let pool = memory_pool::pool_on(drives, memory_pool::scheme(), zone, reactors).await?;
    let mut places = Vec::new();
    for number in 0..shape.disks {
        let name = format!("disk{number}");
        let wanted =
            NewVolume { size: shape.volume_bytes, sector: 4096, thick: false, shards: shape.shards, now: 0 };
        pool.create_volume_with(&name, wanted).await?;
        let volume = pool.open_volume(&name).await?;
        let place =
            DiskSocket { socket: directory.join(format!("{name}.sock")), reactors: volume.reactors() };
        let listener = Listener::bind_unix(&local_platform::current(), &place.socket, Access::OWNER)
            .map_err(std::io::Error::other)?;
        let reactors = place.reactors.clone();
        let server = VhostServer::new(Arc::new(MemoryDisk { volume, reactors, poll: shape.poll }));
        Reactor::current().spawn(server.listen(listener)).detach();
        places.push(place);
    }
    Ok((Handle::register(&Reactor::current(), Rc::new(pool)), places))
}

struct MemoryDisk {
    volume: engine::Volume,
    reactors: Vec<Remote>,
    poll: Duration,
}

impl VhostDisk for MemoryDisk {
    type Volume = ServedVolume;

    fn name(&self) -> String {
        "bench".into()
    }

    fn serial(&self) -> String {
        "bench".into()
    }

    fn size(&self) -> u64 {
        self.volume.size()
    }

    fn sector(&self) -> u32 {
        self.volume.sector()
    }

    fn read_only(&self) -> bool {
        false
    }

    fn reactors(&self) -> &[Remote] {
        &self.reactors
    }

    fn queues(&self) -> u16 {
        export::vhost::QUEUES_MAX
    }

    fn poll(&self) -> Duration {
        self.poll
    }

    fn coalesce_delay(&self) -> Duration {
        self.poll
    }

    fn platform(&self) -> Rc<Platform> {
        local_platform::current()
    }

    async fn open(&self) -> Result<ServedVolume, OpenError> {
        Ok(ServedVolume { volume: self.volume.attach() })
    }
}

/// A volume of the engine as a volume of the export crate.
struct ServedVolume {
    volume: AttachedVolume,
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
