//! A file while it is served: the mount, and the thread that takes the kernel's requests.
//!
//! Always true: when it has ended, nothing is under way on the volume, and nothing is mounted. Must not know what requests are.

use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, SystemTime};

use fuser::{Config, Notifier, Session, SessionACL};
use reactor::{Access, Handle};

use super::credit::Credit;
use super::file::File;
use super::kernel::{FILE, Kernel};
use super::mount::{Mount, MountError, MountErrorKind, forget};
use super::opens::Opens;
use crate::Volume;

/// How long a close that has happened already may take to be told.
const CLOSE_PATIENCE: Duration = Duration::from_millis(500);
/// How long requests that are under way are waited for at the end.
const END_PATIENCE: Duration = Duration::from_secs(10);

/// How a file is served.
#[derive(Clone, Debug)]
pub struct Options {
    /// Where it is seen.
    pub place: PathBuf,
    /// The users who may enter the directory that is made for it.
    pub access: Access,
    /// What the table of mounts calls it.
    pub name: String,
    /// Refuse writes.
    pub read_only: bool,
    /// How many have it open is kept here.
    pub opens: Arc<AtomicU64>,
}

/// See the module. All of its methods may block.
pub struct Server {
    mount: Mount,
    credit: Arc<Credit>,
    opens: Arc<Opens>,
    notifier: Notifier,
    thread: Mutex<Option<JoinHandle<()>>>,
}

/// A file that is in use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("it is open {0} times")]
pub struct InUse(pub u64);

impl Server {
    /// Mounts a file and serves it.
    ///
    /// # Errors
    /// When it cannot be mounted there.
    pub fn start<V: Volume + 'static>(file: Handle<File<V>>, options: Options) -> Result<Self, MountError> {
        let Options { place, access, name, read_only, opens } = options;
        let (credit, opens) = (Arc::new(Credit::default()), Arc::new(Opens::new(opens)));
        let since = SystemTime::now();
        let kernel = Kernel { file, credit: credit.clone(), opens: opens.clone(), read_only, since };
        let mut mount = Mount::new(&place, access, &name, read_only)?;
        let Some(device) = mount.take_device() else { unreachable!("a new mount has its device") };
        let served = serve(kernel, device, &place);
        if served.is_err() {
            mount.cut();
            forget(&place);
        }
        let (notifier, thread) = served?;
        Ok(Self { mount, credit, opens, notifier, thread: Mutex::new(Some(thread)) })
    }

    /// The size has changed: whoever asks is told the new one.
    pub fn resized(&self) {
        // The attributes alone; nothing else is kept.
        if let Err(error) = self.notifier.inval_inode(FILE, -1, 0) {
            tracing::warn!(%error, "the kernel could not be told of a file's new size: it asks again by itself");
        }
    }

    /// Lets nobody open it any more, unless somebody has it open: before [`Server::end`], for those who ask first.
    ///
    /// # Errors
    /// When somebody has it open: then nothing has changed.
    pub fn close(&self) -> Result<(), InUse> {
        self.opens.close(CLOSE_PATIENCE).map_err(InUse)
    }

    /// Takes back a [`Server::close`].
    pub fn reopen(&self) {
        self.opens.reopen();
    }

    /// Takes it away. Whoever has it open finds that everything fails.
    pub fn end(&self) {
        self.withdraw();
        forget(self.mount.place());
    }

    /// Takes it away for a while: nobody can open or make a file in its place until it is served again, or [`forget`] is
    /// called.
    pub fn withdraw(&self) {
        let Some(thread) = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take() else { return };
        if let open @ 1.. = self.opens.close_at_once() {
            tracing::warn!(place = %self.mount.place().display(), open, "a file was taken away that is open");
        }
        self.mount.cut();
        if thread.join().is_err() {
            tracing::error!("the thread of a file panicked");
        }
        if !self.credit.wait_until_idle(END_PATIENCE) {
            tracing::warn!("a file was taken away with requests under way");
        }
        self.opens.forget();
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.withdraw();
    }
}

/// Serves the kernel's end of a mount on a thread of its own.
fn serve<V: Volume + 'static>(
    kernel: Kernel<V>,
    device: std::os::fd::OwnedFd,
    place: &Path,
) -> Result<(Notifier, JoinHandle<()>), MountError> {
    let failed = |error: std::io::Error| {
        MountError::new(MountErrorKind::Failed, format!("cannot serve {}: {error}", place.display()))
    };
    // Who may use it is the kernel's to say.
    let session = Session::from_fd(kernel, device, SessionACL::All, Config::default()).map_err(failed)?;
    let (notifier, shown) = (session.notifier(), place.display().to_string());
    let run = move || match session.run() {
        Ok(()) => tracing::debug!(place = shown, "a file is no longer served"),
        Err(error) => tracing::warn!(place = shown, %error, "a file is no longer served"),
    };
    let thread = std::thread::Builder::new().name("fuse".into()).spawn(run).map_err(failed)?;
    Ok((notifier, thread))
}
