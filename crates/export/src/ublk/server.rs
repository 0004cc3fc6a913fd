//! A device while it is served: made or taken over, started, its queues on the reactors, stopped and deleted or left to the next
//! daemon.
//!
//! Always true: a device that is left answers nothing and loses nothing: its users wait; one that is ended is gone. Must not
//! know what requests are.

use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc};
use std::time::{Duration, Instant};

use reactor::{Access, Backend, Handle, IoError, Platform, Reactor, Remote};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

use super::control::{Control, path};
use super::device::DeviceQueue;
use super::error::{DeviceError, DeviceErrorKind};
use super::limits::{QUEUE_DEPTH, QUEUES_MAX, RANGE_BYTES_MAX, REQUEST_BYTES_MAX};
use super::link;
use super::queue::Queue;
use super::words::{Info, NEW, Parameters, STATE_DEAD, USER_RECOVERY, USER_RECOVERY_REISSUE};
use crate::Volume;

/// How long the kernel may take to notice that the daemon before us is gone.
const RECOVERY_PATIENCE: Duration = Duration::from_secs(10);
/// How long udev, which looks at every new device, may hold it.
const OPEN_PATIENCE: Duration = Duration::from_secs(2);
/// Pause between two looks.
const PAUSE: Duration = Duration::from_millis(10);
/// How long requests that are under way are waited for at the end.
const END_PATIENCE: Duration = Duration::from_secs(10);

/// What a device serves, for each of its queues.
pub trait Source: Send + Sync + 'static {
    /// What is served.
    type Volume: Volume + 'static;

    /// The volume, for the reactor of this thread.
    fn open(&self) -> Self::Volume;

    /// The platform of the reactor of this thread.
    fn platform(&self) -> Rc<Platform>;
}

/// How a device is served.
#[derive(Clone, Debug)]
pub struct Options {
    /// Tells the device from all others: an earlier daemon's with this mark is taken over.
    pub mark: u64,
    /// A link to it is made here.
    pub link: PathBuf,
    /// The users who may enter the directory that is made for the link.
    pub access: Access,
    /// Refuse writes.
    pub read_only: bool,
    /// Bytes.
    pub size: u64,
    /// Bytes of the smallest unit of access.
    pub sector: u32,
    /// How many queues a new device gets, as far as there are processors.
    pub queues: u16,
    /// How the reactors do I/O.
    pub backend: Backend,
}

type Queues<V> = Vec<Handle<Queue<V, DeviceQueue>>>;

/// See the module. All of its methods may block.
pub struct Server<V: Volume + 'static> {
    control: Control,
    id: u32,
    link: PathBuf,
    queues: Mutex<Queues<V>>,
    /// Held while nobody else is to begin to use the disk.
    claim: Mutex<Option<OwnedFd>>,
}

/// A device that is in use: a file system is mounted on it, or something else claims it for itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("something on this host has claimed it for itself")]
pub struct InUse;

