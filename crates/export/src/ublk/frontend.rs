//! ublk as a frontend: one block device of the kernel for each export, its queues on the reactors.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use reactor::Platform;

use super::error::{DeviceError, DeviceErrorKind};
use super::limits::QUEUES_MAX;
use super::server::{UblkOptions, UblkServer, UblkSource, delete_orphaned_devices};
use crate::context::{check_no_network, check_queue_count, run_blocking};
use crate::exported_volume::ExportedVolume;
use crate::fnv::fnv1a;
use crate::host_users;
use crate::{
    ControlFuture, ExportConfig, ExportError, ExportErrorKind, ExportName, ExportStatus, Frontend,
    FrontendContext, RunningExport, StopMode, VolumeSource,
};

/// The place of the links, and the identity of the daemon.
#[derive(Clone, Debug)]
pub struct UblkConfig {
    /// Directory of the links to the devices.
    pub directory: PathBuf,
    /// Identifies the devices of this daemon: the path of its state directory.
    pub owner: PathBuf,
}

/// Volumes as block devices of this host.
pub struct UblkFrontend {
    directory: PathBuf,
    context: FrontendContext,
    /// The upper half of the marks of this daemon's devices.
    family: u32,
    /// The reserved names: their devices must differ in their marks.
    names: Mutex<BTreeSet<ExportName>>,
}

impl UblkFrontend {
    /// A frontend with its links below the configured directory.
    pub fn new(config: UblkConfig, context: FrontendContext) -> Self {
        // Odd, because the marks of other programs are mostly small numbers.
        let family = fnv1a(config.owner.as_os_str().as_encoded_bytes()) | 1;
        Self { directory: config.directory, context, family, names: Mutex::default() }
    }

    fn names(&self) -> MutexGuard<'_, BTreeSet<ExportName>> {
        self.names.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn link(&self, name: &ExportName) -> PathBuf {
        name.path_below(&self.directory, "")
    }

    /// Returns the number that the kernel stores with a device, by which the next daemon finds it.
    fn mark(&self, name: &ExportName) -> u64 {
        u64::from(self.family) << 32 | u64::from(fnv1a(name.as_str().as_bytes()))
    }

    /// Deletes devices of an earlier daemon without an existing export.
    async fn delete_stale_devices(&self, names: &[ExportName]) {
        let family = self.family;
        let known: Vec<u64> = names.iter().map(|name| self.mark(name)).collect();
        let is_stale = move |mark: u64| (mark >> 32) as u32 == family && !known.contains(&mark);
        match run_blocking(move || delete_orphaned_devices(is_stale)).await {
            Ok(Ok(())) => {}
            // Without ublk there are no devices.
            Ok(Err(error)) if names.is_empty() => tracing::debug!(%error, "no ublk devices to look for"),
            Ok(Err(error)) => tracing::warn!(%error, "cannot serve exports over ublk"),
            Err(error) => tracing::error!(%error, "cannot look for ublk devices of earlier daemons"),
        }
    }
}

/// A volume as the queues of a device open it.
struct DeviceSource<S> {
    source: Arc<S>,
    read_only: bool,
    platform: fn() -> Rc<Platform>,
}

impl<S: VolumeSource> UblkSource for DeviceSource<S> {
    type Volume = ExportedVolume<S::Volume>;

    fn open(&self) -> Self::Volume {
        ExportedVolume::uncounted(self.source.open(), self.read_only)
    }

    fn platform(&self) -> Rc<Platform> {
        (self.platform)()
    }
}

