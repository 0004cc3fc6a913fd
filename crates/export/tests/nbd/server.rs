//! A server of memory volumes on a thread of its own.

use std::cell::RefCell;
use std::io::Write;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::{Arc, Mutex, mpsc};
use std::thread::JoinHandle;
use std::time::Duration;

use export::nbd::{DisconnectReason, Limits, Reserve, Stop, serve_connection};
use export::{MemoryExports, MemoryVolume, accept_loop};
use reactor::{Access, Backend, Clock, Listener, Platform, Reactor, Remote, Stream, SystemClock};
use tempfile::TempDir;

use crate::client::RawClient;

/// Longer than any step takes, on any machine.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(60);

/// Size of the volume `disk`, unless a test needs another one.
pub(crate) const SIZE: u64 = 64 << 20;

/// The state of a test's server, on its own thread.
pub(crate) struct Fixture {
    pub(crate) exports: MemoryExports,
    pub(crate) disk: MemoryVolume,
    limits: Limits,
    reserve: Reserve,
    stop: Stop,
    ends: mpsc::Sender<DisconnectReason>,
}

thread_local! {
    static FIXTURE: RefCell<Option<Rc<Fixture>>> = const { RefCell::new(None) };
}

/// The captured log of a server.
#[derive(Clone, Default)]
struct LogCapture(Arc<Mutex<Vec<u8>>>);

impl Write for LogCapture {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

pub(crate) struct Server {
    remote: Remote,
    thread: Option<JoinHandle<()>>,
    finish: Option<futures_channel::oneshot::Sender<()>>,
    directory: TempDir,
    address: SocketAddr,
    ends: mpsc::Receiver<DisconnectReason>,
    log: LogCapture,
}

/// Runs a test on each backend.
pub(crate) fn on_each_backend(test: impl Fn(Server)) {
    with_limits(&Limits::default(), test);
}

/// Runs a test on each backend, with other limits.
pub(crate) fn with_limits(limits: &Limits, test: impl Fn(Server)) {
    for backend in [Backend::Uring, Backend::Threads] {
        test(Server::start(backend, limits.clone(), 512));
    }
}

impl Server {
    pub(crate) fn start(backend: Backend, limits: Limits, sector: u32) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let path = socket_path(&directory);
        let (ends_sender, ends) = mpsc::channel();
        let (ready_sender, ready) = mpsc::channel();
        let (finish, finished) = futures_channel::oneshot::channel();
        let log = LogCapture::default();
        let written = log.clone();
        let thread = std::thread::spawn(move || {
            let subscriber = tracing_subscriber::fmt().with_writer(move || written.clone()).with_ansi(false);
            let _logging = tracing::subscriber::set_default(subscriber.finish());
            let disk = MemoryVolume::new(SIZE, sector);
            let exports = MemoryExports::default();
            exports.insert("disk", "the only one", &disk);
            let reserve = Reserve::new(limits.shared_bytes);
            let fixture =
                Fixture { exports, disk, limits, reserve, stop: Stop::default(), ends: ends_sender };
            run(backend, &path, Rc::new(fixture), &ready_sender, finished);
        });
        let (remote, address) = ready.recv().unwrap();
        Self { remote, thread: Some(thread), finish: Some(finish), directory, address, ends, log }
    }

    pub(crate) fn path(&self) -> PathBuf {
        socket_path(&self.directory)
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Connects a client to the Unix socket.
    pub(crate) fn connect(&self) -> RawClient {
        RawClient::unix(&self.path())
    }

    /// Connects a client, which opens `disk` with structured replies and the allocation context.
    pub(crate) fn client(&self) -> RawClient {
        let mut client = self.connect();
        client.negotiate();
        client
    }

    /// Runs a function on the server's thread.
    pub(crate) fn with<T: Send + 'static>(&self, look: impl FnOnce(&Rc<Fixture>) -> T + Send + 'static) -> T {
        let (sender, receiver) = mpsc::channel();
        let job =
            move || FIXTURE.with_borrow(|fixture| sender.send(look(fixture.as_ref().unwrap())).unwrap());
        self.remote.post(job).unwrap();
        receiver.recv_timeout(TIMEOUT).unwrap()
    }

    /// Waits for a condition on the server's thread.
    pub(crate) fn wait_until(&self, condition: impl Fn(&Fixture) -> bool + Send + 'static) {
        let (sender, receiver) = mpsc::channel();
        self.with(move |fixture| {
            let fixture = fixture.clone();
            let task = async move {
                while !condition(&fixture) {
                    Reactor::current().yield_now().await;
                }
                sender.send(()).unwrap();
            };
            Reactor::current().spawn(task).detach();
        });
        receiver.recv_timeout(TIMEOUT).unwrap();
    }

    /// Returns the lines logged so far.
    pub(crate) fn log(&self) -> Vec<String> {
        let log = self.log.0.lock().unwrap();
        String::from_utf8(log.clone()).unwrap().lines().map(str::to_owned).collect()
    }

    pub(crate) fn stop(&self) {
        self.with(|fixture| fixture.stop.raise());
    }

    /// Returns the reason why the next connection ends.
    pub(crate) fn end(&self) -> DisconnectReason {
        self.ends.recv_timeout(TIMEOUT).unwrap()
    }

    /// Returns true if no further connection has ended.
    pub(crate) fn no_end(&self) -> bool {
        self.ends.try_recv().is_err()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.finish.take().unwrap().send(());
        let result = self.thread.take().unwrap().join();
        if !std::thread::panicking() {
            result.unwrap();
        }
    }
}

fn socket_path(directory: &TempDir) -> PathBuf {
    directory.path().join("socket")
}

fn run(
    backend: Backend,
    path: &Path,
    fixture: Rc<Fixture>,
    ready: &mpsc::Sender<(Remote, SocketAddr)>,
    finished: futures_channel::oneshot::Receiver<()>,
) {
    let clock: Rc<dyn Clock> = Rc::new(SystemClock::new());
    let platform = Platform::new(backend, clock.clone()).unwrap();
    let reactor = Reactor::new(platform.clone(), clock);
    FIXTURE.set(Some(fixture.clone()));
    reactor.run(async {
        let local = Listener::bind_unix(&platform, path, Access::OWNER).unwrap();
        let tcp = Listener::bind_tcp(&platform, (Ipv4Addr::LOCALHOST, 0).into()).unwrap();
        let address = tcp.local_address().unwrap();
        for listener in [local, tcp] {
            let fixture = fixture.clone();
            let task = async move {
                let serve = async |stream| serve(fixture.clone(), stream);
                accept_loop(&listener, &fixture.stop, "NBD", serve).await
            };
            reactor.spawn(task).detach();
        }
        ready.send((reactor.remote(), address)).unwrap();
        finished.await.unwrap();
    });
    FIXTURE.set(None);
    reactor.shut_down();
}

fn serve(fixture: Rc<Fixture>, stream: Stream) {
    let task = async move {
        let Fixture { exports, limits, reserve, stop, .. } = &*fixture;
        let end = serve_connection(stream, exports, limits, reserve, stop).await;
        // A test that ignores the reasons may have ended.
        let _ = fixture.ends.send(end);
    };
    Reactor::current().spawn(task).detach();
}
