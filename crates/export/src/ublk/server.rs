//! A device that is served: added or recovered, started, with its queues on the reactors, then
//! stopped and deleted, or left to the next daemon.
//!
//! Always true: a device that is left loses no request: its users wait. A device that is ended is
//! deleted. Must not know the content of requests.

use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc};
use std::time::{Duration, Instant};

use reactor::{Access, Backend, Handle, IoError, Platform, Reactor, Remote};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

use super::control::{ControlDevice, path};
use super::device::DeviceQueue;
use super::error::{DeviceError, DeviceErrorKind};
use super::limits::{QUEUE_DEPTH, QUEUES_MAX, RANGE_BYTES_MAX, REQUEST_BYTES_MAX};
use super::link;
use super::queue::UblkQueue;
use super::uapi::{DeviceInfo, DiskParameters, NEW, STATE_DEAD, USER_RECOVERY, USER_RECOVERY_REISSUE};
use crate::Volume;

/// Time for the kernel to notice the end of the earlier daemon.
const RECOVERY_TIMEOUT: Duration = Duration::from_secs(10);
/// Time for which udev may hold a new device open while it examines the device.
const OPEN_TIMEOUT: Duration = Duration::from_secs(2);
/// Interval of retries.
const RETRY_INTERVAL: Duration = Duration::from_millis(10);
/// Time to wait for requests in flight at the end.
const END_TIMEOUT: Duration = Duration::from_secs(10);

/// The source of a device's volume, for each of its queues.
pub trait UblkSource: Send + Sync + 'static {
    /// The volume.
    type Volume: Volume + 'static;

    /// Opens the volume for this thread's reactor.
    fn open(&self) -> Self::Volume;

    /// Returns the platform of this thread's reactor.
    fn platform(&self) -> Rc<Platform>;
}

/// Options of a device.
#[derive(Clone, Debug)]
pub struct UblkOptions {
    /// Identifies the device: a device with this mark that an earlier daemon left is recovered.
    pub mark: u64,
    /// Path of the link to the device.
    pub link: PathBuf,
    /// Access rights of the directory that is created for the link.
    pub access: Access,
    /// Refuse writes.
    pub read_only: bool,
    /// Size in bytes.
    pub size: u64,
    /// Logical sector size in bytes.
    pub sector: u32,
    /// Number of queues of a new device, limited by the number of processors.
    pub queues: u16,
    /// I/O backend of the reactors.
    pub backend: Backend,
}

type Queues<V> = Vec<Handle<UblkQueue<V, DeviceQueue>>>;

/// A ublk device that is served. All methods may block.
pub struct UblkServer<V: Volume + 'static> {
    control: ControlDevice,
    id: u32,
    link: PathBuf,
    queues: Mutex<Queues<V>>,
    /// An exclusive open of the disk, which keeps others from claiming it.
    claim: Mutex<Option<OwnedFd>>,
}

/// The device is in use: a file system is mounted on it, or another program has claimed it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a mounted file system or another program on this host uses the device")]
pub struct DeviceInUse;

