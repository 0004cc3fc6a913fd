//! TCP and Unix sockets.

mod error;
mod listener;
mod stream;
#[cfg(test)]
mod tests;

pub use error::{NetError, NetErrorKind};
pub use listener::Listener;
pub use stream::{DetachedStream, Peer, Stream};
