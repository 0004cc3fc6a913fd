//! A target with volumes in memory, on a reactor of its own.

use std::net::SocketAddr;
use std::sync::Arc;

use export::nvme::{DhChapSecrets, NvmeConfig, NvmeDiscovery, NvmeFrontend, NvmeLimits, NvmeTlsKey};
use export::{
    ExportConfig, ExportError, ExportName, Frontend, MemorySource, MemoryVolume, NetworkConfig,
    ReservationRegistry, ReservationStore, RunningExport,
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
pub(crate) fn any() -> SocketAddr {
    "127.0.0.1:0".parse().unwrap()
}

/// The configuration of a frontend without a discovery service of its own.
pub(crate) fn frontend_config(limits: NvmeLimits, store: Option<Arc<dyn ReservationStore>>) -> NvmeConfig {
    let reservations = ReservationRegistry::new(store);
    NvmeConfig { listen: Vec::new(), discovery: NvmeDiscovery::ExportsOnly, limits, reservations }
}

/// Serves a volume as namespace 1.
fn serve(
    thread: &ReactorThread,
    source: &Arc<MemorySource>,
    of_all: NvmeConfig,
    options: &ExportConfig,
) -> (NvmeFrontend<MemorySource>, Arc<dyn RunningExport>, SocketAddr) {
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

    /// Serves one namespace over TLS with this key.
    pub(crate) fn with_tls(backend: Backend, limits: NvmeLimits, key: NvmeTlsKey) -> Self {
        let mut options = config(any(), 1, &[]);
        options.network.tls_key = Some(key);
        Self::with_options(backend, limits, &options, None)
    }

    /// Serves one namespace with these options.
    pub(crate) fn with_options(
        backend: Backend,
        limits: NvmeLimits,
        options: &ExportConfig,
        store: Option<Arc<dyn ReservationStore>>,
    ) -> Self {
        Self::with_config(backend, frontend_config(limits, store), options)
    }

    /// Serves one namespace with this discovery service.
    pub(crate) fn with_discovery(backend: Backend, discovery: NvmeDiscovery) -> Self {
        let of_all = NvmeConfig { discovery, ..frontend_config(NvmeLimits::default(), None) };
        Self::with_config(backend, of_all, &config(any(), 1, &[]))
    }

    fn with_config(backend: Backend, of_all: NvmeConfig, options: &ExportConfig) -> Self {
        let thread = ReactorThread::start(backend);
        let source = Arc::new(block_on(MemorySource::create(&thread.remote, SIZE, 512)).unwrap());
        let (frontend, running, address) = serve(&thread, &source, of_all, options);
        Self { thread, frontend, source, running, address }
    }

    /// Stops the frontend, and serves the same volume with a new one, as after a restart.
    pub(crate) fn restart(&mut self, store: Arc<dyn ReservationStore>) {
        block_on(self.frontend.shut_down());
        let of_all = frontend_config(NvmeLimits::default(), Some(store));
        let served = serve(&self.thread, &self.source, of_all, &config(any(), 1, &[]));
        (self.frontend, self.running, self.address) = served;
    }

    /// Serves another volume as a namespace of the same subsystem.
    pub(crate) fn add(&self, unit: u32, hosts: &[&str]) -> Arc<dyn RunningExport> {
        self.add_with(unit, &config(self.address, unit, hosts)).unwrap()
    }

    /// Serves another volume with these options.
    pub(crate) fn add_with(
        &self,
        unit: u32,
        config: &ExportConfig,
    ) -> Result<Arc<dyn RunningExport>, ExportError> {
        let source = self.memory();
        let name = ExportName::new(format!("fast/vm{unit}"));
        block_on(self.frontend.start(&name, config, source))
    }

    /// A volume that is not served.
    pub(crate) fn memory(&self) -> Arc<MemorySource> {
        Arc::new(block_on(MemorySource::create(&self.thread.remote, SIZE, 512)).unwrap())
    }

    /// Waits until the reactor has begun the calls that were made before.
    pub(crate) fn settle(&self) {
        for _ in 0..2 {
            block_on(self.thread.remote.call(async || ())).unwrap();
        }
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
