//! The device behind one socket, for one front end at a time.
//!
//! Always true: the next front end is served only after all requests of the previous one have
//! ended, so that an old request never executes after a new one. Must not know the messages of
//! front ends.

use std::cell::Cell;
use std::io;
use std::net::Shutdown;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::rc::Rc;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use reactor::{Handle, Listener, Reactor, Stream, WaitList};
use vhost::vhost_user::{BackendReqHandler, Error};

use super::backend_channel::{notify_config_changed, receive_channel};
use super::disk::VhostDisk;
use super::session::VhostSession;
use crate::Stop;
use crate::listen::accept_loop;
use crate::select::{Either, select};

/// Time for which a new front end waits for the previous one to disconnect.
const HANDOVER_TIMEOUT: Duration = Duration::from_secs(2);

/// Serves a disk to the front ends that connect to its socket. Lives on the reactor of the thread
/// that created it.
pub struct VhostServer<D> {
    disk: Arc<D>,
    connection_handle: Arc<ConnectionHandle>,
    stop: Stop,
    /// A front end is served.
    busy: Cell<bool>,
    changed: WaitList,
}

/// The state of the current connection that other threads access.
#[derive(Default)]
struct ConnectionHandle {
    inner: Mutex<ConnectionState>,
}

#[derive(Default)]
struct ConnectionState {
    /// The connection; other threads can cut it.
    connection: Option<UnixStream>,
    /// The backend channel.
    channel: Option<OwnedFd>,
    /// No further connection is served.
    closed: bool,
}

impl ConnectionHandle {
    fn lock(&self) -> MutexGuard<'_, ConnectionState> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sets the current connection. Returns false if no further connection is served.
    fn open(&self, connection: UnixStream) -> bool {
        let mut state = self.lock();
        assert!(state.connection.is_none(), "two front ends are connected at once");
        if !state.closed {
            state.connection = Some(connection);
        }
        !state.closed
    }

    /// Cuts the connection. Its front end sees end of file.
    fn cut(&self) {
        let mut state = self.lock();
        if let Some(connection) = state.connection.take() {
            // Fails only if the other end is gone.
            let _ = connection.shutdown(Shutdown::Both);
        }
        state.channel = None;
    }

    /// Cuts the connection and refuses all later ones.
    fn close(&self) {
        self.lock().closed = true;
        self.cut();
    }
}

impl<D: VhostDisk> VhostServer<D> {
    /// Creates a server for a disk.
    pub fn new(disk: Arc<D>) -> Rc<Self> {
        let (connection_handle, stop, changed) = (Arc::default(), Stop::default(), WaitList::default());
        Rc::new(Self { disk, connection_handle, stop, busy: Cell::new(false), changed })
    }

    /// Returns true if a front end is connected.
    pub fn is_connected(&self) -> bool {
        self.busy.get()
    }

    /// Notifies the guest of a changed size.
    pub fn resized(&self) {
        let state = self.connection_handle.lock();
        let Some(channel) = &state.channel else { return };
        if let Err(error) = notify_config_changed(channel) {
            tracing::warn!(device = %self.disk.name(), %error, "could not notify the guest of its disk's new size");
        }
    }

    /// Serves the front ends that connect to `listener`, one after the other, until
    /// [`VhostServer::shut_down`].
    pub async fn listen(self: Rc<Self>, listener: Listener) {
        let (name, stop) = (self.disk.name(), self.stop.clone());
        accept_loop(&listener, &stop, &name, async |stream| self.clone().accept(stream).await).await;
    }

    /// Serves a front end once the previous one is gone.
    async fn accept(self: Rc<Self>, stream: Stream) {
        let free = self.changed.until(|| (!self.busy.get()).then_some(()));
        let timeout = select(self.stop.raised(), Reactor::current().sleep(HANDOVER_TIMEOUT));
        if let Either::Right(_) = select(free, timeout).await {
            if !self.stop.is_raised() {
                tracing::warn!(device = %self.disk.name(), "refused a front end: another one uses the device");
            }
            return;
        }
        let name = self.disk.name();
        if let Err(error) = self.serve(stream) {
            tracing::warn!(device = %name, %error, "could not serve a front end");
        }
    }

    /// Starts a thread for a front end.
    fn serve(self: Rc<Self>, stream: Stream) -> io::Result<()> {
        let stream = UnixStream::from(stream.detach().into_descriptor()?);
        stream.set_nonblocking(false)?;
        if !self.connection_handle.open(stream.try_clone()?) {
            return Ok(());
        }
        self.busy.set(true);
        self.disk.note_front_end(true);
        let handle = Handle::register(&Reactor::current(), self.clone());
        let (disk, connection_handle) = (self.disk.clone(), self.connection_handle.clone());
        let thread = std::thread::Builder::new().name("vhost-user".into());
        let ended = DisconnectGuard { handle, connection_handle: connection_handle.clone() };
        let spawned = thread.spawn(move || {
            let _ended = ended;
            serve(stream, disk, &connection_handle);
        });
        // If no thread could be started, the closure was dropped, and `ended` with it.
        spawned.map(drop)
    }

    /// Stops listening, cuts the connection, and waits until all requests have ended.
    pub async fn shut_down(&self) {
        self.stop.raise();
        self.connection_handle.close();
        self.changed.until(|| (!self.busy.get()).then_some(())).await;
    }
}

/// Reports the end of a connection to the front end and the server, for any way in which the thread
/// ends.
struct DisconnectGuard<D: VhostDisk> {
    handle: Handle<VhostServer<D>>,
    connection_handle: Arc<ConnectionHandle>,
}

impl<D: VhostDisk> Drop for DisconnectGuard<D> {
    fn drop(&mut self) {
        self.connection_handle.cut();
        let handle = self.handle.clone();
        // A reactor that has shut down has no waiters.
        let _ = self.handle.remote().post(move || {
            if let Some(server) = handle.local() {
                handle.unregister();
                server.busy.set(false);
                server.disk.note_front_end(false);
                server.changed.wake_all();
            }
        });
    }
}

/// Serves a front end until it disconnects or is cut off.
fn serve<D: VhostDisk>(stream: UnixStream, disk: Arc<D>, connection_handle: &ConnectionHandle) {
    let name = disk.name();
    tracing::info!(device = %name, "front end connected");
    let end = match stream.try_clone() {
        Ok(connection) => handle_messages(&stream, connection, disk, connection_handle),
        Err(error) => Err(Error::SocketError(error)),
    };
    match end {
        Ok(()) => tracing::info!(device = %name, "front end disconnected"),
        Err(error) => tracing::warn!(device = %name, %error, "front end was cut off"),
    }
}

fn handle_messages<D: VhostDisk>(
    stream: &UnixStream,
    connection: UnixStream,
    disk: Arc<D>,
    connection_handle: &ConnectionHandle,
) -> Result<(), Error> {
    let connection_to_cut = Arc::new(connection.try_clone().map_err(Error::SocketError)?);
    let session = Arc::new(Mutex::new(VhostSession::new(disk, connection_to_cut)));
    let mut handler = BackendReqHandler::from_stream(connection, session.clone());
    loop {
        let acknowledge = session.lock().unwrap_or_else(PoisonError::into_inner).acknowledges;
        let keep = |channel| connection_handle.lock().channel = Some(channel);
        if receive_channel(stream, acknowledge, keep).map_err(Error::SocketError)? {
            continue;
        }
        match handler.handle_request() {
            Ok(()) => {}
            Err(Error::Disconnected) => return Ok(()),
            Err(error) => return Err(error),
        }
    }
}
