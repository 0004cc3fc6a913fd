//! A target with volumes in memory, on a reactor of its own.

use std::cell::RefCell;
use std::net::SocketAddr;
use std::pin::pin;
use std::rc::Rc;
use std::sync::{Arc, mpsc};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{JoinHandle, Thread};
use std::time::{Duration, Instant};

use export::nvme::{NvmeConfig, NvmeFrontend, NvmeLimits};
use export::{
    ExportConfig, ExportName, Frontend, FrontendContext, MemorySource, NetworkConfig, ReactorSet,
    RunningExport,
};
use futures_channel::oneshot;
use reactor::{Access, Backend, Clock, Platform, Reactor, Remote, SystemClock};

/// Longer than any step takes, on any machine.
const TIMEOUT: Duration = Duration::from_secs(60);

/// Bytes of a volume.
pub(crate) const SIZE: u64 = 64 << 20;
pub(crate) const SUBSYSTEM: &str = "nqn.2014-08.org.example:disk";

thread_local! {
    static PLATFORM: RefCell<Option<Rc<Platform>>> = const { RefCell::new(None) };
}

fn platform() -> Rc<Platform> {
    PLATFORM.with_borrow(Clone::clone).unwrap()
}

/// Wakes a thread that polls a future.
struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// Completes a future of the control path on this thread.
pub(crate) fn block_on<T>(future: impl Future<Output = T>) -> T {
    let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
    let (mut future, end) = (pin!(future), Instant::now() + TIMEOUT);
    loop {
        if let Poll::Ready(value) = future.as_mut().poll(&mut Context::from_waker(&waker)) {
            return value;
        }
        std::thread::park_timeout(TIMEOUT);
        assert!(Instant::now() < end, "a step takes too long");
    }
}

pub(crate) struct Target {
    pub(crate) frontend: NvmeFrontend<MemorySource>,
    pub(crate) source: Arc<MemorySource>,
    pub(crate) running: Arc<dyn RunningExport>,
    pub(crate) address: SocketAddr,
    remote: Remote,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

/// The options of an export of a namespace.
pub(crate) fn config(listen: SocketAddr, unit: u32, hosts: &[&str]) -> ExportConfig {
    let network = NetworkConfig {
        listen: vec![listen],
        target: Some(SUBSYSTEM.into()),
        unit: Some(unit),
        hosts: hosts.iter().map(ToString::to_string).collect(),
        chap: None,
    };
    ExportConfig { network, ..ExportConfig::default() }
}

/// Runs a test on each backend.
pub(crate) fn on_each_backend(test: impl Fn(&mut Target)) {
    for backend in [Backend::Uring, Backend::Threads] {
        test(&mut Target::start(backend, NvmeLimits::default(), &[]));
    }
}

impl Target {
    /// Serves one namespace on a free port of this host.
    pub(crate) fn start(backend: Backend, limits: NvmeLimits, hosts: &[&str]) -> Self {
        let (stop, stopped) = oneshot::channel::<()>();
        let (sender, receiver) = mpsc::channel();
        let thread = std::thread::spawn(move || {
            let clock: Rc<dyn Clock> = Rc::new(SystemClock::new());
            let platform = Platform::new(backend, clock.clone()).unwrap();
            let reactor = Reactor::new(platform.clone(), clock);
            PLATFORM.set(Some(platform));
            sender.send(reactor.remote()).unwrap();
            let _ = reactor.run(stopped);
            reactor.shut_down();
            PLATFORM.set(None);
        });
        let remote = receiver.recv().unwrap();
        let reactors = ReactorSet::new(std::slice::from_ref(&remote), backend, platform);
        let context = FrontendContext { reactors, access: Access::OWNER };
        let config_of_all = NvmeConfig { listen: Vec::new(), limits };
        let frontend = block_on(NvmeFrontend::start(config_of_all, &context)).unwrap();
        let source = Arc::new(block_on(MemorySource::create(&remote, SIZE, 512)).unwrap());
        let any = "127.0.0.1:0".parse().unwrap();
        let name = ExportName::new("fast/vm01");
        let running = block_on(frontend.start(&name, &config(any, 1, hosts), source.clone())).unwrap();
        let uri = running.listeners()[0].clone();
        let address = uri.strip_prefix("nvme+tcp://").unwrap().split('/').next().unwrap().parse().unwrap();
        Self { frontend, source, running, address, remote, stop: Some(stop), thread: Some(thread) }
    }

    /// Serves another volume as a namespace of the same subsystem.
    pub(crate) fn add(&self, unit: u32, hosts: &[&str]) -> Arc<dyn RunningExport> {
        let source = Arc::new(block_on(MemorySource::create(&self.remote, SIZE, 512)).unwrap());
        let name = ExportName::new(format!("fast/vm{unit}"));
        let config = config(self.address, unit, hosts);
        block_on(self.frontend.start(&name, &config, source)).unwrap()
    }
}

impl Drop for Target {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            block_on(self.frontend.shut_down());
        }
        drop(self.stop.take());
        let result = self.thread.take().unwrap().join();
        if !std::thread::panicking() {
            result.unwrap();
        }
    }
}