impl<V: Volume + 'static> UblkServer<V> {
    /// Serves a volume as a device, with its queues on these reactors in turn. Recovers the device
    /// that an earlier daemon left, or adds a new one.
    ///
    /// # Errors
    /// Fails if there is no ublk or the kernel refuses. The device of an earlier daemon then stays
    /// as it is.
    pub fn start<S: UblkSource<Volume = V>>(
        source: &Arc<S>,
        reactors: &[Remote],
        options: &UblkOptions,
    ) -> Result<Self, DeviceError> {
        if options.backend != Backend::Uring {
            let message = "the daemon does its I/O with threads, but ublk needs io_uring";
            return Err(DeviceError::new(DeviceErrorKind::NoRing, message));
        }
        let control = ControlDevice::open()?;
        let wanted = DiskParameters {
            size: options.size,
            sector: options.sector,
            read_only: options.read_only,
            request_bytes_max: REQUEST_BYTES_MAX,
            range_bytes_max: RANGE_BYTES_MAX,
        };
        match find(&control, options.mark, &wanted) {
            Some(info) => Self::recover(control, &info, source, reactors, options),
            None => Self::make(control, &wanted, source, reactors, options),
        }
    }

    fn make<S: UblkSource<Volume = V>>(
        control: ControlDevice,
        wanted: &DiskParameters,
        source: &Arc<S>,
        reactors: &[Remote],
        options: &UblkOptions,
    ) -> Result<Self, DeviceError> {
        let info = DeviceInfo {
            queues: options.queues.clamp(1, QUEUES_MAX),
            depth: QUEUE_DEPTH,
            state: STATE_DEAD,
            request_bytes_max: REQUEST_BYTES_MAX,
            id: NEW,
            flags: USER_RECOVERY | USER_RECOVERY_REISSUE,
            mark: options.mark,
        };
        let info = control.add(&info, wanted)?;
        let server = Self::new(control, info.id, &options.link);
        let started = server.start_queues(&info, source, reactors).and_then(|()| {
            server.control.start(info.id).map_err(|error| DeviceError::kernel("start a device", error))?;
            link::make(&server.link, options.access, &server.path())
        });
        if let Err(error) = started {
            server.end();
            return Err(error);
        }
        Ok(server)
    }

    fn recover<S: UblkSource<Volume = V>>(
        control: ControlDevice,
        info: &DeviceInfo,
        source: &Arc<S>,
        reactors: &[Remote],
        options: &UblkOptions,
    ) -> Result<Self, DeviceError> {
        let shown = path("ublkb", info.id);
        let failed =
            |error| DeviceError::kernel(&format!("hand {} over to this daemon", shown.display()), error);
        retry_while_busy(RECOVERY_TIMEOUT, || control.start_recovery(info.id)).map_err(failed)?;
        let server = Self::new(control, info.id, &options.link);
        server.start_queues(info, source, reactors)?;
        server.control.end_recovery(info.id).map_err(failed)?;
        tracing::info!(device = %shown.display(), "recovered a device of an earlier daemon");
        let size = server.control.parameters(info.id).map_or(options.size, |parameters| parameters.size);
        if size != options.size {
            server.resized(options.size);
        }
        if let Err(error) = link::make(&server.link, options.access, &shown) {
            // The device is in use already, so the missing link is not an error.
            tracing::warn!(%error, "could not create the link to a device");
        }
        Ok(server)
    }

    fn new(control: ControlDevice, id: u32, link: &Path) -> Self {
        Self { control, id, link: link.to_owned(), queues: Mutex::default(), claim: Mutex::default() }
    }

    fn start_queues<S: UblkSource<Volume = V>>(
        &self,
        info: &DeviceInfo,
        source: &Arc<S>,
        reactors: &[Remote],
    ) -> Result<(), DeviceError> {
        let device = open_device(self.id)?;
        for (queue, remote) in (0..info.queues).zip(reactors.iter().cycle()) {
            let (sender, opened) = mpsc::channel();
            let (source, device, info) = (source.clone(), device.clone(), *info);
            let job = move || {
                let channel = DeviceQueue::open(source.platform(), device, queue, &info);
                let handle = channel.map(|channel| {
                    let served = UblkQueue::start(source.open(), channel, info.depth);
                    Handle::register(&Reactor::current(), served)
                });
                // Fails only if the receiver is gone.
                let _ = sender.send(handle);
            };
            let gone = || DeviceError::new(DeviceErrorKind::Failed, "a reactor of the daemon has shut down");
            remote.post(job).map_err(|_| gone())?;
            let opened = opened.recv().map_err(|_| gone())?;
            let handle = opened.map_err(|error| DeviceError::system("open a queue of a device", &error))?;
            self.lock().push(handle);
        }
        Ok(())
    }

    fn lock(&self) -> MutexGuard<'_, Queues<V>> {
        self.queues.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the path of the device.
    pub fn path(&self) -> PathBuf {
        path("ublkb", self.id)
    }

    /// Changes the size of the device, if the kernel supports it.
    pub fn resized(&self, size: u64) {
        let device = self.path();
        match self.control.resize(self.id, size) {
            Ok(true) => {}
            Ok(false) => tracing::warn!(
                device = %device.display(),
                "this kernel cannot resize a ublk device; remove and create the export to apply the new size"
            ),
            Err(error) => {
                tracing::warn!(device = %device.display(), %error, "could not resize a device");
            }
        }
    }

    /// Keeps others from claiming the device, to be called before [`UblkServer::end`] by callers
    /// that must not interrupt its users.
    ///
    /// # Errors
    /// Fails without effect if the device is in use.
    pub fn close(&self) -> Result<(), DeviceInUse> {
        let claimed = claim(&self.path()).map_err(|errno| (errno == Errno::BUSY).then_some(DeviceInUse));
        match claimed {
            Ok(claimed) => *self.claim.lock().unwrap_or_else(PoisonError::into_inner) = Some(claimed),
            Err(Some(in_use)) => return Err(in_use),
            // A device that cannot be opened has no users.
            Err(None) => {}
        }
        Ok(())
    }

    /// Cancels [`UblkServer::close`].
    pub fn reopen(&self) {
        self.claim.lock().unwrap_or_else(PoisonError::into_inner).take();
    }

    /// Deletes the device. Later requests of its users fail.
    pub fn end(&self) {
        let queues = std::mem::take(&mut *self.lock());
        let claimed = self.claim.lock().unwrap_or_else(PoisonError::into_inner).take();
        match claimed.map_or_else(|| claim(&self.path()), Ok) {
            // Writes back the page cache of users that have closed the device.
            Ok(claimed) => drop(rustix::fs::fsync(claimed)),
            Err(Errno::BUSY) => {
                tracing::warn!(device = %self.path().display(), "deleted a device that is in use");
            }
            // The device has not appeared yet.
            Err(_) => {}
        }
        if let Err(error) = self.control.stop(self.id) {
            tracing::warn!(device = %self.path().display(), %error, "could not stop a device");
        }
        finish(queues, async |queue| {
            queue.ended().await;
            queue.leave().await;
        });
        self.control.delete(self.id);
        link::remove(&self.link, &self.path());
    }

    /// Leaves the device to the next daemon, after all begun requests are completed. Its users wait
    /// until then. This process does not serve it again.
    pub fn leave(&self) {
        finish(std::mem::take(&mut *self.lock()), async |queue| queue.leave().await);
    }
}

