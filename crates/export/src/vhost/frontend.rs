//! vhost-user as a frontend: a socket for each export, and its queues on the reactors.

use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use futures_channel::oneshot;
use reactor::{Handle, Platform, Reactor, Remote, Task};

use super::disk::VhostDisk;
use super::limits::QUEUES_MAX;
use super::server::VhostServer;
use crate::context::{call_object, check_no_network, check_queue_count};
use crate::exported_volume::ExportedVolume;
use crate::fnv::fnv1a;
use crate::listen::{ListenLabel, listen_unix};
use crate::select::select;
use crate::{
    ControlFuture, ExportConfig, ExportError, ExportErrorKind, ExportName, ExportStatus, Frontend,
    FrontendContext, OpenError, RunningExport, StopMode, VolumeSource,
};

/// Time for requests in flight when an export is stopped.
const STOP_TIMEOUT: Duration = Duration::from_secs(10);
/// Bytes of the longest path of a Unix socket.
const SOCKET_PATH_MAX: usize = 107;
/// Bytes of the serial number that a guest sees.
const SERIAL_MAX: usize = 20;

/// The place of the sockets, and the polling of queues.
#[derive(Clone, Debug)]
pub struct VhostConfig {
    /// Directory of the sockets.
    pub directory: PathBuf,
    /// Time for which an idle queue is polled.
    pub poll: Duration,
    /// Time for which requests may be coalesced.
    pub coalesce_delay: Duration,
}

/// Disks of virtual machines.
pub struct VhostFrontend {
    config: VhostConfig,
    context: FrontendContext,
}

impl VhostFrontend {
    /// A frontend with its sockets below the configured directory.
    pub fn new(config: VhostConfig, context: FrontendContext) -> Self {
        Self { config, context }
    }

    fn path(&self, name: &ExportName) -> PathBuf {
        name.path_below(&self.config.directory, ".sock")
    }
}

impl<S: VolumeSource> Frontend<S> for VhostFrontend {
    fn name(&self) -> &'static str {
        "vhost-user"
    }

    fn check(&self, name: &ExportName, config: &ExportConfig) -> Result<(), ExportError> {
        check_queue_count(config, QUEUES_MAX)?;
        check_no_network(config)?;
        let path = self.path(name);
        if path.as_os_str().len() > SOCKET_PATH_MAX {
            let shown = path.display();
            let message = format!("{shown} is longer than the {SOCKET_PATH_MAX} bytes of a socket's path");
            return Err(ExportError::new(ExportErrorKind::Invalid, message).hint(
                "start the daemon with a shorter --vhost-directory, or give pool and volume shorter names",
            ));
        }
        self.context.reactors.configured(config).map(drop)
    }

    fn listeners(&self, name: &ExportName, _: &ExportConfig) -> Vec<String> {
        vec![format!("unix:{}", self.path(name).display())]
    }

    fn reserve<'a>(&'a self, _: &'a [ExportName]) -> ControlFuture<'a, ()> {
        Box::pin(std::future::ready(()))
    }

    fn start<'a>(
        &'a self,
        name: &'a ExportName,
        config: &'a ExportConfig,
        source: Arc<S>,
    ) -> ControlFuture<'a, Result<Arc<dyn RunningExport>, ExportError>> {
        Box::pin(async move {
            Frontend::<S>::check(self, name, config)?;
            let reactors = self.context.reactors.place(config, &*source)?;
            let Some(first) = reactors.first().cloned() else {
                unreachable!("a queue is placed on a reactor");
            };
            let (path, connections) = (self.path(name), Arc::<AtomicU64>::default());
            let disk = ExportedDisk {
                name: name.clone(),
                config: config.clone(),
                source,
                connections: connections.clone(),
                reactors,
                polling: (self.config.poll, self.config.coalesce_delay),
                platform: self.context.reactors.platform_of_thread(),
            };
            let (bound, access) = (path.clone(), self.context.access);
            let start = move || async move {
                let label = ListenLabel { protocol: "vhost-user", setting: "--vhost-directory" };
                let listener = listen_unix(&disk.platform(), &bound, access, label).await?;
                let reactor = Reactor::current();
                let server = VhostServer::new(Arc::new(disk));
                let listening = reactor.spawn(server.clone().listen(listener));
                Ok::<_, ExportError>(Handle::register(
                    &reactor,
                    Rc::new(ListeningServer { server, listening }),
                ))
            };
            let home = first.call(start).await??;
            Ok(Arc::new(VhostExport { name: name.clone(), path, home, connections })
                as Arc<dyn RunningExport>)
        })
    }

    fn release<'a>(&'a self, _: &'a ExportName) -> ControlFuture<'a, ()> {
        Box::pin(std::future::ready(()))
    }
}

