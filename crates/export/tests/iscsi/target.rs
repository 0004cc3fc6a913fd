//! A target with volumes in memory, on a reactor of its own.

use std::net::SocketAddr;
use std::sync::Arc;

use export::iscsi::{ChapAccount, IscsiConfig, IscsiFrontend, IscsiLimits};
use export::{
    ExportConfig, ExportName, Frontend, MemorySource, MemoryVolume, NetworkConfig, ReservationRegistry,
    ReservationStore, RunningExport,
};
use reactor::Backend;

pub(crate) use crate::initiator::TARGET;
use crate::support::{ReactorThread, block_on};

/// Bytes of a volume.
pub(crate) const SIZE: u64 = 64 << 20;

/// The options of a target beside its limits.
#[derive(Clone, Default)]
pub(crate) struct TargetOptions {
    pub(crate) limits: IscsiLimits,
    /// The initiators that may use the first unit.
    pub(crate) hosts: Vec<&'static str>,
    /// The credentials for the first unit.
    pub(crate) account: Option<ChapAccount>,
    pub(crate) read_only: bool,
    pub(crate) store: Option<Arc<dyn ReservationStore>>,
}

pub(crate) struct Target {
    /// Ends before the other parts are dropped.
    thread: ReactorThread,
    pub(crate) frontend: IscsiFrontend<MemorySource>,
    pub(crate) source: Arc<MemorySource>,
    pub(crate) running: Arc<dyn RunningExport>,
    pub(crate) address: SocketAddr,
}

/// Runs a test on each backend.
pub(crate) fn on_each_backend(test: impl Fn(&mut Target)) {
    for backend in [Backend::Uring, Backend::Threads] {
        test(&mut Target::start(backend, &TargetOptions::default()));
    }
}

/// The options of an export of a unit.
pub(crate) fn config(listen: SocketAddr, unit: u32, options: &TargetOptions) -> ExportConfig {
    let network = NetworkConfig {
        listen: vec![listen],
        target: Some(TARGET.into()),
        unit: Some(unit),
        hosts: options.hosts.iter().map(ToString::to_string).collect(),
        chap: options.account.clone(),
        ..NetworkConfig::default()
    };
    ExportConfig { network, read_only: options.read_only, ..ExportConfig::default() }
}

/// Serves a volume as unit 0.
fn serve(
    thread: &ReactorThread,
    source: &Arc<MemorySource>,
    options: &TargetOptions,
) -> (IscsiFrontend<MemorySource>, Arc<dyn RunningExport>, SocketAddr) {
    let reservations = ReservationRegistry::new(options.store.clone());
    let of_all = IscsiConfig { listen: Vec::new(), limits: options.limits.clone(), reservations };
    let frontend = block_on(IscsiFrontend::start(of_all, &thread.context())).unwrap();
    let (name, any) = (ExportName::new("fast/vm01"), "127.0.0.1:0".parse().unwrap());
    let running = block_on(frontend.start(&name, &config(any, 0, options), source.clone())).unwrap();
    let uri = running.listeners()[0].clone();
    let address = uri.strip_prefix("iscsi://").unwrap().split('/').next().unwrap().parse().unwrap();
    (frontend, running, address)
}

impl Target {
    /// Serves one unit, number 0, on a free port of this host.
    pub(crate) fn start(backend: Backend, options: &TargetOptions) -> Self {
        let thread = ReactorThread::start(backend);
        let source = Arc::new(block_on(MemorySource::create(&thread.remote, SIZE, 512)).unwrap());
        let (frontend, running, address) = serve(&thread, &source, options);
        Self { thread, frontend, source, running, address }
    }

    /// Stops the frontend, and serves the same volume with a new one, as after a restart.
    pub(crate) fn restart(&mut self, options: &TargetOptions) {
        block_on(self.frontend.shut_down());
        (self.frontend, self.running, self.address) = serve(&self.thread, &self.source, options);
    }

    /// Serves another volume as a unit of the same target.
    pub(crate) fn add(&self, unit: u32, options: &TargetOptions) -> Arc<dyn RunningExport> {
        let source = Arc::new(block_on(MemorySource::create(&self.thread.remote, SIZE, 512)).unwrap());
        let name = ExportName::new(format!("fast/vm{unit}"));
        block_on(self.frontend.start(&name, &config(self.address, unit, options), source)).unwrap()
    }

    /// Calls a function with the volume of unit 0.
    pub(crate) fn with<T: Send + 'static>(
        &self,
        call: impl FnOnce(&MemoryVolume) -> T + Send + 'static,
    ) -> T {
        block_on(self.source.with(call)).unwrap()
    }

    /// Waits until a condition of the volume of unit 0 is true.
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