impl<V: Volume + 'static> Drop for UblkServer<V> {
    fn drop(&mut self) {
        self.leave();
    }
}

/// Runs `last` for each queue, and unregisters it.
fn finish<V: Volume + 'static>(
    queues: Queues<V>,
    last: impl AsyncFn(Rc<UblkQueue<V, DeviceQueue>>) + Copy + Send + 'static,
) {
    let (sender, done) = mpsc::channel::<()>();
    for handle in queues {
        let (queue_handle, sender) = (handle.clone(), sender.clone());
        let job = move || {
            let Some(queue) = queue_handle.local() else { return };
            let task = async move {
                last(queue).await;
                queue_handle.unregister();
                drop(sender);
            };
            Reactor::current().spawn(task).detach();
        };
        // A reactor that has shut down serves no queue.
        let _ = handle.remote().post(job);
    }
    drop(sender);
    if done.recv_timeout(END_TIMEOUT) == Err(mpsc::RecvTimeoutError::Timeout) {
        tracing::warn!("gave up a device with requests in flight");
    }
}

/// Finds the device that an earlier daemon left for this volume. Deletes devices that cannot be
/// recovered.
fn find(control: &ControlDevice, mark: u64, wanted: &DiskParameters) -> Option<DeviceInfo> {
    let mut found = None;
    for info in control.devices().into_iter().filter(|info| info.mark == mark) {
        let fits = control.parameters(info.id).is_ok_and(|parameters| {
            parameters.sector == wanted.sector && parameters.read_only == wanted.read_only
        });
        let recovers = info.flags & USER_RECOVERY != 0 && info.state != STATE_DEAD;
        if fits && recovers && found.is_none() {
            found = Some(info);
        } else {
            discard(control, info.id);
        }
    }
    found
}

fn discard(control: &ControlDevice, id: u32) {
    tracing::warn!(device = %path("ublkb", id).display(), "deleting a device that cannot be recovered");
    // A device that was never started cannot be stopped.
    let _ = control.stop(id);
    control.delete(id);
}

/// Deletes the devices with marks for which `is_orphaned` returns true.
///
/// # Errors
/// Fails if this kernel has no ublk.
pub fn delete_orphaned_devices(is_orphaned: impl Fn(u64) -> bool) -> Result<(), DeviceError> {
    let control = ControlDevice::open()?;
    for info in control.devices().into_iter().filter(|info| is_orphaned(info.mark)) {
        discard(&control, info.id);
    }
    Ok(())
}

fn open_device(id: u32) -> Result<Arc<OwnedFd>, DeviceError> {
    let path = path("ublkc", id);
    let open =
        || rustix::fs::open(&path, OFlags::RDWR | OFlags::CLOEXEC, Mode::empty()).map_err(IoError::from);
    let opened = retry_while_busy(OPEN_TIMEOUT, open);
    opened.map(Arc::new).map_err(|error| {
        DeviceError::system(&format!("open {}", path.display()), &std::io::Error::from(error))
    })
}

/// Opens a disk exclusively.
fn claim(device: &Path) -> Result<OwnedFd, Errno> {
    rustix::fs::open(device, OFlags::RDONLY | OFlags::EXCL | OFlags::CLOEXEC, Mode::empty())
}

/// Retries an attempt for a while if the device is busy.
fn retry_while_busy<T>(timeout: Duration, attempt: impl Fn() -> Result<T, IoError>) -> Result<T, IoError> {
    let end = Instant::now() + timeout;
    loop {
        match attempt() {
            Err(error) if error.errno() == Errno::BUSY.raw_os_error() && Instant::now() < end => {
                std::thread::sleep(RETRY_INTERVAL);
            }
            done => return done,
        }
    }
}
