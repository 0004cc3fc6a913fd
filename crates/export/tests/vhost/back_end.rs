//! A back end that serves a volume in memory on reactor threads of its own. Tests inspect it from
//! other threads.

use std::cell::RefCell;
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, mpsc};
use std::thread::JoinHandle;
use std::time::Duration;

use export::vhost::{VhostDisk, VhostServer};
use export::{Extent, MemoryVolume, OpenError, OpenErrorKind, Volume, VolumeError};
use futures_channel::oneshot;
use reactor::{Access, Backend, Clock, Handle, Listener, Platform, Reactor, Remote, Span, SystemClock};
use rustix::time::{ClockId, clock_gettime};
use tempfile::TempDir;

/// Longer than any step takes, on any machine.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(60);

thread_local! {
    static PLATFORM: RefCell<Option<Rc<Platform>>> = const { RefCell::new(None) };
}

/// The properties of a test's back end.
#[derive(Clone)]
pub(crate) struct Options {
    pub(crate) backend: Backend,
    pub(crate) reactors: usize,
    pub(crate) queues: u16,
    pub(crate) size: u64,
    pub(crate) sector: u32,
    pub(crate) read_only: bool,
    pub(crate) poll: Duration,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            backend: Backend::Auto,
            reactors: 1,
            queues: 4,
            size: 64 << 20,
            sector: 512,
            read_only: false,
            poll: Duration::ZERO,
        }
    }
}

/// One reactor's access to the volume, which is owned by the first reactor.
pub(crate) struct TestVolume {
    disk: Arc<TestDisk>,
    handle: Handle<MemoryVolume>,
    local: Option<Rc<MemoryVolume>>,
}

impl TestVolume {
    /// Runs `work` with the volume on the reactor that owns it.
    async fn on_owner<T: Send + 'static, F: Future<Output = Result<T, VolumeError>> + 'static>(
        &self,
        work: impl FnOnce(Rc<MemoryVolume>) -> F + Send + 'static,
    ) -> Result<T, VolumeError> {
        match &self.local {
            Some(volume) => work(volume.clone()).await,
            None => match self.handle.call(work).await {
                Ok(result) => result,
                // The reactors are stopping: requests in flight are never answered.
                Err(_) => std::future::pending().await,
            },
        }
    }
}

impl Volume for TestVolume {
    fn size(&self) -> u64 {
        self.disk.size()
    }

    fn sector(&self) -> u32 {
        self.disk.options.sector
    }

    fn read_only(&self) -> bool {
        self.disk.options.read_only
    }

    async fn read(&self, offset: u64, into: &Span) -> Result<(), VolumeError> {
        let into = into.clone();
        self.on_owner(move |volume| async move { volume.read(offset, &into).await }).await
    }

    async fn write(&self, offset: u64, data: &Span) -> Result<(), VolumeError> {
        let data = data.clone();
        self.on_owner(move |volume| async move { volume.write(offset, &data).await }).await
    }

    async fn flush(&self) -> Result<(), VolumeError> {
        self.on_owner(|volume| async move { volume.flush().await }).await
    }

    async fn discard(&self, offset: u64, length: u64) -> Result<(), VolumeError> {
        self.on_owner(move |volume| async move { volume.discard(offset, length).await }).await
    }

    async fn write_zeroes(&self, offset: u64, length: u64) -> Result<(), VolumeError> {
        self.on_owner(move |volume| async move { volume.write_zeroes(offset, length).await }).await
    }

    async fn extents(&self, offset: u64, length: u64) -> Result<Vec<Extent>, VolumeError> {
        self.on_owner(move |volume| async move { volume.extents(offset, length).await }).await
    }
}

/// The volume that the device serves.
pub(crate) struct TestDisk {
    options: Options,
    size: AtomicU64,
    reactors: OnceLock<Vec<Remote>>,
    volume: OnceLock<Handle<MemoryVolume>>,
    /// Makes the next open fail.
    pub(crate) refuse_open: std::sync::atomic::AtomicBool,
    this: OnceLock<std::sync::Weak<TestDisk>>,
}

impl VhostDisk for TestDisk {
    type Volume = TestVolume;

    fn name(&self) -> String {
        "test/disk".into()
    }

    fn serial(&self) -> String {
        "0123456789abcdefghijklmnop".into()
    }

    fn size(&self) -> u64 {
        self.size.load(Ordering::SeqCst)
    }

    fn sector(&self) -> u32 {
        self.options.sector
    }

    fn read_only(&self) -> bool {
        self.options.read_only
    }

    fn reactors(&self) -> &[Remote] {
        self.reactors.get().unwrap()
    }

    fn queues(&self) -> u16 {
        self.options.queues
    }

    fn poll(&self) -> Duration {
        self.options.poll
    }

    fn coalesce_delay(&self) -> Duration {
        self.options.poll
    }

    fn platform(&self) -> Rc<Platform> {
        PLATFORM.with_borrow(Clone::clone).unwrap()
    }

    async fn open(&self) -> Result<TestVolume, OpenError> {
        if self.refuse_open.swap(false, Ordering::SeqCst) {
            return Err(OpenError::new(OpenErrorKind::Unavailable, "refused by the test"));
        }
        let handle = self.volume.get().unwrap().clone();
        let local = handle.local();
        Ok(TestVolume { disk: self.this.get().unwrap().upgrade().unwrap(), handle, local })
    }
}

struct VhostThread {
    handle: JoinHandle<()>,
    finish: oneshot::Sender<()>,
}

