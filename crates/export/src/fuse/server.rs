//! A file that is served: its mount, and the thread that receives the kernel's requests.
//!
//! Always true: after the end no request is in flight on the volume, and nothing is mounted. Must
//! not know the content of requests.

use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, SystemTime};

use fuser::{Config, Notifier, Session, SessionACL};
use reactor::{Access, Handle};

use super::file::VolumeFile;
use super::handler::{FILE, FuseHandler};
use super::mount::{Mount, MountError, MountErrorKind, release_place};
use super::open_count::OpenCount;
use super::request_limiter::RequestLimiter;
use crate::Volume;

/// Time for the kernel to report a close that has happened already.
const CLOSE_PATIENCE: Duration = Duration::from_millis(500);
/// Time for requests in flight at the end.
const END_PATIENCE: Duration = Duration::from_secs(10);

/// The options of a served file.
#[derive(Clone, Debug)]
pub struct FuseOptions {
    /// The path of the file.
    pub place: PathBuf,
    /// The users that may enter the directory that is created for it.
    pub access: Access,
    /// The source in the table of mounts.
    pub name: String,
    /// Refuse writes.
    pub read_only: bool,
    /// Receives the number of open handles.
    pub opens: Arc<AtomicU64>,
}

/// A file that is served. All methods may block.
pub struct FuseServer {
    mount: Mount,
    credit: Arc<RequestLimiter>,
    opens: Arc<OpenCount>,
    notifier: Notifier,
    thread: Mutex<Option<JoinHandle<()>>>,
}

/// A file that is in use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0} open file handles")]
pub struct FileInUse(pub u64);

impl FuseServer {
    /// Mounts a file and serves it.
    ///
    /// # Errors
    /// When it cannot be mounted.
    pub fn start<V: Volume + 'static>(
        file: Handle<VolumeFile<V>>,
        options: FuseOptions,
    ) -> Result<Self, MountError> {
        let FuseOptions { place, access, name, read_only, opens } = options;
        let (credit, opens) = (Arc::new(RequestLimiter::default()), Arc::new(OpenCount::new(opens)));
        let since = SystemTime::now();
        let kernel = FuseHandler { file, credit: credit.clone(), opens: opens.clone(), read_only, since };
        let mut mount = Mount::new(&place, access, &name, read_only)?;
        let Some(device) = mount.take_device() else { unreachable!("a new mount has its device") };
        let served = serve(kernel, device, &place);
        if served.is_err() {
            mount.cut();
            release_place(&place);
        }
        let (notifier, thread) = served?;
        Ok(Self { mount, credit, opens, notifier, thread: Mutex::new(Some(thread)) })
    }

    /// Announces a new size to the kernel.
    pub fn resized(&self) {
        // Invalidates the attributes alone: nothing else is cached.
        if let Err(error) = self.notifier.inval_inode(FILE, -1, 0) {
            tracing::warn!(%error, "cannot announce the new size of a file; the kernel notices it later");
        }
    }

    /// Permits no further opens, unless the file is open: the first step of an orderly
    /// [`FuseServer::end`].
    ///
    /// # Errors
    /// When the file is open: nothing has changed then.
    pub fn close(&self) -> Result<(), FileInUse> {
        self.opens.close(CLOSE_PATIENCE).map_err(FileInUse)
    }

    /// Reverts [`FuseServer::close`].
    pub fn reopen(&self) {
        self.opens.reopen();
    }

    /// Removes the file. Requests of its users fail from then on.
    pub fn end(&self) {
        self.withdraw();
        release_place(self.mount.place());
    }

    /// Unmounts the file, and keeps its place reserved: no user can open or create a file there
    /// until it is served again, or [`release_place`] is called.
    pub fn withdraw(&self) {
        let Some(thread) = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take() else { return };
        if let open @ 1.. = self.opens.close_now() {
            tracing::warn!(place = %self.mount.place().display(), open, "removed a file that is open");
        }
        self.mount.cut();
        if thread.join().is_err() {
            tracing::error!("the thread of a file panicked");
        }
        if !self.credit.wait_until_idle(END_PATIENCE) {
            tracing::warn!("removed a file with requests in flight");
        }
        self.opens.reset();
    }
}

impl Drop for FuseServer {
    fn drop(&mut self) {
        self.withdraw();
    }
}

/// Serves the device of a mount on a thread of its own.
fn serve<V: Volume + 'static>(
    kernel: FuseHandler<V>,
    device: std::os::fd::OwnedFd,
    place: &Path,
) -> Result<(Notifier, JoinHandle<()>), MountError> {
    let failed = |error: std::io::Error| {
        MountError::new(MountErrorKind::Failed, format!("cannot serve {}: {error}", place.display()))
    };
    // The kernel checks permissions.
    let session = Session::from_fd(kernel, device, SessionACL::All, Config::default()).map_err(failed)?;
    let (notifier, shown) = (session.notifier(), place.display().to_string());
    let run = move || match session.run() {
        Ok(()) => tracing::debug!(place = shown, "stopped serving a file"),
        Err(error) => tracing::warn!(place = shown, %error, "stopped serving a file"),
    };
    let thread = std::thread::Builder::new().name("fuse".into()).spawn(run).map_err(failed)?;
    Ok((notifier, thread))
}
