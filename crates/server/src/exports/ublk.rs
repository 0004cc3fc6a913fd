//! Volumes as block devices of this host: one of the kernel's for each, whose queues are on the reactors.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use export::ublk::{DeviceError, DeviceErrorKind, Options, QUEUES_MAX, Server, Source, clear};
use reactor::{Access, Platform};

use super::queues::{check_queues, chosen_reactors, reactors_of};
use super::table::{Active, Manner, Name};
use super::volume::ExportedVolume;
use crate::blocking::blocking;
use crate::config::Config;
use crate::error::{Error, ErrorKind, Result};
use crate::reactors::{self, Reactors};

/// The devices that are served.
pub(super) struct Ublk {
    directory: PathBuf,
    access: Access,
    reactors: Arc<Reactors>,
    /// What the marks of this daemon's devices begin with.
    family: u32,
    served: Mutex<BTreeMap<Name, Served>>,
}

#[derive(Clone)]
struct Served {
    server: Arc<Server<ExportedVolume>>,
    active: Arc<Active>,
}

/// A volume as a device's queues open it.
struct DeviceVolume {
    active: Arc<Active>,
    read_only: bool,
}

impl Source for DeviceVolume {
    type Volume = ExportedVolume;

    fn open(&self) -> ExportedVolume {
        ExportedVolume::of(&self.active.volume, self.read_only)
    }

    fn platform(&self) -> Rc<Platform> {
        reactors::platform()
    }
}

