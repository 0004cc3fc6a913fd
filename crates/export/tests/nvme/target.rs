//! A target with volumes in memory, on a reactor of its own.

use std::net::SocketAddr;
use std::sync::Arc;

use export::nvme::{DhChapSecrets, NvmeConfig, NvmeFrontend, NvmeLimits};
use export::{
    ExportConfig, ExportName, Frontend, MemorySource, MemoryVolume, NetworkConfig, ReservationRegistry,
    ReservationStore, RunningExport,
};
use reactor::Backend;

use crate::support::ReactorThread;
pub(crate) use crate::support::block_on;

/// Bytes of a volume.
pub(crate) const SIZE: u64 = 64 << 20;
pub(crate) const SUBSYSTEM: &str = "nqn.2014-08.org.example:disk";

pub(crate) struct Target {
    /// Ends before the other parts are dropped.
    thread: ReactorThread,
    pub(crate) frontend: NvmeFrontend<MemorySource>,
    pub(crate) source: Arc<MemorySource>,
    pub(crate) running: Arc<dyn RunningExport>,
    pub(crate) address: SocketAddr,
}

/// The options of an export of a namespace.
pub(crate) fn config(listen: SocketAddr, unit: u32, hosts: &[&str]) -> ExportConfig {
    let network = NetworkConfig {
        listen: vec![listen],
        target: Some(SUBSYSTEM.into()),
        unit: Some(unit),
        hosts: hosts.iter().map(ToString::to_string).collect(),
        ..NetworkConfig::default()
    };
    ExportConfig { network, ..ExportConfig::default() }
}

/// Runs a test on each backend.
pub(crate) fn on_each_backend(test: impl Fn(&mut Target)) {
    for backend in [Backend::Uring, Backend::Threads] {
        test(&mut Target::start(backend, NvmeLimits::default(), &[]));
    }
}

/// A free port of this host.
fn any() -> SocketAddr {
    "127.0.0.1:0".parse().unwrap()
}

/// Serves a volume as namespace 1.
fn serve(
    thread: &ReactorThread,
    source: &Arc<MemorySource>,
    limits: NvmeLimits,
    options: &ExportConfig,
    store: Option<Arc<dyn ReservationStore>>,
) -> (NvmeFrontend<MemorySource>, Arc<dyn RunningExport>, SocketAddr) {
    let of_all = NvmeConfig { listen: Vec::new(), limits, reservations: ReservationRegistry::new(store) };
    let frontend = block_on(NvmeFrontend::start(of_all, &thread.context())).unwrap();
    let name = ExportName::new("fast/vm01");
    let running = block_on(frontend.start(&name, options, source.clone())).unwrap();
    let uri = running.listeners()[0].clone();
    let address = uri.strip_prefix("nvme+tcp://").unwrap().split('/').next().unwrap().parse().unwrap();
    (frontend, running, address)
}

impl Target {
    /// Serves one namespace on a free port of this host.
    pub(crate) fn start(backend: Backend, limits: NvmeLimits, hosts: &[&str]) -> Self {
        Self::with_store(backend, limits, hosts, None)
    }

    /// Serves one namespace, whose reservations are kept in `store`.
    pub(crate) fn with_store(
        backend: Backend,
        limits: NvmeLimits,
        hosts: &[&str],
        store: Option<Arc<dyn ReservationStore>>,
    ) -> Self {
        Self::with_options(backend, limits, &config(any(), 1, hosts), store)
    }

    /// Serves one namespace, whose hosts authenticate themselves.
    pub(crate) fn with_secrets(backend: Backend, limits: NvmeLimits, secrets: DhChapSecrets) -> Self {
        let mut options = config(any(), 1, &[]);
        options.network.dhchap = Some(secrets);
        Self::with_options(backend, limits, &options, None)
    }

    fn with_options(
        backend: Backend,
        limits: NvmeLimits,
        options: &ExportConfig,
        store: Option<Arc<dyn ReservationStore>>,
    ) -> Self {
        let thread = ReactorThread::start(backend);
        let source = Arc::new(block_on(MemorySource::create(&thread.remote, SIZE, 512)).unwrap());
        let (frontend, running, address) = serve(&thread, &source, limits, options, store);
        Self { thread, frontend, source, running, address }
    }

    /// Stops the frontend, and serves the same volume with a new one, as after a restart.
    pub(crate) fn restart(&mut self, store: Arc<dyn ReservationStore>) {
        block_on(self.frontend.shut_down());
        let served =
            serve(&self.thread, &self.source, NvmeLimits::default(), &config(any(), 1, &[]), Some(store));
        (self.frontend, self.running, self.address) = served;
    }

    /// Serves another volume as a namespace of the same subsystem.
    pub(crate) fn add(&self, unit: u32, hosts: &[&str]) -> Arc<dyn RunningExport> {
        let source = Arc::new(block_on(MemorySource::create(&self.thread.remote, SIZE, 512)).unwrap());
        let name = ExportName::new(format!("fast/vm{unit}"));
        let config = config(self.address, unit, hosts);
        block_on(self.frontend.start(&name, &config, source)).unwrap()
    }

    /// Calls a function with the volume of namespace 1.
    pub(crate) fn with<T: Send + 'static>(
        &self,
        call: impl FnOnce(&MemoryVolume) -> T + Send + 'static,
    ) -> T {
        block_on(self.source.with(call)).unwrap()
    }

    /// Waits until a condition of the volume of namespace 1 is true.
    pub(crate) fn until(&self, condition: impl Fn(&MemoryVolume) -> bool + Copy + Send + 'static) {
        let end = std::time::Instant::now() + crate::support::TIMEOUT;
        while !self.with(condition) {
            assert!(std::time::Instant::now() < end, "a step takes too long");
            std::thread::yield_now();
        }
    }
}

impl Drop for Target {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            block_on(self.frontend.shut_down());
        }
    }
}