/// A running back end.
pub(crate) struct BackEnd {
    directory: Rc<TempDir>,
    pub(crate) disk: Arc<TestDisk>,
    threads: Vec<VhostThread>,
    server: Handle<VhostServer<TestDisk>>,
}

impl BackEnd {
    pub(crate) fn start(options: &Options) -> Self {
        Self::start_in(Rc::new(tempfile::tempdir().unwrap()), options)
    }

    /// Starts a back end whose socket has the path of an earlier one.
    pub(crate) fn start_in(directory: Rc<TempDir>, options: &Options) -> Self {
        let disk = Arc::new(TestDisk {
            options: options.clone(),
            size: options.size.into(),
            reactors: OnceLock::new(),
            volume: OnceLock::new(),
            refuse_open: false.into(),
            this: OnceLock::new(),
        });
        disk.this.set(Arc::downgrade(&disk)).unwrap();
        let (mut threads, mut remotes) = (Vec::new(), Vec::new());
        for _ in 0..options.reactors {
            let (thread, remote) = start_thread(options.backend);
            threads.push(thread);
            remotes.push(remote);
        }
        disk.reactors.set(remotes.clone()).ok().unwrap();
        let (served, path) = (disk.clone(), socket(&directory));
        let server = on(&remotes[0], move |reactor| {
            let volume = Rc::new(MemoryVolume::new(served.options.size, served.options.sector));
            served.volume.set(Handle::register(reactor, volume)).ok().unwrap();
            let listener = Listener::bind_unix(&served.platform(), &path, Access::OWNER).unwrap();
            let server = VhostServer::new(served);
            reactor.spawn(server.clone().listen(listener)).detach();
            Handle::register(reactor, server)
        });
        Self { directory, disk, threads, server }
    }

    pub(crate) fn path(&self) -> PathBuf {
        socket(&self.directory)
    }

    /// Runs a function with the volume, on the reactor that owns it.
    pub(crate) fn volume<T: Send + 'static>(
        &self,
        work: impl FnOnce(&MemoryVolume) -> T + Send + 'static,
    ) -> T {
        let volume = self.disk.volume.get().unwrap().clone();
        on(self.server.remote(), move |_| work(&volume.local().unwrap()))
    }

    /// Waits until a condition of the volume is true.
    pub(crate) fn wait_for_volume(&self, condition: impl Fn(&MemoryVolume) -> bool + Send + 'static) {
        let volume = self.disk.volume.get().unwrap().clone();
        let (sender, receiver) = mpsc::channel();
        on(self.server.remote(), move |reactor| {
            let task = async move {
                while !condition(&volume.local().unwrap()) {
                    Reactor::current().yield_now().await;
                }
                sender.send(()).unwrap();
            };
            reactor.spawn(task).detach();
        });
        receiver.recv_timeout(TIMEOUT).unwrap();
    }

    /// Returns the CPU time that the first reactor has used.
    pub(crate) fn processor_time(&self) -> Duration {
        let time = on(self.server.remote(), |_| clock_gettime(ClockId::ThreadCPUTime));
        Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
    }

    pub(crate) fn resize(&self, size: u64) {
        self.volume(move |volume| volume.resize(size));
        self.disk.size.store(size, Ordering::SeqCst);
        let server = self.server.clone();
        on(self.server.remote(), move |_| server.local().unwrap().resized());
    }

    pub(crate) fn is_connected(&self) -> bool {
        let server = self.server.clone();
        on(self.server.remote(), move |_| server.local().unwrap().is_connected())
    }

    /// Starts the shutdown. The receiver gets a message when it is complete.
    pub(crate) fn shut_down(&self) -> mpsc::Receiver<()> {
        let (sender, receiver) = mpsc::channel();
        let server = self.server.clone();
        on(self.server.remote(), move |reactor| {
            let task = async move {
                server.local().unwrap().shut_down().await;
                sender.send(()).unwrap();
            };
            reactor.spawn(task).detach();
        });
        receiver
    }

    /// Stops all reactors at once, as in a crash: requests in flight are never answered. Returns
    /// the directory of the socket.
    pub(crate) fn kill(mut self) -> Rc<TempDir> {
        self.stop();
        self.directory.clone()
    }

    fn stop(&mut self) {
        for thread in self.threads.drain(..) {
            let _ = thread.finish.send(());
            let result = thread.handle.join();
            if !std::thread::panicking() {
                result.unwrap();
            }
        }
    }
}

impl Drop for BackEnd {
    fn drop(&mut self) {
        self.stop();
    }
}

fn socket(directory: &TempDir) -> PathBuf {
    directory.path().join("vhost.sock")
}

fn start_thread(backend: Backend) -> (VhostThread, Remote) {
    let (finish, finished) = oneshot::channel();
    let (sender, receiver) = mpsc::channel();
    let handle = std::thread::spawn(move || {
        let clock: Rc<dyn Clock> = Rc::new(SystemClock::new());
        let platform = Platform::new(backend, clock.clone()).unwrap();
        let reactor = Reactor::new(platform.clone(), clock);
        PLATFORM.set(Some(platform));
        sender.send(reactor.remote()).unwrap();
        let _ = reactor.run(finished);
        reactor.shut_down();
        PLATFORM.set(None);
    });
    (VhostThread { handle, finish }, receiver.recv().unwrap())
}

/// Runs a function on a reactor and returns its result.
fn on<T: Send + 'static>(remote: &Remote, work: impl FnOnce(&Reactor) -> T + Send + 'static) -> T {
    let (sender, receiver) = mpsc::channel();
    remote.post(move || sender.send(work(&Reactor::current())).unwrap()).unwrap();
    receiver.recv_timeout(TIMEOUT).unwrap()
}
