//! TCP and Unix sockets.

mod access;
mod error;
mod listener;
mod stream;
#[cfg(test)]
mod tests;
mod unix;

pub use access::Access;
pub use error::{NetError, NetErrorKind};
pub use listener::Listener;
pub use stream::{DetachedStream, Peer, Stream};
pub use unix::{SocketFile, bind_unix};
