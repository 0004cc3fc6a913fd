//! The sender of a request: a process of this host on the Unix socket, or a remote host.

use std::net::{IpAddr, SocketAddr};

use axum::extract::connect_info::Connected;
use axum::serve::IncomingStream;
use tokio::net::UnixListener;

use super::tls::TlsListener;

/// The sender of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sender {
    /// A process of this host with this user number, as far as the kernel knows it.
    Local(Option<u32>),
    /// A remote host, or this one over TCP.
    Remote(SocketAddr),
}

impl Sender {
    /// Returns the address of a remote sender.
    pub(super) fn address(self) -> Option<IpAddr> {
        match self {
            Self::Local(_) => None,
            Self::Remote(address) => Some(address.ip()),
        }
    }
}

impl Connected<IncomingStream<'_, UnixListener>> for Sender {
    fn connect_info(stream: IncomingStream<'_, UnixListener>) -> Self {
        Self::Local(stream.io().peer_cred().ok().map(|credentials| credentials.uid()))
    }
}

impl Connected<IncomingStream<'_, TlsListener>> for Sender {
    fn connect_info(stream: IncomingStream<'_, TlsListener>) -> Self {
        Self::Remote(*stream.remote_addr())
    }
}
