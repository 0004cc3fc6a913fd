//! Sockets that exports are served on, and the loop that accepts their connections.
//!
//! Always true: an error names the address and the setting that selects another one; a failure to
//! accept is logged once and retried, and does not end the loop.

use std::net::SocketAddr;
use std::path::Path;
use std::rc::Rc;
use std::time::Duration;

use reactor::{Access, Listener, NetError, NetErrorKind, Platform, Reactor, Stream};

use crate::select::{Either, select};
use crate::{ExportError, ExportErrorKind, Stop};

/// Time for which an address that is in use is retried.
pub(crate) const RETRY_FOR: Duration = Duration::from_secs(2);
/// Pause between two tries.
pub(crate) const RETRY_PAUSE: Duration = Duration::from_millis(20);
/// Pause after a connection could not be accepted: the process has no descriptor left, and an
/// immediate retry would only keep other connections from closing theirs.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// The protocol of a socket, and the setting that selects another address, for errors and logs.
#[derive(Clone, Copy, Debug)]
pub struct ListenLabel {
    /// The protocol's name.
    pub protocol: &'static str,
    /// The command-line option that selects the address.
    pub setting: &'static str,
}

/// Listens on a Unix socket for the users of `access`. Creates its directory for the same users if
/// it does not exist. Runs on a reactor.
///
/// # Errors
/// `Busy` when another process serves there; otherwise the system's error.
pub async fn listen_unix(
    platform: &Rc<Platform>,
    path: &Path,
    access: Access,
    label: ListenLabel,
) -> Result<Listener, ExportError> {
    if let Some(directory) = path.parent() {
        access.make_directories(directory).map_err(|error| {
            let message = format!("cannot create the directory {}: {error}", directory.display());
            ExportError::new(ExportErrorKind::Io, message).hint(label.advice())
        })?;
    }
    retry_in_use(|| Listener::bind_unix(platform, path, access)).await.map_err(|error| label.explain(&error))
}

/// Listens for connections over TCP. Runs on a reactor.
///
/// # Errors
/// `Busy` when another process serves there; otherwise the system's error.
pub async fn listen_tcp(
    platform: &Rc<Platform>,
    address: SocketAddr,
    label: ListenLabel,
) -> Result<Listener, ExportError> {
    retry_in_use(|| Listener::bind_tcp(platform, address)).await.map_err(|error| label.explain(&error))
}

/// Retries for a while to bind an address: the kernel ends the I/O of a process that was killed,
/// and closes its sockets, only after the process has ended.
async fn retry_in_use(bind: impl Fn() -> Result<Listener, NetError>) -> Result<Listener, NetError> {
    let reactor = Reactor::current();
    let end = reactor.now() + RETRY_FOR;
    loop {
        match bind() {
            Err(error) if error.kind() == NetErrorKind::InUse && reactor.now() < end => {
                reactor.sleep(RETRY_PAUSE).await;
            }
            result => return result,
        }
    }
}

impl ListenLabel {
    fn advice(self) -> String {
        format!("{} selects another place", self.setting)
    }

    pub(crate) fn explain(self, error: &NetError) -> ExportError {
        let source =
            std::error::Error::source(error).map(|source| format!(" ({source})")).unwrap_or_default();
        let (kind, reason) = match error.kind() {
            NetErrorKind::InUse => (ExportErrorKind::Busy, "another daemon may serve there; "),
            NetErrorKind::NotASocket => (ExportErrorKind::Busy, "the file there is not a socket; "),
            NetErrorKind::Denied => (ExportErrorKind::Denied, ""),
            _ => (ExportErrorKind::Io, ""),
        };
        ExportError::new(kind, format!("{}: {error}{source}", self.protocol))
            .hint(format!("{reason}{}", self.advice()))
    }
}

/// Passes each connection from `listener` to `serve`, one after the other, until `stop` is raised.
/// `label` names the listener in logs.
pub async fn accept_loop(listener: &Listener, stop: &Stop, label: &str, mut serve: impl AsyncFnMut(Stream)) {
    let mut failing = false;
    loop {
        let accepted = match select(stop.raised(), listener.accept()).await {
            Either::Left(()) => return,
            Either::Right(accepted) => accepted,
        };
        match accepted {
            Ok(stream) => {
                failing = false;
                serve(stream).await;
            }
            Err(error) => {
                // Logged once, not ten times a second.
                if !failing {
                    tracing::warn!(listener = label, %error, "cannot accept connections; retrying");
                }
                failing = true;
                select(stop.raised(), Reactor::current().sleep(ACCEPT_PAUSE)).await;
            }
        }
    }
}