impl Ublk {
    pub(super) fn new(config: &Config, access: Access, reactors: Arc<Reactors>) -> Self {
        let state = std::fs::canonicalize(&config.state_dir).unwrap_or_else(|_| config.state_dir.clone());
        // The marks of other programs are mostly small numbers.
        let family = hash(state.as_os_str().as_encoded_bytes()) | 1;
        let directory = config.ublk_directory.clone();
        Self { directory, access, reactors, family, served: Mutex::default() }
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<Name, Served>> {
        self.served.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn find(&self, name: &Name) -> Option<Served> {
        self.lock().get(name).cloned()
    }

    fn link(&self, name: &Name) -> PathBuf {
        self.directory.join(&name.pool).join(&name.volume)
    }

    /// What the kernel keeps of a device's owner: how the next daemon finds it.
    fn mark(&self, name: &Name) -> u64 {
        u64::from(self.family) << 32 | u64::from(hash(name.to_string().as_bytes()))
    }

    /// Where the device is: a link that is always the same, and its own name.
    pub(super) fn uris(&self, name: &Name) -> Vec<String> {
        let device = self.find(name).map(|served| served.server.path());
        let paths = std::iter::once(self.link(name)).chain(device);
        paths.map(|path| path.to_string_lossy().into_owned()).collect()
    }

    /// Refuses what cannot be served in any state of the pool, and names that the kernel could not tell apart.
    ///
    /// # Errors
    /// `Invalid`, `Exists`.
    pub(super) fn check(&self, name: &Name, manner: &Manner, others: &[Name]) -> Result<()> {
        check_queues(manner, QUEUES_MAX)?;
        chosen_reactors(manner, &self.reactors)?;
        let mark = self.mark(name);
        match others.iter().find(|other| *other != name && self.mark(other) == mark) {
            Some(other) => {
                let message = format!("'{name}' cannot be told from '{other}', which is a device already");
                Err(Error::new(ErrorKind::Exists, message).hint("give the volume another name"))
            }
            None => Ok(()),
        }
    }

    /// Deletes the devices that an earlier daemon has made, for exports that there are no more.
    pub(super) async fn clear(&self, exports: &[Name]) {
        let family = self.family;
        let known: Vec<u64> = exports.iter().map(|name| self.mark(name)).collect();
        let left = move |mark: u64| (mark >> 32) as u32 == family && !known.contains(&mark);
        match blocking(move || clear(left)).await {
            Ok(Ok(())) => {}
            // Where there is no ublk nothing was left.
            Ok(Err(error)) if exports.is_empty() => tracing::debug!(%error, "no devices to look for"),
            Ok(Err(error)) => tracing::warn!(%error, "exports as devices cannot be served"),
            Err(error) => tracing::error!(%error, "devices of earlier daemons were not looked for"),
        }
    }

    /// Serves a volume as a device: the one that an earlier daemon has left, or a new one.
    ///
    /// # Errors
    /// When the kernel has none, or refuses.
    pub(super) async fn serve(&self, name: &Name, manner: &Manner, active: &Arc<Active>) -> Result<()> {
        let reactors = reactors_of(manner, &active.volume, &self.reactors)?;
        let one_each = u16::try_from(reactors.len()).unwrap_or(QUEUES_MAX).min(QUEUES_MAX);
        let options = Options {
            mark: self.mark(name),
            link: self.link(name),
            access: self.access,
            read_only: manner.read_only,
            size: active.volume.size(),
            sector: active.volume.sector(),
            queues: manner.queues.unwrap_or(one_each),
            backend: self.reactors.backend(),
        };
        let source = Arc::new(DeviceVolume { active: active.clone(), read_only: manner.read_only });
        let started = blocking(move || Server::start(&source, &reactors, &options)).await?;
        let server = started.map_err(|error| explain(&error))?;
        let served = Served { server: Arc::new(server), active: active.clone() };
        let before = self.lock().insert(name.clone(), served);
        assert!(before.is_none(), "'{name}' is served twice");
        Ok(())
    }

    /// Lets nobody claim a device any more, before it is taken away.
    ///
    /// # Errors
    /// `Busy` when somebody has.
    pub(super) async fn close(&self, name: &Name) -> Result<()> {
        let Some(Served { server, .. }) = self.find(name) else { return Ok(()) };
        let device = server.path();
        let closed = blocking(move || server.close()).await?;
        closed.map_err(|in_use| {
            let message = format!("'{name}' is in use as {}: {in_use}", device.display());
            Error::new(ErrorKind::Busy, message).hint(
                "unmount what lies on it ('lsblk DEVICE' shows what does), or end the export with --force: what was not \
                 written yet is lost then",
            )
        })
    }

    /// Takes back a close.
    pub(super) fn reopen(&self, name: &Name) {
        if let Some(Served { server, .. }) = self.find(name) {
            server.reopen();
        }
    }

    /// Takes a device away, whoever uses it.
    pub(super) async fn end(&self, name: &Name) {
        let Some(Served { server, .. }) = self.lock().remove(name) else { return };
        if let Err(error) = blocking(move || server.end()).await {
            tracing::error!(export = %name, %error, "a device was not taken away in order");
        }
    }

    /// Gives a device the size that its volume has now.
    pub(super) async fn resized(&self, name: &Name) {
        if let Some(Served { server, active }) = self.find(name) {
            // It only logs.
            let _ = blocking(move || server.resized(active.volume.size())).await;
        }
    }

    /// Leaves every device to the next daemon: whoever uses one waits for that.
    pub(super) async fn shut_down(&self) {
        let served = std::mem::take(&mut *self.lock());
        for (name, Served { server, .. }) in served {
            if let Err(error) = blocking(move || server.leave()).await {
                tracing::error!(export = %name, %error, "a device was not left in order");
            }
        }
    }
}

fn explain(error: &DeviceError) -> Error {
    let (kind, hint) = match error.kind() {
        DeviceErrorKind::Missing => (
            ErrorKind::Denied,
            "'modprobe ublk_drv' as root loads it, where the kernel has it; --fuse serves a volume as a file without it",
        ),
        DeviceErrorKind::Old => {
            (ErrorKind::Denied, "Linux 6.5 or newer will do; --fuse serves a volume as a file")
        }
        DeviceErrorKind::Denied => (
            ErrorKind::Denied,
            "devices are made by root: run the daemon as root; exports by NBD need no privilege",
        ),
        DeviceErrorKind::NoRing => (
            ErrorKind::Denied,
            "let the daemon use io_uring (--io, and the kernel's io_uring_disabled); --fuse serves a volume as a file",
        ),
        DeviceErrorKind::Occupied => {
            (ErrorKind::Exists, "take it away, or name another place with --ublk-directory")
        }
        DeviceErrorKind::Failed => (ErrorKind::Io, "the kernel's log may say more ('dmesg')"),
    };
    Error::new(kind, error.to_string()).hint(hint)
}

/// FNV-1a: the same for ever, which the standard library's hashes are not.
fn hash(bytes: &[u8]) -> u32 {
    bytes.iter().fold(0x811C_9DC5, |hash, byte| (hash ^ u32::from(*byte)).wrapping_mul(0x0100_0193))
}
