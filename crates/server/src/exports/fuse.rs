//! Volumes as files: a mount for each, whose requests are carried out on one of the reactors.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use export::fuse::{File, MountError, MountErrorKind, Options, Server, forget, hold};
use reactor::{Access, Handle, Reactor};

use super::queues::reactors_of;
use super::table::{Active, Manner, Name};
use super::volume::ExportedVolume;
use crate::blocking::blocking;
use crate::config::Config;
use crate::error::{Error, ErrorKind, Result};
use crate::reactors::{Reactors, call_resident};

/// The files that are served.
pub(super) struct Fuse {
    directory: PathBuf,
    access: Access,
    reactors: Arc<Reactors>,
    served: Mutex<BTreeMap<Name, Served>>,
}

#[derive(Clone)]
struct Served {
    server: Arc<Server>,
    file: Handle<File<ExportedVolume>>,
}

impl Fuse {
    pub(super) fn new(config: &Config, access: Access, reactors: Arc<Reactors>) -> Self {
        Self { directory: config.fuse_directory.clone(), access, reactors, served: Mutex::default() }
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<Name, Served>> {
        self.served.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn find(&self, name: &Name) -> Option<Served> {
        self.lock().get(name).cloned()
    }

    fn path(&self, name: &Name) -> PathBuf {
        self.directory.join(&name.pool).join(&name.volume)
    }

    /// Where the file is.
    pub(super) fn uris(&self, name: &Name) -> Vec<String> {
        vec![self.path(name).to_string_lossy().into_owned()]
    }

    /// Makes sure that nobody can write in an export's place before its pool is there: takes away what a daemon that died has
    /// left, and makes a node that cannot be opened.
    pub(super) async fn hold(&self, name: &Name) {
        let (place, access) = (self.path(name), self.access);
        if let Ok(Err(error)) = blocking(move || hold(&place, access)).await {
            tracing::warn!(export = %name, %error, "the place of a file is not free");
        }
    }

    /// Gives the place of an export free that is not served.
    pub(super) async fn forget(&self, name: &Name) {
        let place = self.path(name);
        // What stays cannot be opened, and is known to be ours.
        let _ = blocking(move || forget(&place)).await;
    }

    /// Serves a volume as a file.
    ///
    /// # Errors
    /// When it cannot be mounted.
    pub(super) async fn serve(&self, name: &Name, manner: &Manner, active: &Arc<Active>) -> Result<()> {
        let (volume, read_only) = (active.volume.clone(), manner.read_only);
        let settle = move || async move {
            let file = Rc::new(File::new(ExportedVolume::of(&volume, read_only)));
            Handle::register(&Reactor::current(), file)
        };
        let reactor = reactors_of(manner, &active.volume, &self.reactors)?.into_iter().next();
        let reactor = reactor.unwrap_or_else(|| self.reactors.next());
        let file = reactor.call(settle).await?;
        let (place, opens) = (self.path(name), active.connections.clone());
        let access = self.access;
        let options = Options { place, access, name: name.to_string(), read_only, opens };
        let there = file.clone();
        match blocking(move || Server::start(there, options)).await? {
            Ok(server) => {
                let served = Served { server: Arc::new(server), file };
                let before = self.lock().insert(name.clone(), served);
                assert!(before.is_none(), "'{name}' is served twice");
                Ok(())
            }
            Err(error) => {
                evict(&file).await;
                Err(explain(&error))
            }
        }
    }

    /// Lets nobody open a file any more, before it is taken away.
    ///
    /// # Errors
    /// `Busy` when somebody has it open.
    pub(super) async fn close(&self, name: &Name) -> Result<()> {
        let Some(Served { server, .. }) = self.find(name) else { return Ok(()) };
        let closed = blocking(move || server.close()).await?;
        closed.map_err(|in_use| {
            let message = format!("'{name}' is in use as {}: {in_use}", self.path(name).display());
            Error::new(ErrorKind::Busy, message).hint(
                "unmount what lies on it ('losetup -j FILE' shows loop devices, 'fuser -v FILE' others), or end the export with \
                 --force: what was not written yet is lost then",
            )
        })
    }

    /// Takes back a close.
    pub(super) fn reopen(&self, name: &Name) {
        if let Some(Served { server, .. }) = self.find(name) {
            server.reopen();
        }
    }

    /// Takes a file away, whoever uses it, and waits for what is under way. Nobody can make another one in its place until
    /// [`Fuse::forget`].
    pub(super) async fn end(&self, name: &Name) {
        let Some(Served { server, file }) = self.lock().remove(name) else { return };
        if let Err(error) = blocking(move || server.withdraw()).await {
            tracing::error!(export = %name, %error, "a file was not taken away in order");
        }
        evict(&file).await;
    }

    /// Tells the kernel that a file's size has changed.
    pub(super) async fn resized(&self, name: &Name) {
        if let Some(Served { server, .. }) = self.find(name) {
            // It only logs.
            let _ = blocking(move || server.resized()).await;
        }
    }

    /// Takes every file away, and gives the places of these exports free.
    pub(super) async fn shut_down(&self, exports: &[Name]) {
        let names: Vec<Name> = self.lock().keys().cloned().collect();
        for name in names {
            self.end(&name).await;
        }
        for name in exports {
            self.forget(name).await;
        }
    }
}

/// Lets go of the volume.
async fn evict(file: &Handle<File<ExportedVolume>>) {
    let there = file.clone();
    // A reactor that is gone holds nothing.
    let _ = call_resident(file, move |_| async move { there.unregister() }).await;
}

fn explain(error: &MountError) -> Error {
    let (kind, hint) = match error.kind() {
        MountErrorKind::Busy => {
            (ErrorKind::Busy, "another daemon may serve there; --fuse-directory names another place")
        }
        MountErrorKind::Occupied => {
            (ErrorKind::Exists, "take it away, or name another place with --fuse-directory")
        }
        MountErrorKind::Denied => (
            ErrorKind::Denied,
            "files are mounted, which takes a daemon that may: run it as root; exports by NBD need no privilege",
        ),
        MountErrorKind::Missing => {
            (ErrorKind::Denied, "'modprobe fuse' as root; exports by NBD need nothing of the kernel")
        }
        MountErrorKind::Failed => (ErrorKind::Io, "--fuse-directory names another place"),
    };
    Error::new(kind, error.to_string()).hint(hint)
}
