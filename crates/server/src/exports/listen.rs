//! Sockets that exports are served on.
//!
//! Always true: whose fault it is when one cannot be had is said, with the flag that names another place.

use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use reactor::{Access, Listener, NetError, NetErrorKind, Reactor};

use crate::error::{Error, ErrorKind, Result};
use crate::reactors;

/// How long an address that is in use is waited for.
const PATIENCE: Duration = Duration::from_secs(2);
/// Pause between two tries.
const PAUSE: Duration = Duration::from_millis(20);

/// What a socket is for, in words: who serves there, and the flag for another place.
#[derive(Clone, Copy)]
pub(crate) struct Purpose {
    pub(crate) protocol: &'static str,
    pub(crate) flag: &'static str,
}

/// Listens on a Unix socket for the users whom `access` admits. The socket's directory is made for the same users if it
/// does not exist. Runs on a reactor.
///
/// # Errors
/// When somebody serves there, or there is no place for it.
pub(crate) async fn listen_unix(path: &Path, access: Access, purpose: Purpose) -> Result<Listener> {
    let platform = reactors::platform();
    if let Some(directory) = path.parent() {
        access.make_directories(directory).map_err(|error| {
            let message = format!("cannot make the directory {}: {error}", directory.display());
            Error::new(ErrorKind::Io, message).hint(format!("{} names another place", purpose.flag))
        })?;
    }
    patiently(|| Listener::bind_unix(&platform, path, access)).await.map_err(|error| explain(&error, purpose))
}

/// Listens for connections over TCP. Runs on a reactor.
///
/// # Errors
/// When somebody serves there, or it is no address of this machine.
pub(super) async fn listen_tcp(address: SocketAddr, purpose: Purpose) -> Result<Listener> {
    let platform = reactors::platform();
    patiently(|| Listener::bind_tcp(&platform, address)).await.map_err(|error| explain(&error, purpose))
}

/// Tries for a while to get an address: the kernel ends the I/O of a daemon that was killed only after the daemon, and
/// its sockets with that.
async fn patiently(bind: impl Fn() -> Result<Listener, NetError>) -> Result<Listener, NetError> {
    let reactor = Reactor::current();
    let end = reactor.now() + PATIENCE;
    loop {
        match bind() {
            Err(error) if error.kind() == NetErrorKind::InUse && reactor.now() < end => {
                reactor.sleep(PAUSE).await;
            }
            result => return result,
        }
    }
}

fn explain(error: &NetError, purpose: Purpose) -> Error {
    let Purpose { protocol, flag } = purpose;
    let source = std::error::Error::source(error).map(|source| format!(" ({source})")).unwrap_or_default();
    let (kind, reason) = match error.kind() {
        NetErrorKind::InUse => (ErrorKind::Busy, "another daemon may serve there; "),
        NetErrorKind::NotASocket => (ErrorKind::Busy, "the file there is no socket; "),
        NetErrorKind::Denied => (ErrorKind::Denied, ""),
        _ => (ErrorKind::Io, ""),
    };
    Error::new(kind, format!("{protocol}: {error}{source}"))
        .hint(format!("{reason}{flag} names another place"))
}