impl<V: Volume + 'static> Server<V> {
    /// Serves a volume as a device, on these reactors in turn: that of an earlier daemon, if it has left one, or a new one.
    ///
    /// # Errors
    /// When there is no ublk, or the kernel refuses. What an earlier daemon has left is left as it is then.
    pub fn start<S: Source<Volume = V>>(
        source: &Arc<S>,
        reactors: &[Remote],
        options: &Options,
    ) -> Result<Self, DeviceError> {
        if options.backend != Backend::Uring {
            let message = "the daemon does its I/O by threads, and ublk goes through io_uring";
            return Err(DeviceError::new(DeviceErrorKind::NoRing, message));
        }
        let control = Control::open()?;
        let wanted = Parameters {
            size: options.size,
            sector: options.sector,
            read_only: options.read_only,
            request_bytes_max: REQUEST_BYTES_MAX,
            range_bytes_max: RANGE_BYTES_MAX,
        };
        match find(&control, options.mark, &wanted) {
            Some(info) => Self::take_over(control, &info, source, reactors, options),
            None => Self::make(control, &wanted, source, reactors, options),
        }
    }

    fn make<S: Source<Volume = V>>(
        control: Control,
        wanted: &Parameters,
        source: &Arc<S>,
        reactors: &[Remote],
        options: &Options,
    ) -> Result<Self, DeviceError> {
        let info = Info {
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

    fn take_over<S: Source<Volume = V>>(
        control: Control,
        info: &Info,
        source: &Arc<S>,
        reactors: &[Remote],
        options: &Options,
    ) -> Result<Self, DeviceError> {
        let shown = path("ublkb", info.id);
        let failed = |error| DeviceError::kernel(&format!("give {} back to us", shown.display()), error);
        patiently(RECOVERY_PATIENCE, || control.start_recovery(info.id)).map_err(failed)?;
        let server = Self::new(control, info.id, &options.link);
        server.start_queues(info, source, reactors)?;
        server.control.end_recovery(info.id).map_err(failed)?;
        tracing::info!(device = %shown.display(), "a device that an earlier daemon has left is served again");
        let size = server.control.parameters(info.id).map_or(options.size, |parameters| parameters.size);
        if size != options.size {
            server.resized(options.size);
        }
        if let Err(error) = link::make(&server.link, options.access, &shown) {
            // Whoever uses the device does so already.
            tracing::warn!(%error, "there is no link to a device");
        }
        Ok(server)
    }

    fn new(control: Control, id: u32, link: &Path) -> Self {
        Self { control, id, link: link.to_owned(), queues: Mutex::default(), claim: Mutex::default() }
    }

    fn start_queues<S: Source<Volume = V>>(
        &self,
        info: &Info,
        source: &Arc<S>,
        reactors: &[Remote],
    ) -> Result<(), DeviceError> {
        let device = open_device(self.id)?;
        for (queue, remote) in (0..info.queues).zip(reactors.iter().cycle()) {
            let (sender, opened) = mpsc::channel();
            let (source, device, info) = (source.clone(), device.clone(), *info);
            let job = move || {
                let exchange = DeviceQueue::open(source.platform(), device, queue, &info);
                let home = exchange.map(|exchange| {
                    let served = Queue::start(source.open(), exchange, info.depth);
                    Handle::register(&Reactor::current(), served)
                });
                // Nobody listens any more only if we are gone.
                let _ = sender.send(home);
            };
            let gone = || DeviceError::new(DeviceErrorKind::Failed, "a reactor of the daemon is gone");
            remote.post(job).map_err(|_| gone())?;
            let opened = opened.recv().map_err(|_| gone())?;
            let home = opened.map_err(|error| DeviceError::system("get a queue of a device", &error))?;
            self.lock().push(home);
        }
        Ok(())
    }

    fn lock(&self) -> MutexGuard<'_, Queues<V>> {
        self.queues.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The device.
    pub fn path(&self) -> PathBuf {
        path("ublkb", self.id)
    }

    /// The volume has another size: the device gets it as well, where the kernel can do that.
    pub fn resized(&self, size: u64) {
        let device = self.path();
        match self.control.resize(self.id, size) {
            Ok(true) => {}
            Ok(false) => tracing::warn!(
                device = %device.display(),
                "this kernel cannot change a device's size: it has the old one until it is exported anew"
            ),
            Err(error) => {
                tracing::warn!(device = %device.display(), %error, "a device could not be given its new size");
            }
        }
    }

    /// Lets nobody claim the device any more, unless somebody has: before [`Server::end`], for those who ask first.
    ///
    /// # Errors
    /// When it is in use: then nothing has changed.
    pub fn close(&self) -> Result<(), InUse> {
        let claimed = claim(&self.path()).map_err(|errno| (errno == Errno::BUSY).then_some(InUse));
        match claimed {
            Ok(claimed) => *self.claim.lock().unwrap_or_else(PoisonError::into_inner) = Some(claimed),
            Err(Some(in_use)) => return Err(in_use),
            // What cannot even be opened is used by nobody.
            Err(None) => {}
        }
        Ok(())
    }

    /// Takes back a [`Server::close`].
    pub fn reopen(&self) {
        self.claim.lock().unwrap_or_else(PoisonError::into_inner).take();
    }

    /// Takes the device away. What its users do from then on fails.
    pub fn end(&self) {
        let queues = std::mem::take(&mut *self.lock());
        let claimed = self.claim.lock().unwrap_or_else(PoisonError::into_inner).take();
        match claimed.map_or_else(|| claim(&self.path()), Ok) {
            // What the page cache holds of those who have closed it.
            Ok(claimed) => drop(rustix::fs::fsync(claimed)),
            Err(Errno::BUSY) => {
                tracing::warn!(device = %self.path().display(), "a device was taken away that is in use");
            }
            // It has not appeared yet.
            Err(_) => {}
        }
        if let Err(error) = self.control.stop(self.id) {
            tracing::warn!(device = %self.path().display(), %error, "a device could not be stopped");
        }
        finish(queues, async |queue| {
            queue.ended().await;
            queue.leave().await;
        });
        self.control.delete(self.id);
        link::remove(&self.link, &self.path());
    }

    /// Leaves the device to the next daemon, when what was begun has been answered. Its users wait until then. This process does
    /// not serve it again.
    pub fn leave(&self) {
        finish(std::mem::take(&mut *self.lock()), async |queue| queue.leave().await);
    }
}

impl<V: Volume + 'static> Drop for Server<V> {
    fn drop(&mut self) {
        self.leave();
    }
}