/// The server of a disk, on the reactor that accepts its connections.
struct ListeningServer<S: VolumeSource> {
    server: Rc<VhostServer<ExportedDisk<S>>>,
    listening: Task<()>,
}

/// A volume as the disk of a virtual machine.
struct ExportedDisk<S> {
    name: ExportName,
    config: ExportConfig,
    source: Arc<S>,
    connections: Arc<AtomicU64>,
    reactors: Vec<Remote>,
    /// [`VhostConfig::poll`] and [`VhostConfig::coalesce_delay`].
    polling: (Duration, Duration),
    platform: fn() -> Rc<Platform>,
}

impl<S: VolumeSource> VhostDisk for ExportedDisk<S> {
    type Volume = ExportedVolume<S::Volume>;

    fn name(&self) -> String {
        self.name.to_string()
    }

    fn serial(&self) -> String {
        serial(&self.name)
    }

    fn size(&self) -> u64 {
        self.source.size()
    }

    fn sector(&self) -> u32 {
        self.source.sector()
    }

    fn read_only(&self) -> bool {
        self.config.read_only
    }

    fn reactors(&self) -> &[Remote] {
        &self.reactors
    }

    fn queues(&self) -> u16 {
        self.config.queues.unwrap_or(QUEUES_MAX)
    }

    fn poll(&self) -> Duration {
        self.polling.0
    }

    fn coalesce_delay(&self) -> Duration {
        self.polling.1
    }

    fn platform(&self) -> Rc<Platform> {
        (self.platform)()
    }

    fn note_front_end(&self, connected: bool) {
        self.connections.store(connected.into(), Ordering::Relaxed);
    }

    async fn open(&self) -> Result<Self::Volume, OpenError> {
        Ok(ExportedVolume::uncounted(self.source.open(), self.config.read_only))
    }
}

/// A volume that is served over vhost-user.
struct VhostExport<S: VolumeSource> {
    name: ExportName,
    path: PathBuf,
    home: Handle<ListeningServer<S>>,
    connections: Arc<AtomicU64>,
}

impl<S: VolumeSource> RunningExport for VhostExport<S> {
    fn listeners(&self) -> Vec<String> {
        vec![format!("unix:{}", self.path.display())]
    }

    fn status(&self) -> ExportStatus {
        ExportStatus { connections: self.connections.load(Ordering::Relaxed), users: Vec::new() }
    }

    fn resize(&self) -> ControlFuture<'_, ()> {
        Box::pin(async move {
            let announce = |running: Rc<ListeningServer<S>>| async move { running.server.resized() };
            // A reactor that has shut down serves no guest.
            let _ = call_object(&self.home, announce).await;
        })
    }

    fn stop(&self, _: StopMode) -> ControlFuture<'_, Result<(), ExportError>> {
        Box::pin(async move {
            let home = self.home.clone();
            let stop = move |running: Rc<ListeningServer<S>>| async move {
                let (sender, stopped) = oneshot::channel::<()>();
                let reactor = Reactor::current();
                let finish = async move {
                    running.server.shut_down().await;
                    home.unregister();
                    // From here on nothing holds the volume.
                    if let Ok(ListeningServer { listening, .. }) = Rc::try_unwrap(running).map_err(drop) {
                        listening.await;
                    }
                    drop(sender);
                };
                // Continues after the timeout, until the guest's requests have ended.
                reactor.spawn(finish).detach();
                matches!(select(stopped, reactor.sleep(STOP_TIMEOUT)).await, crate::select::Either::Left(_))
            };
            // A reactor that has shut down serves no guest, and neither does a stopped export.
            if let Ok(false) = call_object(&self.home, stop).await {
                tracing::warn!(export = %self.name, "a vhost-user device was removed with requests in flight");
            }
            Ok(())
        })
    }
}

/// Returns the serial number of a disk, up to 20 bytes: the export's name, or the beginning of a
/// longer name and a hash.
fn serial(name: &ExportName) -> String {
    let whole = name.as_str().replace('/', "-");
    if whole.len() <= SERIAL_MAX {
        return whole;
    }
    let hash = fnv1a(whole.as_bytes());
    let front: String = whole.chars().take(SERIAL_MAX - 9).collect();
    format!("{front}-{hash:08x}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn serial_numbers_fit_and_differ() {
        let serial_of = |name: &str| serial(&ExportName::new(name));
        assert_eq!(serial_of("fast/vm01"), "fast-vm01");
        assert_eq!(serial_of("fast/vm01:2"), "fast-vm01:2");
        assert_eq!(serial_of("fast/a-name-of-15-by"), "fast-a-name-of-15-by");
        let (one, two) = (serial_of("fast/a-name-of-16-byt"), serial_of("fast/a-name-of-16-bys"));
        assert_eq!((one.len(), two.len()), (SERIAL_MAX, SERIAL_MAX));
        assert!(one != two && one.starts_with("fast-a-name-"), "{one} {two}");
    }
}
