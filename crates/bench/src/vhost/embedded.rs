//! A pool in this process that serves its volumes over vhost-user: the benchmark's default target
//! without a socket.

use std::fs::DirBuilder;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use export::OpenError;
use export::vhost::{VhostDisk, VhostServer};
use reactor::{Access, Listener, Platform, Reactor, Remote};

use super::VhostError;
use crate::disk_bench::{EmbeddedError, EmbeddedPool, PoolShape, ServedVolume};
use crate::local_platform;

/// The pool and its sockets. Dropping it stops the pool.
pub(super) struct VhostPool {
    directory: PathBuf,
    pub(super) disks: Vec<DiskSocket>,
    /// Stopped before the directory of the sockets is removed.
    pub(super) pool: Option<EmbeddedPool>,
}

/// The socket of a disk, and the reactors that its queues are distributed to, in turn.
pub(super) struct DiskSocket {
    pub(super) socket: PathBuf,
    pub(super) reactors: Vec<Remote>,
}

impl VhostPool {
    /// Creates the pool and starts serving.
    ///
    /// # Errors
    /// If memory cannot be allocated, or no I/O backend is available.
    pub(super) fn start(shape: &PoolShape) -> Result<Self, VhostError> {
        let pool = EmbeddedPool::start(shape)?;
        let mut served = Self { directory: private_directory()?, disks: Vec::new(), pool: None };
        let (volumes, directory, poll) = (pool.volumes.clone(), served.directory.clone(), shape.poll);
        served.disks = pool.run(move || async move { listen_here(volumes, &directory, poll) })??;
        served.pool = Some(pool);
        Ok(served)
    }
}

impl Drop for VhostPool {
    fn drop(&mut self) {
        self.pool = None;
        // A directory that remains is empty.
        let _ = std::fs::remove_dir_all(&self.directory);
    }
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

fn listen_here(
    volumes: Vec<engine::Volume>,
    directory: &Path,
    poll: Duration,
) -> Result<Vec<DiskSocket>, EmbeddedError> {
    let mut places = Vec::new();
    for (number, volume) in volumes.into_iter().enumerate() {
        let place =
            DiskSocket { socket: directory.join(format!("disk{number}.sock")), reactors: volume.reactors() };
        let listener = Listener::bind_unix(&local_platform::current(), &place.socket, Access::OWNER)
            .map_err(std::io::Error::other)?;
        let reactors = place.reactors.clone();
        let server = VhostServer::new(Arc::new(MemoryDisk { volume, reactors, poll }));
        Reactor::current().spawn(server.listen(listener)).detach();
        places.push(place);
    }
    Ok(places)
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
        Ok(ServedVolume::attach(&self.volume))
    }
}