impl<S: VolumeSource> Frontend<S> for UblkFrontend {
    fn name(&self) -> &'static str {
        "ublk"
    }

    fn check(&self, name: &ExportName, config: &ExportConfig) -> Result<(), ExportError> {
        check_queue_count(config, QUEUES_MAX)?;
        check_no_network(config)?;
        self.context.reactors.configured(config)?;
        let mark = self.mark(name);
        match self.names().iter().find(|other| *other != name && self.mark(other) == mark) {
            Some(other) => {
                let message = format!("the device of '{name}' would have the same mark as that of '{other}'");
                Err(ExportError::new(ExportErrorKind::Exists, message).hint("give the volume another name"))
            }
            None => Ok(()),
        }
    }

    fn listeners(&self, name: &ExportName, _: &ExportConfig) -> Vec<String> {
        vec![self.link(name).to_string_lossy().into_owned()]
    }

    fn reserve<'a>(&'a self, names: &'a [ExportName]) -> ControlFuture<'a, ()> {
        self.names().extend(names.iter().cloned());
        Box::pin(self.delete_stale_devices(names))
    }

    /// Takes over the device that an earlier daemon has left, or creates one.
    fn start<'a>(
        &'a self,
        name: &'a ExportName,
        config: &'a ExportConfig,
        source: Arc<S>,
    ) -> ControlFuture<'a, Result<Arc<dyn RunningExport>, ExportError>> {
        Box::pin(async move {
            Frontend::<S>::check(self, name, config)?;
            let reactors = self.context.reactors.place(config, &*source)?;
            let one_each = u16::try_from(reactors.len()).unwrap_or(QUEUES_MAX).min(QUEUES_MAX);
            let options = UblkOptions {
                mark: self.mark(name),
                link: self.link(name),
                access: self.context.access,
                read_only: config.read_only,
                size: source.size(),
                sector: source.sector(),
                queues: config.queues.unwrap_or(one_each),
                backend: self.context.reactors.backend(),
            };
            let platform = self.context.reactors.platform_of_thread();
            let opened = DeviceSource { source: source.clone(), read_only: config.read_only, platform };
            let start = move || UblkServer::start(&Arc::new(opened), &reactors, &options);
            let server = run_blocking(start).await?.map_err(|error| explain(&error))?;
            self.names().insert(name.clone());
            let (server, link) = (Arc::new(server), self.link(name));
            Ok(Arc::new(UblkExport { name: name.clone(), link, server, source }) as Arc<dyn RunningExport>)
        })
    }

    fn release<'a>(&'a self, name: &'a ExportName) -> ControlFuture<'a, ()> {
        self.names().remove(name);
        Box::pin(std::future::ready(()))
    }
}

/// A volume that is served as a block device.
struct UblkExport<S: VolumeSource> {
    name: ExportName,
    link: PathBuf,
    server: Arc<UblkServer<ExportedVolume<S::Volume>>>,
    source: Arc<S>,
}

impl<S: VolumeSource> UblkExport<S> {
    async fn claim(&self) -> Result<(), ExportError> {
        let server = self.server.clone();
        run_blocking(move || server.close()).await?.map_err(|in_use| {
            let device = self.server.path();
            let message = format!("'{}' is in use as {}: {in_use}", self.name, device.display());
            ExportError::new(ExportErrorKind::Busy, message).hint(
                "unmount the file systems on it ('lsblk DEVICE' lists them), or delete the export with --force, which \
                 loses data that is not written back yet",
            )
        })
    }
}

impl<S: VolumeSource> RunningExport for UblkExport<S> {
    fn listeners(&self) -> Vec<String> {
        [&self.link, &self.server.path()].map(|path| path.to_string_lossy().into_owned()).into()
    }

    fn status(&self) -> ExportStatus {
        // The kernel does not count the openers of a device.
        ExportStatus { connections: 0, users: host_users::of_device(&self.server.path()) }
    }

    fn resize(&self) -> ControlFuture<'_, ()> {
        Box::pin(async move {
            let (server, size) = (self.server.clone(), self.source.size());
            // An error has been logged.
            let _ = run_blocking(move || server.resized(size)).await;
        })
    }

    fn stop(&self, mode: StopMode) -> ControlFuture<'_, Result<(), ExportError>> {
        Box::pin(async move {
            if mode == StopMode::Orderly {
                self.claim().await?;
            }
            let server = self.server.clone();
            let stop = move || if mode == StopMode::Handover { server.leave() } else { server.end() };
            if let Err(error) = run_blocking(stop).await {
                tracing::error!(export = %self.name, %error, "cannot stop a ublk device");
            }
            Ok(())
        })
    }
}

fn explain(error: &DeviceError) -> ExportError {
    let (kind, hint) = match error.kind() {
        DeviceErrorKind::Missing => (
            ExportErrorKind::Denied,
            "run 'modprobe ublk_drv' as root if the kernel has it; --fuse serves a volume as a file without it",
        ),
        DeviceErrorKind::Old => {
            (ExportErrorKind::Denied, "use Linux 6.5 or newer, or serve the volume as a file with --fuse")
        }
        DeviceErrorKind::Denied => (
            ExportErrorKind::Denied,
            "creating devices needs privileges: run the daemon as root; exports over NBD need none",
        ),
        DeviceErrorKind::NoRing => (
            ExportErrorKind::Denied,
            "let the daemon use io_uring (--io, and the kernel's io_uring_disabled); --fuse serves a volume as a file",
        ),
        DeviceErrorKind::Occupied => {
            (ExportErrorKind::Exists, "move it away, or select another place with --ublk-directory")
        }
        DeviceErrorKind::Failed => (ExportErrorKind::Io, "the kernel's log may show the cause ('dmesg')"),
    };
    ExportError::new(kind, error.to_string()).hint(hint)
}
