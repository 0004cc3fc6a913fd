//! A back end of a volume in memory, on reactor threads of its own, which tests look into from outside.

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

/// Longer than anything takes, on any machine.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

thread_local! {
    static PLATFORM: RefCell<Option<Rc<Platform>>> = const { RefCell::new(None) };
}

/// How a back end is made.
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

/// The volume, which lives on the first reactor, as one reactor uses it.
pub(crate) struct Shared {
    disk: Arc<TestDisk>,
    home: Handle<MemoryVolume>,
    near: Option<Rc<MemoryVolume>>,
}

impl Shared {
    /// Does something with the volume where it lives.
    async fn there<T: Send + 'static, F: Future<Output = Result<T, VolumeError>> + 'static>(
        &self,
        work: impl FnOnce(Rc<MemoryVolume>) -> F + Send + 'static,
    ) -> Result<T, VolumeError> {
        match &self.near {
            Some(volume) => work(volume.clone()).await,
            None => match self.home.call(work).await {
                Ok(result) => result,
                // All of it is ending: what is under way is never answered.
                Err(_) => std::future::pending().await,
            },
        }
    }
}

impl Volume for Shared {
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
        self.there(move |volume| async move { volume.read(offset, &into).await }).await
    }

    async fn write(&self, offset: u64, data: &Span) -> Result<(), VolumeError> {
        let data = data.clone();
        self.there(move |volume| async move { volume.write(offset, &data).await }).await
    }

    async fn flush(&self) -> Result<(), VolumeError> {
        self.there(|volume| async move { volume.flush().await }).await
    }

    async fn discard(&self, offset: u64, length: u64) -> Result<(), VolumeError> {
        self.there(move |volume| async move { volume.discard(offset, length).await }).await
    }

    async fn write_zeroes(&self, offset: u64, length: u64) -> Result<(), VolumeError> {
        self.there(move |volume| async move { volume.write_zeroes(offset, length).await }).await
    }

    async fn extents(&self, offset: u64, length: u64) -> Result<Vec<Extent>, VolumeError> {
        self.there(move |volume| async move { volume.extents(offset, length).await }).await
    }
}

/// What the device serves.
pub(crate) struct TestDisk {
    options: Options,
    size: AtomicU64,
    reactors: OnceLock<Vec<Remote>>,
    home: OnceLock<Handle<MemoryVolume>>,
    /// To refuse the next that is opened.
    pub(crate) refuse: std::sync::atomic::AtomicBool,
    this: OnceLock<std::sync::Weak<TestDisk>>,
}

impl VhostDisk for TestDisk {
    type Volume = Shared;

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

    fn gather(&self) -> Duration {
        self.options.poll
    }

    fn platform(&self) -> Rc<Platform> {
        PLATFORM.with_borrow(Clone::clone).unwrap()
    }

    async fn open(&self) -> Result<Shared, OpenError> {
        if self.refuse.swap(false, Ordering::SeqCst) {
            return Err(OpenError::new(OpenErrorKind::Unavailable, "a test asked for this"));
        }
        let home = self.home.get().unwrap().clone();
        let near = home.local();
        Ok(Shared { disk: self.this.get().unwrap().upgrade().unwrap(), home, near })
    }
}

struct Thread {
    handle: JoinHandle<()>,
    finish: oneshot::Sender<()>,
}

/// A back end that runs.
pub(crate) struct BackEnd {
    directory: Rc<TempDir>,
    pub(crate) disk: Arc<TestDisk>,
    threads: Vec<Thread>,
    server: Handle<VhostServer<TestDisk>>,
}

impl BackEnd {
    pub(crate) fn start(options: &Options) -> Self {
        Self::within(Rc::new(tempfile::tempdir().unwrap()), options)
    }

    /// A back end whose socket lies where one did before.
    pub(crate) fn within(directory: Rc<TempDir>, options: &Options) -> Self {
        let disk = Arc::new(TestDisk {
            options: options.clone(),
            size: options.size.into(),
            reactors: OnceLock::new(),
            home: OnceLock::new(),
            refuse: false.into(),
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
        let (inside, bound) = (disk.clone(), socket(&directory));
        let server = on(&remotes[0], move |reactor| {
            let volume = Rc::new(MemoryVolume::new(inside.options.size, inside.options.sector));
            inside.home.set(Handle::register(reactor, volume)).ok().unwrap();
            let listener = Listener::bind_unix(&inside.platform(), &bound, Access::OWNER).unwrap();
            let server = VhostServer::new(inside);
            reactor.spawn(server.clone().listen(listener)).detach();
            Handle::register(reactor, server)
        });
        Self { directory, disk, threads, server }
    }

    pub(crate) fn path(&self) -> PathBuf {
        socket(&self.directory)
    }

    /// Looks into the volume.
    pub(crate) fn volume<T: Send + 'static>(
        &self,
        look: impl FnOnce(&MemoryVolume) -> T + Send + 'static,
    ) -> T {
        let home = self.disk.home.get().unwrap().clone();
        on(self.server.remote(), move |_| look(&home.local().unwrap()))
    }

    /// Waits until something is true of the volume.
    pub(crate) fn wait_for_volume(&self, condition: impl Fn(&MemoryVolume) -> bool + Send + 'static) {
        let home = self.disk.home.get().unwrap().clone();
        let (sender, receiver) = mpsc::channel();
        on(self.server.remote(), move |reactor| {
            let task = async move {
                while !condition(&home.local().unwrap()) {
                    Reactor::current().yield_now().await;
                }
                sender.send(()).unwrap();
            };
            reactor.spawn(task).detach();
        });
        receiver.recv_timeout(PATIENCE).unwrap();
    }

    /// What the first reactor has used so far.
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

    /// Begins to shut down; the receiver gets word when it is done.
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

    /// Ends all reactors where they stand: what is under way is never answered. Gives what keeps the socket's place.
    pub(crate) fn die(mut self) -> Rc<TempDir> {
        self.end();
        self.directory.clone()
    }

    fn end(&mut self) {
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
        self.end();
    }
}

fn socket(directory: &TempDir) -> PathBuf {
    directory.path().join("vhost.sock")
}

fn start_thread(backend: Backend) -> (Thread, Remote) {
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
    (Thread { handle, finish }, receiver.recv().unwrap())
}

/// Does something on a reactor, and waits for it.
fn on<T: Send + 'static>(remote: &Remote, work: impl FnOnce(&Reactor) -> T + Send + 'static) -> T {
    let (sender, receiver) = mpsc::channel();
    remote.post(move || sender.send(work(&Reactor::current())).unwrap()).unwrap();
    receiver.recv_timeout(PATIENCE).unwrap()
}
