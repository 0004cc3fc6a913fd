//! The device behind one socket: one front end at a time.
//!
//! Always true: the next front end is served only when everything that the one before began has ended, so that no request
//! of the past is carried out after one of the present. Must not know what front ends say.

use std::cell::Cell;
use std::io;
use std::net::Shutdown;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::rc::Rc;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use reactor::{Home, Listener, Reactor, Stream, WaitList};
use vhost::vhost_user::{BackendReqHandler, Error};

use super::channel::{take_channel, tell_config_changed};
use super::disk::Disk;
use super::session::Session;
use crate::Stop;
use crate::listen::accept_loop;
use crate::race::{First, race};

/// How long a front end waits for the one before it to go.
const PATIENCE: Duration = Duration::from_secs(2);

/// Serves a disk to the front ends that come to its socket, on the reactor of the thread that it was made on.
pub struct Server<D> {
    disk: Arc<D>,
    link: Arc<Link>,
    stop: Stop,
    /// A front end is served.
    busy: Cell<bool>,
    changed: WaitList,
}

/// What others reach of the connection that is served.
#[derive(Default)]
struct Link {
    inner: Mutex<Ends>,
}

#[derive(Default)]
struct Ends {
    /// The connection; to be cut from another thread.
    connection: Option<UnixStream>,
    /// The channel back.
    channel: Option<OwnedFd>,
    /// No connection is to be served any more.
    closed: bool,
}

impl Link {
    fn lock(&self) -> MutexGuard<'_, Ends> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes a connection the one that is served. False if none is to be served any more.
    fn open(&self, connection: UnixStream) -> bool {
        let mut ends = self.lock();
        assert!(ends.connection.is_none(), "two front ends at once");
        if !ends.closed {
            ends.connection = Some(connection);
        }
        !ends.closed
    }

    /// Cuts the connection: its front end sees the end of it.
    fn cut(&self) {
        let mut ends = self.lock();
        if let Some(connection) = ends.connection.take() {
            // Fails only if the other end is gone.
            let _ = connection.shutdown(Shutdown::Both);
        }
        ends.channel = None;
    }

    /// Cuts the connection, and lets none be served any more.
    fn close(&self) {
        self.lock().closed = true;
        self.cut();
    }
}

impl<D: Disk> Server<D> {
    /// A server of this disk.
    pub fn new(disk: Arc<D>) -> Rc<Self> {
        let (link, stop, changed) = (Arc::default(), Stop::default(), WaitList::default());
        Rc::new(Self { disk, link, stop, busy: Cell::new(false), changed })
    }

    /// True if a front end is connected.
    pub fn is_connected(&self) -> bool {
        self.busy.get()
    }

    /// The size has changed: the guest is told.
    pub fn resized(&self) {
        let ends = self.link.lock();
        let Some(channel) = &ends.channel else { return };
        if let Err(error) = tell_config_changed(channel) {
            tracing::warn!(device = %self.disk.name(), %error, "a guest could not be told of its disk's new size");
        }
    }

    /// Serves the front ends that come from `listener`, one after the other, until [`Server::shut_down`].
    pub async fn listen(self: Rc<Self>, listener: Listener) {
        let (name, stop) = (self.disk.name(), self.stop.clone());
        accept_loop(&listener, &stop, &name, async |stream| self.clone().take(stream).await).await;
    }

    /// Serves a front end once the one before is gone.
    async fn take(self: Rc<Self>, stream: Stream) {
        let free = self.changed.until(|| (!self.busy.get()).then_some(()));
        let patience = race(self.stop.raised(), Reactor::current().sleep(PATIENCE));
        if let First::Right(_) = race(free, patience).await {
            if !self.stop.is_raised() {
                tracing::warn!(device = %self.disk.name(), "a front end was refused: the device is in use by another one");
            }
            return;
        }
        let name = self.disk.name();
        if let Err(error) = self.serve(stream) {
            tracing::warn!(device = %name, %error, "a front end could not be served");
        }
    }

    /// Gives a front end a thread of its own.
    fn serve(self: Rc<Self>, stream: Stream) -> io::Result<()> {
        let stream = UnixStream::from(stream.detach().into_descriptor()?);
        stream.set_nonblocking(false)?;
        if !self.link.open(stream.try_clone()?) {
            return Ok(());
        }
        self.busy.set(true);
        self.disk.note_front_end(true);
        let home = Home::settle(&Reactor::current(), self.clone());
        let (disk, link) = (self.disk.clone(), self.link.clone());
        let thread = std::thread::Builder::new().name("vhost-user".into());
        let ended = Ended { home, link: link.clone() };
        let spawned = thread.spawn(move || {
            let _ended = ended;
            serve(stream, disk, &link);
        });
        // Without a thread its work was dropped, and with it `ended`.
        spawned.map(drop)
    }

    /// Stops listening, cuts the connection, and waits until everything that was begun has ended.
    pub async fn shut_down(&self) {
        self.stop.raise();
        self.link.close();
        self.changed.until(|| (!self.busy.get()).then_some(())).await;
    }
}

/// Tells the front end and the server that it is over, however the thread ends.
struct Ended<D: Disk> {
    home: Home<Server<D>>,
    link: Arc<Link>,
}

impl<D: Disk> Drop for Ended<D> {
    fn drop(&mut self) {
        self.link.cut();
        let home = self.home.clone();
        // A reactor that is gone waits for nobody.
        let _ = self.home.remote().post(move || {
            if let Some(server) = home.local() {
                home.evict();
                server.busy.set(false);
                server.disk.note_front_end(false);
                server.changed.wake_all();
            }
        });
    }
}

/// Serves a front end until it goes, or is cut off.
fn serve<D: Disk>(stream: UnixStream, disk: Arc<D>, link: &Link) {
    let name = disk.name();
    tracing::info!(device = %name, "a front end has connected");
    let end = match stream.try_clone() {
        Ok(connection) => talk(&stream, connection, disk, link),
        Err(error) => Err(Error::SocketError(error)),
    };
    match end {
        Ok(()) => tracing::info!(device = %name, "the front end has gone"),
        Err(error) => tracing::warn!(device = %name, %error, "the front end was cut off"),
    }
}

fn talk<D: Disk>(
    stream: &UnixStream,
    connection: UnixStream,
    disk: Arc<D>,
    link: &Link,
) -> Result<(), Error> {
    let to_cut = Arc::new(connection.try_clone().map_err(Error::SocketError)?);
    let session = Arc::new(Mutex::new(Session::new(disk, to_cut)));
    let mut handler = BackendReqHandler::from_stream(connection, session.clone());
    loop {
        let acknowledge = session.lock().unwrap_or_else(PoisonError::into_inner).acknowledges;
        let keep = |channel| link.lock().channel = Some(channel);
        if take_channel(stream, acknowledge, keep).map_err(Error::SocketError)? {
            continue;
        }
        match handler.handle_request() {
            Ok(()) => {}
            Err(Error::Disconnected) => return Ok(()),
            Err(error) => return Err(error),
        }
    }
}