/// Does the last thing with each queue, and forgets it.
fn finish<V: Volume + 'static>(
    queues: Queues<V>,
    last: impl AsyncFn(Rc<Queue<V, DeviceQueue>>) + Copy + Send + 'static,
) {
    let (sender, done) = mpsc::channel::<()>();
    for home in queues {
        let (there, sender) = (home.clone(), sender.clone());
        let job = move || {
            let Some(queue) = there.local() else { return };
            let task = async move {
                last(queue).await;
                there.unregister();
                drop(sender);
            };
            Reactor::current().spawn(task).detach();
        };
        // A reactor that is gone serves nobody.
        let _ = home.remote().post(job);
    }
    drop(sender);
    if done.recv_timeout(END_PATIENCE) == Err(mpsc::RecvTimeoutError::Timeout) {
        tracing::warn!("a device was given up with requests under way");
    }
}

/// What an earlier daemon has left for this volume. What cannot be taken over is deleted.
fn find(control: &Control, mark: u64, wanted: &Parameters) -> Option<Info> {
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

fn discard(control: &Control, id: u32) {
    tracing::warn!(device = %path("ublkb", id).display(), "a device that nobody can take over is deleted");
    // One that was never started has nothing to be stopped.
    let _ = control.stop(id);
    control.delete(id);
}

/// Deletes the devices whose marks are said to be left behind.
///
/// # Errors
/// When this kernel has no ublk.
pub fn clear(is_left_behind: impl Fn(u64) -> bool) -> Result<(), DeviceError> {
    let control = Control::open()?;
    for info in control.devices().into_iter().filter(|info| is_left_behind(info.mark)) {
        discard(&control, info.id);
    }
    Ok(())
}

fn open_device(id: u32) -> Result<Arc<OwnedFd>, DeviceError> {
    let path = path("ublkc", id);
    let open =
        || rustix::fs::open(&path, OFlags::RDWR | OFlags::CLOEXEC, Mode::empty()).map_err(IoError::from);
    let opened = patiently(OPEN_PATIENCE, open);
    opened.map(Arc::new).map_err(|error| {
        DeviceError::system(&format!("open {}", path.display()), &std::io::Error::from(error))
    })
}

/// Has a disk for ourselves, if nobody else has.
fn claim(device: &Path) -> Result<OwnedFd, Errno> {
    rustix::fs::open(device, OFlags::RDONLY | OFlags::EXCL | OFlags::CLOEXEC, Mode::empty())
}

/// Tries again for a while what is in use.
fn patiently<T>(patience: Duration, attempt: impl Fn() -> Result<T, IoError>) -> Result<T, IoError> {
    let end = Instant::now() + patience;
    loop {
        match attempt() {
            Err(error) if error.errno() == Errno::BUSY.raw_os_error() && Instant::now() < end => {
                std::thread::sleep(PAUSE);
            }
            done => return done,
        }
    }
}
