//! FUSE as a frontend: a mounted file for each export, with requests executed on one reactor.

use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use reactor::{Handle, Reactor};

use super::file::VolumeFile;
use super::mount::{MountError, MountErrorKind, clear_forgotten, release_place, reserve_place};
use super::server::{FuseOptions, FuseServer};
use crate::context::{call_object, check_no_network, check_no_queues, run_blocking};
use crate::exported_volume::ExportedVolume;
use crate::host_users;
use crate::{
    ControlFuture, ExportConfig, ExportError, ExportErrorKind, ExportName, ExportStatus, Frontend,
    FrontendContext, RunningExport, StopMode, Volume, VolumeSource,
};

/// Volumes as files of this host.
pub struct FuseFrontend {
    directory: PathBuf,
    context: FrontendContext,
}

impl FuseFrontend {
    /// A frontend with its files below `directory`.
    pub fn new(directory: PathBuf, context: FrontendContext) -> Self {
        Self { directory, context }
    }

    fn path(&self, name: &ExportName) -> PathBuf {
        name.path_below(&self.directory, "")
    }
}

impl<S: VolumeSource> Frontend<S> for FuseFrontend {
    fn name(&self) -> &'static str {
        "fuse"
    }

    fn check(&self, _: &ExportName, config: &ExportConfig) -> Result<(), ExportError> {
        check_no_queues(config)?;
        check_no_network(config)
    }

    fn listeners(&self, name: &ExportName, _: &ExportConfig) -> Vec<String> {
        vec![self.path(name).to_string_lossy().into_owned()]
    }

    /// Unmounts the files of a daemon that died, and puts a node that cannot be opened in the place
    /// of each file: a program that runs before the pool is open must not write into the directory
    /// below. Mounts without an export are removed.
    fn reserve<'a>(&'a self, names: &'a [ExportName]) -> ControlFuture<'a, ()> {
        Box::pin(async move {
            for name in names {
                let (path, access) = (self.path(name), self.context.access);
                if let Ok(Err(error)) = run_blocking(move || reserve_place(&path, access)).await {
                    tracing::warn!(export = %name, %error, "cannot reserve the place of a file");
                }
            }
            let directory = self.directory.clone();
            let kept: Vec<_> = names.iter().map(|name| self.path(name)).collect();
            if let Ok(Err(error)) = run_blocking(move || clear_forgotten(&directory, &kept)).await {
                tracing::warn!(%error, "cannot remove the mounts of a daemon that died");
            }
        })
    }

    fn start<'a>(
        &'a self,
        name: &'a ExportName,
        config: &'a ExportConfig,
        source: Arc<S>,
    ) -> ControlFuture<'a, Result<Arc<dyn RunningExport>, ExportError>> {
        Box::pin(async move {
            Frontend::<S>::check(self, name, config)?;
            let reactor = self.context.reactors.place_one(config, &*source)?;
            let read_only = config.read_only;
            let open = move || async move {
                let volume = ExportedVolume::uncounted(source.open(), read_only);
                Handle::register(&Reactor::current(), Rc::new(VolumeFile::new(volume)))
            };
            let file: ServedFile<S::Volume> = reactor.call(open).await?;
            let opens = Arc::<AtomicU64>::default();
            let options = FuseOptions {
                place: self.path(name),
                access: self.context.access,
                name: name.to_string(),
                read_only,
                opens: opens.clone(),
            };
            let served = file.clone();
            match run_blocking(move || FuseServer::start(served, options)).await? {
                Ok(server) => {
                    let (server, path) = (Arc::new(server), self.path(name));
                    let export = FuseExport { name: name.clone(), path, server, file, opens };
                    Ok(Arc::new(export) as Arc<dyn RunningExport>)
                }
                Err(error) => {
                    close(&file).await;
                    Err(explain(&error))
                }
            }
        })
    }

    fn release<'a>(&'a self, name: &'a ExportName) -> ControlFuture<'a, ()> {
        Box::pin(async move {
            let path = self.path(name);
            // A node that stays cannot be opened, and the next daemon recognises it.
            let _ = run_blocking(move || release_place(&path)).await;
        })
    }
}

type ServedFile<V> = Handle<VolumeFile<ExportedVolume<V>>>;

/// A volume that is served as a file.
struct FuseExport<V> {
    name: ExportName,
    path: PathBuf,
    server: Arc<FuseServer>,
    file: ServedFile<V>,
    opens: Arc<AtomicU64>,
}

impl<V: Volume + 'static> FuseExport<V> {
    async fn close_for_new_users(&self) -> Result<(), ExportError> {
        let server = self.server.clone();
        run_blocking(move || server.close()).await?.map_err(|in_use| {
            let message = format!("'{}' is in use as {}: {in_use}", self.name, self.path.display());
            ExportError::new(ExportErrorKind::Busy, message).hint(
                "unmount the file systems on it ('losetup -j FILE' lists loop devices, 'fuser -v FILE' other users), or \
                 delete the export with --force, which loses data that is not written back yet",
            )
        })
    }
}

impl<V: Volume + 'static> RunningExport for FuseExport<V> {
    fn listeners(&self) -> Vec<String> {
        vec![self.path.to_string_lossy().into_owned()]
    }

    fn status(&self) -> ExportStatus {
        let connections = self.opens.load(Ordering::Relaxed);
        let users = if connections == 0 { Vec::new() } else { host_users::of_file(&self.path) };
        ExportStatus { connections, users }
    }

    fn resize(&self) -> ControlFuture<'_, ()> {
        Box::pin(async move {
            let server = self.server.clone();
            // An error has been logged.
            let _ = run_blocking(move || server.resized()).await;
        })
    }

    fn stop(&self, mode: StopMode) -> ControlFuture<'_, Result<(), ExportError>> {
        Box::pin(async move {
            if mode == StopMode::Orderly {
                self.close_for_new_users().await?;
            }
            let server = self.server.clone();
            if let Err(error) = run_blocking(move || server.withdraw()).await {
                tracing::error!(export = %self.name, %error, "cannot withdraw a file");
            }
            close(&self.file).await;
            Ok(())
        })
    }
}

/// Drops the volume of a file.
async fn close<V: Volume + 'static>(file: &Handle<VolumeFile<V>>) {
    let handle = file.clone();
    // A reactor that has shut down holds nothing.
    let _ = call_object(file, move |_| async move { handle.unregister() }).await;
}

fn explain(error: &MountError) -> ExportError {
    let (kind, hint) = match error.kind() {
        MountErrorKind::Busy => {
            (ExportErrorKind::Busy, "another daemon may serve there; --fuse-directory selects another place")
        }
        MountErrorKind::Occupied => {
            (ExportErrorKind::Exists, "move it away, or select another place with --fuse-directory")
        }
        MountErrorKind::Denied => (
            ExportErrorKind::Denied,
            "mounting files needs privileges: run the daemon as root; exports over NBD need none",
        ),
        MountErrorKind::Missing => {
            (ExportErrorKind::Denied, "run 'modprobe fuse' as root; exports over NBD need no kernel module")
        }
        MountErrorKind::Failed => (ExportErrorKind::Io, "--fuse-directory selects another place"),
    };
    ExportError::new(kind, error.to_string()).hint(hint)
}
